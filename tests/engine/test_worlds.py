"""Any small world at all: what must hold whatever the lanes, delays, chunks, budget and batching are."""

from collections import Counter
from collections.abc import Sequence
from itertools import pairwise

import attrs
import trio
import trio.testing
from hypothesis import given, settings
from hypothesis import strategies as st

from rlmesh_trio.engine.session import run_session
from rlmesh_trio.events import (
    ActionReceived,
    EpisodeCompleted,
    EpisodeStarted,
    LogEmitted,
    ObservationEmitted,
    StepCompleted,
)
from rlmesh_trio.messages import PredictRequest
from rlmesh_trio.report import Report
from rlmesh_trio.spec import SessionSpec
from rlmesh_trio.testing.scripted import LaneScript, ScriptedEnv, ScriptedModel, lane_spec, vector_spec
from tests.engine.recorder import Recorder

DELAYS = st.sampled_from([0.0, 0.0, 0.25, 0.5, 1.0])


@attrs.frozen
class World:
    """A session between scripted peers, and what it left."""

    lanes: Sequence[tuple[int, float]]
    driver_owned: bool
    alone: bool
    budget: int
    extra: int
    lead: int
    fuses: bool
    history: bool
    model_delay: float

    @property
    def spec(self) -> SessionSpec:
        width = len(self.lanes)
        if self.driver_owned:
            return lane_spec(width, self.budget, range(1000), trial_index_base=3)
        return vector_spec(width, self.budget, subset_step=self.alone)

    def run(self) -> tuple[Report, ScriptedEnv, ScriptedModel, Recorder]:
        env = ScriptedEnv(*(LaneScript(length, delay) for length, delay in self.lanes), next_step=not self.driver_owned)
        model = ScriptedModel(extra=self.extra, delay=self.model_delay, fuses=self.fuses, history=self.history)
        hooks = Recorder()

        async def main() -> Report:
            with trio.fail_after(1000):
                return await run_session(self.spec, env, model, hooks=hooks, prefetch_lead=self.lead)

        return trio.run(main, clock=trio.testing.MockClock(autojump_threshold=0)), env, model, hooks


worlds = st.builds(
    World,
    lanes=st.lists(st.tuples(st.integers(1, 5), DELAYS), min_size=1, max_size=4),
    driver_owned=st.booleans(),
    alone=st.booleans(),
    budget=st.integers(1, 9),
    extra=st.integers(0, 3),
    lead=st.integers(0, 3),
    fuses=st.booleans(),
    history=st.booleans(),
    model_delay=DELAYS,
)


@settings(max_examples=80)
@given(world=worlds, schedule=st.random_module())
def test_whatever_the_world(world: World, schedule: object) -> None:
    report, env, model, hooks = world.run()
    check_the_report(world, report, hooks)
    check_the_model(model)
    check_the_events(report, env, hooks)
    if world.history:
        check_the_history(world, model, hooks)
    assert len(model.released) == env.closes == 1


def check_the_report(world: World, report: Report, hooks: Recorder) -> None:
    lengths = [length for length, _ in world.lanes]
    assert report.total_episodes == world.budget
    assert sorted(s.episode_index for s in report.episodes) == list(range(1, world.budget + 1))
    for summary in report.episodes:
        slot = summary.episode_index - 1
        assert summary.step_count == summary.cumulative_reward == lengths[summary.env_index]
        assert (summary.seed, summary.trial_index) == ((slot, 3 + slot) if world.driver_owned else (None, None))
        assert summary.step_ms is not None
    announced = hooks.of(EpisodeCompleted)
    assert Counter(event.episode_index for event in announced) == Counter(s.episode_index for s in report.episodes)


def check_the_model(model: ScriptedModel) -> None:
    ended: set[str] = set()
    for kind, ids in model.calls:
        assert ended.isdisjoint(ids)
        if kind == "evict":
            assert len(ids) == len(set(ids))
            ended.update(ids)
    assert ended == set(model.predicted)


def check_the_events(report: Report, env: ScriptedEnv, hooks: Recorder) -> None:
    started = [event.episode_id for event in hooks.of(EpisodeStarted)]
    completed = [event.episode_id for event in hooks.of(EpisodeCompleted)]
    assert len(started) == len(set(started))
    assert sorted(started) == sorted(completed)
    for id_ in completed:
        story = hooks.under(id_)
        assert story[0] == "started"
        assert story[-1] == "completed"
        assert story.count("started") == story.count("completed") == 1
    assert report.total_steps == len(env.actions) == len(hooks.of(StepCompleted)) == len(hooks.of(ActionReceived))
    for step in hooks.of(StepCompleted):
        ended = [a or b for a, b in zip(step.terminated, step.truncated, strict=True)]
        assert not any(roll and end for roll, end in zip(step.autoreset_roll, ended, strict=True))
        assert (step.infos is None) == any(step.autoreset_roll)
    for observation in hooks.of(ObservationEmitted):
        rolled = observation.infos == {"phase": "roll"}
        assert (observation.infos is None) == (not observation.is_reset and not rolled)
    cold = [event for event in hooks.of(LogEmitted) if event.message.startswith("env reset complete")]
    assert len(cold) == len({event.route.lane for event in hooks.of(StepCompleted)})


def check_the_history(world: World, model: ScriptedModel, hooks: Recorder) -> None:
    """Every observation leaves its group at most once, in order; between two resets none is left out."""
    groups: dict[int | None, list[PredictRequest]] = {}
    homes = {id_: event.route.lane for event in hooks.of(ObservationEmitted) for id_ in event.episode_ids}
    for request in model.requests:
        groups.setdefault(homes[request.episode_info[0].episode_id], []).append(request)
    for requests in groups.values():
        left: list[tuple[str, int]] = []
        for request in requests:
            left += [(row.episode_info[0].episode_id, row.step) for row in request.history]
            assert request.step is not None
            left.append((request.episode_info[0].episode_id, request.step))
        steps = [step for _, step in left]
        assert steps == sorted(set(steps))
        for (before, earlier), (after, later) in pairwise(left):
            if before == after or not world.driver_owned:
                assert later == earlier + 1
