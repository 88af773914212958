"""Who listens in a simulated world, and who plans its predicts: each as slow and as faulty as planned."""

import random
from collections.abc import Awaitable, Callable, Collection, Sequence
from typing import Any, Final

import trio

from rlmesh_trio.engine.adaptive import Adaptive
from rlmesh_trio.engine.schedulers import FullBatch
from rlmesh_trio.events import ActionReceived, ObservationEmitted
from rlmesh_trio.messages import Leaves
from rlmesh_trio.testing.recording import RecordingHooks
from rlmesh_trio.testing.world_mishaps import Mishaps
from rlmesh_trio.testing.world_plan import NOTICES, TRANSFORMS, Delays

__all__ = ("PATIENT", "PLANS", "PlannedHooks", "PlannedPatience", "PlannedScheduler", "PlannedTransforms")


class PlannedHooks(RecordingHooks):
    """Records every notice, and only then takes its time or goes wrong."""

    def __init__(self, delays: Delays, mishaps: Mishaps, source: random.Random) -> None:
        super().__init__()
        self._delays = delays
        self._mishaps = mishaps
        self._source = source
        for name in NOTICES:
            setattr(self, name, self._disturbed(name, getattr(self, name)))

    def _disturbed(self, name: str, hook: Callable[[Any], Awaitable[None]]) -> Callable[[Any], Awaitable[None]]:
        async def notice(event: Any) -> None:
            await hook(event)
            if delay := self._delays.pick(self._source):
                await trio.sleep(delay)
            await self._mishaps.arrive(name)

        return notice


class PlannedTransforms(PlannedHooks):
    """Also overrides the two transforms, which change nothing."""

    async def transform_observation(self, event: ObservationEmitted) -> Leaves | None:
        """The observation as it is."""
        await self._mishaps.arrive(TRANSFORMS[0])
        return event.observation

    async def transform_action(self, event: ActionReceived) -> Leaves:
        """The action as it is."""
        await self._mishaps.arrive(TRANSFORMS[1])
        return event.action


PLANS: Final[dict[str, Callable[[Sequence[int], int], Collection[int]]]] = {
    "lowest": lambda waiting, _: waiting[:1],
    "together": lambda waiting, busy: () if busy else waiting,
    "never": lambda _waiting, _busy: (),
    "unruly": lambda waiting, _: [*reversed(waiting), 99, *waiting],
}
"""Schedulers that let no time pass, by name."""

PATIENT: Final[dict[str, Callable[[], FullBatch | Adaptive]]] = {
    "full": lambda: FullBatch(2, 0.375),
    "adaptive": Adaptive,
}
"""Schedulers that do, by name."""


class PlannedScheduler:
    """Plans by *plan*; ``breaches`` has what the batcher must not ask."""

    def __init__(self, plan: Callable[[Sequence[int], int], Collection[int]], groups: int, mishaps: Mishaps) -> None:
        self._plan = plan
        self._groups = groups
        self._mishaps = mishaps
        self.breaches: list[str] = []

    def plan(self, waiting: Sequence[int], busy: int) -> Collection[int]:
        """As planned."""
        if self._mishaps.strike("scheduler"):
            raise RuntimeError("scripted crash")
        if not waiting or list(waiting) != sorted(set(waiting)) or not 0 <= busy <= self._groups:
            self.breaches.append(f"the scheduler is asked about {waiting} with {busy} busy of {self._groups}")
        return self._plan(waiting, busy)


class PlannedPatience(PlannedScheduler):
    """Plans by *scheduler*, which lets time pass."""

    def __init__(self, scheduler: FullBatch | Adaptive, groups: int, mishaps: Mishaps) -> None:
        super().__init__(scheduler.plan, groups, mishaps)
        self._scheduler = scheduler

    @property
    def wake_at(self) -> float | None:
        """When to be asked again."""
        return self._scheduler.wake_at

    def landed(self, groups: Sequence[int], seconds: float) -> None:
        """A predict has landed."""
        self._scheduler.landed(groups, seconds)

    def arrived(self, group: int) -> None:
        """A group begins to wait."""
        self._scheduler.arrived(group)
