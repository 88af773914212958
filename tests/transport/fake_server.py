"""A gRPC server that does exactly what a test tells it, over a real socket, frame by frame if need be.

It runs as a trio task beside the client under test. Every stream a client opens is given to the test's own *serve*
function, which receives messages, sends messages, ends, resets, or goes away.
"""

from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import trio
from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.errors import ErrorCodes
from h2.events import (
    DataReceived,
    Event,
    PingAckReceived,
    RemoteSettingsChanged,
    RequestReceived,
    StreamEnded,
    StreamReset,
    WindowUpdated,
)
from h2.exceptions import ProtocolError
from h2.settings import SettingCodes

__all__ = ("FakeConnection", "FakeStream", "Serve", "fake_server", "raw_server")

Serve = Callable[["FakeStream"], Awaitable[None]]


class FakeConnection:
    """One client's connection. ``window`` and ``frame_size`` are what this side grants."""

    def __init__(self, socket: trio.SocketStream, serve: Serve, window: int | None, frame_size: int | None) -> None:
        self.socket = socket
        self.h2 = H2Connection(H2Configuration(client_side=False, header_encoding="ascii"))
        self.streams: dict[int, FakeStream] = {}
        self.reads: bool = True
        self.pinged = trio.Event()
        self._serve = serve
        self._changed = trio.Event()
        self._sending = trio.Lock()
        self._grants: dict[SettingCodes | int, int] = {}
        if window is not None:
            self._grants[SettingCodes.INITIAL_WINDOW_SIZE] = window
        if frame_size is not None:
            self._grants[SettingCodes.MAX_FRAME_SIZE] = frame_size

    async def run(self) -> None:
        """Serve until the client hangs up."""
        self.h2.initiate_connection()
        if self._grants:
            self.h2.update_settings(self._grants)
        async with trio.open_nursery() as handlers:
            try:
                await self.flush()
                while data := await self.socket.receive_some(1 << 16):
                    for event in self.h2.receive_data(data):
                        self._take(event, handlers)
                    await self.flush()
            except (trio.BrokenResourceError, trio.ClosedResourceError, ProtocolError):
                pass
            self.notify()
            for stream in self.streams.values():
                stream.gone = True
            handlers.cancel_scope.cancel()

    def _take(self, event: Event, handlers: trio.Nursery) -> None:
        if isinstance(event, RequestReceived):
            headers = {str(name): str(value) for name, value in event.headers}
            stream = self.streams[event.stream_id] = FakeStream(self, event.stream_id, headers)
            handlers.start_soon(self._handle, stream)
        elif isinstance(event, DataReceived):
            self.streams[event.stream_id].buffer += event.data
            if self.reads:
                self.h2.acknowledge_received_data(event.flow_controlled_length, event.stream_id)
        elif isinstance(event, StreamEnded):
            self.streams[event.stream_id].half_closed = True
        elif isinstance(event, PingAckReceived):
            self.pinged.set()
        elif isinstance(event, StreamReset):
            self.streams[event.stream_id].reset_code = int(event.error_code)
        elif not isinstance(event, WindowUpdated | RemoteSettingsChanged):
            return
        self.notify()

    async def _handle(self, stream: "FakeStream") -> None:
        with suppress(trio.BrokenResourceError, trio.ClosedResourceError, ProtocolError):
            await self._serve(stream)
            if stream.half_closed and not stream.ended:
                await stream.end()

    def notify(self) -> None:
        """Wake whoever waits for a change."""
        self._changed.set()
        self._changed = trio.Event()

    async def change(self) -> None:
        """Wait until something was received."""
        await self._changed.wait()

    async def flush(self) -> None:
        """Send what h2 has ready."""
        await self.write(self.h2.data_to_send())

    async def write(self, data: bytes) -> None:
        """Send *data* as it is."""
        async with self._sending:
            await self.socket.send_all(data)

    async def go_away(
        self, code: ErrorCodes = ErrorCodes.NO_ERROR, text: bytes | None = None, last_stream_id: int | None = None
    ) -> None:
        """Send a GOAWAY frame and stay able to go on, as a server that drains does."""
        state = self.h2.state_machine.state
        self.h2.close_connection(code, text, last_stream_id)
        self.h2.state_machine.state = state
        await self.flush()


