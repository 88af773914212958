"""What the tests of recovery share: a model that is strict about episode ids, and an env whose connection breaks."""

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeVar

import trio

from rlmesh_trio.errors import ConnectError, EndpointError
from rlmesh_trio.events import EpisodeCompleted, EpisodeStarted, IncidentHappened
from rlmesh_trio.messages import EnvReply, Leaves, PredictReply, PredictRequest, ResetAdapterRequest, ResetRequest
from rlmesh_trio.messages import StepTarget as Target
from rlmesh_trio.recovery import Recovery
from rlmesh_trio.report import Report
from rlmesh_trio.spec import SessionSpec
from rlmesh_trio.testing.scripted import ScriptedEnv, ScriptedModel
from tests.engine.recorder import Recorder

RETRY = Recovery("retry")
QUARANTINE = Recovery("quarantine")

T = TypeVar("T")


class StrictModel(ScriptedModel):
    """Fails when an episode is ended twice, or named, by a history row too, after it was ended."""

    def __init__(self, **fields: Any) -> None:
        super().__init__(**fields)
        self.ended: set[str] = set()

    async def predict_group(self, requests: Sequence[PredictRequest]) -> Sequence[PredictReply | Exception]:
        for request in requests:
            infos = [*request.episode_info, *(info for row in request.history for info in row.episode_info)]
            assert self.ended.isdisjoint(info.episode_id for info in infos)
        return await super().predict_group(requests)

    async def reset_adapter(self, request: ResetAdapterRequest) -> None:
        assert self.ended.isdisjoint(request.episode_ids)
        self.ended.update(request.episode_ids)
        await super().reset_adapter(request)


MODELS: dict[str, tuple[Callable[[], StrictModel], int]] = {
    "one by one": (lambda: StrictModel(delay=0.05), 0),
    "fused": (lambda: StrictModel(fuses=True), 0),
    "prefetch": (lambda: StrictModel(extra=3, delay=0.15), 2),
    "history": (lambda: StrictModel(extra=2, history=True, fuses=True, delay=0.05), 1),
}
"""Kinds of models, each with a prefetch lead."""


class Together:
    """Predicts when nobody steps or resets."""

    def plan(self, waiting: Sequence[int], busy: int) -> Sequence[int]:
        return waiting if busy == 0 else []


class LosableEnv(ScriptedEnv):
    """Loses its connection when the calls of *losses*, resets and steps counted from 1, arrive.

    Operations under way fail then, and later ones at once, until a reconnect succeeds; each reconnect takes *takes*
    seconds, and the first *refusals* of them fail. A lane must be reset before it is stepped on a new connection.
    """

    def __init__(self, *lanes: Any, losses: Sequence[int] = (), refusals: int = 0, takes: float = 0.5, **fields: Any):
        super().__init__(*lanes, **fields)
        self.losses = losses
        self.refusals = refusals
        self.takes = takes
        self.arrived = 0
        self.reconnects = 0
        self.lost = False
        self.refusal: Exception = ConnectError("nobody there")
        self.unready: set[int] = set()
        self._under_way: set[trio.CancelScope] = set()

    async def reset(self, request: ResetRequest) -> EnvReply:
        self.unready.difference_update(request.env_indices or range(len(self.lanes)))
        return await self._call(lambda: super(LosableEnv, self).reset(request))

    async def step(self, action: Leaves, target: Target) -> EnvReply:
        await trio.lowlevel.checkpoint_if_cancelled()
        unready = self.unready.intersection(target.env_indices or range(len(self.lanes)))
        if unready and not self.lost:
            raise AssertionError(f"lanes {unready} were stepped before they were reset")
        return await self._call(lambda: super(LosableEnv, self).step(action, target))

    async def _call(self, call: Callable[[], Awaitable[T]]) -> T:
        self.arrived += 1
        if self.arrived in self.losses:
            self.lost = True
            self.unready = set(range(len(self.lanes)))
            for scope in self._under_way:
                scope.cancel()
        if not self.lost:
            with trio.CancelScope() as scope:
                self._under_way.add(scope)
                try:
                    return await call()
                finally:
                    self._under_way.discard(scope)
        await trio.lowlevel.checkpoint()
        raise EndpointError("CONNECTION", "transport error: connection closed")

    async def reconnect(self) -> None:
        self.reconnects += 1
        await trio.sleep(self.takes)
        if self.reconnects <= self.refusals:
            raise self.refusal
        self.lost = False


def check(spec: SessionSpec, report: Report, model: ScriptedModel, hooks: Recorder) -> None:
    """Whatever was recovered from: the budget is exact, every id has its one end, and nothing was silent."""
    assert spec.max_episodes is not None
    assert report.total_episodes == len(report.episodes) == spec.max_episodes
    assert sorted(episode.episode_index for episode in report.episodes) == list(range(1, spec.max_episodes + 1))
    assert sorted(model.evicted) == sorted(model.predicted)
    incidents = [event.incident for event in hooks.of(IncidentHappened)]
    assert tuple(incidents) == report.incidents
    completed = [event.episode_id for event in hooks.of(EpisodeCompleted)]
    started = [event.episode_id for event in hooks.of(EpisodeStarted)]
    given_up = {incident.episode_id for incident in incidents if incident.episode_id is not None}
    assert len(completed) == len(set(completed)) == spec.max_episodes
    assert set(started) - given_up == set(completed)
    for id_ in completed:
        assert hooks.under(id_)[-1] == "completed"
