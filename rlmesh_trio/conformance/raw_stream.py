"""A Join stream message by message, past every rule of our own: any bytes go out, and what comes is kept as it came.

Everything that happens on it stands in its ``log``, in order and with its time. Each wait has a limit.
"""

from collections import deque
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager, suppress
from typing import Literal
from urllib.parse import unquote

import attrs
import trio
from trio.lowlevel import ParkingLot

from rlmesh_trio.conformance.traces import Refusal
from rlmesh_trio.errors import ConnectError, EndpointError, HandshakeError, ProtocolError, format_duration
from rlmesh_trio.messages import EnvReply
from rlmesh_trio.transport.address import parse_address
from rlmesh_trio.transport.channel import Channel, open_channel
from rlmesh_trio.transport.handshake import GENERATION, introduce
from rlmesh_trio.transport.link import Link
from rlmesh_trio.transport.pipe import Pipe
from rlmesh_trio.wire.hot_env import EnvArm, decode_env_join
from rlmesh_trio.wire.pb.rlmesh.core import v1 as core
from rlmesh_trio.wire.pb.rlmesh.env import v1 as pb
from rlmesh_trio.wire.strict import decode, encode

__all__ = ("Ended", "Leaving", "LogEntry", "RawStream", "Received", "Sent", "open_raw_stream")

Leaving = Literal["half-close", "reset", "cut"]
"""How this side can leave: nothing more to say, the stream reset, the connection dropped."""

_SERVICE = "/rlmesh.env.v1.EnvService"
_NAMES = {
    0: "OK",
    1: "CANCELLED",
    2: "UNKNOWN",
    3: "INVALID_ARGUMENT",
    4: "DEADLINE_EXCEEDED",
    7: "PERMISSION_DENIED",
    8: "RESOURCE_EXHAUSTED",
    9: "FAILED_PRECONDITION",
    10: "ABORTED",
    12: "UNIMPLEMENTED",
    13: "INTERNAL",
    14: "UNAVAILABLE",
    16: "UNAUTHENTICATED",
}
_PEER_RESET = "the peer reset the stream"
_CONNECTING = 2.0
_FIRST_PAUSE = 0.02
_LONGEST_PAUSE = 0.25


@attrs.frozen
class Sent:
    """A message that went out, ``at`` seconds after the stream was asked for; ``what`` it is in a few words."""

    at: float
    what: str
    request_id: str
    data: bytes = attrs.field(repr=False)


@attrs.frozen
class Received:
    """A message that came. ``arm`` is ``"unreadable"`` for bytes that are no answer, the reason being ``request_id``'s.

    ``error`` is the answer's error; ``reply`` what a reset or step holds.
    """

    at: float
    arm: EnvArm | Literal["unreadable"]
    request_id: str
    data: bytes = attrs.field(repr=False)
    error: Refusal | None = None
    reply: EnvReply | None = attrs.field(default=None, repr=False, eq=False)


@attrs.frozen
class Ended:
    """The end of the stream: the server's status, or how else it ended.

    ``how`` is ``"status"`` when the server finished the stream with ``status``, ``"reset"`` when it reset the stream,
    ``"broken"`` when the connection was lost, ``"refused"`` when the stream was never opened (``status`` may say why),
    and ``"left"`` when this side has left without waiting.
    """

    at: float
    how: Literal["status", "reset", "broken", "refused", "left"]
    status: str
    message: str


LogEntry = Sent | Received | Ended