class FakeStream:
    """One call. ``reset_code`` is set when the client has reset it, ``gone`` when the connection has ended."""

    def __init__(self, connection: FakeConnection, stream_id: int, headers: dict[str, str]) -> None:
        self.connection = connection
        self.id = stream_id
        self.headers = headers
        self.path = headers[":path"]
        self.buffer = b""
        self.half_closed = False
        self.reset_code: int | None = None
        self.gone = False
        self.ended = False
        self._answered = False

    async def receive(self) -> bytes | None:
        """The next message; ``None`` when no more will come."""
        while len(self.buffer) < 5 or len(self.buffer) < 5 + int.from_bytes(self.buffer[1:5], "big"):
            if self.half_closed or self.reset_code is not None or self.gone:
                return None
            await self.connection.change()
        size = int.from_bytes(self.buffer[1:5], "big")
        message, self.buffer = self.buffer[5 : 5 + size], self.buffer[5 + size :]
        return message

    async def closed(self) -> None:
        """Wait until the client has half-closed or reset the stream, or gone."""
        while not (self.half_closed or self.reset_code is not None or self.gone):
            await self.connection.change()

    async def answer(self, **headers: str) -> None:
        """Send the response headers, once."""
        if not self._answered:
            self._answered = True
            fields = {":status": "200", "content-type": "application/grpc"} | headers
            self.connection.h2.send_headers(self.id, list(fields.items()))
            await self.connection.flush()

    async def send(self, message: bytes) -> None:
        """Send one message, as the client's windows allow."""
        await self.answer()
        await self.send_raw(b"\0" + len(message).to_bytes(4, "big") + message)

    async def send_raw(self, payload: bytes, *, padding: int | None = None) -> None:
        """Send *payload* as DATA."""
        h2 = self.connection.h2
        while payload:
            room = min(h2.local_flow_control_window(self.id), h2.max_outbound_frame_size)
            if room <= 0:
                await self.connection.change()
                continue
            h2.send_data(self.id, payload[:room], pad_length=padding)
            payload = payload[room:]
            await self.connection.flush()

    async def end(self, status: int = 0, message: str = "") -> None:
        """Send the trailers. Done for a handler that returns once the client has half-closed."""
        self.ended = True
        await self.answer()
        trailers = [("grpc-status", str(status)), *([("grpc-message", message)] if message else [])]
        self.connection.h2.send_headers(self.id, trailers, end_stream=True)
        await self.connection.flush()

    async def refuse(self, status: int, message: str = "", *, reset: bool = False) -> None:
        """Answer with nothing but a status; with *reset*, close the request side too, as servers do."""
        self.ended = True
        fields = [
            (":status", "200"),
            ("content-type", "application/grpc"),
            ("grpc-status", str(status)),
            ("grpc-message", message),
        ]
        self.connection.h2.send_headers(self.id, fields, end_stream=True)
        await self.connection.flush()
        if reset:
            await self.let_go()

    async def let_go(self) -> None:
        """Reset the stream without error, as servers do once they have answered in full."""
        await self.connection.write(b"\0\0\4\3\0" + self.id.to_bytes(4, "big") + bytes(4))

    async def reset(self, code: ErrorCodes = ErrorCodes.INTERNAL_ERROR) -> None:
        """Reset the stream."""
        self.connection.h2.reset_stream(self.id, code)
        await self.connection.flush()


@asynccontextmanager
async def fake_server(
    serve: Serve, *, unix: Path | None = None, window: int | None = None, frame_size: int | None = None
) -> AsyncGenerator[str]:
    """Listen for the block's duration; gives the address."""

    async def handle(socket: trio.SocketStream) -> None:
        await FakeConnection(socket, serve, window, frame_size).run()

    async with raw_server(handle, unix=unix) as address:
        yield address


@asynccontextmanager
async def raw_server(
    handle: Callable[[trio.SocketStream], Awaitable[None]], *, unix: Path | None = None
) -> AsyncGenerator[str]:
    """Listen for the block's duration with *handle* for each connection; gives the address."""
    if unix is not None:
        listening = trio.socket.socket(trio.socket.AF_UNIX)
        await listening.bind(str(unix))
        listening.listen()
        listener = trio.SocketListener(listening)
        address = f"unix://{unix}"
    else:
        (listener,) = await trio.open_tcp_listeners(0, host="127.0.0.1")
        address = f"127.0.0.1:{listener.socket.getsockname()[1]}"

    async def close_after(socket: trio.SocketStream) -> None:
        async with socket:
            await handle(socket)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(trio.serve_listeners, close_after, [listener])
        yield address
        nursery.cancel_scope.cancel()
