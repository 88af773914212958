"""``quarantine``: a lane is taken out for good, and another one plays its episode."""

import logging
from typing import Any

import attrs
import pytest
import trio
import trio.testing

from rlmesh_trio.engine.session import run_session
from rlmesh_trio.errors import EnvRpcError, OperationTimeout
from rlmesh_trio.events import EpisodeCompleted, EpisodeStarted, IncidentHappened, LogEmitted
from rlmesh_trio.recovery import Recovery
from rlmesh_trio.spec import Limits, SessionSpec
from rlmesh_trio.testing import Action, Fail, Fault, Hang, LaneScript, ScriptedEnv
from rlmesh_trio.testing.faults import Operation
from rlmesh_trio.testing.scripted import lane_spec, one, vector_spec
from tests.engine.recorder import Recorder
from tests.engine.recovering import MODELS, QUARANTINE, StrictModel, Together, check

LIMITS = Limits(env_reset_timeout=2, env_step_timeout=2)
BOTH: dict[str, Any] = {"on_env_error": QUARANTINE, "on_timeout": QUARANTINE, "limits": LIMITS}

actions = pytest.mark.parametrize("action", [Fail(), Hang()], ids=["error", "timeout"])


@pytest.mark.parametrize("restarting", [False, True], ids=["driver resets", "env resets"])
@pytest.mark.parametrize("kind", MODELS)
@actions
@pytest.mark.parametrize(("operation", "call"), [("reset", 1), *(("step", call) for call in (1, 2, 3, 5))], ids=str)
async def test_the_others_play_what_the_lane_had(
    restarting: bool,
    kind: str,
    action: Action,
    operation: Operation,
    call: int,
    autojump_clock: trio.testing.MockClock,
) -> None:
    make_model, lead = MODELS[kind]
    spec = vector_spec(3, 7, subset_step=True, **BOTH) if restarting else lane_spec(3, 7, **BOTH)
    env = ScriptedEnv(3, LaneScript(2, 0.1), 4, next_step=restarting, faults=[Fault(operation, action, call, lane=1)])
    model, hooks = make_model(), Recorder()
    report = await run_session(spec, env, model, hooks=hooks, prefetch_lead=lead)
    check(spec, report, model, hooks)
    assert [(incident.kind, incident.env_index) for incident in report.incidents] in ([("quarantine", 1)], [])
    if report.incidents:
        index, at = report.incidents[0].episode_index, hooks.kinds.index("IncidentHappened")
        played = [event for event in hooks.of(EpisodeStarted) if event.episode_index == index]
        assert played[-1].route.lane != 1
        later = [event for event in hooks.events[at:] if isinstance(event, EpisodeStarted)]
        assert 1 not in {event.route.lane for event in later}


@actions
async def test_an_idle_lane_is_started_again(action: Action, autojump_clock: trio.testing.MockClock) -> None:
    """Lane 0 has long finished when lane 1 falls out: it plays the episode with the same seed and trial."""
    env = ScriptedEnv(1, LaneScript(5, 0.5), faults=[Fault("step", action, 4, lane=1)])
    spec, model, hooks = lane_spec(2, 2, base_seed=3, **BOTH), StrictModel(), Recorder()
    report = await run_session(spec, env, model, hooks=hooks)
    check(spec, report, model, hooks)
    done = hooks.of(EpisodeCompleted)[0]
    first, again = [event for event in hooks.of(EpisodeStarted) if event.episode_id != done.episode_id]
    assert (first.route.lane, again.route.lane) == (1, 0)
    assert (first.episode_index, first.seed, first.trial_index) == (again.episode_index, again.seed, again.trial_index)
    assert [reset.env_indices for reset in env.resets][2:] == [(0,)]
    assert again.started_from_auto_reset


async def test_a_lane_that_never_played_is_started_for_it(autojump_clock: trio.testing.MockClock) -> None:
    env = ScriptedEnv(2, 2, faults=[Fault("step", Hang(), 2)])
    spec, model, hooks = lane_spec(2, 1, **BOTH), StrictModel(), Recorder()
    report = await run_session(spec, env, model, hooks=hooks)
    check(spec, report, model, hooks)
    assert {report.episodes[0].env_index, report.incidents[0].env_index} == {0, 1}
    assert len(hooks.of(LogEmitted)) == 2, "each lane has its cold start"


@actions
async def test_the_last_lane_s_failure_is_final(action: Action, autojump_clock: trio.testing.MockClock) -> None:
    faults = [Fault("step", action, 5, lane=0), Fault("step", action, 3, lane=1), Fault("step", action, 2, lane=2)]
    env, model, hooks = ScriptedEnv(2, 2, 2, faults=faults), StrictModel(), Recorder()
    with pytest.raises(EnvRpcError if isinstance(action, Fail) else OperationTimeout) as caught:
        await run_session(lane_spec(3, 20, **BOTH), env, model, hooks=hooks)
    assert caught.value.__notes__ == ["no other lane is left to play its episode, and quarantine needs one"]
    report = caught.value.report
    assert report is not None
    assert len({incident.env_index for incident in report.incidents}) == len(report.incidents) == 2
    assert report.total_episodes == len(report.episodes) >= 1
    assert sorted(model.evicted) == sorted(model.predicted)


