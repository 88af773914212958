"""What the public rlmesh runtime promises of a run as a whole: its events, its telemetry, and how it ends."""

import attrs
import pytest
import trio
import trio.testing

from rlmesh_trio.engine.session import Session, open_session, run_session
from rlmesh_trio.errors import EndpointError, EnvRpcError, HookError, ModelRpcError, OperationTimeout, RouteCancelled
from rlmesh_trio.events import (
    ActionReceived,
    EpisodeCompleted,
    EpisodeStarted,
    ObservationEmitted,
    SessionEnded,
    SessionFailed,
    StepCompleted,
    TelemetryTaken,
)
from rlmesh_trio.messages import Leaves, Phases
from rlmesh_trio.report import EpisodeSummary, Report
from rlmesh_trio.spec import Limits
from rlmesh_trio.testing import Fail, Fault, Hang
from rlmesh_trio.testing.scripted import ScriptedEnv, ScriptedModel, one
from tests.engine.peer import peer
from tests.engine.recorder import Recorder, row

MS = 1_000_000


async def plain_run() -> tuple[Report, ScriptedEnv, ScriptedModel, Recorder]:
    env, model, hooks = ScriptedEnv(1), ScriptedModel(), Recorder()
    return await run_session(one(), env, model, hooks=hooks), env, model, hooks


@peer(1)
async def test_one_step_one_episode(autojump_clock: trio.testing.MockClock) -> None:
    report, env, model, hooks = await plain_run()
    assert (report.total_steps, report.total_episodes) == (1, 1)
    assert env.closes == 1
    assert model.released == ["completed requested episodes"]
    assert len(hooks.of(ActionReceived)) == 1
    assert len(hooks.of(SessionEnded)) == 1


@peer(2)
async def test_the_events_under_one_id(autojump_clock: trio.testing.MockClock) -> None:
    _, _, _, hooks = await plain_run()
    assert hooks.under(hooks.of(EpisodeStarted)[0].episode_id) == ["started", "observation", "step", "completed"]


@peer(3)
async def test_infos_belong_to_the_reset_and_to_the_step(autojump_clock: trio.testing.MockClock) -> None:
    _, _, _, hooks = await plain_run()
    assert [event.infos for event in hooks.of(ObservationEmitted)] == [{"phase": "reset"}]
    assert [event.infos for event in hooks.of(StepCompleted)] == [{"phase": "step"}]


@peer(4)
async def test_the_telemetry_of_a_run(autojump_clock: trio.testing.MockClock) -> None:
    report, _, _, _ = await plain_run()
    predicts = row(report.telemetry, "model.predict", "rpc.total")
    rounds = row(report.telemetry, "runner.round", "rpc.total")
    assert predicts is not None
    assert rounds is not None
    assert (predicts.count, rounds.count) == (1, 1)
    assert rounds.avg >= predicts.avg
    assert row(report.telemetry, "model.predict", "request.bytes") is not None
    assert row(report.telemetry, "model.predict", "response.bytes") is not None


@peer(5)
async def test_one_eviction_of_one_uuid7(autojump_clock: trio.testing.MockClock) -> None:
    _, _, model, _ = await plain_run()
    [(_, ids)] = [call for call in model.calls if call[0] == "evict"]
    [episode_id] = ids
    assert (len(episode_id), episode_id.count("-"), episode_id[14]) == (36, 4, "7")


@peer(6)
async def test_a_transform_that_raises(autojump_clock: trio.testing.MockClock) -> None:
    class Failing(Recorder):
        async def transform_action(self, event: ActionReceived) -> Leaves:
            raise ValueError("no such action")

    env, model = ScriptedEnv(1), ScriptedModel()
    with pytest.raises(HookError, match="no such action"):
        await run_session(one(), env, model, hooks=Failing())
    assert env.closes == 1
    assert len(model.released) == 1


