"""Fault plans: what goes wrong at which call of a scripted endpoint.

An endpoint is given :class:`Fault` records. Each names an operation, which call of it, and an :class:`Action`. Calls
are counted from 1 as they arrive; for a fault on a lane only those count that name the lane.
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterable
from typing import Any, Literal

import attrs
import trio

from rlmesh_trio.errors import EndpointError

__all__ = ("Action", "Delay", "Fail", "Fault", "FaultPlan", "Gate", "Hang", "Operation", "Wrong")

Operation = Literal["reset", "step", "close", "predict", "predict_group", "evict", "release"]


class Action:
    """What a fault does to a call. Subclass it for an action of your own."""

    async def before(self) -> None:
        """Run when the call has arrived and nothing is done yet: may wait, or raise what the call shall raise."""

    def change(self, reply: Any) -> Any:
        """Return what is answered instead of the honest *reply*; not asked where an operation has none."""
        return reply


@attrs.frozen
class Fail(Action):
    """Raise an :exc:`~rlmesh_trio.errors.EndpointError`; ``code`` is a wire code name, or ``CONNECTION``."""

    code: str = "INTERNAL"
    message: str = "scripted failure"
    recoverable: bool = False

    async def before(self) -> None:
        """Raise the error."""
        raise EndpointError(self.code, self.message, self.recoverable)


@attrs.frozen
class Hang(Action):
    """Never answer."""

    async def before(self) -> None:
        """Wait until cancelled."""
        await trio.sleep_forever()


@attrs.frozen
class Delay(Action):
    """Answer *seconds* later."""

    seconds: float

    async def before(self) -> None:
        """Sleep."""
        await trio.sleep(self.seconds)


class Gate(Action):
    """Hold every call that comes until the gate is opened; one that was opened stays open."""

    def __init__(self) -> None:
        self.arrived = 0
        self._reached = trio.Event()
        self._opened = trio.Event()

    async def before(self) -> None:
        """Count the arrival and wait for :meth:`open`."""
        self.arrived += 1
        self._reached.set()
        await self._opened.wait()

    async def reached(self) -> None:
        """Wait until a first call has arrived."""
        await self._reached.wait()

    def open(self) -> None:
        """Let go all calls that wait, and those still to come."""
        self._opened.set()


@attrs.frozen
class Wrong(Action):
    """Answer what *answer* makes of the honest reply; :mod:`rlmesh_trio.testing.answers` has the usual ones.

    The reply is an ``EnvReply`` (reset, step), a ``PredictReply`` (predict), or the list of results (predict_group).
    """

    answer: Callable[[Any], Any]

    def change(self, reply: Any) -> Any:
        """Apply *answer*."""
        return self.answer(reply)


@attrs.frozen
class Fault:
    """Do *action* at the *call*-th call of *operation* (``None``: at each), counting those that name *lane* if set.

    ``predict`` counts single requests and ``predict_group`` the calls they come in: a ``Fail`` on the former is that
    request's result, one on the latter is raised. Raises :exc:`ValueError` for a call below 1, and for a lane where
    the operation names none.
    """

    operation: Operation
    action: Action
    call: int | None = None
    lane: int | None = None

    def __attrs_post_init__(self) -> None:
        if self.call is not None and self.call < 1:
            raise ValueError(f"calls are counted from 1, so there is no call {self.call} of {self.operation}")
        if self.lane is not None and self.operation not in ("reset", "step"):
            raise ValueError(f"{self.operation} names no lanes; only a reset or a step can fail on one")


class FaultPlan:
    """Counts an endpoint's calls and knows the faults due at each.

    Raises :exc:`ValueError` for a fault on an operation that is not among *operations*, those the endpoint has.
    """

    def __init__(self, faults: Iterable[Fault], operations: Collection[Operation]) -> None:
        self._faults = tuple(faults)
        self._calls: Counter[tuple[Operation, int | None]] = Counter()
        for fault in self._faults:
            if fault.operation not in operations:
                raise ValueError(f"no operation {fault.operation!r} here; there are {', '.join(operations)}")

    async def arrive(self, operation: Operation, lanes: Iterable[int] = ()) -> list[Action]:
        """Count a call that names *lanes* and run what comes before its answer; return the actions that are due."""
        keys = {None, *lanes}
        self._calls.update((operation, key) for key in keys)
        due = [
            fault.action
            for fault in self._faults
            if fault.operation == operation
            and fault.lane in keys
            and fault.call in (None, self._calls[operation, fault.lane])
        ]
        for action in due:
            await action.before()
        return due
