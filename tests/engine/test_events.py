"""The events of a session: their order within a group, and every field."""

from typing import Any

import attrs
import pytest
import trio
import trio.testing

from rlmesh_trio.engine.session import open_session, run_session
from rlmesh_trio.events import (
    ActionReceived,
    EpisodeCompleted,
    EpisodeStarted,
    LogEmitted,
    ObservationEmitted,
    RelayAdvised,
    Route,
    SessionEnded,
    SessionFailed,
    SessionStarted,
    StepCompleted,
    TelemetryTaken,
)
from rlmesh_trio.testing.scripted import (
    BYTE_SPACE,
    ScriptedEnv,
    ScriptedModel,
    lane_spec,
    one,
    vector_spec,
)
from tests.engine.listening import FULL, Advising, Transforming
from tests.engine.recorder import Recorder, of


async def test_the_order_within_a_group(autojump_clock: trio.testing.MockClock) -> None:
    hooks = Transforming()
    spec = one(2, env_ceiling=FULL, model_ceiling=FULL)
    await run_session(spec, ScriptedEnv(1), ScriptedModel(), hooks=hooks, relay_policy=Advising())
    assert hooks.kinds == [
        "SessionStarted",
        "LogEmitted",
        "EpisodeStarted",
        "ObservationEmitted",
        "RelayAdvised",
        "ObservationEmitted",
        "ActionReceived",
        "RelayAdvised",
        "ActionReceived",
        "StepCompleted",
        "EpisodeCompleted",
        "EpisodeStarted",
        "ObservationEmitted",
        "ObservationEmitted",
        "ActionReceived",
        "ActionReceived",
        "StepCompleted",
        "EpisodeCompleted",
        "TelemetryTaken",
        "SessionEnded",
    ]


async def test_the_order_at_a_roll(autojump_clock: trio.testing.MockClock) -> None:
    hooks = Recorder()
    await run_session(vector_spec(1, 2), ScriptedEnv(1, next_step=True), ScriptedModel(), hooks=hooks)
    assert hooks.kinds == [
        "SessionStarted",
        "LogEmitted",
        "EpisodeStarted",
        *("ObservationEmitted", "ActionReceived", "StepCompleted"),
        *("ObservationEmitted", "ActionReceived", "StepCompleted"),
        "EpisodeCompleted",
        "EpisodeStarted",
        *("ObservationEmitted", "ActionReceived", "StepCompleted"),
        "EpisodeCompleted",
        "TelemetryTaken",
        "SessionEnded",
    ]