@peer(7)
async def test_a_run_in_full(autojump_clock: trio.testing.MockClock) -> None:
    env, model, hooks = ScriptedEnv(1, final_info=lambda _: {"is_success": True}), ScriptedModel(), Recorder()
    report = await run_session(one(), env, model, hooks=hooks)
    assert [(reset.seeds, reset.options) for reset in env.resets] == [((), None)]
    assert [kind for kind, _ in model.calls] == ["predict", "evict"]
    assert model.calls[0][1] == model.calls[1][1]
    [observation] = hooks.of(ObservationEmitted)
    assert observation.observation == observation.raw_observation == [b"\x01"]
    [summary] = report.episodes
    assert attrs.evolve(summary, predict_ms=None, step_ms=None) == EpisodeSummary(
        episode_index=1,
        env_index=0,
        seed=None,
        trial_index=0,
        step_count=1,
        cumulative_reward=1.0,
        terminated=True,
        truncated=False,
        duration_ms=0,
        success=True,
        predict_ms=None,
        step_ms=None,
    )


@peer(8)
async def test_a_predict_that_is_too_slow(autojump_clock: trio.testing.MockClock) -> None:
    hooks = Recorder()
    spec = one(limits=Limits(model_predict_timeout=0.005))
    with pytest.raises(OperationTimeout) as caught:
        await run_session(spec, ScriptedEnv(1), ScriptedModel(delay=0.05), hooks=hooks)
    assert caught.value.operation == "model.predict"
    assert len(hooks.of(SessionFailed)) == 1
    [telemetry] = [event for event in hooks.of(TelemetryTaken) if event.snapshot.horizon == "session"]
    assert telemetry.snapshot.rows


@peer(9)
async def test_a_session_cancelled_before_it_runs(autojump_clock: trio.testing.MockClock) -> None:
    with pytest.raises(RouteCancelled) as caught:
        async with open_session(one(), ScriptedEnv(1), ScriptedModel()) as session:
            session.cancel("operator requested shutdown")
    assert caught.value.reason == "operator requested shutdown"


@peer(10)
async def test_a_model_that_hangs_in_release(autojump_clock: trio.testing.MockClock) -> None:
    model = ScriptedModel(faults=[Fault("release", Hang())])
    start = trio.current_time()
    report = await run_session(one(limits=Limits(service_close_timeout=0.05)), ScriptedEnv(1), model)
    assert trio.current_time() - start < 5
    assert report.total_episodes == 1
    assert model.released == []


@peer(11)
async def test_a_model_that_fails_in_the_second_episode(autojump_clock: trio.testing.MockClock) -> None:
    model = ScriptedModel(faults=[Fault("predict", Fail("INTERNAL", "out of memory"), call=3)])
    with pytest.raises(ModelRpcError):
        await run_session(one(2), ScriptedEnv(2), model)
    a, b = model.predicted
    assert model.calls == [("predict", (a,)), ("predict", (a,)), ("evict", (a,)), ("predict", (b,)), ("evict", (b,))]
    assert len(model.released) == 1


@peer(12)
async def test_no_eviction_after_an_abandoned_predict(autojump_clock: trio.testing.MockClock) -> None:
    class CancelsAtCompletion(Recorder):
        session: Session

        async def episode_completed(self, event: EpisodeCompleted) -> None:
            self.session.cancel()

    hooks = CancelsAtCompletion()
    model = ScriptedModel(extra=1, faults=[Fault("predict", Hang(), call=2), Fault("evict", Hang())])
    spec = one(limits=Limits(service_close_timeout=0.05))
    start = trio.current_time()
    with pytest.raises(RouteCancelled):  # noqa: PT012
        async with open_session(spec, ScriptedEnv(2), model, hooks=hooks, prefetch_lead=1) as session:
            hooks.session = session
            await session.wait()
    assert trio.current_time() - start < 1
    assert model.evicted == []


