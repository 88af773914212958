"""One lane group: a task whose program counter is its state.

It reads as the rule it follows: claim slots, reset, then frame and step until an episode ends, and again. A group is
a single lane, or a whole vector that moves in lockstep. Where the spec's policy says so, a failed env operation does
not end it: the episodes it was playing are started again, here or in another group.
"""

import logging
from collections.abc import Sequence
from math import inf
from time import perf_counter_ns

import attrs
import trio

from rlmesh_trio.endpoints.env import Env
from rlmesh_trio.engine.announcer import Announcer, FinishedEpisode
from rlmesh_trio.engine.batcher import Batcher
from rlmesh_trio.engine.chunks import ChunkBuffer, PredictState
from rlmesh_trio.engine.listeners import Listeners
from rlmesh_trio.engine.merged_rows import merged_reply
from rlmesh_trio.engine.meters import EnvMeter
from rlmesh_trio.engine.relay import Relay
from rlmesh_trio.engine.rescue import Rescue
from rlmesh_trio.engine.route import LaneSlot, ResetPlan, Route, episode_info
from rlmesh_trio.engine.watchdog import Operation, Watchdog
from rlmesh_trio.errors import EndpointError, EnvRpcError, OperationTimeout, ProtocolError, SessionError
from rlmesh_trio.messages import (
    EnvReply,
    EpisodeInfo,
    EpisodeRecord,
    Leaves,
    PredictRequest,
    ResetRequest,
    StepTarget,
)
from rlmesh_trio.spec import SessionSpec
from rlmesh_trio.telemetry.aggregate import Telemetry

__all__ = ("LaneGroup", "SessionParts")

logger = logging.getLogger("rlmesh_trio")

_DRAIN_EVERY = 1024


@attrs.frozen(eq=False)
class SessionParts:
    """What every group of a session works with."""

    spec: SessionSpec
    route: Route
    env: Env
    batcher: Batcher
    relay: Relay
    listeners: Listeners
    watchdog: Watchdog
    telemetry: Telemetry
    reset_meter: EnvMeter
    step_meter: EnvMeter
    warned: set[str]
    rescue: Rescue