@pytest.mark.parametrize(
    ("spec", "env"),
    [(one(2), ScriptedEnv(2)), (vector_spec(2, 2), ScriptedEnv(2, 2, next_step=True))],
    ids=["single", "vector"],
)
async def test_a_group_without_siblings_cannot_be_spared(
    spec: SessionSpec, env: ScriptedEnv, autojump_clock: trio.testing.MockClock
) -> None:
    async def hang(lane: int, step: int) -> None:
        await trio.sleep_forever()

    env.before_step = hang
    with pytest.raises(OperationTimeout) as caught:
        await run_session(attrs.evolve(spec, **BOTH), env, StrictModel())
    assert "quarantine needs one" in caught.value.__notes__[0]


async def test_two_lanes_that_fail_at_once_are_not_both_spared(autojump_clock: trio.testing.MockClock) -> None:
    """The second is judged while the first's hook still runs."""

    class Slow(Recorder):
        async def incident_happened(self, event: IncidentHappened) -> None:
            await super().incident_happened(event)
            await trio.sleep(3)

    env = ScriptedEnv(3, 3, faults=[Fault("step", Hang(), 2, lane=lane) for lane in (0, 1)])
    with pytest.raises(OperationTimeout) as caught:
        await run_session(lane_spec(2, 4, **BOTH), env, StrictModel(), hooks=Slow())
    assert caught.value.report is not None
    assert len(caught.value.report.incidents) == 1


async def test_a_lane_that_is_finished_before_the_hook_returns_still_plays_it(
    autojump_clock: trio.testing.MockClock,
) -> None:
    class Slow(Recorder):
        async def incident_happened(self, event: IncidentHappened) -> None:
            await super().incident_happened(event)
            await trio.sleep(30)

    env = ScriptedEnv(LaneScript(3, 1.0), 3, faults=[Fault("step", Hang(), 2, lane=1)])
    spec, model, hooks = lane_spec(2, 2, **BOTH), StrictModel(), Slow()
    check(spec, await run_session(spec, env, model, hooks=hooks), model, hooks)


@pytest.mark.parametrize("fuses", [False, True])
async def test_a_scheduler_that_waits_for_everybody_does_not_wait_for_the_one_taken_out(
    fuses: bool, autojump_clock: trio.testing.MockClock
) -> None:
    env = ScriptedEnv(3, 3, 3, faults=[Fault("step", Hang(), 2, lane=2)])
    spec, model, hooks = lane_spec(3, 6, **BOTH), StrictModel(fuses=fuses), Recorder()
    report = await run_session(spec, env, model, hooks=hooks, scheduler=Together())
    check(spec, report, model, hooks)


async def test_its_predict_in_flight_is_ended_when_it_lands(autojump_clock: trio.testing.MockClock) -> None:
    """The prefetch of the lane that falls out answers long after: its episode is ended then, and not before."""
    env = ScriptedEnv(LaneScript(9, 0.2), LaneScript(9, 1.0), faults=[Fault("step", Fail(), 3, lane=0)])
    spec, model, hooks = lane_spec(2, 3, **BOTH), StrictModel(extra=3, delay=4.0), Recorder()
    report = await run_session(spec, env, model, hooks=hooks, prefetch_lead=2)
    check(spec, report, model, hooks)
    given_up = report.incidents[0].episode_id
    calls = [kind for kind, ids in model.calls if given_up in ids]
    assert calls == ["predict", "predict", "evict"]


async def test_without_a_budget_the_others_go_on(autojump_clock: trio.testing.MockClock) -> None:
    env = ScriptedEnv(LaneScript(2, 0.5), LaneScript(2, 0.5), faults=[Fault("step", Hang(), 3, lane=1)])
    hooks = Recorder()
    with trio.move_on_after(20):
        await run_session(lane_spec(2, None, **BOTH), env, StrictModel(), hooks=hooks)
    [incident] = [event.incident for event in hooks.of(IncidentHappened)]
    started = [event.episode_index for event in hooks.of(EpisodeStarted)]
    assert started.count(incident.episode_index or 0) == 2
    assert sorted(set(started)) == list(range(1, max(started) + 1))


async def test_the_two_policies_are_apart(
    autojump_clock: trio.testing.MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    """Lane 1 fails and tries again, hangs and is out; its episode keeps its count of attempts."""
    env = ScriptedEnv(
        LaneScript(2, 0.1), 4, faults=[Fault("step", Fail(), 2, lane=1), Fault("step", Hang(), 4, lane=1)]
    )
    spec = lane_spec(2, 3, on_env_error=Recovery("retry"), on_timeout=QUARANTINE, limits=LIMITS)
    model, hooks = StrictModel(), Recorder()
    with caplog.at_level(logging.WARNING, "rlmesh_trio"):
        report = await run_session(spec, env, model, hooks=hooks)
    check(spec, report, model, hooks)
    assert [(incident.kind, incident.error, incident.attempt) for incident in report.incidents] == [
        ("retry", "EnvRpcError", 1),
        ("quarantine", "OperationTimeout", 2),
    ]
    index = report.incidents[0].episode_index
    assert [message.partition(":")[0] for message in caplog.messages] == [
        f"retry of lane 1, whose episode {index} is started again (attempt 1)",
        f"quarantine of lane 1, whose episode {index} is started again (attempt 2)",
    ]
