"""What goes wrong in a simulated world, and the books kept of it: troubles, lost connections, and every call made."""

import random
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable
from types import TracebackType
from typing import Any, Final, Literal, Self, TypeVar

import attrs
import trio

from rlmesh_trio.errors import EndpointError
from rlmesh_trio.testing import answers
from rlmesh_trio.testing.faults import Action, Delay, Fail, Hang, Wrong
from rlmesh_trio.testing.scripted import pause
from rlmesh_trio.testing.world_plan import SLOW, Delays, Trouble

__all__ = ("Call", "Line", "Mishaps", "Struck")

T = TypeVar("T")

_WRONG: Final[dict[str, Callable[[Any], Any]]] = {
    "misshapen_observation": answers.misshapen_observation,
    "no_observation": answers.no_observation,
    "short_rewards": answers.short_rewards,
    "stale_completion": answers.stale_completion,
    "another_request": answers.another_request,
    "no_actions": answers.no_actions,
    "misshapen_actions": answers.misshapen_actions,
    "too_few_results": answers.too_few_results,
}


@attrs.define
class Call:
    """One call of a peer: from when to when (virtual seconds), for which episodes, and how it came out.

    ``wrong``: it was answered, but in a way that nobody may accept.
    """

    part: str
    episode_ids: tuple[str, ...]
    started: float
    ended: float = 0.0
    result: Literal["under way", "answered", "failed", "cancelled"] = "under way"
    wrong: bool = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        self.ended = trio.current_time()
        self.result = "answered" if error is None else "failed" if isinstance(error, Exception) else "cancelled"


@attrs.frozen
class Struck:
    """A trouble that came due, and when."""

    trouble: Trouble
    at: float


class _Crash(Action):
    """Raises what no peer of ours ever raises."""

    async def before(self) -> None:
        raise RuntimeError("scripted crash")


class Mishaps:
    """Counts the calls of every part and knows the troubles due at each."""

    def __init__(self, troubles: Iterable[Trouble]) -> None:
        self._troubles = tuple(troubles)
        self._calls: Counter[str] = Counter()
        self.struck: list[Struck] = []

    def strike(self, part: str) -> list[Trouble]:
        """Count a call of *part*; the troubles due at it."""
        if not self._troubles:
            return []
        self._calls[part] += 1
        due = [trouble for trouble in self._troubles if (trouble.part, trouble.call) == (part, self._calls[part])]
        self.struck.extend(Struck(trouble, trio.current_time()) for trouble in due)
        return due

    async def arrive(self, part: str) -> list[Action]:
        """As :meth:`strike`; does what comes before an answer, and returns what may change it."""
        actions = [_action(trouble) for trouble in self.strike(part)]
        for action in actions:
            await action.before()
        return actions


def _action(trouble: Trouble) -> Action:
    match trouble.kind:
        case "fail":
            return Fail(trouble.code)
        case "crash":
            return _Crash()
        case "hang":
            return Hang()
        case "slow":
            return Delay(SLOW)
        case _:
            return Wrong(_WRONG[trouble.kind])


class Line:
    """The connection to one peer: messages take time each way, and it may be lost for good."""

    def __init__(self, delays: Delays, lost_at: int | None, source: random.Random) -> None:
        self._delays = delays
        self._lost_at = lost_at
        self._source = source
        self._carried = 0
        self._under_way: dict[int, trio.CancelScope] = {}
        self.lost_since: float | None = None

    async def carry(self, call: Callable[[], Awaitable[T]]) -> T:
        """Send a request, let the peer answer by *call*, and bring the answer back."""
        self._carried = number = self._carried + 1
        if number == self._lost_at:
            self.lost_since = trio.current_time()
            for scope in self._under_way.values():
                scope.cancel()
        if self.lost_since is not None:
            await trio.lowlevel.checkpoint()
            raise _lost()
        if self._lost_at is None:
            return await self._exchange(call)
        with trio.CancelScope() as self._under_way[number]:
            try:
                return await self._exchange(call)
            finally:
                del self._under_way[number]
        raise _lost()

    async def _exchange(self, call: Callable[[], Awaitable[T]]) -> T:
        await pause(self._delays.pick(self._source))
        answer = await call()
        await pause(self._delays.pick(self._source))
        return answer


def _lost() -> EndpointError:
    return EndpointError("CONNECTION", "scripted loss of the connection")
