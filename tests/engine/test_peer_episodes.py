"""What the public rlmesh runtime promises of episodes: who restarts a lane, who is counted, and when it is cut."""

from collections import Counter

import pytest
import trio
import trio.testing

from rlmesh_trio.engine.route import RecordBook
from rlmesh_trio.engine.session import run_session
from rlmesh_trio.events import EpisodeCompleted, EpisodeStarted, Event, StepCompleted
from rlmesh_trio.messages import EnvReply, Leaves, Metadata, StepTarget
from rlmesh_trio.report import Report
from rlmesh_trio.spec import ENV_RESET_OPTIONS_KEY, AutoresetMode
from rlmesh_trio.testing import Fault, Gate
from rlmesh_trio.testing.scripted import (
    EchoEnv,
    LaneScript,
    ScriptedEnv,
    ScriptedModel,
    contract,
    lane_spec,
    one,
    vector_spec,
)
from tests.engine.peer import peer
from tests.engine.recorder import Numbers, Recorder, numbered


def first_lane_fails(lane: int) -> Metadata | None:
    return {"success": 0} if lane == 0 else None


async def vector_run(*lengths: int, budget: int, extra: int = 0) -> tuple[Report, ScriptedEnv, ScriptedModel, Recorder]:
    env = ScriptedEnv(*lengths, next_step=True, final_info=first_lane_fails)
    model, hooks = ScriptedModel(extra=extra), Recorder()
    return await run_session(vector_spec(len(lengths), budget), env, model, hooks=hooks), env, model, hooks


@peer(34)
async def test_an_env_that_restarts_itself_is_reset_once(autojump_clock: trio.testing.MockClock) -> None:
    report, env, model, _ = await vector_run(2, 3, 2, 4, budget=8)
    assert len(env.resets) == 1
    assert report.total_episodes >= 8
    assert len(model.requests) == report.total_steps


@peer(35)
async def test_a_roll_ends_nothing(autojump_clock: trio.testing.MockClock) -> None:
    _, _, _, hooks = await vector_run(1, 3, budget=4)
    steps = hooks.of(StepCompleted)
    assert (True, False) in [step.autoreset_roll for step in steps]
    for step in steps:
        ended = [term or trunc for term, trunc in zip(step.terminated, step.truncated, strict=True)]
        assert not any(roll and end for roll, end in zip(step.autoreset_roll, ended, strict=True))


@peer(36)
async def test_each_predicted_episode_is_ended_on_the_model_once(autojump_clock: trio.testing.MockClock) -> None:
    report, _, model, _ = await vector_run(2, 3, budget=4, extra=4)
    assert len(model.requests) < report.total_steps
    assert Counter(model.evicted) == dict.fromkeys(model.predicted, 1)
    assert all((len(id_), id_.count("-"), id_[14]) == (36, 4, "7") for id_ in model.predicted)


@peer(37)
async def test_no_predict_after_its_eviction(autojump_clock: trio.testing.MockClock) -> None:
    _, _, model, _ = await vector_run(1, 3, budget=4)
    ended: set[str] = set()
    for kind, ids in model.calls:
        if kind == "evict":
            ended.update(ids)
        else:
            assert ended.isdisjoint(ids)
    assert ended == set(model.predicted)


@peer(38)
async def test_a_completion_is_the_last_word_on_an_episode(autojump_clock: trio.testing.MockClock) -> None:
    report, _, _, hooks = await vector_run(1, 3, budget=4)
    completed = [event.episode_id for event in hooks.of(EpisodeCompleted)]
    assert len(completed) == len(set(completed)) == len(report.episodes) == 4
    assert all(hooks.under(id_)[-1] == "completed" for id_ in completed)
    assert hooks.under(completed[0]) == ["started", "observation", "step", "observation", "step", "completed"]
    assert hooks.under(completed[-1]) == ["started", "observation", "step", "completed"]
    assert numbered(hooks.events)[-1].startswith("completed")


