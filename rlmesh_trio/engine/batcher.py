"""The model batcher: the only caller of the model, and the owner of *when*.

Each lane group has one ticket. A group posts it on a memory channel when it wants frames; the batcher takes all that
came in one scheduler pass, asks the scheduler which to predict, makes the call, and puts the answer into the ticket
without awaiting, so that no cycle of waits can form. Evictions go out from here too, only between predicts; when many
wait because separate predicts always overlap, no new one is sent until those in flight have landed.

The batcher stands in a shielded scope: a session that ends gives a predict in flight its grace instead of cutting it.
"""

import logging
from collections.abc import Awaitable, Callable, Sequence
from operator import attrgetter
from time import perf_counter_ns

import trio

from rlmesh_trio.endpoints.model import Model
from rlmesh_trio.engine.chunks import ChunkBuffer, PredictState
from rlmesh_trio.engine.meters import PredictMeter
from rlmesh_trio.engine.route import LaneSlot, Route
from rlmesh_trio.engine.schedulers import Scheduler
from rlmesh_trio.engine.watchdog import Operation, Watchdog
from rlmesh_trio.errors import (
    EndpointError,
    HookError,
    ModelRouteMismatch,
    ModelRpcError,
    OperationTimeout,
    ProtocolError,
    SessionError,
)
from rlmesh_trio.messages import PredictReply, PredictRequest, ResetAdapterRequest
from rlmesh_trio.spec import SessionSpec
from rlmesh_trio.telemetry.aggregate import Telemetry
from rlmesh_trio.woken import WOKEN

__all__ = ("Batcher", "Ticket")

logger = logging.getLogger("rlmesh_trio")

_AFTER_EVERY_SLOT = 2**64
_OVERDUE = 64
_order = attrgetter("order")


class Ticket:
    """One group's standing order with the batcher: the group fills in the request, the batcher the frames.

    ``order`` is where the request stands in a fused call: by its episodes' slot.
    """

    __slots__ = (
        "_give_up",
        "_waiter",
        "batcher",
        "buffer",
        "held",
        "lanes",
        "number",
        "order",
        "posted",
        "predict_ns",
        "request",
    )

    order: int
    request: PredictRequest

    def __init__(self, batcher: "Batcher", number: int, lanes: Sequence[LaneSlot], buffer: ChunkBuffer) -> None:
        self.batcher = batcher
        self.number = number
        self.lanes = lanes
        self.buffer = buffer
        self.posted = False
        self.held: list[str] = []
        self.predict_ns = 0
        self._waiter: trio.lowlevel.Task | None = None
        self._give_up = self._abort

    @property
    def in_flight(self) -> bool:
        """Whether the model has the group's request, stale or not."""
        return self.buffer.state is PredictState.FLYING or self.buffer.state is PredictState.STALE

    def post(self, request: PredictRequest) -> None:
        """Ask for the frames of *request*. The channel has room for every group, so this never waits."""
        self.request = request
        slot = self.lanes[0].slot
        self.order = _AFTER_EVERY_SLOT + self.number if slot is None else slot
        batcher = self.batcher
        if request.history:
            batcher.meter.attached(request)
        if not self.posted:
            self.posted = True
            batcher.sent += 1
            batcher.inbox.send_nowait(self)

    def landed(self) -> Awaitable[None]:
        """Wait until the outstanding predict has landed."""
        batcher = self.batcher
        batcher.blocked += 1
        if batcher.held_back:
            batcher.nudge()
        self._waiter = trio.lowlevel.current_task()
        return trio.lowlevel.wait_task_rescheduled(self._give_up)  # noqa: ASYNC105 - the caller awaits it

    def _abort(self, _: object) -> trio.lowlevel.Abort:
        self._waiter = None
        self.batcher.blocked -= 1
        return trio.lowlevel.Abort.SUCCEEDED

    def wake(self) -> None:
        """Resume the group if it waits here."""
        waiter, self._waiter = self._waiter, None
        if waiter is not None:
            self.batcher.blocked -= 1
            trio.lowlevel.reschedule(waiter, WOKEN)


