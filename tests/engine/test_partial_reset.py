"""A vector of which only the finished lanes are reset: what is asked of the env, told, observed and left alone."""

from collections.abc import Sequence
from typing import Any

import attrs
import pytest
import trio.testing

from rlmesh_trio.engine.seeds import episode_seed
from rlmesh_trio.engine.session import Session, run_session
from rlmesh_trio.errors import InvalidSpec, ProtocolError
from rlmesh_trio.events import EpisodeCompleted, EpisodeStarted, ObservationEmitted
from rlmesh_trio.messages import EnvReply, ResetRequest
from rlmesh_trio.report import Report
from rlmesh_trio.spec import ENV_RESET_OPTIONS_KEY, AutoresetMode, SessionSpec
from rlmesh_trio.testing.scripted import ScriptedEnv, ScriptedModel, contract
from tests.engine.recorder import Recorder, numbered
from tests.engine.seeded import partial_spec

SEEDS = tuple(range(100, 107))
DECLARED = contract(AutoresetMode.DISABLED, 3, metadata={ENV_RESET_OPTIONS_KEY: "trial_index"})


@attrs.frozen
class Ran:
    """A session between scripted peers that has ended."""

    report: Report
    env: ScriptedEnv
    model: ScriptedModel
    hooks: Recorder


async def run(spec: SessionSpec, *lengths: int | None, model: ScriptedModel | None = None) -> Ran:
    env, model, hooks = ScriptedEnv(*lengths), model or ScriptedModel(), Recorder()
    return Ran(await run_session(spec, env, model, hooks=hooks), env, model, hooks)


async def three_lanes(**fields: Any) -> Ran:
    """Lanes of 2, 3 and 2 steps. Resets: all; 0 and 2 after step 2; 1 after 3; 0 and, as surplus, 2 after 4."""
    spec = partial_spec(3, 7, SEEDS, env_contract=DECLARED, trial_index_base=10)
    return await run(attrs.evolve(spec, **fields), 2, 3, 2)


def observations(ran: Ran) -> list[ObservationEmitted]:
    return [event for event in ran.hooks.of(ObservationEmitted) if event.is_reset]


async def test_one_request_names_the_finished_lanes_and_all_its_lists_follow_them(
    autojump_clock: trio.testing.MockClock,
) -> None:
    ran = await three_lanes()
    assert [reset.env_indices for reset in ran.env.resets] == [(), (0, 2), (1,), (0, 2)]
    assert [reset.seeds for reset in ran.env.resets] == [(100, 101, 102), (103, 104), (105,), (106, 106)]
    assert [dict(reset.options or {})["trial_index"] for reset in ran.env.resets] == [
        [10, 11, 12],
        [13, 14],
        15,
        [16, 17],
    ]
    ids = [id_ for reset in ran.env.resets for id_ in reset.episode_ids]
    assert [len(reset.episode_ids) for reset in ran.env.resets] == [3, 2, 1, 2]
    assert len(set(ids)) == 8
    a, b, c, d, e, f, g, surplus = ids
    targets = [target.episode_ids for target in ran.env.targets]
    assert targets == [(a, b, c)] * 2 + [(d, b, e)] + [(d, f, e)] + [(g, f, surplus)] * 2
    assert {target.env_indices for target in ran.env.targets} == {()}


async def test_no_lane_is_named_when_all_have_finished(autojump_clock: trio.testing.MockClock) -> None:
    ran = await run(partial_spec(2, 4), 2, 2)
    assert [reset.env_indices for reset in ran.env.resets] == [(), ()]
    assert ran.report.total_episodes == 4


async def test_derived_seeds_follow_generation_and_lane(autojump_clock: trio.testing.MockClock) -> None:
    ran = await three_lanes(episode_seeds=(), base_seed=1234)

    def seeds(generation: int, *lanes: int) -> tuple[int, ...]:
        return tuple(episode_seed(1234, "session-vec", generation, lane) for lane in lanes)

    expected = [seeds(0, 0, 1, 2), seeds(1, 0, 2), seeds(2, 1), seeds(3, 0, 2)]
    assert [reset.seeds for reset in ran.env.resets] == expected


