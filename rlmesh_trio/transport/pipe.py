"""How the messages of one open stream go out and come in: past h2, or through it.

The fast pipe reads and writes the stream's plain DATA frames itself and lets h2 see everything else: for a small
message h2 costs several times what all the rest does. It counts down h2's own send windows, so that the two agree,
and gives the peer credit itself. The plain pipe leaves all frames to h2.

A message is written or queued whole, without awaiting: nothing can cut it.
"""

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable
from typing import Protocol

from grpclib.protocol import Connection
from h2.connection import H2Connection
from h2.errors import ErrorCodes
from h2.exceptions import ProtocolError as H2Error

from rlmesh_trio.transport.frames import (
    MESSAGE_HEAD,
    FrameSplitter,
    MessageReader,
    data_frames,
    message_head,
    one_frame,
    window_updates,
)
from rlmesh_trio.transport.link import Link

__all__ = ("FastPipe", "Pipe", "PlainPipe", "Speaker", "open_pipe")

_CHUNK = 1 << 20


class Speaker(Protocol):
    """What speaks HTTP/2 on a connection, for either side of it."""

    h2: H2Connection

    @property
    def connection(self) -> Connection:
        """The connection as grpclib has it."""
        ...


class Pipe(ABC):
    """The two directions of one stream; what comes in goes to *deliver*, message by message."""

    def __init__(self, protocol: Speaker, stream_id: int) -> None:
        self._protocol = protocol
        self._h2 = protocol.h2
        self._stream_id = stream_id
        self._queue: deque[memoryview] = deque()

    @abstractmethod
    def received(self, data: bytes) -> None:
        """Take payload that came through h2."""

    @abstractmethod
    def _room(self) -> int:
        """How many bytes of payload the peer takes now."""

    @abstractmethod
    def _emit(self, payload: memoryview) -> None:
        """Write DATA that there is room for."""

    def send(self, message: bytes, soon: bool) -> None:  # noqa: ARG002
        """Write *message*, or queue what the peer's flow control holds back. *soon* is soon enough, others follow."""
        self._queue += (memoryview(message_head(len(message))), memoryview(message))
        self.push()

    def push(self) -> None:
        """Write as much of the queue as the peer takes now."""
        queue = self._queue
        while queue:
            payload = queue.popleft()
            size = min(len(payload), self._room(), _CHUNK)
            if size > 0:
                self._emit(payload[:size])
            if size < len(payload):
                queue.appendleft(payload[max(size, 0) :])
            if size <= 0 < len(payload):
                return

    @property
    def unsent(self) -> bool:
        """Whether the peer's flow control holds something back."""
        return bool(self._queue)

    def discard(self) -> None:
        """Forget what is queued: nobody will take it."""
        self._queue.clear()

    def finish(self) -> bool:
        """Tell the peer that nothing more will come; false when that can no longer be said."""
        if self._queue:
            return False
        try:
            self._h2.end_stream(self._stream_id)
        except H2Error:
            return False
        self._protocol.connection.flush()
        return True

    def abandon(self) -> None:
        """Reset the stream: the peer shall forget whatever is due."""
        self.discard()
        try:
            self._h2.reset_stream(self._stream_id, ErrorCodes.CANCEL)
        except H2Error:
            return
        self._protocol.connection.flush()


class PlainPipe(Pipe):
    """All frames go through h2."""

    def __init__(self, protocol: Speaker, stream_id: int, deliver: Callable[[bytes], None]) -> None:
        super().__init__(protocol, stream_id)
        self._messages = MessageReader(deliver)

    def received(self, data: bytes) -> None:  # noqa: D102 - inherited
        self._messages.add(memoryview(data))

    def _room(self) -> int:
        return min(self._h2.local_flow_control_window(self._stream_id), self._h2.max_outbound_frame_size)

    def _emit(self, payload: memoryview) -> None:
        self._h2.send_data(self._stream_id, bytes(payload))
        self._protocol.connection.flush()


class FastPipe(Pipe):
    """Plain DATA frames bypass h2."""

    def __init__(
        self,
        link: Link,
        protocol: Speaker,
        splitter: FrameSplitter,
        stream_id: int,
        deliver: Callable[[bytes], None],
    ) -> None:
        super().__init__(protocol, stream_id)
        self._write = link.write
        self._write_soon = link.write_soon
        self._stream = self._h2.streams[stream_id]
        self._splitter = splitter
        splitter.claim(stream_id, deliver, self._give_credit)

    def received(self, data: bytes) -> None:  # noqa: D102 - inherited
        self._splitter.messages.add(memoryview(data))

    def send(self, message: bytes, soon: bool) -> None:  # noqa: D102 - inherited
        size = len(message) + MESSAGE_HEAD
        h2, stream = self._h2, self._stream
        if (
            self._queue
            or size > h2.max_outbound_frame_size
            or size > h2.outbound_flow_control_window
            or size > stream.outbound_flow_control_window
        ):
            super().send(message, soon)
        else:
            h2.outbound_flow_control_window -= size
            stream.outbound_flow_control_window -= size
            frame = one_frame(self._stream_id, message)
            if soon:
                self._write_soon(frame)
            else:
                self._write(frame)

    def _room(self) -> int:
        return min(self._h2.outbound_flow_control_window, self._stream.outbound_flow_control_window)

    def _emit(self, payload: memoryview) -> None:
        self._h2.outbound_flow_control_window -= len(payload)
        self._stream.outbound_flow_control_window -= len(payload)
        self._write(data_frames(self._stream_id, payload, self._h2.max_outbound_frame_size))

    def _give_credit(self, size: int) -> None:
        self._write(window_updates(self._stream_id, size))


def open_pipe(
    link: Link,
    protocol: Speaker,
    splitter: FrameSplitter,
    stream_id: int,
    deliver: Callable[[bytes], None],
    *,
    plain: bool = False,
) -> Pipe:
    """The fast pipe, unless a *plain* one is asked for or this h2 does not keep its windows where we know them."""
    h2 = protocol.h2
    windows = (h2, "outbound_flow_control_window"), (h2.streams.get(stream_id), "outbound_flow_control_window")
    if plain or not all(isinstance(getattr(owner, name, None), int) for owner, name in windows):
        return PlainPipe(protocol, stream_id, deliver)
    return FastPipe(link, protocol, splitter, stream_id, deliver)
