"""Runs that go on where an earlier one stopped: its episodes are counted and kept, the missing slots are played."""

from collections.abc import Sequence
from typing import Any

import attrs
import pytest
import trio
import trio.testing
from hypothesis import given, settings
from hypothesis import strategies as st

from rlmesh_trio.engine.route import Route
from rlmesh_trio.engine.seeds import check_finished_seeds
from rlmesh_trio.engine.session import run_session
from rlmesh_trio.errors import InvalidSpec, SessionError
from rlmesh_trio.events import EpisodeCompleted, EpisodeStarted, SessionEnded
from rlmesh_trio.report import EpisodeSummary, Report
from rlmesh_trio.spec import ENV_RESET_OPTIONS_KEY, SessionSpec
from rlmesh_trio.testing.scripted import ScriptedEnv, ScriptedModel, contract, lane_spec, one, vector_spec
from tests.engine.recorder import Recorder
from tests.engine.seeded import SeededVector, by_slot, partial_spec, played

BUDGET = 9
SEEDS = tuple(range(40, 40 + BUDGET))


def summary(index: int, seed: int | None = None, *, steps: int = 5) -> EpisodeSummary:
    return EpisodeSummary(index, 0, seed, index - 1, steps, 1.5, True, False, 7, None, None, None)


def virtually(spec: SessionSpec) -> tuple[Report, SeededVector]:
    return trio.run(played, spec, clock=trio.testing.MockClock(autojump_threshold=0))


SPECS = {
    "one lane, derived": one(BUDGET, base_seed=3, trial_index_base=20),
    "one lane, listed": one(BUDGET, episode_seeds=SEEDS),
    "one lane, listed in part": one(BUDGET, episode_seeds=SEEDS[:5], base_seed=3),
    "lanes, derived": lane_spec(3, BUDGET, base_seed=3, trial_index_base=20, seed_route_id="r"),
    "lanes, listed": lane_spec(2, BUDGET, SEEDS),
    "partial resets, listed": partial_spec(3, BUDGET, SEEDS, base_seed=3, trial_index_base=20),
    "partial resets, unseeded": partial_spec(3, BUDGET),
}


@pytest.mark.parametrize("spec", SPECS.values(), ids=SPECS)
@settings(max_examples=20)
@given(kept=st.permutations(range(BUDGET)), count=st.integers(0, BUDGET))
def test_the_merged_report_is_that_of_a_run_never_interrupted(
    spec: SessionSpec, kept: Sequence[int], count: int
) -> None:
    whole, _ = virtually(spec)
    finished = tuple(whole.episodes[position] for position in kept[:count])
    rest, env = virtually(attrs.evolve(spec, finished=finished))
    assert by_slot(rest.episodes) == by_slot(whole.episodes)
    assert tuple(rest.episodes[:count]) == finished
    assert (rest.total_episodes, len(rest.episodes)) == (BUDGET, BUDGET)
    if not spec.partial_reset:
        assert rest.total_steps == whole.total_steps
        assert len(env.resets) == BUDGET - count