class RawStream:
    """One Join stream; made by :func:`open_raw_stream`.

    ``limit`` is how long a wait lasts that is given no other. ``ending`` is set when the stream has ended,
    ``half_closed`` when this side has said that nothing more will come.
    """

    def __init__(self, address: str, limit: float, channel: Channel) -> None:
        self.address = address
        self.limit = limit
        self.log: list[LogEntry] = []
        self.ending: Ended | None = None
        self.half_closed = False
        self._channel = channel
        self._began = trio.current_time()
        self._inbox: deque[Received] = deque()
        self._news = ParkingLot()
        self._pipe: Pipe | None = None
        self._abandoned = False

    @property
    def now(self) -> float:
        """Seconds since the stream was asked for."""
        return trio.current_time() - self._began

    @property
    def answered(self) -> bool:
        """Whether the server has answered anything."""
        return any(isinstance(entry, Received) for entry in self.log)

    @property
    def silence(self) -> float:
        """For how many seconds the server has owed an answer without giving any; 0 when it owes none."""
        since: float | None = None
        owed = 0
        for entry in self.log:
            if isinstance(entry, Sent):
                owed, since = owed + 1, entry.at if since is None else since
            elif isinstance(entry, Received):
                owed, since = owed - 1, None
            else:
                owed = 0
        return self.now - (since or self.log[-1].at) if owed > 0 else 0.0

    def send(self, request: pb.JoinRequest, request_id: str) -> Sent:
        """Send *request* under *request_id*."""
        request.request_id = request_id
        return self.send_bytes(encode(request), request_id, what=_arm_of(request))

    def send_bytes(self, data: bytes, request_id: str = "", *, what: str = "bytes") -> Sent:
        """Send *data*, whatever it is, as one message. Once the stream is left or over it only stands in the log."""
        sent = Sent(self.now, what, request_id, data)
        self.log.append(sent)
        if self._pipe is not None and self.ending is None and not self.half_closed:
            self._pipe.send(data, soon=False)
        return sent

    async def receive(self, within: float | None = None) -> Received | Ended | None:
        """The next answer; when none is left, the end of the stream; ``None`` when nothing came *within* seconds."""
        with trio.move_on_after(self.limit if within is None else within):
            while not self._inbox and self.ending is None:
                await self._news.park()
        return self._inbox.popleft() if self._inbox else self.ending

    async def leave(self, how: Leaving) -> None:
        """Leave the stream; after a half-close what is due is still answered, and then the stream ends."""
        pipe = self._pipe
        if pipe is None or self.ending is not None:
            return
        if how == "half-close":
            self.half_closed = True
            with trio.move_on_after(self.limit):
                while not pipe.finish() and self.ending is None:  # what the server has not taken yet goes first
                    await self._news.park()
            return
        self._end("left", "", "the stream was reset here" if how == "reset" else "the connection was dropped here")
        if how == "reset":
            pipe.abandon()
        else:
            await self._channel.drop()

    def abandon(self) -> None:
        """Reset the stream if it has not ended; whatever happens from now on is not told."""
        self._abandoned = True
        if self._pipe is not None and self.ending is None:
            self._pipe.abandon()

    async def handshake(self, generation: str = GENERATION) -> pb.HandshakeResponse:
        """Shake hands on the same connection, as a peer of *generation*.

        Raises :exc:`~rlmesh_trio.errors.HandshakeError` for a refusal by status,
        :exc:`~rlmesh_trio.errors.ConnectError` when no answer comes, :exc:`~rlmesh_trio.errors.ProtocolError` for an
        answer that cannot be read.
        """
        data = await self._unary("Handshake", _greeting(generation))
        return decode(pb.HandshakeResponse, data, what="the answer to the handshake")

    async def shutdown(self, reason: str) -> core.ShutdownResponse:
        """Ask the server's process to end. Raises as :meth:`handshake`."""
        data = await self._unary("Shutdown", encode(pb.ShutdownRequest(base=core.ShutdownRequest(reason))))
        return decode(pb.ShutdownResponse, data, what="the answer to the shutdown").base

    async def _unary(self, method: str, request: bytes) -> bytes:
        try:
            with trio.fail_after(self.limit):
                return await self._channel.unary(f"{_SERVICE}/{method}", request)
        except trio.TooSlowError:
            raise ConnectError(f"{self.address} did not answer {method} in {format_duration(self.limit)}") from None

    # What the transport tells.

    @property
    def waiting(self) -> tuple[str, ...]:
        """Somebody always waits: everything that comes goes to the log, at once."""
        return ("the log",)

    def attach(self, pipe: Pipe, link: Link) -> None:  # noqa: ARG002 - the link is for those who read by themselves
        """From now on messages can be sent."""
        self._pipe = pipe

    def deliver(self, message: bytes) -> None:
        """Take one message."""
        self._inbox.append(_read(self.now, message))
        self.log.append(self._inbox[-1])
        self._news.unpark_all()

    def received(self, data: bytes) -> None:
        """Take payload that came through h2."""
        if self._pipe is not None:
            self._pipe.received(data)

    def writable(self) -> None:
        """The peer may take more than before."""
        if self._pipe is not None and self.ending is None:
            self._pipe.push()
            self._news.unpark_all()

    def ended(self, trailers: Mapping[str, str]) -> None:
        """The peer has finished the stream."""
        number = int(trailers.get("grpc-status", "2"))
        self._end("status", _NAMES.get(number, f"status {number}"), unquote(trailers.get("grpc-message", "")))

    def broken(self, reason: str) -> None:
        """The stream was reset, or its connection is gone."""
        self._end("reset" if reason.startswith(_PEER_RESET) else "broken", "", reason)

    def refused(self, why: str) -> None:
        """The stream was not opened."""
        status = self.ending.status if self.ending is not None else ""
        self.ending = None
        self._end("refused", status, why)

    def _end(self, how: Literal["status", "reset", "broken", "refused", "left"], status: str, message: str) -> None:
        if self.ending is None and not self._abandoned:
            self.ending = Ended(self.now, how, status, message)
            self.log.append(self.ending)
            self._news.unpark_all()