class TestFields:
    async def test_of_a_lane_s_events(self, autojump_clock: trio.testing.MockClock) -> None:
        hooks = Transforming()
        spec = lane_spec(2, 2, seeds=(10, 11), trial_index_base=5)
        env = ScriptedEnv(2, 2, final_info=lambda lane: {"success": lane})
        report = await run_session(spec, env, ScriptedModel(extra=1), hooks=hooks)
        session = Route("TestEnv-v0", "env-1", "model-1")
        lane = Route("TestEnv-v0", "env-1", "model-1", 1)
        mine = [event for event in hooks.events if event.route == lane]
        [started] = of(EpisodeStarted, mine)
        slot = started.episode_index - 1
        id_, record = started.episode_id, f"ep-{slot + 1:06d}"
        assert started == EpisodeStarted("session-vec", lane, id_, record, slot + 1, 0, False, 10 + slot, 5 + slot)
        [log] = of(LogEmitted, mine)
        assert log == LogEmitted("session-vec", lane, "info", log.message, "runtime")
        assert log.message.startswith("env reset complete in ")
        assert log.message.endswith("ms (1 episode(s) ready)")
        first, second = of(ObservationEmitted, mine)[::2]
        assert (
            fields(first)
            == ObservationEmitted(
                "session-vec",
                lane,
                id_,
                (id_,),
                record,
                (record,),
                0,
                1,
                True,
                1,
                BYTE_SPACE,
                [b"\xff", b"\x01"],
                [b"\x01"],
                {"phase": "reset"},
            ).__getstate__()
        )
        assert (second.step, second.is_reset, second.infos, second.observation) == (1, False, None, [b"\xff", b"\x01"])
        actions = of(ActionReceived, mine)[::2]
        assert [fields(action) for action in actions] == [
            ActionReceived(
                "session-vec", lane, id_, (id_,), record, (record,), step, 1, BYTE_SPACE, [b"\xee", raw], [raw]
            ).__getstate__()
            for step, raw in ((1, b"\0"), (2, b"d"))
        ]
        steps = of(StepCompleted, mine)
        assert [fields(attrs.evolve(step, predict_ms=0, step_ms=0)) for step in steps] == [
            StepCompleted(
                "session-vec",
                lane,
                id_,
                record,
                number,
                1,
                (1.0,),
                {"phase": "step"},
                (number == 2,),
                (False,),
                (False,),
                0,
                0,
            ).__getstate__()
            for number in (1, 2)
        ]
        [completed] = of(EpisodeCompleted, mine)
        summary = report.episodes[[s.env_index for s in report.episodes].index(1)]
        assert completed == EpisodeCompleted(
            "session-vec",
            lane,
            id_,
            record,
            slot + 1,
            1,
            2,
            2.0,
            True,
            False,
            0,
            {"success": 1},
            True,
            10 + slot,
            5 + slot,
            summary.predict_ms,
            summary.step_ms,
        )
        assert hooks.of(SessionStarted) == [SessionStarted("session-vec", session, "TestEnv-v0")]
        assert hooks.of(SessionEnded) == [SessionEnded("session-vec", session, "completed requested episodes", 4, 2)]
        assert report.telemetry is not None
        assert hooks.of(TelemetryTaken)[-1] == TelemetryTaken("session-vec", session, report.telemetry)

    async def test_of_a_vector_s_events(self, autojump_clock: trio.testing.MockClock) -> None:
        hooks = Recorder()
        await run_session(vector_spec(2, 3), ScriptedEnv(1, 3, next_step=True), ScriptedModel(), hooks=hooks)
        route = Route("TestEnv-v0", "env-1", "model-1", None)
        assert {event.route for event in hooks.events} == {route}
        observations, steps = hooks.of(ObservationEmitted), hooks.of(StepCompleted)
        assert [(event.num_envs, event.is_reset, event.step, event.env_index) for event in observations] == [
            (2, True, 0, 0),
            (2, False, 1, 0),
            (2, False, 0, 0),
        ]
        assert [event.infos for event in observations] == [{"phase": "reset"}, None, {"phase": "roll"}]
        assert [len(event.episode_ids) for event in observations] == [2, 2, 2]
        assert observations[0].episode_record_ids == ("ep-000001", "ep-000002")
        assert observations[2].episode_record_ids == ("ep-000003", "ep-000002")
        assert [event.rewards for event in steps] == [(1.0, 1.0), (0.0, 1.0), (1.0, 1.0)]
        assert [event.infos for event in steps] == [{"phase": "step"}, None, {"phase": "step"}]
        assert [event.terminated for event in steps] == [(True, False), (False, False), (True, True)]
        assert [event.autoreset_roll for event in steps] == [(False, False), (True, False), (False, False)]
        assert [event.env_index for event in hooks.of(EpisodeStarted)] == [0, 1, 0]
        assert [event.started_from_auto_reset for event in hooks.of(EpisodeStarted)] == [False, False, True]

    async def test_a_driver_owned_restart_counts_as_an_auto_reset(self, autojump_clock: trio.testing.MockClock) -> None:
        hooks = Recorder()
        await run_session(one(3), ScriptedEnv(1), ScriptedModel(), hooks=hooks)
        assert [event.started_from_auto_reset for event in hooks.of(EpisodeStarted)] == [False, True, True]

    async def test_of_a_failed_session(self, autojump_clock: trio.testing.MockClock) -> None:
        hooks = Recorder()
        async with open_session(one(None), ScriptedEnv(1), ScriptedModel(delay=1), hooks=hooks) as session:
            await trio.sleep(2.5)
            session.cancel("enough")
            with pytest.raises(Exception, match="enough"):
                await session.wait()
        route = Route("TestEnv-v0", "env-1", "model-1")
        assert hooks.of(SessionFailed) == [
            SessionFailed("session-1", route, "route TestEnv-v0 cancelled at runtime step 0: enough")
        ]
        assert hooks.kinds[-2:] == ["TelemetryTaken", "SessionFailed"]
        assert hooks.of(SessionEnded) == []

    async def test_of_an_advisory(self, autojump_clock: trio.testing.MockClock) -> None:
        hooks = Recorder()
        spec = lane_spec(1, 1, env_ceiling=FULL, model_ceiling=FULL)
        await run_session(spec, ScriptedEnv(3), ScriptedModel(), hooks=hooks, relay_policy=Advising())
        assert [(event.leg, event.advisory.message) for event in hooks.of(RelayAdvised)] == [
            ("env_to_model", "env_to_model"),
            ("model_to_env", "model_to_env"),
        ]


def fields(event: Any) -> Any:
    return event.__getstate__()
