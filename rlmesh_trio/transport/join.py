"""One Join stream: requests go out at once, and each reply wakes the task that waits under its request id.

A reply nobody waits for any more is counted and dropped. When the stream ends or breaks, everybody who waits learns
why, and so does who asks later.
"""

import copy
from collections.abc import Callable, Mapping, Sized
from functools import partial
from typing import Generic, TypeVar

import trio
from grpclib.const import Status
from grpclib.metadata import decode_grpc_message

from rlmesh_trio.errors import EndpointError, ProtocolError, SessionError
from rlmesh_trio.spec import MAX_MESSAGE_BYTES
from rlmesh_trio.transport.link import Link
from rlmesh_trio.transport.pipe import Pipe
from rlmesh_trio.transport.protocol import PROTOCOL_ERROR
from rlmesh_trio.woken import WOKEN

__all__ = ("Decoder", "JoinStream")

Arm = TypeVar("Arm", bound=str)
Payload = TypeVar("Payload")

Decoder = Callable[[bytes], tuple[str, Arm, Payload]]


class _Waiter(Generic[Arm, Payload]):
    """Whoever waits for a reply: a task to wake, unless it reads the reply itself."""

    __slots__ = ("answer", "task")

    def __init__(self) -> None:
        self.answer: tuple[str, Arm, Payload] | SessionError | None = None
        self.task: trio.lowlevel.Task | None = None

    def take(self, answer: "tuple[str, Arm, Payload] | SessionError") -> None:
        self.answer = answer
        if self.task is not None:
            trio.lowlevel.reschedule(self.task, WOKEN)


