"""Messages out of an HTTP/2 byte stream, and into it: the two cuts a stream's fast path makes by itself.

A plain DATA frame (no flags) of the one stream is ours; every other frame is passed on whole and in order. The pieces
of the stream's payload, however cut, are gathered into gRPC messages: a zero byte (no compression), four bytes of
length, the message.
"""

from collections.abc import Callable
from struct import Struct

from rlmesh_trio.errors import ProtocolError
from rlmesh_trio.spec import MAX_MESSAGE_BYTES

__all__ = (
    "MAX_FRAME_SIZE",
    "MESSAGE_HEAD",
    "FrameSplitter",
    "MessageReader",
    "data_frames",
    "message_head",
    "one_frame",
    "window_update",
    "window_updates",
)

MAX_FRAME_SIZE = 1 << 20
MESSAGE_HEAD = 5
_FRAME_HEAD_SIZE = 9
_CREDIT = 1 << 28

# Of a frame: length (in two parts), type and flags together, stream; then of a message: compression flag, length.
_HEADS = Struct(">BHHIBI")
_FRAME_HEAD = Struct(">BHHI")
_MESSAGE_HEAD = Struct(">BI")
_WINDOW_UPDATE = Struct(">BHBBII")


class MessageReader:
    """Gathers the pieces of a stream's payload into messages and hands each to *deliver*, as :class:`bytes`.

    A compressed message, or one above 256 MiB, raises :exc:`~rlmesh_trio.errors.ProtocolError`.
    """

    __slots__ = ("_deliver", "_have", "_head", "_parts", "_size", "idle")

    def __init__(self, deliver: Callable[[bytes], None]) -> None:
        self._deliver = deliver
        self._head = b""
        self._parts: list[memoryview] = []
        self._have = 0
        self._size = 0
        self.idle = True

    @property
    def missing(self) -> int:
        """How many bytes the message under way still lacks; 0 while its length is unknown."""
        return self._size - self._have

    def add(self, piece: memoryview) -> None:
        """Take the next piece of payload."""
        if self.idle and not self._head:
            piece = piece[self._whole_messages(piece) :]
        while piece:
            if self.idle:
                lacking = MESSAGE_HEAD - len(self._head)
                self._head += bytes(piece[:lacking])
                piece = piece[lacking:]
                if len(self._head) < MESSAGE_HEAD:
                    return
                self._begin()
            part = piece[: self._size - self._have]
            self._parts.append(part)
            self._have += len(part)
            piece = piece[len(part) :]
            if self._have == self._size:
                message = b"".join(self._parts)
                self._parts, self._have, self._size, self.idle = [], 0, 0, True
                self._deliver(message)

    def _whole_messages(self, piece: memoryview) -> int:
        """Deliver the messages that lie whole at the start of *piece*; where the first that does not begins."""
        at, end = 0, len(piece)
        while end - at >= MESSAGE_HEAD:
            compressed, size = _MESSAGE_HEAD.unpack_from(piece, at)
            stop = at + MESSAGE_HEAD + size
            if compressed or stop > end:
                break
            self._deliver(bytes(piece[at + MESSAGE_HEAD : stop]))
            at = stop
        return at

    def _begin(self) -> None:
        compressed, size = _MESSAGE_HEAD.unpack(self._head)
        if compressed:
            raise ProtocolError("the peer sent a compressed message; none was agreed on")
        if size > MAX_MESSAGE_BYTES:
            raise ProtocolError(f"the peer sent a message of {size} bytes; at most {MAX_MESSAGE_BYTES} are allowed")
        self._head, self._size, self.idle = b"", size, False


