"""grpclib's client protocol with what it lacks: replies survive the end of their stream, and of the server.

As shipped, a reset without error that follows a complete answer loses the answer; a GOAWAY without error kills the
replies still due; closing waits for unsent bytes; an HTTP/2 frame of an unknown kind is fatal.
"""

import asyncio
from collections.abc import Callable, Mapping
from typing import Any, Generic, Protocol, TypeVar, cast

import trio
from grpclib.client import Handler
from grpclib.config import Configuration
from grpclib.protocol import AbstractHandler, Connection, EventsProcessor, H2Protocol, Stream
from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.errors import ErrorCodes
from h2.events import (
    ConnectionTerminated,
    DataReceived,
    Event,
    RemoteSettingsChanged,
    StreamEnded,
    StreamReset,
    WindowUpdated,
)
from h2.exceptions import ProtocolError as H2Error
from h2.settings import SettingCodes
from hyperframe.frame import Frame, GoAwayFrame

from rlmesh_trio.transport.frames import MAX_FRAME_SIZE
from rlmesh_trio.transport.link import Link

__all__ = (
    "PROTOCOL_ERROR",
    "ClientProtocol",
    "LinkConnection",
    "PayloadWatcher",
    "StreamWatcher",
    "WatchedEvents",
    "begin_connection",
    "keepalive",
)

PROTOCOL_ERROR = "protocol error: "

_WINDOW = 2**31 - 1
_DEFAULT_WINDOW = 2**16 - 1

_FrameReceiver = Callable[[Any], tuple[list[Frame], list[Event]]]


def keepalive(interval: float, limit: float) -> Configuration:
    """Ping the peer every *interval* seconds, idle or not, and give it up after *limit* seconds without an answer."""
    return Configuration(
        _keepalive_time=interval,
        _keepalive_timeout=limit,
        _keepalive_permit_without_calls=True,
        _http2_max_pings_without_data=0,
        _http2_min_sent_ping_interval_without_data=interval / 2,
    ).__for_client__()


def begin_connection(h2: H2Connection) -> None:
    """Say what comes first on a connection, by either side: both windows at their largest, frames of up to 1 MiB."""
    h2.initiate_connection()
    h2.increment_flow_control_window(_WINDOW - _DEFAULT_WINDOW)
    h2.update_settings({SettingCodes.INITIAL_WINDOW_SIZE: _WINDOW, SettingCodes.MAX_FRAME_SIZE: MAX_FRAME_SIZE})


_CONFIGURATION = keepalive(30.0, 10.0)


class PayloadWatcher(Protocol):
    """What every watcher of a stream is told, on either side of a connection."""

    def received(self, data: bytes) -> None:
        """Payload that came through h2."""
        ...

    def writable(self) -> None:
        """The peer may take more than before."""
        ...


class StreamWatcher(PayloadWatcher, Protocol):
    """Who is told at once, beside grpclib, what happens to one stream."""

    def ended(self, trailers: Mapping[str, str]) -> None:
        """The peer has finished the stream."""
        ...

    def broken(self, reason: str) -> None:
        """The stream was reset, or its connection is gone; ``PROTOCOL_ERROR`` begins a peer's fault."""
        ...


class ClientProtocol(H2Protocol):
    """Speaks HTTP/2 over a :class:`~rlmesh_trio.transport.link.Link`: one connection, never redialled."""

    h2: H2Connection

    def __init__(self, h2_config: H2Configuration) -> None:
        self._handler = Handler()
        self._events: _Events
        super().__init__(self._handler, _CONFIGURATION, h2_config)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Open the connection."""
        assert isinstance(transport, Link)
        h2 = self.h2 = H2Connection(config=self.h2_config)
        begin_connection(h2)
        _let_replies_outlive_goaway(h2)
        self.connection = LinkConnection(h2, transport, config=self.config)
        self.processor = self._events = _Events(self._handler, self.connection)
        self.connection.flush()
        self.connection.initialize()

    @property
    def refusal(self) -> str | None:
        """Why no new call can be made, if so."""
        draining = "the peer is shutting down" if self._handler.connection_lost else None
        return self._events.closed_because or draining

    def data_received(self, data: bytes) -> None:
        """Take whole frames."""
        if self._events.closed_because is not None:
            return
        try:
            events = self.connection.feed(data)
        except H2Error as error:
            self.processor.close(f"{PROTOCOL_ERROR}{error}")
            return
        self.connection.flush()
        for event in events:
            self.processor.process(event)
        self.connection.flush()

    def connection_lost(self, exc: BaseException | None) -> None:
        """End every stream that is not complete."""
        if isinstance(exc, trio.ClosedResourceError):
            self.processor.close("no answer to a keepalive ping")
        else:
            self.processor.close(str(exc) if exc else "the peer hung up")

    def watch(self, stream_id: int, watcher: StreamWatcher) -> None:
        """From now on tell *watcher*, and no other, what happens to its stream."""
        self._events.watchers = {stream_id: watcher}


class LinkConnection(Connection):
    """A connection over a link."""

    def close(self) -> None:
        """Close without waiting for unsent bytes, which a peer that has stopped reading would make endless."""
        if not self.is_closing():
            self._transport.abort()
        super().close()


Watcher = TypeVar("Watcher", bound=PayloadWatcher)


class WatchedEvents(EventsProcessor, Generic[Watcher]):
    """grpclib's events, but for the streams in ``watchers``: their payload goes to who watches them."""

    connection: LinkConnection

    def __init__(self, handler: AbstractHandler, connection: LinkConnection) -> None:
        super().__init__(handler, connection)
        self.watchers: dict[int, Watcher] = {}

    def process_data_received(self, event: DataReceived) -> None:
        """Hand payload to its watcher, and its credit back; grpclib takes what nobody watches."""
        watcher = self.watchers.get(event.stream_id)
        if watcher is None:
            super().process_data_received(event)
        else:
            self.connection.ack(event.stream_id, event.flow_controlled_length)
            watcher.received(event.data)

    def process_window_updated(self, event: WindowUpdated) -> None:
        """The peer takes more."""
        super().process_window_updated(event)
        self._writable()

    def process_remote_settings_changed(self, event: RemoteSettingsChanged) -> None:
        """The peer may take more: its windows are among its settings."""
        super().process_remote_settings_changed(event)
        self._writable()

    def _writable(self) -> None:
        for watcher in list(self.watchers.values()):
            watcher.writable()