async def test_the_episodes_are_told_of_as_they_start_and_end_the_surplus_one_not(
    autojump_clock: trio.testing.MockClock,
) -> None:
    ran = await three_lanes()
    told = [(e.episode_index, e.env_index, e.started_from_auto_reset) for e in ran.hooks.of(EpisodeStarted)]
    assert told == [
        (1, 0, False),
        (2, 1, False),
        (3, 2, False),
        (4, 0, True),
        (5, 2, True),
        (6, 1, True),
        (7, 0, True),
    ]
    summaries = [
        (e.episode_index, e.env_index, e.seed, e.trial_index, e.step_count, e.cumulative_reward)
        for e in ran.report.episodes
    ]
    assert summaries == [
        (1, 0, 100, 10, 2, 2.0),
        (3, 2, 102, 12, 2, 2.0),
        (2, 1, 101, 11, 3, 3.0),
        (4, 0, 103, 13, 2, 2.0),
        (5, 2, 104, 14, 2, 2.0),
        (7, 0, 106, 16, 2, 2.0),
        (6, 1, 105, 15, 3, 3.0),
    ]
    assert [(e.episode_index, e.step_count) for e in ran.hooks.of(EpisodeCompleted)] == [
        (e.episode_index, e.step_count) for e in ran.report.episodes
    ]
    assert (ran.report.total_steps, ran.report.total_episodes) == (6, 7)


async def test_the_events_of_a_step_that_ends_one_lane(autojump_clock: trio.testing.MockClock) -> None:
    ran = await run(partial_spec(2, 2), 1, 2)
    assert numbered(ran.hooks.events) == [
        "started 1",
        "started 2",
        "observation 1 2",
        "step 1",
        "completed 1",
        "observation 3 2",
        "step 3",
        "completed 2",
    ]


async def test_the_rows_are_merged_and_observed_once(autojump_clock: trio.testing.MockClock) -> None:
    ran = await three_lanes()
    assert [event.observation for event in observations(ran)] == [[b"\1\1\1"], [b"\1\2\1"], [b"\1\1\1"], [b"\1\1\1"]]
    assert [event.infos for event in observations(ran)] == [{"phase": "reset"}] * 4
    requests = [(r.request_id.split(":")[1], r.observation, r.episode_steps) for r in ran.model.requests]
    assert requests == [
        ("reset_observation", [b"\1\1\1"], (0, 0, 0)),
        ("step_observation", [b"\1\1\1"], (1, 1, 1)),
        ("reset_observation", [b"\1\2\1"], (0, 2, 0)),
        ("reset_observation", [b"\1\1\1"], (1, 0, 1)),
        ("reset_observation", [b"\1\1\1"], (0, 1, 0)),
        ("step_observation", [b"\1\2\1"], (1, 2, 1)),
    ]
    for request, target in zip(ran.model.requests, ran.env.targets, strict=True):
        assert tuple(info.episode_id for info in request.episode_info) == target.episode_ids


async def test_a_capped_lane_is_reset_like_one_that_ended(autojump_clock: trio.testing.MockClock) -> None:
    ran = await run(partial_spec(2, 3, max_episode_steps=2), None, 3)
    assert [reset.env_indices for reset in ran.env.resets] == [(), ()]
    ran = await run(partial_spec(2, 3, max_episode_steps=3), None, 1)
    assert [reset.env_indices for reset in ran.env.resets] == [(), (1,), (1,)]
    assert [(e.env_index, e.step_count, e.truncated) for e in ran.report.episodes][-1] == (0, 3, True)


async def test_the_other_lanes_keep_the_time_they_started_at(autojump_clock: trio.testing.MockClock) -> None:
    env = ScriptedEnv(2, None)
    spec = partial_spec(2, 3, max_episode_seconds=3.0)
    session = Session(spec, env, ScriptedModel(), unix_ns=lambda: len(env.actions) * 10**9)
    await session.run()
    capped = next(e for e in session.report.episodes if e.env_index == 1)
    assert (capped.step_count, capped.truncated, capped.duration_ms) == (3, True, 3000)