class FrameSplitter:
    """Cuts the messages of one stream out of what a connection received.

    *pass_on* gets every other frame, and until a stream is claimed every frame, whole and in order with the messages
    around it. ``messages`` gathers what does not come as one message in one frame; feed it what else is found to be of
    the stream. ``missing`` says how many bytes are known to be on their way still. A frame above 1 MiB raises
    :exc:`~rlmesh_trio.errors.ProtocolError`.
    """

    __slots__ = (
        "_deliver",
        "_give_credit",
        "_held",
        "_left",
        "_pass_on",
        "_stream_id",
        "_unacknowledged",
        "messages",
        "missing",
    )

    def __init__(self, pass_on: Callable[[bytes], None]) -> None:
        self._pass_on = pass_on
        self._held: bytes = b""
        self._left = 0
        self._unacknowledged = 0
        self._stream_id = -1
        self._deliver = pass_on
        self.messages = MessageReader(pass_on)
        self.missing = 0

    def claim(self, stream_id: int, deliver: Callable[[bytes], None], give_credit: Callable[[int], None]) -> None:
        """Hand the messages of *stream_id* to *deliver* from now on.

        *give_credit* is told from time to time how many bytes of DATA to acknowledge.
        """
        self._stream_id = stream_id
        self._deliver = deliver
        self._give_credit = give_credit
        self.messages = MessageReader(deliver)

    def release(self) -> int:
        """Pass on the frames of the claimed stream too; how many of its bytes were not acknowledged."""
        unacknowledged, self._unacknowledged = self._unacknowledged, 0
        self._stream_id = -1
        return unacknowledged

    def feed(self, data: bytes) -> None:
        """Take what was received next, cut anywhere."""
        at, end = 0, len(data)
        if self._left:
            at = min(self._left, end)
            self._left -= at
            self.messages.add(memoryview(data)[:at])
        elif self._held:
            data = self._held + data
            self._held = b""
            end = len(data)
        while end - at >= _FRAME_HEAD_SIZE:
            compressed = length = -1
            if end - at >= _FRAME_HEAD_SIZE + MESSAGE_HEAD:
                high, low, kind, stream_id, compressed, length = _HEADS.unpack_from(data, at)
            else:
                high, low, kind, stream_id = _FRAME_HEAD.unpack_from(data, at)
            size = high << 16 | low
            start = at + _FRAME_HEAD_SIZE
            at = start + size
            if kind == 0 and stream_id == self._stream_id:
                self._unacknowledged += size
                if self._unacknowledged > _CREDIT:
                    self._give_credit(self._unacknowledged)
                    self._unacknowledged = 0
                if length == size - MESSAGE_HEAD and compressed == 0 and at <= end and self.messages.idle:
                    self._deliver(data[start + MESSAGE_HEAD : at])
                else:
                    self._left = max(0, at - end)
                    self.messages.add(memoryview(data)[start : min(at, end)])
            elif size > MAX_FRAME_SIZE:
                if data[start - _FRAME_HEAD_SIZE : start].startswith(b"HTTP/1"):
                    raise ProtocolError("the peer answers in HTTP/1, not HTTP/2")
                raise ProtocolError(f"the peer sent a frame of {size} bytes, which is not HTTP/2 as agreed on")
            elif at <= end:
                self._pass_on(data[start - _FRAME_HEAD_SIZE : at])
            else:
                at = start - _FRAME_HEAD_SIZE
                break
        if at == end and self.messages.idle:
            self.missing = 0
        else:
            if at < end:
                self._held = data[at:]
            self.missing = self.messages.missing or self._left or len(self._held)


def message_head(size: int) -> bytes:
    """What gRPC sends before a message of *size* bytes."""
    return _MESSAGE_HEAD.pack(0, size)


def one_frame(stream_id: int, message: bytes) -> bytes:
    """The message as one DATA frame."""
    size = len(message)
    return _HEADS.pack(size + MESSAGE_HEAD >> 16, size + MESSAGE_HEAD & 0xFFFF, 0, stream_id, 0, size) + message


def data_frames(stream_id: int, payload: memoryview, frame_size: int) -> bytes:
    """DATA frames of at most *frame_size* bytes that carry *payload*."""
    pieces: list[bytes | memoryview] = []
    for start in range(0, len(payload), frame_size):
        piece = payload[start : start + frame_size]
        pieces += (_FRAME_HEAD.pack(len(piece) >> 16, len(piece) & 0xFFFF, 0, stream_id), piece)
    return b"".join(pieces)


def window_updates(stream_id: int, size: int) -> bytes:
    """The frames that let the peer send *size* bytes more, on the stream and on the connection."""
    return window_update(0, size) + window_update(stream_id, size)


def window_update(stream_id: int, size: int) -> bytes:
    """The frame that lets the peer send *size* bytes more on one stream, or on the connection, which is stream 0."""
    return _WINDOW_UPDATE.pack(0, 4, 8, 0, stream_id, size)
