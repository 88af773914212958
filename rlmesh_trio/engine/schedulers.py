"""When waiting groups are predicted: the policy the batcher asks before each dispatch."""

from collections.abc import Collection, Sequence
from typing import Protocol

__all__ = ("EagerScheduler", "Scheduler")


class Scheduler(Protocol):
    """Chooses which waiting groups go into the next predict. Pure: it must not block."""

    def plan(self, waiting: Sequence[int], busy: int) -> Collection[int]:
        """The groups to predict now.

        *waiting* holds the waiting groups' numbers, ascending; *busy* is how many groups are stepping or resetting.
        Numbers that are not waiting and repeats are ignored. An empty choice waits for the next event, unless nothing
        at all is in flight: then every waiting group is taken.
        """
        ...


class EagerScheduler:
    """Take everything that waits: groups that become ready during a predict form the next batch."""

    def plan(self, waiting: Sequence[int], busy: int) -> Collection[int]:  # noqa: ARG002
        """Everything in *waiting*."""
        return waiting
