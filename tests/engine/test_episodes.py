"""Episodes beyond the shared behaviour: surplus lanes, where lanes stop, seeds that run out, and charged time."""

import logging
import time
from collections import Counter
from collections.abc import Sequence

import pytest
import trio
import trio.testing

from rlmesh_trio.engine.session import run_session
from rlmesh_trio.events import EpisodeCompleted, EpisodeStarted, StepCompleted
from rlmesh_trio.messages import PredictReply, PredictRequest
from rlmesh_trio.testing.scripted import EchoEnv, ScriptedEnv, ScriptedModel, lane_spec, one, vector_spec
from tests.engine.recorder import Recorder, row


class TestSurplus:
    async def test_a_lane_without_a_slot_is_stepped_and_predicted_but_not_told_of(
        self, autojump_clock: trio.testing.MockClock
    ) -> None:
        env, model, hooks = ScriptedEnv(1, 5, next_step=True), ScriptedModel(), Recorder()
        report = await run_session(vector_spec(2, 2), env, model, hooks=hooks)
        assert [(s.episode_index, s.env_index, s.step_count) for s in report.episodes] == [(1, 0, 1), (2, 1, 5)]
        assert (report.total_steps, report.total_episodes) == (5, 2)
        assert [event.episode_index for event in hooks.of(EpisodeStarted)] == [1, 2]
        assert [event.episode_index for event in hooks.of(EpisodeCompleted)] == [1, 2]
        assert len(model.predicted) == 4
        assert Counter(model.evicted) == dict.fromkeys(model.predicted, 1)
        assert [step.autoreset_roll for step in hooks.of(StepCompleted)] == [
            (False, False),
            (True, False),
            (False, False),
            (True, False),
            (False, False),
        ]

    async def test_more_lanes_than_episodes(self, autojump_clock: trio.testing.MockClock) -> None:
        hooks = Recorder()
        report = await run_session(
            vector_spec(3, 1), ScriptedEnv(2, 2, 2, next_step=True), ScriptedModel(), hooks=hooks
        )
        assert [(s.episode_index, s.env_index, s.step_count) for s in report.episodes] == [(1, 0, 2)]
        assert len(hooks.of(EpisodeStarted)) == 1

    async def test_a_lane_that_gets_no_slot_is_never_reset(self, autojump_clock: trio.testing.MockClock) -> None:
        env = ScriptedEnv(2, 2, 2)
        report = await run_session(lane_spec(3, 2), env, ScriptedModel())
        assert report.total_episodes == len(env.resets) == 2

    async def test_lanes_that_restart_themselves_stop_where_their_budget_does(
        self, autojump_clock: trio.testing.MockClock
    ) -> None:
        env = ScriptedEnv(1, 5, next_step=True)
        report = await run_session(vector_spec(2, 2, subset_step=True), env, ScriptedModel())
        assert [s.step_count for s in report.episodes] == [1, 5]
        assert Counter(indices for indices, _ in env.actions) == {(0,): 2, (1,): 5}

    async def test_the_lane_that_spends_the_budget_does_not_step_on(
        self, autojump_clock: trio.testing.MockClock
    ) -> None:
        env, model = ScriptedEnv(2, 2, next_step=True), ScriptedModel()
        report = await run_session(vector_spec(2, 2, subset_step=True), env, model)
        assert report.total_steps == 5
        assert Counter(model.evicted) == dict.fromkeys(model.predicted, 1)


async def test_seeds_that_run_out(caplog: pytest.LogCaptureFixture, autojump_clock: trio.testing.MockClock) -> None:
    env, hooks = ScriptedEnv(1), Recorder()
    with caplog.at_level(logging.WARNING, "rlmesh_trio"):
        report = await run_session(one(3, episode_seeds=(7, 8)), env, ScriptedModel(), hooks=hooks)
    assert [reset.seeds for reset in env.resets] == [(7,), (8,), ()]
    assert [s.seed for s in report.episodes] == [event.seed for event in hooks.of(EpisodeStarted)] == [7, 8, None]
    assert caplog.messages == []