async def test_a_lane_goes_on_as_surplus_while_another_still_plays(autojump_clock: trio.testing.MockClock) -> None:
    ran = await run(partial_spec(2, 2, (5, 6)), 1, 4)
    assert [reset.env_indices for reset in ran.env.resets] == [(), (0,), (0,), (0,)]
    assert [reset.seeds for reset in ran.env.resets] == [(5, 6), (), (), ()]
    assert [(e.env_index, e.step_count) for e in ran.report.episodes] == [(0, 1), (1, 4)]
    assert sorted(ran.model.evicted) == sorted(ran.model.predicted)
    assert len(ran.model.predicted) == 5


async def test_what_a_list_covers_in_part_goes_unseeded(
    caplog: pytest.LogCaptureFixture, autojump_clock: trio.testing.MockClock
) -> None:
    ran = await run(partial_spec(2, 4, (5, 6, 7)), 2, 2)
    assert [reset.seeds for reset in ran.env.resets] == [(5, 6), ()]
    assert "cannot cover this reset batch; it runs unseeded (lanes=2)" in caplog.text


async def test_each_episode_is_ended_on_the_model_once_and_after_its_last_predict(
    autojump_clock: trio.testing.MockClock,
) -> None:
    ran = await run(partial_spec(3, 9), 1, 2, 3, model=ScriptedModel(extra=2, delay=0.5))
    ended: set[str] = set()
    for kind, ids in ran.model.calls:
        assert ended.isdisjoint(ids)
        ended |= set(ids) if kind == "evict" else set()
    assert ended == set(ran.model.predicted)
    assert ran.report.total_episodes == 9


async def test_a_stale_prefetch_is_dropped_at_a_partial_reset(autojump_clock: trio.testing.MockClock) -> None:
    env, model = ScriptedEnv(2, 5), ScriptedModel(extra=3, delay=2.0)
    report = await run_session(partial_spec(2, 4), env, model, prefetch_lead=3)
    assert [(e.env_index, e.step_count) for e in report.episodes] == [(0, 2), (0, 2), (1, 5), (0, 2)]
    firsts = [action[0] for _, action in env.actions]
    assert firsts[0] == firsts[2] == firsts[4] == b"\0\0", "after each reset the model is asked anew"


class TestRefusals:
    async def test_a_model_that_wants_history(self, autojump_clock: trio.testing.MockClock) -> None:
        env, model, hooks = ScriptedEnv(1, 2), ScriptedModel(history=True), Recorder()
        with pytest.raises(InvalidSpec, match="partial_reset does not go with a model that wants observation history"):
            await run_session(partial_spec(2, 2), env, model, hooks=hooks)
        assert (env.resets, env.closes, model.released, hooks.events) == ([], 0, [], [])

    @pytest.mark.parametrize("rows", [(b"\1\1",), (b"",), (b"\1", b"\1"), None])
    async def test_a_reply_without_a_row_for_each_named_lane(
        self, rows: Sequence[bytes] | None, autojump_clock: trio.testing.MockClock
    ) -> None:
        class Wrong(ScriptedEnv):
            async def reset(self, request: ResetRequest) -> EnvReply:
                reply = await super().reset(request)
                return attrs.evolve(reply, observation=rows) if request.env_indices else reply

        with pytest.raises(ProtocolError, match=r"the reset of lanes \[0\] of 2 brought no row for each"):
            await run_session(partial_spec(2, 3), Wrong(1, 2), ScriptedModel())


async def test_an_env_without_observations_has_nothing_to_merge(autojump_clock: trio.testing.MockClock) -> None:
    class Blind(ScriptedEnv):
        def _reply(self, observation: bytes, infos: Any) -> EnvReply:
            return attrs.evolve(super()._reply(observation, infos), observation=None)

    report = await run_session(partial_spec(2, 3), Blind(1, 2), ScriptedModel())
    assert report.total_episodes == 3
