"""``retry``: the episode again, under a fresh id, with the slot, seed, trial and options it had."""

import logging
from collections.abc import Callable

import attrs
import pytest
import trio
import trio.testing

from rlmesh_trio.engine import batcher
from rlmesh_trio.engine.session import run_session
from rlmesh_trio.errors import (
    EnvRpcError,
    HookError,
    ModelRpcError,
    OperationTimeout,
    ProtocolError,
    SessionError,
    SpaceError,
)
from rlmesh_trio.events import EpisodeCompleted, EpisodeStarted, IncidentHappened, LogEmitted
from rlmesh_trio.recovery import Recovery
from rlmesh_trio.spec import AutoresetMode, Limits, SessionSpec
from rlmesh_trio.testing import Action, Delay, Fail, Fault, Gate, Hang, ScriptedEnv
from rlmesh_trio.testing.faults import Operation
from rlmesh_trio.testing.scripted import LaneScript, contract, lane_spec, one, vector_spec
from tests.engine.listening import failing
from tests.engine.recorder import Recorder
from tests.engine.recovering import MODELS, RETRY, StrictModel, Together, check
from tests.engine.seeded import partial_spec

LIMITS = Limits(env_reset_timeout=2, env_step_timeout=2)

SHAPES: dict[str, tuple[SessionSpec, Callable[[list[Fault]], ScriptedEnv]]] = {
    "single": (one(3), lambda faults: ScriptedEnv(3, faults=faults)),
    "lanes": (lane_spec(3, 7), lambda faults: ScriptedEnv(3, LaneScript(2, 0.1), 4, faults=faults)),
    "vector": (vector_spec(3, 7), lambda faults: ScriptedEnv(3, 2, 4, next_step=True, faults=faults)),
    "vector of which finished lanes are reset": (
        partial_spec(3, 7, range(7)),
        lambda faults: ScriptedEnv(3, 2, 4, faults=faults),
    ),
    "lanes that restart": (
        vector_spec(3, 7, subset_step=True),
        lambda faults: ScriptedEnv(3, LaneScript(2, 0.1), 4, next_step=True, faults=faults),
    ),
}
shapes = pytest.mark.parametrize("shape", SHAPES)
models = pytest.mark.parametrize("kind", MODELS)
actions = pytest.mark.parametrize("action", [Fail(), Hang()], ids=["error", "timeout"])


@shapes
@models
@actions
@pytest.mark.parametrize(
    ("operation", "call"), [("reset", 1), ("reset", 3), *(("step", call) for call in (1, 2, 3, 5, 8))], ids=str
)
async def test_a_failure_anywhere_loses_nothing(
    shape: str,
    kind: str,
    action: Action,
    operation: Operation,
    call: int,
    autojump_clock: trio.testing.MockClock,
    caplog: pytest.LogCaptureFixture,
) -> None:
    spec, make_env = SHAPES[shape]
    spec = with_policy(spec, RETRY)
    if spec.partial_reset and kind == "history":
        kind = "one by one"
    if operation == "reset" and not spec.driver_owns_resets:
        call = 1
    env, (make_model, lead) = make_env([Fault(operation, action, call)]), MODELS[kind]
    model, hooks = make_model(), Recorder()
    with caplog.at_level(logging.WARNING, "rlmesh_trio"):
        report = await run_session(spec, env, model, hooks=hooks, prefetch_lead=lead)
    check(spec, report, model, hooks)
    if not report.incidents:
        assert shape == "lanes that restart"
        assert caplog.messages[-1].startswith("an env operation that failed took no episode with it: ")
    for incident in report.incidents:
        assert (incident.kind, incident.attempt) == ("retry", 1)
        assert incident.error == ("EnvRpcError" if isinstance(action, Fail) else "OperationTimeout")
        assert sum(incident.message in line for line in caplog.messages) >= 1
    for episode in report.episodes:
        assert episode.step_count == episode.cumulative_reward == env.lanes[episode.env_index].length


