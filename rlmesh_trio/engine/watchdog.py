"""Deadlines for the operations of a session: one task watches them all, so that arming one is two assignments.

Each watched party (a lane group, the batcher) stands in one cancel scope for as long as it works. Its operation has a
deadline; the watchdog sleeps until the earliest and cancels the scope of whoever is late.
"""

import math

import trio

__all__ = ("Operation", "Watchdog")


class Operation:
    """The one operation a party may have under way. ``expired`` tells its own lateness from other cancellations."""

    __slots__ = ("deadline", "expired", "limit", "name", "scope", "step")

    def __init__(self, *, shield: bool = False) -> None:
        self.scope = trio.CancelScope(shield=shield)
        self.deadline = math.inf
        self.expired = False
        self.name = ""
        self.step = 0
        self.limit = math.inf

    def renew(self) -> None:
        """Start over with a scope nobody has entered yet."""
        self.scope = trio.CancelScope(shield=self.scope.shield)
        self.deadline = math.inf
        self.expired = False

    def finish(self) -> None:
        """The operation ended in time."""
        self.deadline = math.inf


class Watchdog:
    """Cancels the scope of each operation that outlives its limit."""

    def __init__(self) -> None:
        self._now = trio.lowlevel.current_clock().current_time
        self._operations: list[Operation] = []
        self._earliest = math.inf
        self._alarm: trio.CancelScope | None = None

    def watch(self, operation: Operation) -> None:
        """Keep an eye on *operation*."""
        self._operations.append(operation)

    def arm(self, operation: Operation, name: str, step: int, limit: float) -> None:
        """Start *operation*: it must :meth:`~Operation.finish` within *limit* seconds."""
        operation.name = name
        operation.step = step
        operation.limit = limit
        operation.deadline = deadline = self._now() + limit
        if deadline < self._earliest:
            self._earliest = deadline
            if self._alarm is not None:
                self._alarm.deadline = deadline

    async def run(self) -> None:
        """Watch until cancelled."""
        while True:
            with trio.CancelScope(deadline=self._earliest) as self._alarm:
                await trio.sleep_forever()
            now = self._now()
            for operation in self._operations:
                if operation.deadline <= now:
                    operation.expired = True
                    operation.deadline = math.inf
                    operation.scope.cancel(reason=f"{operation.name} outlived its limit")
            self._earliest = min((operation.deadline for operation in self._operations), default=math.inf)