@peer(39)
async def test_the_order_of_a_vector_s_events(autojump_clock: trio.testing.MockClock) -> None:
    _, _, _, hooks = await vector_run(1, 3, budget=4)
    assert numbered(hooks.events) == [
        "started 1",
        "started 2",
        "observation 1 2",
        "step 1",
        "observation 1 2",
        "step 1",
        "completed 1",
        "started 3",
        "observation 3 2",
        "step 3",
        "observation 3 2",
        "step 3",
        "completed 3",
        "completed 2",
        "started 4",
        "observation 4 5",
        "step 4",
        "completed 4",
    ]


@peer(40)
async def test_the_order_of_a_vector_s_model_calls(autojump_clock: trio.testing.MockClock) -> None:
    _, _, model, _ = await vector_run(1, 3, budget=4)
    number = Numbers()
    calls = [(kind, number(ids)) for kind, ids in model.calls]
    assert [(kind, sorted(ids) if kind == "evict" else ids) for kind, ids in calls] == [
        ("predict", [1, 2]),
        ("predict", [1, 2]),
        ("evict", [1]),
        ("predict", [3, 2]),
        ("predict", [3, 2]),
        ("evict", [2, 3]),
        ("predict", [4, 5]),
        ("evict", [4, 5]),
    ]


@peer(41)
async def test_a_vector_s_summaries(autojump_clock: trio.testing.MockClock) -> None:
    report, _, _, _ = await vector_run(1, 3, budget=4)
    assert [(s.episode_index, s.env_index, s.step_count, s.cumulative_reward, s.success) for s in report.episodes] == [
        (1, 0, 1, 1, False),
        (3, 0, 1, 1, False),
        (2, 1, 3, 3, None),
        (4, 0, 1, 1, False),
    ]
    assert (report.total_steps, report.total_episodes) == (5, 4)


@peer(42)
@pytest.mark.parametrize("base", [None, 0])
async def test_no_trials_where_the_env_restarts_itself(
    base: int | None, autojump_clock: trio.testing.MockClock
) -> None:
    declared = contract(AutoresetMode.NEXT_STEP, 2, metadata={ENV_RESET_OPTIONS_KEY: ["trial_index"]})
    env, hooks = ScriptedEnv(2, 3, next_step=True), Recorder()
    spec = vector_spec(2, 4, env_contract=declared, trial_index_base=base)
    report = await run_session(spec, env, ScriptedModel(), hooks=hooks)
    assert (report.total_steps, report.total_episodes) == (7, 4)
    assert [(s.episode_index, s.env_index, s.step_count) for s in report.episodes] == [
        (1, 0, 2),
        (2, 1, 3),
        (3, 0, 2),
        (4, 1, 3),
    ]
    assert [event.trial_index for event in hooks.of(EpisodeStarted)] == [None] * 4
    assert [event.trial_index for event in hooks.of(EpisodeCompleted)] == [None] * 4
    assert [reset.options for reset in env.resets] == [None]


@peer(43)
async def test_lanes_that_restart_themselves_stop_at_the_budget(autojump_clock: trio.testing.MockClock) -> None:
    env, hooks = ScriptedEnv(2, 2, next_step=True), Recorder()
    report = await run_session(vector_spec(2, 4, subset_step=True), env, ScriptedModel(), hooks=hooks)
    assert len(env.resets) == 2
    assert report.total_episodes == len(report.episodes) == 4
    assert len({event.episode_id for event in hooks.of(EpisodeCompleted)}) == 4


async def three_lanes() -> tuple[Report, ScriptedEnv, ScriptedModel]:
    env, model = ScriptedEnv(LaneScript(2, 0.02), LaneScript(5, 0.04), LaneScript(1)), ScriptedModel()
    return await run_session(lane_spec(3, 7, range(100, 110)), env, model), env, model


@peer(44)
async def test_lanes_take_episodes_as_they_get_free(autojump_clock: trio.testing.MockClock) -> None:
    report, env, model = await three_lanes()
    by_index = sorted(report.episodes, key=lambda s: s.episode_index)
    assert [(s.episode_index, s.seed) for s in by_index] == [(n, 99 + n) for n in range(1, 8)]
    assert Counter(s.env_index for s in by_index) == {0: 1, 1: 1, 2: 5}
    assert {seed for reset in env.resets for seed in reset.seeds} == set(range(100, 107))
    assert all(len(reset.env_indices) == 1 for reset in env.resets)
    assert all(len(indices) == 1 for indices, _ in env.actions)
    assert env.closes == 1
    assert len(model.released) == 1