class _Events(WatchedEvents[StreamWatcher]):
    def __init__(self, handler: Handler, connection: LinkConnection) -> None:
        super().__init__(handler, connection)
        self.closed_because: str | None = None

    def process(self, event: Event) -> None:
        if self.closed_because is None and event.__class__ in self.processors:
            super().process(event)

    def process_stream_ended(self, event: StreamEnded) -> None:
        super().process_stream_ended(event)
        watcher, stream = self.watchers.get(event.stream_id), self.streams.get(event.stream_id)
        if watcher is not None and stream is not None:
            watcher.ended(dict(stream.trailers or stream.headers or ()))  # a refusal has its status in front

    def process_stream_reset(self, event: StreamReset) -> None:
        stream = self.streams.get(event.stream_id)
        if stream is not None and _is_complete(stream) and event.error_code == ErrorCodes.NO_ERROR:
            return
        name = _error_name(event.error_code)
        if event.remote_reset:
            self._break(event.stream_id, f"the peer reset the stream with HTTP/2 error {name}")
        else:
            self._break(event.stream_id, f"{PROTOCOL_ERROR}the peer broke the rules of the stream: {name}")

    def process_connection_terminated(self, event: ConnectionTerminated) -> None:
        if event.error_code == ErrorCodes.NO_ERROR:
            self.handler.close()
            for stream_id in [each for each in self.streams if each > (event.last_stream_id or 0)]:
                self._break(stream_id, "the peer is shutting down and will not answer")
        else:
            text = f": {event.additional_data.decode(errors='replace')}" if event.additional_data else ""
            self.close(f"the peer closed the connection with HTTP/2 error {_error_name(event.error_code)}{text}")

    def _break(self, stream_id: int, reason: str) -> None:
        if stream := self.streams.get(stream_id):
            stream.__terminated__(reason)
        if watcher := self.watchers.get(stream_id):
            watcher.broken(reason)

    def close(self, reason: str = "closed") -> None:
        """End every stream that is not complete. Once."""
        if self.closed_because is not None:
            return
        self.closed_because = reason
        self.connection.close()
        self.handler.close()
        for stream in self.streams.values():
            if not _is_complete(stream):
                stream.__terminated__(reason)
        for watcher in list(self.watchers.values()):
            watcher.broken(reason)


def _is_complete(stream: Stream) -> bool:
    """Whether the peer's answer is whole: its status is in."""
    return stream.trailers is not None or any(name == "grpc-status" for name, _ in stream.headers or ())


def _error_name(code: ErrorCodes | int | None) -> str:
    return code.name if isinstance(code, ErrorCodes) else str(code)


def _let_replies_outlive_goaway(h2: H2Connection) -> None:
    """Let h2 report a GOAWAY without error and go on, instead of refusing all frames behind it; if it still is so."""
    table = cast("dict[type[Frame], _FrameReceiver]", vars(h2).get("_frame_dispatch_table", {}))
    refuse = table.get(GoAwayFrame)
    if refuse is None:
        return

    def receive(frame: GoAwayFrame) -> tuple[list[Frame], list[Event]]:
        if frame.error_code:
            return refuse(frame)
        event = ConnectionTerminated()
        event.error_code = ErrorCodes.NO_ERROR
        event.last_stream_id = frame.last_stream_id
        return [], [event]

    table[GoAwayFrame] = receive