@asynccontextmanager
async def open_raw_stream(
    address: str, *, token: str | None, limit: float, patience: float = 0.0
) -> AsyncGenerator[RawStream]:
    """Connect to *address*, shake hands, and open a Join stream, without configure, for the block's duration.

    What comes of the handshake does not matter: that is another test.
    *limit* seconds bound the opening and each wait, and at most 2 the connecting. A server that refuses the stream is
    asked again for *patience* seconds; then the stream is there all the same, ended with ``how="refused"``. Leaving the
    block resets what has not ended. Raises :exc:`~rlmesh_trio.errors.ConnectError` when nobody is there.
    """
    async with open_channel(parse_address(address), token=token, limit=min(limit, _CONNECTING)) as channel:
        until = trio.current_time() + patience
        pause = _FIRST_PAUSE
        stream = await _opened(address, limit, channel, greet=True)
        while stream.ending is not None and stream.ending.how == "refused" and trio.current_time() + pause < until:
            await trio.sleep(pause)
            pause = min(2 * pause, _LONGEST_PAUSE)
            stream = await _opened(address, limit, channel)
        try:
            yield stream
        finally:
            stream.abandon()


async def _opened(address: str, limit: float, channel: Channel, *, greet: bool = False) -> RawStream:
    stream = RawStream(address, limit, channel)
    try:
        with trio.fail_after(limit):
            if greet:
                with suppress(HandshakeError):
                    await channel.unary(f"{_SERVICE}/Handshake", _greeting(GENERATION))
            await channel.open_stream(f"{_SERVICE}/Join", stream)
    except (ConnectError, HandshakeError) as error:
        stream.refused(str(error))
    except trio.TooSlowError:
        stream.refused(f"{address} accepted the connection, but opened no stream in {format_duration(limit)}")
    return stream


def _greeting(generation: str) -> bytes:
    base = introduce("rlmesh-env", None)
    base.protocol_generation = generation
    return encode(pb.HandshakeRequest(base=base))


def _read(at: float, data: bytes) -> Received:
    try:
        request_id, arm, answer = decode_env_join(data)
    except ProtocolError as error:
        return Received(at, "unreadable", str(error), data)
    if isinstance(answer, EndpointError):
        return Received(at, arm, request_id, data, error=Refusal(answer.code, answer.message, answer.recoverable))
    return Received(at, arm, request_id, data, reply=answer if isinstance(answer, EnvReply) else None)


def _arm_of(request: pb.JoinRequest) -> str:
    arms = ("configure", "reset", "step", "render", "close")
    return next((arm for arm in arms if request.is_set(arm)), "empty request")