@shapes
@actions
@pytest.mark.parametrize("operation", ["reset", "step"])
async def test_without_a_policy_it_fails(
    shape: str, action: Action, operation: Operation, autojump_clock: trio.testing.MockClock
) -> None:
    spec, make_env = SHAPES[shape]
    hooks, model = Recorder(), StrictModel()
    wanted = EnvRpcError if isinstance(action, Fail) else OperationTimeout
    other = {"on_timeout": RETRY} if isinstance(action, Fail) else {"on_env_error": RETRY}
    for policy in ({}, other):
        with pytest.raises(wanted) as caught:
            await run_session(
                with_policy(spec, Recovery(), **policy), make_env([Fault(operation, action, 1)]), model, hooks=hooks
            )
        assert not hasattr(caught.value, "__notes__")
        assert caught.value.report is not None
        assert caught.value.report.incidents == ()
    assert hooks.of(IncidentHappened) == []


def with_policy(spec: SessionSpec, policy: Recovery, **other: Recovery) -> SessionSpec:
    return attrs.evolve(spec, **({"on_env_error": policy, "on_timeout": policy, "limits": LIMITS} | other))


async def test_the_episode_is_the_same(autojump_clock: trio.testing.MockClock) -> None:
    declared = contract(AutoresetMode.DISABLED, 2, metadata={"rlmesh.env.v1.reset_options": "trial_index"})
    spec = lane_spec(2, 4, base_seed=7, env_contract=declared, trial_index_base=10, on_env_error=RETRY)
    env, hooks = ScriptedEnv(2, LaneScript(2, 0.1), faults=[Fault("step", Fail(), 4, lane=0)]), Recorder()
    report = await run_session(spec, env, StrictModel(), hooks=hooks)
    first, again = [
        event for event in hooks.of(EpisodeStarted) if event.episode_index == report.incidents[0].episode_index
    ]
    assert first.episode_id == report.incidents[0].episode_id != again.episode_id
    assert (first.seed, first.trial_index, first.episode_record_id) == (
        again.seed,
        again.trial_index,
        again.episode_record_id,
    )
    assert again.started_from_auto_reset
    by_id = {reset.episode_ids[0]: (reset.seeds, reset.options, reset.env_indices) for reset in env.resets}
    assert (
        by_id[first.episode_id] == by_id[again.episode_id] == ((first.seed,), {"trial_index": first.trial_index}, (0,))
    )
    assert sorted(episode.trial_index or 0 for episode in report.episodes) == [10, 11, 12, 13]


async def test_the_first_reset_that_succeeds_is_the_cold_start(autojump_clock: trio.testing.MockClock) -> None:
    env, hooks = ScriptedEnv(1, faults=[Fault("reset", Fail(), 1), Fault("reset", Fail(), 3)]), Recorder()
    report = await run_session(one(2, on_env_error=RETRY), env, StrictModel(), hooks=hooks)
    assert len(hooks.of(LogEmitted)) == 1
    assert [event.started_from_auto_reset for event in hooks.of(EpisodeStarted)] == [False, True]
    assert [incident.episode_index for incident in report.incidents] == [1, 2]
    assert [reset.episode_ids[0] for reset in env.resets] == [
        report.incidents[0].episode_id,
        hooks.of(EpisodeStarted)[0].episode_id,
        report.incidents[1].episode_id,
        hooks.of(EpisodeStarted)[1].episode_id,
    ]


