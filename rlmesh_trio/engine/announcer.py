"""Turns one group's books into events. Built per group, so that what never changes is bound once."""

from collections.abc import Awaitable, Callable, Sequence
from time import perf_counter_ns
from typing import TypeVar

from rlmesh_trio.engine.listeners import Listeners
from rlmesh_trio.engine.relay import Converted, Leg, RelayLeg
from rlmesh_trio.engine.route import LaneSlot
from rlmesh_trio.errors import HookError
from rlmesh_trio.events import (
    ActionReceived,
    EpisodeCompleted,
    EpisodeStarted,
    LogEmitted,
    ObservationEmitted,
    RelayAdvised,
    Route,
    StepCompleted,
)
from rlmesh_trio.messages import EpisodeRecord, Leaves, Metadata
from rlmesh_trio.report import EpisodeSummary
from rlmesh_trio.spec import ValueSpace
from rlmesh_trio.telemetry.aggregate import Telemetry

__all__ = ("Announcer", "FinishedEpisode")

E = TypeVar("E")
T = TypeVar("T")
FinishedEpisode = tuple[LaneSlot, EpisodeSummary, Metadata | None]


class Announcer:
    """One group's voice: each method first makes the event, then awaits whoever listens.

    ``observation_space`` and ``action_space`` are the env's.
    """

    def __init__(
        self,
        session_id: str,
        route: Route,
        lanes: Sequence[LaneSlot],
        spaces: tuple[ValueSpace, ValueSpace],
        listeners: Listeners,
        telemetry: Telemetry,
    ) -> None:
        self.route = route
        self._session_id = session_id
        self._lanes = lanes
        self.observation_space, self.action_space = spaces
        self._listeners = listeners
        self._episode_ids: tuple[str, ...] = ()
        self._record_ids: tuple[str, ...] = ()
        self._observation_transform_ns = telemetry.series("runner.transform_observation", "runner", "rpc.total")
        self._action_transform_ns = telemetry.series("runner.transform_action", "runner", "rpc.total")

    def renamed(self) -> None:
        """Lanes of the group play other episodes than before."""
        self._episode_ids = tuple(lane.episode_id for lane in self._lanes)
        self._record_ids = tuple(lane.record_id for lane in self._lanes)

    async def observation(
        self, observation: Leaves | None, leg: RelayLeg, *, is_reset: bool, infos: Metadata | None
    ) -> Leaves | None:
        """Transform, relay and emit one observation; what the model shall see."""
        transform, notify = self._listeners.transform_observation, self._listeners.observation_emitted
        lanes = self._lanes
        first = lanes[0]
        event = ObservationEmitted(
            self._session_id,
            self.route,
            first.episode_id,
            self._episode_ids,
            first.record_id,
            self._record_ids,
            first.step,
            first.env_index,
            is_reset,
            len(lanes),
            self.observation_space,
            observation,
            observation,
            infos,
        )
        if transform is not None:
            event.observation = await _transformed(transform, event, self._observation_transform_ns)
        converted = leg.relay(event.observation_space, event.observation)
        if converted is not None:
            event.observation = await self.converted("env_to_model", converted)
            event.observation_space = converted.space
        seen = event.observation
        if notify is not None:
            await notify(event)
        return seen

    async def action(self, action: Leaves, leg: RelayLeg) -> Leaves:
        """Transform, relay and announce one action; what the env shall get."""
        transform, notify = self._listeners.transform_action, self._listeners.action_received
        first = self._lanes[0]
        event = ActionReceived(
            self._session_id,
            self.route,
            first.episode_id,
            self._episode_ids,
            first.record_id,
            self._record_ids,
            first.step + 1,
            first.env_index,
            self.action_space,
            action,
            action,
        )
        if transform is not None:
            event.action = await _transformed(transform, event, self._action_transform_ns)
        converted = leg.relay(event.action_space, event.action)
        if converted is not None:
            event.action = await self.converted("model_to_env", converted)
            event.action_space = converted.space
        sent = event.action
        if notify is not None:
            await notify(event)
        return sent

    async def converted(self, leg: Leg, converted: Converted) -> Leaves:
        """Make known that the relay converted a payload; what the peer shall get instead."""
        notify = self._listeners.relay_advisory
        if converted.advisory is not None and notify is not None:
            await notify(RelayAdvised(self._session_id, self.route, leg, converted.advisory))
        return converted.leaves

    def step(
        self,
        rewards: Sequence[float],
        ended: Sequence[tuple[LaneSlot, EpisodeRecord]],
        infos: Metadata | None,
        predict_ns: int,
        step_ns: int,
    ) -> StepCompleted:
        """The event of one accounted step; its infos are withheld when a lane rolled."""
        lanes = self._lanes
        first = lanes[0]
        if len(lanes) == 1:
            rolls = (first.pending_id is not None,)
            terminated = (bool(ended) and ended[0][1].terminated,)
            truncated = (bool(ended) and ended[0][1].truncated,)
        else:
            flags = {lane.env_index: record for lane, record in ended}
            rolls = tuple(lane.pending_id is not None for lane in lanes)
            terminated = tuple(lane.env_index in flags and flags[lane.env_index].terminated for lane in lanes)
            truncated = tuple(lane.env_index in flags and flags[lane.env_index].truncated for lane in lanes)
        return StepCompleted(
            self._session_id,
            self.route,
            first.episode_id,
            first.record_id,
            first.step,
            first.env_index,
            tuple(rewards),
            None if True in rolls else infos,
            terminated,
            truncated,
            rolls,
            predict_ns / 1e6,
            step_ns / 1e6,
        )

    async def started(self, lanes: Sequence[LaneSlot], *, from_auto_reset: bool) -> None:
        """Announce the episodes that begin on *lanes*, the surplus ones not."""
        notify = self._listeners.episode_started
        if notify is None:
            return
        for lane in lanes:
            if lane.surplus:
                continue
            await notify(
                EpisodeStarted(
                    self._session_id,
                    self.route,
                    lane.episode_id,
                    lane.record_id,
                    lane.episode_index,
                    self._lanes.index(lane),
                    from_auto_reset,
                    lane.seed,
                    lane.trial_index,
                )
            )

    async def completed(self, finished: FinishedEpisode) -> None:
        """Announce a finished episode, while its lane still holds it."""
        notify = self._listeners.episode_completed
        if notify is not None:
            await notify(self._completion(*finished))

    def _completion(self, lane: LaneSlot, summary: EpisodeSummary, final_info: Metadata | None) -> EpisodeCompleted:
        return EpisodeCompleted(
            self._session_id,
            self.route,
            lane.episode_id,
            lane.record_id,
            summary.episode_index,
            summary.env_index,
            summary.step_count,
            summary.cumulative_reward,
            summary.terminated,
            summary.truncated,
            summary.duration_ms,
            final_info,
            summary.success,
            summary.seed,
            summary.trial_index,
            summary.predict_ms,
            summary.step_ms,
        )

    async def cold_start(self, elapsed_ns: int, episodes: int) -> None:
        """Say that the group's first reset is done."""
        notify = self._listeners.log
        if notify is not None:
            text = f"env reset complete in {elapsed_ns / 1e6:.0f}ms ({episodes} episode(s) ready)"
            await notify(LogEmitted(self._session_id, self.route, "info", text, "runtime"))


async def _transformed(transform: Callable[[E], Awaitable[T]], event: E, took_ns: Callable[[float], None]) -> T:
    """What a transform hook makes of *event*; one that raises fails the route."""
    started = perf_counter_ns()
    try:
        return await transform(event)
    except Exception as error:
        raise HookError(f"{type(error).__name__}: {error}") from error
    finally:
        took_ns(perf_counter_ns() - started)
