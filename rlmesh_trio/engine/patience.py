"""The batcher for schedulers that let time pass: it wakes when they ask for it, and tells them what they learn from.

Sessions with other schedulers use the plain batcher and pay nothing for this.
"""

import inspect
import math
from collections.abc import Callable, Sequence
from typing import TypeGuard

import trio

from rlmesh_trio.endpoints.model import Model
from rlmesh_trio.engine.batcher import Batcher, Ticket
from rlmesh_trio.engine.chunks import ChunkBuffer
from rlmesh_trio.engine.route import LaneSlot, Route
from rlmesh_trio.engine.schedulers import PatientScheduler, Scheduler
from rlmesh_trio.engine.watchdog import Watchdog
from rlmesh_trio.errors import HookError
from rlmesh_trio.messages import PredictReply, PredictRequest
from rlmesh_trio.spec import SessionSpec
from rlmesh_trio.telemetry.aggregate import Telemetry

__all__ = ("PatientBatcher", "is_patient")

_ABSENT = object()


def is_patient(scheduler: Scheduler | None) -> TypeGuard[PatientScheduler]:
    """Whether *scheduler* has a ``wake_at``. The property itself is not asked."""
    return inspect.getattr_static(scheduler, "wake_at", _ABSENT) is not _ABSENT


class PatientBatcher(Batcher):
    """A batcher with an alarm clock."""

    def __init__(
        self,
        spec: SessionSpec,
        route: Route,
        model: Model,
        scheduler: PatientScheduler,
        watchdog: Watchdog,
        telemetry: Telemetry,
        *,
        groups: int,
        fail: Callable[[Exception], None],
    ) -> None:
        super().__init__(spec, route, model, scheduler, watchdog, telemetry, groups=groups, fail=fail)
        self._patient = scheduler
        self._arrived: Callable[[int], None] | None = getattr(scheduler, "arrived", None)
        self._sent_at: dict[int, float] = {}
        self._alarm = trio.CancelScope()

    def ticket(self, number: int, lanes: Sequence[LaneSlot], buffer: ChunkBuffer) -> Ticket:
        """The standing order of group *number*, which tells the scheduler of arrivals if it listens."""
        if self._arrived is None:
            return super().ticket(number, lanes, buffer)
        return _ToldTicket(self, number, lanes, buffer, self._arrived)

    async def run(self) -> None:
        """Serve as every batcher does, with the alarm set beside."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._ring)
            await super().run()
            nursery.cancel_scope.cancel(reason="the batcher is done")

    async def _ring(self) -> None:
        while True:
            with self._alarm:
                await trio.sleep_forever()
            self._alarm = trio.CancelScope()
            self.nudge()

    def _choose(self) -> list[Ticket]:
        chosen = super()._choose()
        now = trio.current_time()
        for ticket in chosen:
            self._sent_at[ticket.number] = now
        self._alarm.deadline = self._wake_at(now) if self.held_back else math.inf
        return chosen

    def _wake_at(self, now: float) -> float:
        try:
            wake_at = self._patient.wake_at
            ahead = wake_at is not None and wake_at > now
        except Exception as error:
            raise _scheduler_error("wake_at", error) from error
        return wake_at if wake_at is not None and ahead else math.inf

    def _land(
        self,
        tickets: Sequence[Ticket],
        requests: Sequence[PredictRequest],
        results: Sequence[PredictReply | Exception],
        elapsed_ns: int,
    ) -> None:
        super()._land(tickets, requests, results, elapsed_ns)
        seconds = trio.current_time() - self._sent_at[tickets[0].number]
        try:
            self._patient.landed([ticket.number for ticket in tickets], seconds)
        except Exception as error:
            raise _scheduler_error("landed", error) from error


class _ToldTicket(Ticket):
    """A ticket that tells the scheduler when its group begins to wait."""

    __slots__ = ("_arrived",)

    def __init__(
        self,
        batcher: Batcher,
        number: int,
        lanes: Sequence[LaneSlot],
        buffer: ChunkBuffer,
        arrived: Callable[[int], None],
    ) -> None:
        super().__init__(batcher, number, lanes, buffer)
        self._arrived = arrived

    def post(self, request: PredictRequest) -> None:
        """Ask for the frames of *request*; the scheduler hears of it."""
        if not self.posted:
            try:
                self._arrived(self.number)
            except Exception as error:
                raise _scheduler_error("arrived", error) from error
        super().post(request)


def _scheduler_error(asked: str, error: Exception) -> HookError:
    return HookError(f"the scheduler's {asked} raised {type(error).__name__}: {error}")