async def test_attempts_are_bounded_and_further_apart_each_time(autojump_clock: trio.testing.MockClock) -> None:
    env, model, hooks = ScriptedEnv(3, faults=[Fault("step", Fail("BUSY", "stuck", True))]), StrictModel(), Recorder()
    start = trio.current_time()
    with pytest.raises(EnvRpcError, match="stuck") as caught:
        await run_session(one(2, on_env_error=Recovery("retry", 4)), env, model, hooks=hooks)
    assert trio.current_time() - start == pytest.approx(0.1 + 0.2 + 0.4 + 0.8)
    assert caught.value.__notes__ == ["its episode was started again 4 time(s), as often as the policy allows"]
    assert (caught.value.code, caught.value.recoverable, caught.value.step) == ("BUSY", True, 1)
    assert len(env.resets) == 5
    report = caught.value.report
    assert report is not None
    assert [incident.attempt for incident in report.incidents] == [1, 2, 3, 4]
    assert sorted(model.evicted) == sorted(model.predicted)
    assert hooks.of(EpisodeCompleted) == []


async def test_attempts_are_counted_for_each_episode(autojump_clock: trio.testing.MockClock) -> None:
    env = ScriptedEnv(1, faults=[Fault("step", Fail(), call) for call in (1, 3, 5, 7)])
    report = await run_session(one(4, on_env_error=Recovery("retry", 1)), env, StrictModel())
    assert [(incident.episode_index, incident.attempt) for incident in report.incidents] == [
        (n, 1) for n in (1, 2, 3, 4)
    ]


async def test_the_incident_comes_between_the_two_ids(autojump_clock: trio.testing.MockClock) -> None:
    env, hooks = ScriptedEnv(2, faults=[Fault("step", Fail(), 2)]), Recorder()
    report = await run_session(one(1, on_env_error=RETRY), env, StrictModel(), hooks=hooks)
    kinds = [kind for kind in hooks.kinds if kind in ("EpisodeStarted", "IncidentHappened", "EpisodeCompleted")]
    assert kinds == ["EpisodeStarted", "IncidentHappened", "EpisodeStarted", "EpisodeCompleted"]
    [event] = hooks.of(IncidentHappened)
    assert (event.session_id, event.route.env_id) == ("session-1", "TestEnv-v0")
    assert report.total_steps == 3
    assert report.episodes[0].step_count == 2


class TestVector:
    async def test_what_was_finished_stays_so(self, autojump_clock: trio.testing.MockClock) -> None:
        """Lane 0 was about to restart: its completion is told, and it goes on with the next slot."""
        env = ScriptedEnv(1, 3, next_step=True, faults=[Fault("step", Fail(), 2)])
        spec, model, hooks = vector_spec(2, 3, base_seed=5, on_env_error=RETRY), StrictModel(), Recorder()
        report = await run_session(spec, env, model, hooks=hooks)
        check(spec, report, model, hooks)
        assert [(incident.env_index, incident.episode_index) for incident in report.incidents] == [(0, 3), (1, 2)]
        assert len(env.resets) == 2
        assert len(env.resets[0].seeds) == 2
        assert env.resets[1].seeds == (), "the new episode has no seed, and a batch is seeded as a whole"
        kinds = [type(event) for event in hooks.events if isinstance(event, EpisodeCompleted | IncidentHappened)]
        assert kinds[:2] == [EpisodeCompleted, IncidentHappened]

    async def test_seeds_are_kept_while_all_lanes_play_seeded_episodes(
        self, autojump_clock: trio.testing.MockClock
    ) -> None:
        env = ScriptedEnv(2, 3, next_step=True, faults=[Fault("step", Fail(), 2)])
        report = await run_session(vector_spec(2, 4, base_seed=5, on_env_error=RETRY), env, StrictModel())
        assert env.resets[0].seeds == env.resets[1].seeds
        assert {episode.episode_index: episode.seed is not None for episode in report.episodes} == {
            1: True,
            2: True,
            3: False,
            4: False,
        }

    async def test_surplus_lanes_stay_surplus(self, autojump_clock: trio.testing.MockClock) -> None:
        env = ScriptedEnv(3, 2, next_step=True, faults=[Fault("step", Fail(), 3)])
        spec, model, hooks = vector_spec(2, 1, base_seed=5, on_env_error=RETRY), StrictModel(), Recorder()
        report = await run_session(spec, env, model, hooks=hooks)
        check(spec, report, model, hooks)
        assert [incident.env_index for incident in report.incidents] == [0]

    async def test_nothing_is_started_again_for_lanes_that_are_all_surplus_then(
        self, autojump_clock: trio.testing.MockClock
    ) -> None:
        """The step that fails is the one that would have restarted the only lane, and no slot is left."""
        spec = vector_spec(2, 2, subset_step=True, on_env_error=RETRY)
        env = ScriptedEnv(1, LaneScript(2, 0.5), next_step=True, faults=[Fault("step", Fail(), 2, lane=0)])
        model, hooks = StrictModel(), Recorder()
        report = await run_session(spec, env, model, hooks=hooks)
        check(spec, report, model, hooks)
        assert report.incidents == ()
        assert len(env.resets) == 2