@peer(45)
async def test_the_steps_of_each_lane_s_episodes(autojump_clock: trio.testing.MockClock) -> None:
    report, _, _ = await three_lanes()
    lanes = {s.episode_index: (s.env_index, s.step_count) for s in report.episodes}
    assert [lanes[index] for index in range(1, 8)] == [(0, 2), (1, 5), *[(2, 1)] * 5]


@peer(46)
async def test_a_slow_predict_does_not_hold_a_sibling_lane(autojump_clock: trio.testing.MockClock) -> None:
    gate = Gate()
    model = ScriptedModel(faults=[Fault("predict", gate, call=1)])
    reports: list[Report] = []

    async def run() -> None:
        reports.append(await run_session(lane_spec(2, 4), ScriptedEnv(2, 2), model))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(run)
        await trio.testing.wait_all_tasks_blocked()
        assert (gate.arrived, len(model.requests)) == (1, 7)
        gate.open()
    assert reports[0].total_episodes == 4


@peer(47)
async def test_the_budget_bounds_starts(autojump_clock: trio.testing.MockClock) -> None:
    hooks = Recorder()
    report = await run_session(lane_spec(2, 3), ScriptedEnv(1, 3), ScriptedModel(), hooks=hooks)
    assert len(report.episodes) == len(hooks.of(EpisodeStarted)) == len(hooks.of(EpisodeCompleted)) == 3


async def capped_run() -> tuple[Report, EchoEnv, list[Event]]:
    env, hooks = EchoEnv(), Recorder()
    return await run_session(one(3, max_episode_steps=4), env, ScriptedModel(), hooks=hooks), env, hooks.events


@peer(48)
async def test_an_episode_is_cut_at_the_cap(autojump_clock: trio.testing.MockClock) -> None:
    report, env, events = await capped_run()
    assert (len(env.actions), len(env.resets)) == (12, 3)
    assert (report.total_episodes, report.total_steps) == (3, 12)
    assert [(s.episode_index, s.step_count, s.truncated) for s in report.episodes] == [
        (1, 4, True),
        (2, 4, True),
        (3, 4, True),
    ]
    assert len({event.episode_id for event in events if isinstance(event, EpisodeCompleted)}) == 3


@peer(49)
async def test_what_a_cut_episode_tells(autojump_clock: trio.testing.MockClock) -> None:
    report, _, events = await capped_run()
    assert numbered(events) == [
        f"{kind} {number}" for number in (1, 2, 3) for kind in ("started", *("observation", "step") * 4, "completed")
    ]
    assert [(s.cumulative_reward, s.terminated, s.success, s.trial_index) for s in report.episodes] == [
        (4, False, None, 0),
        (4, False, None, 1),
        (4, False, None, 2),
    ]


class Tireless(EchoEnv):
    """Gives one and the same reply to every step, for it gives many."""

    reply = EnvReply([b"\0"], {"phase": "step"}, rewards=[1.0])

    async def step(self, action: Leaves, target: StepTarget) -> EnvReply:
        await trio.lowlevel.checkpoint()
        return self.reply


@peer(50)
async def test_the_built_in_cap(autojump_clock: trio.testing.MockClock) -> None:
    report = await run_session(one(), Tireless(), ScriptedModel(extra=99))
    assert [(s.step_count, s.truncated, s.cumulative_reward) for s in report.episodes] == [(100_000, True, 100_000)]
    assert (report.total_steps, report.total_episodes) == (100_000, 1)


@peer(81)
async def test_what_is_new_on_a_lane_that_restarts(autojump_clock: trio.testing.MockClock) -> None:
    records = RecordBook()
    assert [records.register(id_) for id_ in "ab"] == [("ep-000001", 1, True), ("ep-000002", 2, True)]
    assert [records.register(id_) for id_ in "ac"] == [("ep-000001", 1, False), ("ep-000003", 3, True)]
    _, _, _, hooks = await vector_run(3, 1, budget=3)
    starts = hooks.of(EpisodeStarted)
    assert [(start.episode_record_id, start.env_index, start.started_from_auto_reset) for start in starts] == [
        ("ep-000001", 0, False),
        ("ep-000002", 1, False),
        ("ep-000003", 1, True),
    ]