async def test_an_interrupted_run_goes_on_from_the_report_of_its_failure(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async def give_out(_lane: int, _step: int) -> None:
        if len(env.actions) > 7:
            raise OSError("gone")

    spec = lane_spec(2, 6, base_seed=3)
    env = ScriptedEnv(2, 3)
    env.before_step = give_out
    with pytest.raises(SessionError) as caught:
        await run_session(spec, env, ScriptedModel())
    left = caught.value.report
    assert left is not None
    assert 0 < left.total_episodes < 6
    report = await run_session(attrs.evolve(spec, finished=tuple(left.episodes)), ScriptedEnv(2, 3), ScriptedModel())
    whole = await run_session(spec, ScriptedEnv(2, 3), ScriptedModel())
    seeds = [(e.episode_index, e.seed, e.trial_index) for e in sorted(report.episodes, key=lambda e: e.episode_index)]
    assert seeds == [
        (e.episode_index, e.seed, e.trial_index) for e in sorted(whole.episodes, key=lambda e: e.episode_index)
    ]


async def test_the_missing_slots_are_handed_out_ascending(autojump_clock: trio.testing.MockClock) -> None:
    declared = contract(metadata={ENV_RESET_OPTIONS_KEY: "trial_index"})
    finished = tuple(summary(index, 40 + index - 1) for index in (9, 2, 1, 5))
    spec = one(BUDGET, episode_seeds=SEEDS, trial_index_base=100, env_contract=declared, finished=finished)
    env, hooks = ScriptedEnv(2), Recorder()
    report = await run_session(spec, env, ScriptedModel(), hooks=hooks)
    assert [reset.seeds for reset in env.resets] == [(42,), (43,), (45,), (46,), (47,)]
    assert [dict(reset.options or {}) for reset in env.resets] == [
        {"trial_index": 100 + slot} for slot in (2, 3, 5, 6, 7)
    ]
    assert [event.episode_index for event in hooks.of(EpisodeStarted)] == [3, 4, 6, 7, 8]
    assert [event.episode_record_id for event in hooks.of(EpisodeCompleted)][:2] == ["ep-000003", "ep-000004"]
    assert [e.episode_index for e in report.episodes] == [9, 2, 1, 5, 3, 4, 6, 7, 8]
    assert (report.total_steps, report.total_episodes) == (4 * 5 + 5 * 2, BUDGET)


@pytest.mark.parametrize(
    "spec", [one(2), lane_spec(3, 2), vector_spec(3, 2), partial_spec(3, 2)], ids=["one", "lanes", "vector", "partial"]
)
async def test_when_all_are_finished_nothing_is_reset_and_the_end_is_orderly(
    spec: SessionSpec, autojump_clock: trio.testing.MockClock
) -> None:
    env, model, hooks = ScriptedEnv(*[1] * spec.num_envs), ScriptedModel(), Recorder()
    spec = attrs.evolve(spec, finished=(summary(2), summary(1)))
    report = await run_session(spec, env, model, hooks=hooks)
    assert (env.resets, env.actions, model.calls, env.closes) == ([], [], [], 1)
    assert hooks.kinds == ["SessionStarted", "TelemetryTaken", "SessionEnded"]
    [ended] = hooks.of(SessionEnded)
    assert (ended.reason, ended.total_steps, ended.total_episodes) == ("completed requested episodes", 10, 2)
    assert model.released == ["completed requested episodes"]
    assert report.episodes == spec.finished


async def test_an_unseeded_vector_that_restarts_its_lanes_plays_what_is_missing(
    autojump_clock: trio.testing.MockClock,
) -> None:
    spec = vector_spec(2, 6, finished=(summary(4), summary(1)))
    report = await run_session(spec, ScriptedEnv(2, 3, next_step=True), ScriptedModel())
    assert sorted(e.episode_index for e in report.episodes) == [1, 2, 3, 4, 5, 6]
    assert report.total_episodes == 6


def test_claims_pass_over_finished_slots() -> None:
    route = Route(one(8, finished=tuple(map(summary, (1, 3, 4)))), new_id=str, unix_ns=lambda: 0)
    assert route.claim(2) == (1, 4)
    assert route.claim(4) == ()
    assert route.claim_up_to(2) == (5, 6)
    assert route.claim_up_to(2) == (7,)
    assert route.claim(1) == ()
    assert (route.total_episodes, route.total_steps, route.budget_spent) == (3, 15, False)


class TestWrongSeeds:
    @pytest.mark.parametrize(
        ("fields", "seed", "complaint"),
        [
            ({"base_seed": 1}, 5, "was played with the seed 5, this spec gives it the seed"),
            ({"base_seed": 1}, None, "was played with no seed, this spec gives it the seed"),
            ({}, 5, "was played with the seed 5, this spec gives it no seed"),
            ({"episode_seeds": (7,)}, 5, "was played with the seed 5, this spec gives it no seed"),
            ({"episode_seeds": (7, 8, 9)}, 5, "was played with the seed 5, this spec gives it the seed 9"),
        ],
    )
    async def test_a_finished_episode_with_another_seed(
        self, fields: dict[str, Any], seed: int | None, complaint: str
    ) -> None:
        env, hooks = ScriptedEnv(1), Recorder()
        spec = one(4, finished=(summary(3, seed),), **fields)
        with pytest.raises(InvalidSpec, match=f"finished episode 3 {complaint}"):
            await run_session(spec, env, ScriptedModel(), hooks=hooks)
        assert (env.resets, env.closes, hooks.events) == ([], 0, [])

    async def test_another_session_id_is_another_seed(self) -> None:
        whole, _ = await played(one(3, base_seed=1))
        spec = one(3, base_seed=1, session_id="other", finished=tuple(whole.episodes[:1]))
        with pytest.raises(InvalidSpec, match="finished episode 1 was played with the seed"):
            check_finished_seeds(spec)

    @pytest.mark.parametrize("whose", ["partial_reset", "seed_every_episode"])
    def test_an_unseeded_batch_of_a_vector_is_no_mistake(self, whose: str) -> None:
        resets = {"partial_reset": False} | {whose: True}
        spec = partial_spec(2, 4, (7, 8, 9), finished=(summary(3, None),), **resets)
        check_finished_seeds(spec)
        with pytest.raises(InvalidSpec, match="the seed 5, this spec gives it the seed 9"):
            check_finished_seeds(attrs.evolve(spec, finished=(summary(3, 5),)))

    def test_a_vector_that_was_seeded_cannot_go_on_unseeded(self) -> None:
        with pytest.raises(InvalidSpec, match="the seed 5, this spec gives it no seed"):
            check_finished_seeds(vector_spec(2, 4, finished=(summary(1, 5),)))