class TestPartialReset:
    async def test_one_that_fails_starts_the_others_again_too(self, autojump_clock: trio.testing.MockClock) -> None:
        env = ScriptedEnv(2, 3, faults=[Fault("reset", Fail(), 2)])
        spec, model, hooks = partial_spec(2, 3, [5, 6, 7], on_env_error=RETRY), StrictModel(), Recorder()
        report = await run_session(spec, env, model, hooks=hooks)
        check(spec, report, model, hooks)
        assert [(reset.env_indices, reset.seeds) for reset in env.resets][:3] == [
            ((), (5, 6)),
            ((0,), (7,)),
            ((), (7, 6)),
        ]
        assert [(incident.env_index, incident.episode_index) for incident in report.incidents] == [(0, 3), (1, 2)]
        assert [incident.episode_id for incident in report.incidents] == [
            env.resets[1].episode_ids[0],
            env.resets[0].episode_ids[1],
        ]


class TestTheModelMeanwhile:
    async def test_a_predict_in_flight_is_dropped_when_it_lands(self, autojump_clock: trio.testing.MockClock) -> None:
        """The prefetch is under way when the step fails: its frames are for an episode that is over."""
        gate = Gate()
        env = ScriptedEnv(LaneScript(6, 0.1), faults=[Fault("step", Fail(), 3)])
        model = StrictModel(extra=3, faults=[Fault("predict_group", gate, 2)])
        spec, hooks = one(1, on_env_error=RETRY), Recorder()

        async def open_later() -> None:
            await gate.reached()
            await trio.sleep(1)
            assert model.evicted == []
            gate.open()

        async with trio.open_nursery() as nursery:
            nursery.start_soon(open_later)
            report = await run_session(spec, env, model, hooks=hooks, prefetch_lead=2)
        check(spec, report, model, hooks)
        assert [action[0] for _, action in env.actions][:5] == [b"\0", b"d", b"e", b"\0", b"d"], (
            "the new episode begins with its own plan"
        )

    async def test_the_given_up_episode_is_ended_before_the_next_predict(
        self, autojump_clock: trio.testing.MockClock
    ) -> None:
        env, model = ScriptedEnv(2, faults=[Fault("step", Fail(), 2)]), StrictModel()
        report = await run_session(one(1, on_env_error=RETRY), env, model)
        given_up = report.incidents[0].episode_id
        assert [(kind, ids == (given_up,)) for kind, ids in model.calls] == [
            ("predict", True),
            ("predict", True),
            ("evict", True),
            ("predict", False),
            ("predict", False),
            ("evict", False),
        ]

    async def test_what_was_spent_on_the_given_up_plan_is_not_charged_to_the_new_episode(
        self, autojump_clock: trio.testing.MockClock, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(batcher, "perf_counter_ns", lambda: round(trio.current_time() * 1e9))
        env = ScriptedEnv(2, faults=[Fault("step", Fail(), 1)])
        model = StrictModel(extra=1, delay=1, faults=[Fault("predict_group", Delay(7), 1)])
        report = await run_session(one(1, on_env_error=RETRY), env, model)
        assert report.episodes[0].predict_ms == 500

    async def test_a_scheduler_that_waits_for_everybody_waits_for_a_pausing_lane(
        self, autojump_clock: trio.testing.MockClock
    ) -> None:
        spec, model, hooks = lane_spec(3, 3, on_env_error=RETRY), StrictModel(fuses=True), Recorder()
        env = ScriptedEnv(3, 3, 3, faults=[Fault("step", Fail(), 2, lane=1)])
        report = await run_session(spec, env, model, hooks=hooks, scheduler=Together())
        check(spec, report, model, hooks)
        assert model.batches[:2] == [3, 3]


class TestWhoseFailure:
    @pytest.mark.parametrize("error", [ProtocolError("nonsense"), SpaceError("$", "no"), ValueError("no")])
    @pytest.mark.parametrize("operation", ["reset", "step"])
    async def test_whatever_the_env_raises(
        self, error: Exception, operation: str, autojump_clock: trio.testing.MockClock
    ) -> None:
        env = ScriptedEnv(2)
        left = [error]

        async def fail(*_: object) -> None:
            if left:
                raise left.pop()

        env.before_reset, env.before_step = (fail, None) if operation == "reset" else (None, fail)
        report = await run_session(one(1, on_env_error=RETRY), env, StrictModel())
        [incident] = report.incidents
        assert incident.error == ("EnvRpcError" if isinstance(error, ValueError) else type(error).__name__)
        assert "no" in incident.message

    @pytest.mark.parametrize("name", ["transform_observation", "transform_action"])
    async def test_a_transform_s_is_final(self, name: str, autojump_clock: trio.testing.MockClock) -> None:
        hooks = failing(name, HookError("own"))
        with pytest.raises(HookError) as caught:
            await run_session(one(on_env_error=RETRY, on_timeout=RETRY), ScriptedEnv(2), StrictModel(), hooks=hooks)
        assert caught.value.report is not None
        assert caught.value.report.incidents == ()

    @pytest.mark.parametrize(
        ("action", "wanted"),
        [(Fail("CONNECTION"), ModelRpcError), (Hang(), OperationTimeout)],
        ids=["error", "timeout"],
    )
    async def test_the_model_s_is_final(
        self, action: Action, wanted: type[SessionError], autojump_clock: trio.testing.MockClock
    ) -> None:
        model = StrictModel(faults=[Fault("predict_group", action, 2)])
        with pytest.raises(wanted):
            await run_session(one(on_env_error=RETRY, on_timeout=RETRY), ScriptedEnv(3), model)

    async def test_a_hook_that_raises_at_an_incident_is_logged(
        self, autojump_clock: trio.testing.MockClock, caplog: pytest.LogCaptureFixture
    ) -> None:
        env = ScriptedEnv(2, faults=[Fault("step", Fail(message="stuck"), 1)])
        hooks = failing("incident_happened", ValueError("no"))
        report = await run_session(one(on_env_error=RETRY), env, StrictModel(), hooks=hooks)
        assert report.total_episodes == 1
        [incident] = report.incidents
        assert caplog.messages == [
            f"retry of lane 0, whose episode 1 is started again (attempt 1): {incident.message}",
            "runtime hook incident_happened failed: no",
        ]


async def test_an_answer_in_the_moment_of_the_limit_is_used_once_or_not_at_all(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """A step that takes exactly its limit: whichever of the two comes first, the books are right."""

    class Slow(Recorder):
        async def episode_completed(self, event: EpisodeCompleted) -> None:
            await super().episode_completed(event)
            await trio.lowlevel.checkpoint()

    for _ in range(20):
        env = ScriptedEnv(1, faults=[Fault("step", Delay(2.0), 1)])
        spec, model, hooks = one(3, on_timeout=RETRY, limits=LIMITS), StrictModel(), Slow()
        report = await run_session(spec, env, model, hooks=hooks)
        check(spec, report, model, hooks)