class LaneGroup:
    """Drives its lanes until the episode budget grants no more."""

    def __init__(
        self, parts: SessionParts, lanes: Sequence[LaneSlot], announcer: Announcer, buffer: ChunkBuffer, number: int
    ) -> None:
        self.lanes = lanes
        self.number = number
        self._parts = parts
        self._announcer = announcer
        self._buffer = buffer
        self._ticket = parts.batcher.ticket(number, lanes, buffer)
        self._operation = Operation()
        parts.watchdog.watch(self._operation)
        spec = parts.spec
        self._single_lane = spec.drives_lanes
        self._env_indices = (lanes[0].env_index,) if self._single_lane else ()
        self._step_limit = spec.limits.env_step_timeout
        self._generation = 0
        self._cold = True
        self._first_plan: ResetPlan | None = None
        self._failure: SessionError | None = None
        self._interruption: EnvRpcError | None = None
        self._epoch = 0
        self._failed_in: int | None = None
        self._owns_resets = spec.driver_owns_resets
        self._deferred: list[FinishedEpisode] = []
        self._roll_due = False
        self._round_ns = parts.telemetry.series("runner.round", "runner", "rpc.total")
        self._target = StepTarget(0, (), ())

    def claim(self) -> None:
        """Claim what the first reset needs, so that the order of the groups does not hang on the scheduler's."""
        self._first_plan = self._next_plan(self.lanes)

    async def run(self) -> None:
        """Drive episodes to the end of the budget; raises the typed error that fails the route."""
        self._buffer.drop_plan()  # A group that is started again may have stopped in the middle of a chunk.
        try:
            plan, self._first_plan = self._first_plan or self._next_plan(self.lanes), None
            while plan is not None:
                failure = await self._attempt(plan)
                plan = None if failure is None else await self._recover(failure)
        finally:
            self._operation.finish()
            self._parts.batcher.group_ended()

    def _next_plan(self, due: Sequence[LaneSlot]) -> ResetPlan | None:
        others_play = len(due) < len(self.lanes)
        plan = self._parts.route.plan_reset(
            due, self._generation, single_lane_group=self._single_lane, others_play=others_play
        )
        self._generation += 1
        return plan

    async def _attempt(self, plan: ResetPlan) -> SessionError | None:
        """Play on from *plan* until the budget is spent; what failed, if an env operation did before that."""
        operation = self._operation
        self._epoch = await self._parts.rescue.settled()
        self._interruption = None
        operation.renew()
        try:
            with operation.scope:
                await self._episodes(plan)
        except SessionError as error:
            if error is not self._failure:
                raise
            return error
        operation.finish()
        if operation.expired:
            return self._timeout()
        return self._interruption if operation.scope.cancelled_caught else None

    async def _episodes(self, plan: ResetPlan | None) -> None:
        parts, everyone = self._parts, self.lanes
        due, stepped = everyone, None
        while plan is not None:
            reply = await self._reset(due, plan)
            if stepped is not None and len(due) < len(everyone):
                reply = merged_reply(stepped, reply, due, len(everyone), parts.spec.env_contract)
            stepped = await self._play(reply)
            if stepped is None:
                return
            if parts.spec.resets_ended_lanes:
                due = [lane for lane in everyone if lane.completed]
            plan = self._next_plan(due)

    def interrupt(self, failure: EnvRpcError) -> None:
        """Stop playing as if the operation under way had failed like this."""
        operation = self._operation
        self._interruption = EnvRpcError(
            operation.name, operation.step, failure.message, failure.recoverable, failure.code
        )
        operation.scope.cancel(reason="the env connection was lost")

    async def _recover(self, failure: SessionError) -> ResetPlan | None:
        """What the group plays after a failed env operation, if anything. Raises *failure* if it is final."""
        rescue, lanes = self._parts.rescue, self.lanes
        failure.in_flight = self._parts.route.in_flight(lanes)
        if rescue.is_final(failure):
            raise failure
        self._buffer.drop_plan()
        self._ticket.predict_ns = 0
        reconnected = await rescue.restore(failure, self._epoch)
        # What failed last may have cost the connection too, and the reset that followed found it out: one failure.
        is_aftermath = reconnected and self._failed_in == self._epoch
        self._failed_in = self._epoch
        await self.announce_finished()
        self._end_on_model(lanes)
        plan = self._plan_again()
        if plan is None:
            logger.warning("an env operation that failed took no episode with it: %s", failure)
            return self._next_plan(lanes)
        if is_aftermath:
            return plan
        source = self._announcer.route
        again = await rescue.start_again(failure, self, lanes, plan, source, reconnected=reconnected)
        return plan if again else None

    def _plan_again(self) -> ResetPlan | None:
        """What starts the group's episodes again. Where a partial reset was due, its lanes get the episodes it had."""
        route, lanes = self._parts.route, self.lanes
        due = [lane for lane in lanes if lane.completed and lane.planned is None]
        if self._parts.spec.resets_ended_lanes and 0 < len(due) < len(lanes):
            following = self._next_plan(due)
            if following is not None:
                route.note_plan(due, following)
        return route.plan_again(lanes)

    async def _reset(self, lanes: Sequence[LaneSlot], plan: ResetPlan) -> EnvReply:
        """Send one driver-owned reset of *lanes*, which are all unless others play on, and start its episodes."""
        operation, limit = self._operation, self._parts.spec.limits.env_reset_timeout
        self._roll_due = False
        self._buffer.begin_reset()
        if not self._cold:
            self._parts.batcher.nudge()
        if plan.partly_covered:
            logger.warning("episode_seeds cannot cover this reset batch; it runs unseeded (lanes=%d)", len(lanes))
        named = tuple([lane.env_index for lane in lanes])
        request = ResetRequest(
            seeds=plan.seeds,
            options=plan.options,
            timeout_ms=_milliseconds(limit),
            env_indices=named if len(lanes) < len(self.lanes) else self._env_indices,
            episode_ids=plan.episode_ids,
        )
        self._parts.route.note_plan(lanes, plan)
        started = perf_counter_ns()
        self._parts.watchdog.arm(operation, "env.reset", 0, limit)
        try:
            reply = await self._parts.env.reset(request)
        except Exception as error:
            failure = self._failure = _env_error("env.reset", 0, error)
            raise failure from failure.__cause__
        operation.finish()
        elapsed = perf_counter_ns() - started
        self._parts.reset_meter.record(reply, elapsed)
        self._failed_in = None
        for lane in lanes:
            self._parts.route.start_planned(lane)
        self._announcer.renamed()
        self._address(tuple([lane.episode_id for lane in self.lanes]))
        cold, self._cold = self._cold, False
        if cold:
            await self._announcer.cold_start(elapsed, sum(not lane.surplus for lane in lanes))
        await self._announcer.started(lanes, from_auto_reset=not cold)
        return reply

    def _address(self, episode_ids: tuple[str, ...]) -> None:
        """From now on steps carry these ids."""
        self._target = StepTarget(_milliseconds(self._step_limit), self._env_indices, episode_ids)

    async def _play(self, reply: EnvReply) -> EnvReply | None:
        """Step from a reset's reply on; the step after which a reset is due, or ``None`` when the group is finished."""
        parts, buffer, ticket, lanes = self._parts, self._buffer, self._ticket, self.lanes
        route, listeners, env = parts.route, parts.listeners, parts.env
        to_model, to_env, announcer = parts.relay.to_model, parts.relay.to_env, self._announcer
        observation_space, action_space = announcer.observation_space, announcer.action_space
        meter, round_ns, nothing_outstanding = parts.step_meter, self._round_ns, PredictState.NONE
        operation, arm, step_limit = self._operation, parts.watchdog.arm, self._step_limit
        info = episode_info(lanes)
        first, capped = lanes[0], route.has_caps
        round_started = perf_counter_ns()
        observation, is_reset, infos = reply.observation, True, reply.infos
        while True:
            if listeners.hear_observations:
                observation = await announcer.observation(observation, to_model, is_reset=is_reset, infos=infos)
            elif to_model.is_checked and (converted := to_model.relay(observation_space, observation)) is not None:
                observation = await announcer.converted("env_to_model", converted)
            if self._observed(observation, info, is_reset=is_reset):
                await ticket.landed()
            while (action := buffer.take()) is None:
                if buffer.state is nothing_outstanding:
                    self._ask_again()
                await ticket.landed()
            if buffer.lead and (ahead := buffer.prefetch()) is not None:
                ticket.post(ahead)
            if listeners.hear_actions:
                action = await announcer.action(action, to_env)
            elif to_env.is_checked and (converted := to_env.relay(action_space, action)) is not None:
                action = await announcer.converted("model_to_env", converted)

            started = perf_counter_ns()
            arm(operation, "env.step", first.step + 1, step_limit)
            try:
                reply = await env.step(action, self._target)
            except Exception as error:
                failure = self._failure = _env_error("env.step", first.step + 1, error)
                raise failure from failure.__cause__
            operation.deadline = inf
            now = perf_counter_ns()
            step_ns = now - started
            meter.record(reply, step_ns)
            round_ns(now - round_started)
            round_started = now

            buffer.counter += 1
            predict_ns, ticket.predict_ns = ticket.predict_ns, 0
            route.account_step(lanes, reply.rewards, predict_ns, step_ns)
            if not route.total_steps % _DRAIN_EVERY:
                parts.telemetry.drain()
            ended = route.ended_lanes(lanes, reply.completed, reply.infos) if reply.completed or capped else []
            rolled = [lane for lane in lanes if lane.pending_id is not None] if self._roll_due else ()
            if listeners.step_completed is not None:
                await listeners.step_completed(announcer.step(reply.rewards, ended, reply.infos, predict_ns, step_ns))
            if rolled:
                await self._roll(rolled)
                info = episode_info(lanes)
            if ended:
                await self._end(ended)
            if (rolled or ended) and self._finished():
                await self._stop()
                return None
            if ended and self._owns_resets:
                return reply
            observation, is_reset, infos = reply.observation, False, reply.infos if rolled else None

    def _observed(self, observation: Leaves | None, info: tuple[EpisodeInfo, ...], *, is_reset: bool) -> bool:
        """Take in an observation; it goes out as a predict at once, which is told, unless a plan is still playing."""
        route, lanes = self._parts.route, self.lanes
        request = PredictRequest(
            route.session_id,
            route.env_id,
            route.request_id("reset_observation" if is_reset else "step_observation"),
            observation,
            info,
            (lanes[0].step,) if len(lanes) == 1 else tuple([lane.step for lane in lanes]),
        )
        due = self._buffer.observe(request)
        if due is None:
            return False
        self._ticket.post(due)
        return True

    def _ask_again(self) -> None:
        """The predict that flew was for an episode now over: ask from the newest observation."""
        request = self._buffer.replan()
        if request is None:
            raise ProtocolError(f"route {self._parts.spec.env_id} stalled with no operation in flight")
        self._ticket.post(request)

    async def _end(self, ended: Sequence[tuple[LaneSlot, EpisodeRecord]]) -> None:
        """Count finished episodes and drop the plan made for them. Surplus ones are not counted or announced."""
        finished: list[FinishedEpisode] = []
        for lane, record in ended:
            lane.completed = True
            if not lane.surplus:
                finished.append((lane, self._parts.route.complete(lane, record), record.final_info))
        self._drop_plan()
        self._deferred.extend(finished)
        if self._owns_resets:
            await self.announce_finished()
            self._end_on_model([lane for lane, _ in ended])
            return
        for lane, _ in ended:
            lane.pending_id = self._parts.route.new_id()
        self._roll_due = True
        self._address(tuple(lane.pending_id or lane.episode_id for lane in self.lanes))

    def _drop_plan(self) -> None:
        discarded = self._buffer.drop_plan()
        if discarded and len(self.lanes) > 1 and "whole-batch" not in self._parts.warned:
            self._parts.warned.add("whole-batch")
            logger.warning(
                "a lane's episode ended mid-chunk on a lockstep vector group: chunk replay is whole-batch, so every "
                "lane's buffered frames were discarded and the group re-plans. Serve lanes, or use an execution "
                "horizon of 1. (num_envs=%d, discarded_frames=%d)",
                len(self.lanes),
                discarded,
            )

    async def _roll(self, rolled: Sequence[LaneSlot]) -> None:
        """The env restarted these lanes: their old episodes are told of, their new ones begin."""
        route = self._parts.route
        self._roll_due = False
        self._buffer.withdraw()
        await self.announce_finished()
        self._end_on_model(rolled)
        for lane in rolled:
            granted = route.claim(1)
            route.start(lane, lane.pending_id or route.new_id(), granted[0] if granted else None, None, None)
        self._announcer.renamed()
        await self._announcer.started(rolled, from_auto_reset=True)

    async def _stop(self) -> None:
        """The group is finished: what was waiting for a roll that will not come goes out now."""
        await self.announce_finished()
        self._end_on_model([lane for lane in self.lanes if lane.completed])

    async def announce_finished(self) -> None:
        """Tell of the counted episodes that wait for their turn: each once, even if one who hears is cancelled."""
        cancelled: trio.Cancelled | None = None
        while self._deferred:
            try:
                await self._announcer.completed(self._deferred.pop(0))
            except trio.Cancelled as cut_short:
                cancelled = cut_short
        if cancelled is not None:
            raise cancelled

    def _end_on_model(self, lanes: Sequence[LaneSlot]) -> None:
        """Queue the lanes' episodes for eviction: each id the model predicted on, once."""
        known = [lane for lane in lanes if lane.predicted and not lane.ended]
        for lane in known:
            lane.ended = True
        if known:
            self._parts.batcher.end_episodes([lane.episode_id for lane in known], self._ticket)

    def _finished(self) -> bool:
        """Whether the budget needs nothing more of this group."""
        if (not self._single_lane or not self._owns_resets) and self._parts.route.budget_spent:
            return True
        return all(lane.surplus for lane in self.lanes)

    def held_evictions(self) -> list[str]:
        """Ids that still waited for this group's predict to land."""
        return self._ticket.held

    def _timeout(self) -> OperationTimeout:
        spec, operation = self._parts.spec, self._operation
        return OperationTimeout(spec.env_id, spec.env_component_id, operation.name, operation.step, operation.limit)


def _env_error(operation: str, step: int, error: Exception) -> SessionError:
    """An endpoint's failure with the operation and step it happened at; other typed errors come out as they are."""
    if isinstance(error, EndpointError):
        failure = EnvRpcError(operation, step, error.message, error.recoverable, error.code)
    elif isinstance(error, SessionError):
        return error
    else:
        failure = EnvRpcError(operation, step, f"{type(error).__name__}: {error}", code="INTERNAL")
    failure.__cause__ = error
    return failure


def _milliseconds(seconds: float) -> int:
    """A limit as the wire carries it: whole milliseconds, never rounded down to "no limit"."""
    return max(1, round(seconds * 1000))
