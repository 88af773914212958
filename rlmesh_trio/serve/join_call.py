"""One Join call as the server has it: requests come one by one, replies go out at once, and a status ends it.

Who waits for the next request reads the socket itself when nobody else does, which saves a task switch a step.
"""

from collections import deque
from collections.abc import Callable

import trio
from grpclib.const import Status
from grpclib.metadata import encode_grpc_message
from h2.errors import ErrorCodes
from h2.exceptions import ProtocolError as H2Error

from rlmesh_trio.serve.speaking import ServerProtocol
from rlmesh_trio.transport.frames import FrameSplitter, window_update
from rlmesh_trio.transport.link import Link
from rlmesh_trio.transport.pipe import open_pipe
from rlmesh_trio.woken import WOKEN

__all__ = ("JoinCall", "refuse_call")

_HEADERS = [(":status", "200"), ("content-type", "application/grpc+proto")]
_BUSY = ("nobody reads",)


def refuse_call(protocol: ServerProtocol, stream_id: int, status: Status, message: str) -> None:
    """Answer the call on *stream_id* with nothing but *status*."""
    _end_stream(protocol, stream_id, [*_HEADERS, *_trailers(status, message)])


def _trailers(status: Status, message: str) -> list[tuple[str, str]]:
    said = [("grpc-message", encode_grpc_message(message))] if message else []
    return [("grpc-status", str(status.value)), *said]


def _end_stream(protocol: ServerProtocol, stream_id: int, fields: list[tuple[str, str]]) -> None:
    """Send the last *fields*, and let the client know that nothing it may still say will be read."""
    h2 = protocol.h2
    try:
        h2.send_headers(stream_id, fields, end_stream=True)
        if stream_id in h2.streams and not h2.streams[stream_id].closed:
            h2.reset_stream(stream_id, ErrorCodes.NO_ERROR)
    except H2Error:
        return
    protocol.connection.flush()


class JoinCall:
    """An accepted call; its headers are answered at once. *release* lets grpclib forget the stream.

    ``gone`` says that nobody is left to answer. *when_gone* is called once then.
    """

    def __init__(
        self,
        link: Link,
        protocol: ServerProtocol,
        splitter: FrameSplitter,
        stream_id: int,
        release: Callable[[], None],
    ) -> None:
        self._link = link
        self._protocol = protocol
        self._splitter = splitter
        self._stream_id = stream_id
        self._release = release
        self._inbox: deque[bytes] = deque()
        self._parked: list[trio.lowlevel.Task] = []
        self._half_closed = False
        self._ended = False
        self._drained = trio.Event()
        self.gone = False
        self.when_gone: Callable[[], None] = lambda: None

        self._pipe = open_pipe(link, protocol, splitter, stream_id, self._deliver)
        protocol.watch(stream_id, self)
        protocol.h2.send_headers(stream_id, _HEADERS)
        protocol.connection.flush()
        link.waiting = self._parked

    async def next(self) -> bytes | None:
        """The next request; ``None`` when there will be no more. Passes a checkpoint only if it has to wait."""
        inbox, link = self._inbox, self._link
        while not inbox:
            if self._half_closed or self.gone:
                return None
            if not link.borrow():
                self._parked.append(trio.lowlevel.current_task())
                await trio.lowlevel.wait_task_rescheduled(self._stop_waiting)
                continue
            try:
                while not (inbox or self._half_closed or self.gone):
                    await link.read()
            finally:
                link.give_back()
        return inbox.popleft()

    def _stop_waiting(self, _: object) -> trio.lowlevel.Abort:
        self._parked.clear()
        return trio.lowlevel.Abort.SUCCEEDED

    def send(self, message: bytes, soon: bool) -> None:
        """Send *message*, or queue what the client's flow control holds back. *soon* is soon enough, others follow."""
        if not self.gone:
            self._pipe.send(message, soon)

    async def finish(self, status: Status, message: str) -> None:
        """End the call when all is sent, or the client is gone."""
        self._link.waiting = _BUSY
        self._link.resume()
        while self._pipe.unsent and not self.gone:
            await self._drained.wait()
        if not self.gone:
            self._ended = True
            _end_stream(self._protocol, self._stream_id, _trailers(status, message))

    def leave(self) -> None:
        """Forget the call, ended or not; what is not sent yet is lost."""
        if not (self.gone or self._ended):
            self._pipe.abandon()
        self._protocol.forget(self._stream_id)
        if unacknowledged := self._splitter.release():
            self._link.write(window_update(0, unacknowledged))
        self._link.waiting = _BUSY
        self._link.resume()
        self._release()

    def _deliver(self, message: bytes) -> None:
        self._inbox.append(message)
        self._wake()

    def _wake(self) -> None:
        if self._parked:
            trio.lowlevel.reschedule(self._parked.pop(), WOKEN)

    # What happens to the stream

    def received(self, data: bytes) -> None:
        """Take payload that came through h2."""
        self._pipe.received(data)

    def writable(self) -> None:
        """The client may take more than before."""
        self._pipe.push()
        if not self._pipe.unsent:
            self._drained.set()
            self._drained = trio.Event()

    def half_closed(self) -> None:
        """The client asks for nothing more."""
        self._half_closed = True
        self._wake()

    def broken(self) -> None:
        """The client has reset the stream, or is gone."""
        if not self.gone:
            self.gone = True
            self._pipe.discard()
            self._drained.set()
            self._wake()
            self.when_gone()