@peer(13)
async def test_an_env_error_keeps_its_cause(autojump_clock: trio.testing.MockClock) -> None:
    lost = EndpointError("UNAVAILABLE", "transport error: connection closed", recoverable=True)

    async def fail(lane: int, step: int) -> None:
        raise lost

    env = ScriptedEnv(1)
    env.before_step = fail
    with pytest.raises(EnvRpcError) as caught:
        await run_session(one(), env, ScriptedModel())
    assert caught.value.recoverable
    assert not EnvRpcError("env.step", 1, "gone").recoverable
    assert caught.value.code == "UNAVAILABLE"
    assert (caught.value.operation, caught.value.step) == ("env.step", 1)
    assert caught.value.__cause__ is lost


@peer(14)
@pytest.mark.parametrize("fuses", [False, True])
async def test_a_model_error_keeps_its_cause(fuses: bool, autojump_clock: trio.testing.MockClock) -> None:
    lost = EndpointError("UNAVAILABLE", "transport error: connection closed", recoverable=True)

    async def fail(number: int) -> None:
        raise lost

    model = ScriptedModel(fuses=fuses)
    model.before_predict = fail
    with pytest.raises(ModelRpcError) as caught:
        await run_session(one(), ScriptedEnv(1), model)
    assert caught.value.recoverable
    assert not ModelRpcError("model-1", "gone").recoverable
    assert caught.value.code == "UNAVAILABLE"
    assert caught.value.component_id == "model-1"
    assert caught.value.__cause__ is lost


@peer(15)
async def test_no_live_telemetry(autojump_clock: trio.testing.MockClock) -> None:
    hooks = Recorder()
    spec = one(limits=Limits(telemetry_window=0))
    report = await run_session(spec, ScriptedEnv(1), ScriptedModel(delay=10), hooks=hooks)
    [telemetry] = hooks.of(TelemetryTaken)
    assert telemetry.snapshot.horizon == "session"
    assert telemetry.snapshot.rows
    assert telemetry.snapshot == report.telemetry
    assert row(report.telemetry, "model.predict", "rpc.total") is not None


def averages(report: Report, op: str) -> dict[str, float]:
    assert report.telemetry is not None
    return {row.metric: row.avg for row in report.telemetry.rows if row.op == op}


@peer(16)
async def test_what_the_endpoints_stamp_is_reported(autojump_clock: trio.testing.MockClock) -> None:
    env = ScriptedEnv(1, phases=Phases(decode_ns=1 * MS, user_ns=6 * MS, encode_ns=2 * MS))
    stamps = Phases(
        decode_ns=1 * MS,
        user_ns=3 * MS,
        encode_ns=1 * MS,
        queue_ns=4 * MS,
        in_flight=7,
        adapter_ns=2 * MS,
        held_episodes=5,
        held_state_bytes=6_000_000,
    )
    report = await run_session(one(), env, ScriptedModel(total_ns=5 * MS, phases=stamps))
    steps, predicts = averages(report, "env.step"), averages(report, "model.predict")
    assert (steps["endpoint.decode"], steps["endpoint.user"], steps["endpoint.encode"]) == (1, 6, 2)
    assert {
        name: predicts[name] for name in predicts if name not in ("rpc.total", "request.bytes", "response.bytes")
    } == {
        "endpoint.total": 5,
        "endpoint.decode": 1,
        "endpoint.user": 3,
        "endpoint.encode": 1,
        "endpoint.queue": 4,
        "predict.adapter": 2,
        "predict.in_flight": 7,
        "held.episodes": 5,
        "held.bytes": 6e6,
    }


@peer(17)
async def test_lane_skew_belongs_to_the_env(autojump_clock: trio.testing.MockClock) -> None:
    report = await run_session(one(), ScriptedEnv(1, phases=Phases(lane_skew_ns=8 * MS)), ScriptedModel())
    assert averages(report, "env.step")["lane.skew"] == 8
    assert "lane.skew" not in averages(report, "model.predict")


@peer(18)
async def test_what_is_not_stamped_is_not_reported(autojump_clock: trio.testing.MockClock) -> None:
    report = await run_session(one(), ScriptedEnv(1, total_ns=3 * MS), ScriptedModel())
    always = {"rpc.total", "request.bytes", "response.bytes"}
    assert set(averages(report, "env.step")) == always | {"endpoint.total"}
    assert set(averages(report, "model.predict")) == always
