"""What goes wrong in a simulated world, and the books kept of it: troubles, lost connections, and every call made."""

import random
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Iterable
from types import TracebackType
from typing import Any, Final, Literal, Self, TypeVar

import attrs
import trio

from rlmesh_trio.errors import EndpointError
from rlmesh_trio.testing import answers
from rlmesh_trio.testing.faults import Action, Delay, Fail, Hang, Wrong
from rlmesh_trio.testing.scripted import pause
from rlmesh_trio.testing.world_plan import SLOW, Delays, Trouble

__all__ = ("Call", "Died", "Line", "Mishaps", "Struck", "depart")

T = TypeVar("T")
R = TypeVar("R")

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

    ``lanes`` are those an env's operation names, ``code`` is what a failure carried. ``wrong``: it was answered, but in
    a way that nobody may accept.
    """

    part: str
    episode_ids: tuple[str, ...]
    started: float
    lanes: tuple[int, ...] = ()
    ended: float = 0.0
    result: Literal["under way", "answered", "failed", "cancelled"] = "under way"
    code: str = ""
    wrong: bool = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        self.ended = trio.current_time()
        self.result = "answered" if error is None else "failed" if isinstance(error, Exception) else "cancelled"
        if isinstance(error, Exception):
            self.code = error.code if isinstance(error, EndpointError) else "INTERNAL"


@attrs.frozen
class Struck:
    """A trouble that came due, and when."""

    trouble: Trouble
    at: float


class _Crash(Action):
    """Raises what no peer of ours ever raises."""

    async def before(self) -> None:
        raise RuntimeError("scripted crash")


class Died(EndpointError):
    """The failure of a peer that is lost with it."""


@attrs.frozen
class _Die(Action):
    code: str

    async def before(self) -> None:
        raise Died(self.code, "scripted death")


class _Late(Action):
    """Does when the operation is done what *action* would do before."""

    def __init__(self, action: Action) -> None:
        self.action = action


class Mishaps:
    """Counts the calls of every part, on every lane, and knows the troubles due at each."""

    def __init__(self, troubles: Iterable[Trouble]) -> None:
        self._troubles = tuple(troubles)
        self._calls: Counter[tuple[str, int | None]] = Counter()
        self.struck: list[Struck] = []

    def strike(self, part: str, lanes: Collection[int] = ()) -> list[Trouble]:
        """Count a call of *part* that names *lanes*; the troubles due at it."""
        if not self._troubles:
            return []
        self._calls.update((part, lane) for lane in (None, *lanes))
        due = [trouble for trouble in self._troubles if trouble.part == part and self._is_due(trouble, lanes)]
        self.struck.extend(Struck(trouble, trio.current_time()) for trouble in due)
        return due

    def _is_due(self, trouble: Trouble, lanes: Collection[int]) -> bool:
        if trouble.lane is not None and trouble.lane not in lanes:
            return False
        over = self._calls[trouble.part, trouble.lane] - trouble.call
        return over >= 0 and (trouble.times is None or over < trouble.times)

    async def arrive(self, part: str, lanes: Collection[int] = ()) -> list[Action]:
        """As :meth:`strike`; does what comes before an answer, and returns what may change it."""
        due = self.strike(part, lanes)
        actions = [_Late(_action(trouble)) if trouble.late else _action(trouble) for trouble in due]
        for action in actions:
            await action.before()
        return actions


async def depart(reply: R, actions: Iterable[Action]) -> R:
    """What becomes of *reply* on its way out; what was to happen late happens now."""
    for action in actions:
        if isinstance(action, _Late):
            await action.action.before()
        reply = action.change(reply)
    return reply


def _action(trouble: Trouble) -> Action:
    match trouble.kind:
        case "fail":
            return Fail(trouble.code)
        case "crash":
            return _Crash()
        case "die":
            return _Die(trouble.code)
        case "hang":
            return Hang()
        case "slow":
            return Delay(SLOW)
        case _:
            return Wrong(_WRONG[trouble.kind])


class Line:
    """The connection to one peer: messages take time each way, and it is lost when operations *lost_at* are sent.

    ``losses`` are when. What is under way then, and comes later, fails until the line is mended. Only a line that
    *breaks* can be lost.
    """

    def __init__(self, delays: Delays, lost_at: Collection[int], source: random.Random, *, breaks: bool) -> None:
        self._delays = delays
        self._lost_at = lost_at
        self._breaks = breaks
        self._source = source
        self._carried = 0
        self._under_way: dict[int, trio.CancelScope] = {}
        self.is_lost = False
        self.losses: list[float] = []

    def lose(self) -> None:
        """The connection is lost now."""
        self.losses.append(trio.current_time())
        self.hang_up()

    def hang_up(self) -> None:
        """Whatever is under way is lost."""
        self.is_lost = True
        for scope in self._under_way.values():
            scope.cancel()

    def mend(self) -> None:
        """A new connection stands."""
        self.is_lost = False

    async def carry(self, call: Callable[[], Awaitable[T]]) -> T:
        """Send a request, let the peer answer by *call*, and bring the answer back."""
        self._carried = number = self._carried + 1
        if number in self._lost_at:
            self.lose()
        if self.is_lost:
            await trio.lowlevel.checkpoint()
            raise _lost()
        if not self._breaks:
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
