"""When waiting groups are predicted: the policy the batcher asks before each dispatch.

A scheduler belongs to one session: it may remember what it saw.
"""

import math
from collections.abc import Callable, Collection, Sequence
from typing import Protocol

import trio

from rlmesh_trio.errors import InvalidSpec

__all__ = ("AttentiveScheduler", "EagerScheduler", "FullBatch", "PatientScheduler", "Scheduler")


class Scheduler(Protocol):
    """Chooses which waiting groups go into the next predict. It must not block; what it raises fails the route."""

    def plan(self, waiting: Sequence[int], busy: int) -> Collection[int]:
        """The groups to predict now.

        *waiting* holds the waiting groups' numbers, ascending; *busy* is how many groups are stepping or resetting.
        Numbers that are not waiting and repeats are ignored. An empty choice waits for the next event, unless nothing
        at all is in flight: then every waiting group is taken.
        """
        ...


class PatientScheduler(Scheduler, Protocol):
    """A scheduler that lets time pass: it is recognised by its ``wake_at``."""

    @property
    def wake_at(self) -> float | None:
        """The trio time at which to be asked again although nothing happened; ``None`` for no such time.

        Read after each plan that leaves groups waiting. A time that has passed is no such time.
        """
        ...

    def landed(self, groups: Sequence[int], seconds: float) -> None:
        """One predict for *groups* has landed, *seconds* after it was sent."""
        ...


class AttentiveScheduler(PatientScheduler, Protocol):
    """A patient scheduler that is also told of each arrival, those during a predict too: by its ``arrived``."""

    def arrived(self, group: int) -> None:
        """*group* begins to wait now."""
        ...


class EagerScheduler:
    """Take everything that waits: groups that become ready during a predict form the next batch."""

    def plan(self, waiting: Sequence[int], busy: int) -> Collection[int]:  # noqa: ARG002
        """Everything in *waiting*."""
        return waiting


class FullBatch:
    """Wait until *width* groups wait, or nobody steps or resets any more, or the oldest has waited *wait* seconds.

    Then everything that waits is taken. ``wait=0`` takes at once, as :class:`EagerScheduler` does.
    Raises :exc:`InvalidSpec` for a *width* below 1 and a *wait* that is negative or not finite.
    """

    def __init__(self, width: int, wait: float, *, clock: Callable[[], float] = trio.current_time) -> None:
        if type(width) is not int or width < 1:
            raise InvalidSpec(f"FullBatch: width must be a whole number of groups, 1 or more, not {width!r}")
        if type(wait) not in (int, float) or not 0 <= wait < math.inf:
            raise InvalidSpec(f"FullBatch: wait must be a finite number of seconds, 0 or more, not {wait!r}")
        self.wake_at: float | None = None
        self._width = width
        self._wait = wait
        self._clock = clock
        self._since: dict[int, float] = {}

    def plan(self, waiting: Sequence[int], busy: int) -> Collection[int]:
        """Everything, or nothing yet."""
        now = self._clock()
        due = min(self._since.setdefault(group, now) for group in waiting) + self._wait
        if len(waiting) >= self._width or not busy or now >= due:
            for group in waiting:
                del self._since[group]
            self.wake_at = None
            return waiting
        self.wake_at = due
        return ()

    def landed(self, groups: Sequence[int], seconds: float) -> None:
        """Nothing to learn."""

    def arrived(self, group: int) -> None:
        """From now on *group* waits."""
        self._since[group] = self._clock()
