"""What the public rlmesh runtime promises of chunks, prefetch and observation history."""

import logging

import pytest
import trio
import trio.testing

from rlmesh_trio.engine.session import run_session
from rlmesh_trio.events import ActionReceived, ObservationEmitted, StepCompleted
from rlmesh_trio.messages import Leaves
from rlmesh_trio.testing.scripted import ScriptedEnv, ScriptedModel, one, vector_spec
from tests.engine.peer import peer
from tests.engine.recorder import Recorder

Ledger = list[tuple[list[tuple[int, int]], tuple[int, int]]]


@peer(22)
async def test_a_chunk_is_played_before_the_next_is_asked_for(autojump_clock: trio.testing.MockClock) -> None:
    env, model, hooks = ScriptedEnv(6), ScriptedModel(extra=2), Recorder()
    report = await run_session(one(), env, model, hooks=hooks)
    assert report.total_steps == len(env.actions) == 6
    assert len(model.requests) == 2
    assert len(hooks.of(ObservationEmitted)) == len(hooks.of(ActionReceived)) == 6
    assert [action for _, action in env.actions] == [[b"\0"], [b"d"], [b"e"]] * 2


@peer(23)
async def test_a_vector_that_loses_frames_is_warned_of_once(
    caplog: pytest.LogCaptureFixture, autojump_clock: trio.testing.MockClock
) -> None:
    with caplog.at_level(logging.WARNING, "rlmesh_trio"):
        await run_session(vector_spec(2, 4), ScriptedEnv(2, 3, next_step=True), ScriptedModel(extra=4))
    [warning] = [text for text in caplog.messages if "chunk replay is whole-batch" in text]
    assert "num_envs=2" in warning
    assert "discarded_frames=3" in warning


@peer(24)
async def test_prefetch_asks_while_the_plan_still_plays(autojump_clock: trio.testing.MockClock) -> None:
    env, model, hooks = ScriptedEnv(6), ScriptedModel(extra=2, delay=0.02), Recorder()
    report = await run_session(one(), env, model, hooks=hooks, prefetch_lead=1)
    assert (report.total_steps, report.total_episodes) == (6, 1)
    assert len(hooks.of(ObservationEmitted)) == len(hooks.of(ActionReceived)) == 6
    assert len(model.requests) in (2, 3)


@peer(25)
async def test_each_episode_is_first_predicted_on_its_reset_observation(
    autojump_clock: trio.testing.MockClock,
) -> None:
    model = ScriptedModel(extra=2, delay=0.02)
    report = await run_session(one(2), ScriptedEnv(3), model, prefetch_lead=1)
    assert (report.total_episodes, report.total_steps) == (2, 6)
    first_seen: dict[str, Leaves | None] = {}
    for request in model.requests:
        first_seen.setdefault(request.episode_info[0].episode_id, request.observation)
    assert list(first_seen.values()) == [[b"\x01"], [b"\x01"]]


@peer(26)
async def test_frames_do_not_outlive_their_episode(autojump_clock: trio.testing.MockClock) -> None:
    model = ScriptedModel(extra=2)
    report = await run_session(one(3), ScriptedEnv(1), model)
    assert (report.total_episodes, report.total_steps) == (3, 3)
    assert model.ledger() == [([], (-1, 1))] * 3


@peer(27)
async def test_a_lane_that_restarts_itself_plays_the_terminal_chunk_on(
    autojump_clock: trio.testing.MockClock,
) -> None:
    model = ScriptedModel(extra=2)
    report = await run_session(vector_spec(1, 3), ScriptedEnv(1, next_step=True), model)
    assert report.total_episodes == 3
    assert len(model.requests) == 3


@peer(28)
async def test_predict_time_is_charged_to_the_step_it_was_for(autojump_clock: trio.testing.MockClock) -> None:
    hooks = Recorder()
    report = await run_session(vector_spec(1, 1), ScriptedEnv(5, next_step=True), ScriptedModel(extra=4), hooks=hooks)
    steps = hooks.of(StepCompleted)
    assert len(steps) == 5
    assert steps[0].predict_ms > 0
    assert [step.predict_ms for step in steps[1:]] == [0, 0, 0, 0]
    assert all(step.step_ms > 0 for step in steps)
    [summary] = report.episodes
    assert summary.predict_ms == pytest.approx(sum(step.predict_ms for step in steps) / 5, abs=1e-9)
    assert summary.step_ms == pytest.approx(sum(step.step_ms for step in steps) / 5, abs=1e-9)


async def history_of(lead: int) -> tuple[int, Ledger]:
    model = ScriptedModel(extra=3, history=True)
    report = await run_session(one(), ScriptedEnv(9), model, prefetch_lead=lead)
    ledger = model.ledger()
    left = [entry for rows, own in ledger for entry in (*rows, own)]
    assert [step for step, _ in left] == list(range(len(left)))
    return report.total_steps, ledger


@peer(29)
async def test_history_without_prefetch(autojump_clock: trio.testing.MockClock) -> None:
    assert await history_of(0) == (
        9,
        [([], (0, 1)), ([(1, 1), (2, 2), (3, 3)], (4, 4)), ([(5, 5), (6, 6), (7, 7)], (8, 8))],
    )


@peer(30)
async def test_history_with_a_lead_of_one(autojump_clock: trio.testing.MockClock) -> None:
    assert await history_of(1) == (9, [([], (0, 1)), ([(1, 1)], (2, 2)), ([(3, 3), (4, 4), (5, 5)], (6, 6))])


@peer(31)
async def test_history_with_a_lead_of_two(autojump_clock: trio.testing.MockClock) -> None:
    assert await history_of(2) == (9, [([], (0, 1)), ([], (1, 1)), ([(2, 2), (3, 3), (4, 4)], (5, 5))])


@peer(32)
async def test_history_counts_on_over_episodes_but_rows_do_not_cross_a_reset(
    autojump_clock: trio.testing.MockClock,
) -> None:
    model = ScriptedModel(extra=2, delay=0.02, history=True)
    await run_session(one(2), ScriptedEnv(3), model, prefetch_lead=1)
    assert model.ledger() == [([], (0, 1)), ([], (1, 1)), ([], (3, 1)), ([], (4, 1))]


@peer(33)
async def test_a_model_without_history_gets_none(autojump_clock: trio.testing.MockClock) -> None:
    model = ScriptedModel(extra=3)
    await run_session(one(), ScriptedEnv(9), model)
    assert model.ledger() == [([], (-1, 1)), ([], (-1, 4)), ([], (-1, 8))]