class Batcher:
    """Plans, predicts and evicts for all groups of a session.

    ``held_back`` lists the tickets that no predict has taken yet: a group that blocks may be the last, and force them.
    """

    def __init__(
        self,
        spec: SessionSpec,
        route: Route,
        model: Model,
        scheduler: Scheduler | None,
        watchdog: Watchdog,
        telemetry: Telemetry,
        *,
        groups: int,
        fail: Callable[[Exception], None],
    ) -> None:
        self.inbox, self._outbox = trio.open_memory_channel[Ticket | None](groups + 1)
        self.meter = PredictMeter(telemetry)
        self.sent = 0
        self.blocked = 0
        self.live = groups
        self.abandoned = False
        self.evictions: list[str] = []
        self._spec = spec
        self._route = route
        self._model = model
        self._scheduler = scheduler
        self._watchdog = watchdog
        self._fail = fail
        self._operation = Operation(shield=True)
        self.held_back: list[Ticket] = []
        self._in_flight = 0
        self._nudged = False
        self._stopped = False
        self._closed = False
        self._eviction = trio.CancelScope()
        self._evict_meter = telemetry.series("model.reset_adapter", "model", "rpc.total")
        watchdog.watch(self._operation)

    def ticket(self, number: int, lanes: Sequence[LaneSlot], buffer: ChunkBuffer) -> Ticket:
        """The standing order of group *number*."""
        return Ticket(self, number, lanes, buffer)

    def group_started(self) -> None:
        """A group that had ended plays again."""
        self.live += 1

    def group_ended(self) -> None:
        """A group is finished and will post no more."""
        self.live -= 1
        if self.live:
            self.nudge()

    def end_episodes(self, episode_ids: Sequence[str], ticket: Ticket) -> None:
        """End episodes on the model between predicts; behind the group's own predict if one is in flight."""
        if ticket.in_flight:
            ticket.held.extend(episode_ids)
        else:
            self.evictions.extend(episode_ids)

    def nudge(self) -> None:
        """Make the batcher look again although no ticket came: at what it holds back, and at the queued evictions."""
        if not self._nudged and not self._closed:
            self._nudged = True
            self.sent += 1
            self.inbox.send_nowait(None)

    def stop(self) -> None:
        """The session has failed: an eviction under way is given up, and nothing more is sent."""
        self._stopped = True
        self._eviction.cancel(reason="the session ends")

    def close(self, grace: float) -> None:
        """No more tickets will come. What the model was asked and has not answered has *grace* seconds."""
        self._closed = True
        self.inbox.close()
        self._operation.finish()
        deadline = trio.current_time() + grace
        if self._in_flight:
            self._operation.scope.deadline = deadline
        else:
            self._eviction.deadline = min(self._eviction.deadline, deadline)

    async def run(self) -> None:
        """Serve until the inbox is closed and nothing is in flight."""
        with self._operation.scope:
            async with trio.open_nursery() as calls:
                try:
                    await self._serve(calls)
                except Exception as error:
                    self._report(error)
        if self._operation.scope.cancelled_caught:
            self.abandoned = True
            if self._operation.expired:
                self._report(self._timeout(self.held_back))
            else:
                logger.warning("grouped predict still in flight at route end")

    async def _serve(self, calls: trio.Nursery) -> None:
        while True:
            try:
                self._hold(await self._outbox.receive())
            except trio.EndOfChannel:
                return
            while not (self._stopped or self._closed):
                while self.sent:
                    self._hold(self._outbox.receive_nowait())
                if self.evictions and not self._in_flight:
                    await self.evict(self._spec.limits.model_predict_timeout)
                    await trio.lowlevel.checkpoint()
                    continue
                fused = self._model.fuses_predicts()
                one_at_a_time = fused or len(self.evictions) >= _OVERDUE
                chosen = [] if one_at_a_time and self._in_flight else self._choose()
                if not chosen:
                    break
                if fused:
                    await self._predict_fused(chosen)
                    if self.held_back or self.evictions:
                        await trio.lowlevel.checkpoint()
                        continue
                    break
                for ticket in chosen:
                    self._in_flight += 1
                    calls.start_soon(self._predict_alone, ticket, self._send([ticket]))
                break

    def _hold(self, ticket: Ticket | None) -> None:
        self.sent -= 1
        if ticket is None:
            self._nudged = False
        else:
            self.held_back.append(ticket)

    def _choose(self) -> list[Ticket]:
        """The tickets to predict now, in order of their episodes' slots. Withdrawn ones leave the list."""
        waiting, self.held_back = self.held_back, []
        still_wanted = PredictState.WANTED
        wanted = [ticket for ticket in waiting if ticket.buffer.state is still_wanted]
        if len(wanted) < len(waiting):
            for ticket in waiting:
                ticket.posted = ticket.buffer.state is still_wanted
        if self._scheduler is not None and wanted:
            numbers = sorted(ticket.number for ticket in wanted)
            try:
                planned = set(self._scheduler.plan(numbers, self.live - self.blocked))
            except Exception as error:
                raise HookError(f"the scheduler's plan raised {type(error).__name__}: {error}") from error
            if planned.isdisjoint(numbers) and not self._in_flight and self.blocked >= self.live:
                planned.update(numbers)
            self.held_back = [ticket for ticket in wanted if ticket.number not in planned]
            wanted = [ticket for ticket in wanted if ticket.number in planned]
        if len(wanted) > 1:
            wanted.sort(key=_order)
        return wanted

    def _send(self, tickets: Sequence[Ticket]) -> list[PredictRequest]:
        requests: list[PredictRequest] = []
        for ticket in tickets:
            ticket.posted = False
            ticket.buffer.sent()
            for lane in ticket.lanes:
                lane.predicted = True
            requests.append(ticket.request)
        return requests

    async def _predict_fused(self, tickets: list[Ticket]) -> None:
        requests = self._send(tickets)
        operation = self._operation
        self._in_flight = 1
        self._watchdog.arm(operation, "model.predict", 0, self._spec.limits.model_predict_timeout)
        started = perf_counter_ns()
        try:
            results = await self._model.predict_group(requests)
        except trio.Cancelled:
            if operation.expired:
                self.held_back = tickets
            raise
        except Exception as error:
            failure = self._model_error(error)
            raise failure from failure.__cause__
        finally:
            operation.finish()
            self._in_flight = 0
        self._land(tickets, requests, results, perf_counter_ns() - started)

    async def _predict_alone(self, ticket: Ticket, requests: list[PredictRequest]) -> None:
        started = perf_counter_ns()
        try:
            with trio.CancelScope() as scope:
                scope.deadline = trio.current_time() + self._spec.limits.model_predict_timeout
                results = await self._model.predict_group(requests)
                self._land([ticket], requests, results, perf_counter_ns() - started)
            if scope.cancelled_caught:
                self.abandoned = True
                self._report(self._timeout([ticket]))
        except Exception as error:
            self._report(self._model_error(error))
        finally:
            self._in_flight -= 1
            self.nudge()

    def _land(
        self,
        tickets: Sequence[Ticket],
        requests: Sequence[PredictRequest],
        results: Sequence[PredictReply | Exception],
        elapsed_ns: int,
    ) -> None:
        if len(results) != len(requests):
            raise ProtocolError(
                f"model component {self._spec.model_component_id} answered {len(results)} of {len(requests)} "
                "grouped predicts"
            )
        first = results[0]
        self.meter.record(None if isinstance(first, Exception) else first, len(requests), elapsed_ns)
        for ticket, request, result in zip(tickets, requests, results, strict=True):
            if isinstance(result, Exception):
                raise self._model_error(result)
            if (
                result.request_id != request.request_id
                or result.env_id != request.env_id
                or result.session_id != request.session_id
            ):
                raise ModelRouteMismatch(self._spec.model_component_id, request.request_id)
            if not result.actions:
                raise ProtocolError(f"model component {self._spec.model_component_id} returned no actions")
            ticket.predict_ns += elapsed_ns
            if ticket.held:
                self.evictions.extend(ticket.held)
                ticket.held.clear()
            ticket.buffer.land(result.actions)
            ticket.wake()

    async def evict(self, limit: float) -> None:
        """Send the queued evictions in one request. A failure or a timeout is logged, and the ids are dropped."""
        episode_ids, self.evictions = tuple(self.evictions), []
        spec = self._spec
        request = ResetAdapterRequest(
            spec.session_id, spec.env_id, self._route.request_id("reset_adapter"), episode_ids
        )
        started = perf_counter_ns()
        with trio.CancelScope() as self._eviction:
            self._eviction.deadline = trio.current_time() + limit
            try:
                await self._model.reset_adapter(request)
            except Exception as error:
                logger.warning("model reset_adapter (evict) failed: %s", error)
            self._evict_meter(perf_counter_ns() - started)
        if self._eviction.cancelled_caught:
            why = "given up, the session ends" if self._stopped else "no answer in time"
            logger.warning("model reset_adapter (evict) failed: %s", why)

    def _report(self, error: Exception) -> None:
        """Fail the session, unless it has all it wanted and only an unneeded predict was still out."""
        if self._closed and not self._stopped:
            logger.warning("a predict nobody waits for any more failed: %s", error)
        else:
            self._fail(error)

    def _timeout(self, tickets: Sequence[Ticket]) -> OperationTimeout:
        step = max((lane.step for ticket in tickets for lane in ticket.lanes), default=0)
        spec = self._spec
        return OperationTimeout(
            spec.env_id, spec.model_component_id, "model.predict", step, spec.limits.model_predict_timeout
        )

    def _model_error(self, error: Exception) -> Exception:
        """A model's own typed error comes out as it was raised; everything else is a failed model request."""
        component = self._spec.model_component_id
        if isinstance(error, EndpointError):
            failure = ModelRpcError(component, error.message, error.recoverable, error.code)
        elif isinstance(error, SessionError):
            return error
        else:
            failure = ModelRpcError(component, f"{type(error).__name__}: {error}", code="INTERNAL")
        failure.__cause__ = error
        return failure