class JoinStream(Generic[Arm, Payload]):
    """The stream as its users see it; *decode* reads a reply: its request id, its arm, its payload.

    *peer* is what errors call the other side. A payload that is an :exc:`~rlmesh_trio.errors.EndpointError` is raised
    where the request was made. ``dropped_replies`` counts the replies nobody waited for.
    """

    def __init__(self, peer: str, decode: Decoder[Arm, Payload]) -> None:
        self._peer = peer
        self._decode = decode
        self._pipe: Pipe | None = None
        self._waiting: dict[str, _Waiter[Arm, Payload]] = {}
        self._cancelled: set[str] = set()
        self._numbered = 0
        self._failure: SessionError | None = None
        self._last_words = ""
        self._over = trio.Event()
        self.dropped_replies = 0

    def attach(self, pipe: Pipe, link: Link) -> None:
        """Say by which way the messages go, before the first request."""
        self._pipe = pipe
        self._send = pipe.send
        self._link = link

    @property
    def waiting(self) -> Sized:
        """Who waits for a reply, now and whenever it is looked at."""
        return self._waiting

    def new_id(self) -> str:
        """A request id that this stream has not used."""
        self._numbered += 1
        return str(self._numbered)

    @trio.lowlevel.enable_ki_protection
    async def exchange(self, request_id: str, message: bytes) -> tuple[str, Arm, Payload]:
        """Send *message*, a request under *request_id*, and wait for its reply.

        Being cancelled drops the reply, not the request. Raises the peer's own :exc:`EndpointError`; one with the code
        ``CONNECTION`` when the stream is over, ``UNSUPPORTED`` for a *message* above 256 MiB; :exc:`ProtocolError` when
        the peer sent nonsense.
        """
        await trio.lowlevel.checkpoint_if_cancelled()
        if self._failure is not None:
            await trio.lowlevel.checkpoint()
            raise copy.copy(self._failure)
        if len(message) > MAX_MESSAGE_BYTES:
            await trio.lowlevel.checkpoint()
            raise EndpointError(
                "UNSUPPORTED",
                f"a request of {len(message)} bytes was not sent: at most {MAX_MESSAGE_BYTES} are allowed",
            )
        waiting, link = self._waiting, self._link
        waiter: _Waiter[Arm, Payload] = _Waiter()
        if waiting or not link.borrow():
            self._send(message, bool(waiting))
            waiting[request_id] = waiter
            waiter.task = trio.lowlevel.current_task()
            await trio.lowlevel.wait_task_rescheduled(partial(self._abandon, request_id))
        else:
            try:
                self._send(message, False)
                waiting[request_id] = waiter
                while waiter.answer is None:
                    await link.read()
            finally:
                if request_id in waiting:
                    del waiting[request_id]
                    self._cancelled.add(request_id)
                link.give_back()
        answer = waiter.answer
        assert answer is not None
        if isinstance(answer, SessionError):
            raise answer
        return answer

    def _abandon(self, request_id: str, _: object) -> trio.lowlevel.Abort:
        del self._waiting[request_id]
        self._cancelled.add(request_id)
        return trio.lowlevel.Abort.SUCCEEDED

    def deliver(self, message: bytes) -> None:
        """Take one reply."""
        try:
            answer = self._decode(message)
        except ProtocolError as error:
            self._fail(error)
            return
        request_id, _, payload = answer
        waiter = self._waiting.pop(request_id, None)
        if isinstance(payload, EndpointError):
            if not payload.recoverable:
                self._last_words = payload.message
            if waiter is not None:
                waiter.take(payload)
        elif waiter is not None:
            waiter.take(answer)
        if waiter is None:
            self._cancelled.discard(request_id)
            self.dropped_replies += 1

    def received(self, data: bytes) -> None:
        """Take payload that came through h2."""
        if self._pipe is not None:
            self._pipe.received(data)

    def writable(self) -> None:
        """The peer may take more than before."""
        if self._pipe is not None and self._failure is None:
            self._pipe.push()

    def ended(self, trailers: Mapping[str, str]) -> None:
        """The peer has finished the stream, with the status that is in *trailers*."""
        self._over.set()
        status = Status(int(trailers.get("grpc-status", Status.UNKNOWN.value)))
        said = decode_grpc_message(trailers.get("grpc-message", ""))
        if status is Status.UNAVAILABLE:
            self._fail(_lost(f"transport error: connection closed ({self._peer} is unavailable: {said})"))
        elif status is not Status.OK:
            self._fail(_lost(f"{self._peer} ended the stream with status {status.name}: {said}"))
        elif self._last_words:
            self._fail(_lost(f"{self._peer} ended the stream after an error without recovery: {self._last_words}"))
        else:
            self._fail(
                _lost(
                    f"{self._peer} ended the stream without an error while {len(self._waiting)} request(s) awaited "
                    "an answer: it does so for a request it cannot read or finds too large, and after a close"
                )
            )

    def broken(self, reason: str) -> None:
        """The stream was reset, or its connection is gone."""
        self._over.set()
        if reason.startswith(PROTOCOL_ERROR):
            self._fail(ProtocolError(reason.removeprefix(PROTOCOL_ERROR)))
        else:
            self._fail(_lost(f"transport error: connection closed ({reason})"))

    async def close(self, grace: float) -> None:
        """End the stream: politely if nothing is due, within *grace* seconds; else by a reset, so that nobody waits."""
        pipe = self._pipe
        if pipe is None or self._failure is not None:
            return
        polite = not (self._waiting or self._cancelled) and pipe.finish()
        self._fail(_lost("the stream was closed on this side"))
        if polite:
            self._link.resume()
            with trio.move_on_after(grace):
                await self._over.wait()
        if not self._over.is_set():
            pipe.abandon()

    def _fail(self, error: SessionError) -> None:
        if self._failure is not None:
            return
        # Who asks later finds the stream gone: what the peer said before that was no answer to them.
        self._failure = error if isinstance(error, EndpointError) else _lost(f"{self._peer} sent nonsense: {error}")
        if self._pipe is not None:
            self._pipe.discard()
        waiting = list(self._waiting.values())
        self._waiting.clear()
        for waiter in waiting:
            waiter.take(copy.copy(error))


def _lost(why: str) -> EndpointError:
    return EndpointError("CONNECTION", why)