async def test_the_seed_travels_with_every_predict_of_its_episode(autojump_clock: trio.testing.MockClock) -> None:
    model = ScriptedModel()
    await run_session(one(2, episode_seeds=(7, 8)), ScriptedEnv(2), model)
    assert [request.episode_info[0].seed for request in model.requests] == [7, 7, 8, 8]
    assert [request.episode_steps for request in model.requests] == [(0,), (1,), (0,), (1,)]


async def test_request_ids_count_observations_not_predicts(autojump_clock: trio.testing.MockClock) -> None:
    model = ScriptedModel(extra=1)
    await run_session(one(), ScriptedEnv(3), model)
    assert [request.request_id for request in model.requests] == [
        "TestEnv-v0:reset_observation:000001",
        "TestEnv-v0:step_observation:000003",
    ]


async def test_a_stale_echo_is_dropped_with_a_debug_line(
    caplog: pytest.LogCaptureFixture, autojump_clock: trio.testing.MockClock
) -> None:
    with caplog.at_level(logging.DEBUG, "rlmesh_trio"):
        report = await run_session(one(2, max_episode_steps=2), EchoEnv(), ScriptedModel())
    assert [s.step_count for s in report.episodes] == [2, 2]
    assert len([text for text in caplog.messages if "stale completion echo" in text]) == 1


class Working(ScriptedModel):
    """Works for two real milliseconds on every predict."""

    async def predict_group(self, requests: Sequence[PredictRequest]) -> Sequence[PredictReply | Exception]:
        replies = await super().predict_group(requests)
        time.sleep(0.002)  # noqa: ASYNC251 - the engine measures real time
        return replies


async def test_every_predict_s_time_is_charged_to_one_step(autojump_clock: trio.testing.MockClock) -> None:
    """A stale predict lands before the one that is played: the next step is charged with both."""
    model, hooks = Working(extra=1, delay=1.0), Recorder()
    spec = vector_spec(1, 3)
    report = await run_session(spec, ScriptedEnv(2, next_step=True), model, hooks=hooks, prefetch_lead=1)
    charged = [step.predict_ms for step in hooks.of(StepCompleted)]
    assert max(charged) >= 4
    calls = row(report.telemetry, "model.predict", "rpc.total")
    assert calls is not None
    assert sum(charged) <= calls.count * calls.avg + 1e-6
    assert sum(charged) >= (calls.count - 1) * 2


async def test_a_fused_predict_s_whole_time_is_charged_to_each_group(autojump_clock: trio.testing.MockClock) -> None:
    hooks = Recorder()
    report = await run_session(lane_spec(3, 3), ScriptedEnv(1, 1, 1), Working(fuses=True), hooks=hooks)
    calls = row(report.telemetry, "model.predict", "rpc.total")
    assert calls is not None
    assert calls.count == 1
    assert [step.predict_ms for step in hooks.of(StepCompleted)] == [pytest.approx(calls.avg)] * 3
    assert [s.predict_ms for s in report.episodes] == [pytest.approx(calls.avg)] * 3


async def test_what_a_predict_call_leaves_in_telemetry(autojump_clock: trio.testing.MockClock) -> None:
    report = await run_session(lane_spec(3, 3), ScriptedEnv(2, 2, 2), ScriptedModel(fuses=True))
    sizes = row(report.telemetry, "model.predict", "group.size")
    calls = row(report.telemetry, "model.predict", "rpc.total")
    assert sizes is not None
    assert calls is not None
    assert (sizes.count, sizes.avg, calls.count) == (2, 3, 2)
    history = await run_session(one(), ScriptedEnv(9), ScriptedModel(extra=3, history=True))
    rows = row(history.telemetry, "model.predict", "history.rows")
    assert rows is not None
    assert (rows.count, rows.avg) == (2, 3)
    rounds = row(history.telemetry, "runner.round", "rpc.total")
    assert rounds is not None
    assert rounds.count == 9
