"""Failures: the first one wins, what was finished before it is kept, and every error says where it comes from."""

import pickle
from collections.abc import Callable
from typing import Any

import pytest
import trio
import trio.testing

from rlmesh_trio.engine.session import run_session
from rlmesh_trio.errors import EndpointError, EngineInternalError, EnvRpcError, ModelRpcError, SessionError, SpaceError
from rlmesh_trio.events import EpisodeCompleted, SessionEnded, SessionFailed
from rlmesh_trio.messages import EnvReply, ResetRequest
from rlmesh_trio.report import EpisodeInFlight
from rlmesh_trio.testing.faults import Fail, Fault
from rlmesh_trio.testing.scripted import LaneScript, ScriptedEnv, ScriptedModel, lane_spec, one, vector_spec
from tests.engine.recorder import Recorder


class TestThePartialReport:
    async def test_holds_every_finished_episode(self, autojump_clock: trio.testing.MockClock) -> None:
        steps = 0

        async def fail_twentieth(lane: int, step: int) -> None:
            nonlocal steps
            steps += 1
            if steps == 20:
                raise EndpointError("INTERNAL", "broken")

        env, model, hooks = ScriptedEnv(1, 2, 3), ScriptedModel(), Recorder()
        env.before_step = fail_twentieth
        with pytest.raises(EnvRpcError) as caught:
            await run_session(lane_spec(3, 50, range(50)), env, model, hooks=hooks)
        report = caught.value.report
        assert report is not None
        announced = hooks.of(EpisodeCompleted)
        assert announced
        assert [(s.episode_index, s.seed, s.step_count) for s in report.episodes] == [
            (event.episode_index, event.seed, event.step_count) for event in announced
        ]
        assert report.total_episodes == len(report.episodes)
        assert report.telemetry is not None
        assert report.telemetry.horizon == "session"
        assert len(model.released) == env.closes == 1
        assert sorted(model.evicted) == sorted(model.predicted)

    async def test_holds_an_episode_that_waits_for_the_roll_and_it_is_announced(
        self, autojump_clock: trio.testing.MockClock
    ) -> None:
        async def fail_fourth(lane: int, step: int) -> None:
            if step == 4:
                raise EndpointError("INTERNAL", "broken")

        env, hooks = ScriptedEnv(3, next_step=True), Recorder()
        env.before_step = fail_fourth
        with pytest.raises(EnvRpcError) as caught:
            await run_session(vector_spec(1, 5), env, ScriptedModel(), hooks=hooks)
        assert caught.value.report is not None
        assert [s.step_count for s in caught.value.report.episodes] == [3]
        assert [event.step_count for event in hooks.of(EpisodeCompleted)] == [3]
        assert hooks.kinds[-3:] == ["EpisodeCompleted", "TelemetryTaken", "SessionFailed"]

    async def test_of_an_unbounded_session_counts_but_keeps_no_summaries(
        self, autojump_clock: trio.testing.MockClock
    ) -> None:
        async def fail_fourth(number: int) -> None:
            if number == 4:
                raise EndpointError("INTERNAL", "broken")

        model = ScriptedModel()
        model.before_predict = fail_fourth
        with pytest.raises(ModelRpcError) as caught:
            await run_session(one(None), ScriptedEnv(1), model)
        assert caught.value.report is not None
        assert (caught.value.report.total_episodes, caught.value.report.episodes) == (3, ())

    async def test_survives_pickling(self, autojump_clock: trio.testing.MockClock) -> None:
        async def fail_third(lane: int, step: int) -> None:
            if len(env.actions) == 3:
                raise EndpointError("INTERNAL", "broken")

        env = ScriptedEnv(1)
        env.before_step = fail_third
        with pytest.raises(EnvRpcError) as caught:
            await run_session(one(5), env, ScriptedModel())
        again = pickle.loads(pickle.dumps(caught.value))
        assert str(again) == str(caught.value)
        assert again.report == caught.value.report
        assert again.in_flight == (EpisodeInFlight(3, 0, None),)

    async def test_names_the_episodes_in_which_the_env_failed(self, autojump_clock: trio.testing.MockClock) -> None:
        for spec, env, in_flight in (
            (lane_spec(3, 9, range(9)), ScriptedEnv(2, 3, 4, faults=[Fault("step", Fail(), 2, lane=1)]), [(2, 1, 1)]),
            (lane_spec(3, 9, range(9)), ScriptedEnv(2, 3, 4, faults=[Fault("reset", Fail(), 1, lane=2)]), [(3, 2, 2)]),
            (lane_spec(1, 9, range(9)), ScriptedEnv(2, faults=[Fault("reset", Fail(), 3)]), [(3, 0, 2)]),
            (
                vector_spec(2, 4),
                ScriptedEnv(3, 5, next_step=True, faults=[Fault("step", Fail(), 1)]),
                [(1, 0, None), (2, 1, None)],
            ),
            (vector_spec(2, 4), ScriptedEnv(3, 5, next_step=True, faults=[Fault("step", Fail(), 4)]), [(2, 1, None)]),
        ):
            with pytest.raises(EnvRpcError) as caught:
                await run_session(spec, env, ScriptedModel())
            assert caught.value.in_flight == tuple(EpisodeInFlight(*one) for one in in_flight)


class TestTheFirstFailure:
    async def test_wins_and_later_ones_are_noted_on_it(self, autojump_clock: trio.testing.MockClock) -> None:
        async def fail(lane: int, step: int) -> None:
            if lane == 0:
                await trio.sleep(1)
                raise EndpointError("INTERNAL", "first")
            try:
                await trio.sleep_forever()
            finally:
                raise EndpointError("INTERNAL", f"then {lane}")

        env, hooks = ScriptedEnv(1, 1, 1), Recorder()
        env.before_step = fail
        with pytest.raises(EnvRpcError, match="first") as caught:
            await run_session(lane_spec(3, 3), env, ScriptedModel(), hooks=hooks)
        told = "also: environment env.step failed at runtime step 1: then {}. "
        assert sorted(note[: len(told) - 1] for note in caught.value.__notes__) == [told.format(1), told.format(2)]
        assert [event.reason for event in hooks.of(SessionFailed)] == [str(caught.value)]

    async def test_of_the_model_wins_over_one_of_the_env_it_causes(
        self, autojump_clock: trio.testing.MockClock
    ) -> None:
        async def fail_second(number: int) -> None:
            if number == 3:
                raise EndpointError("INTERNAL", "model down")

        async def cut_short(lane: int, step: int) -> None:
            if lane == 1:
                try:
                    await trio.sleep(50)
                except trio.Cancelled:
                    raise EndpointError("CANCELLED", "stream reset") from None

        env, model = ScriptedEnv(LaneScript(9, 1.0), LaneScript(9)), ScriptedModel()
        env.before_step = cut_short
        model.before_predict = fail_second
        with pytest.raises(ModelRpcError, match="model down") as caught:
            await run_session(lane_spec(2, 2), env, model)
        assert ["stream reset" in note for note in caught.value.__notes__] == [True]

    @pytest.mark.parametrize("fuses", [False, True])
    async def test_lets_no_other_lane_go_on(self, fuses: bool, autojump_clock: trio.testing.MockClock) -> None:
        async def fail(lane: int, step: int) -> None:
            if lane == 0 and step == 3:
                raise EndpointError("INTERNAL", "broken")

        env = ScriptedEnv(*(LaneScript(None, 1.0) for _ in range(4)))
        env.before_step = fail
        start = trio.current_time()
        with pytest.raises(EnvRpcError):
            await run_session(lane_spec(4, None), env, ScriptedModel(fuses=fuses))
        assert trio.current_time() - start == pytest.approx(2)
        assert env.closes == 1


class TestWhoIsToBlame:
    @pytest.mark.parametrize(
        ("raised", "code", "recoverable", "message"),
        [
            (EndpointError("DEADLINE", "late", recoverable=True), "DEADLINE", True, "late"),
            (ConnectionResetError("gone"), "INTERNAL", False, "ConnectionResetError: gone"),
        ],
    )
    @pytest.mark.parametrize(("operation", "step"), [("env.reset", 0), ("env.step", 2)])
    async def test_an_env_s_error_names_operation_and_step(
        self,
        operation: str,
        step: int,
        raised: Exception,
        code: str,
        recoverable: bool,
        message: str,
        autojump_clock: trio.testing.MockClock,
    ) -> None:
        async def fail_reset(lanes: tuple[int, ...]) -> None:
            raise raised

        async def fail_second(lane: int, step: int) -> None:
            if step == 2:
                raise raised

        env = ScriptedEnv(5)
        if step:
            env.before_step = fail_second
        else:
            env.before_reset = fail_reset
        with pytest.raises(EnvRpcError) as caught:
            await run_session(one(), env, ScriptedModel())
        error = caught.value
        assert (error.operation, error.step, error.code, error.recoverable, error.message) == (
            operation,
            step,
            code,
            recoverable,
            message,
        )
        assert error.__cause__ is raised

    async def test_another_typed_error_of_an_env_comes_out_as_it_was_raised(
        self, autojump_clock: trio.testing.MockClock
    ) -> None:
        own = SpaceError("$.x", "does not fit")

        async def fail(lane: int, step: int) -> None:
            raise own

        env = ScriptedEnv(5)
        env.before_step = fail
        with pytest.raises(SpaceError) as caught:
            await run_session(one(), env, ScriptedModel())
        assert caught.value is own
        assert own.__cause__ is None
        assert own.report is not None

    async def test_one_error_object_raised_by_two_sessions_ends_both(
        self, autojump_clock: trio.testing.MockClock
    ) -> None:
        shared = EndpointError("INTERNAL", "broken")

        async def fail(lane: int, step: int) -> None:
            raise shared

        failures: list[SessionError] = []
        for _ in range(2):
            env = ScriptedEnv(5)
            env.before_step = fail
            with pytest.raises(EnvRpcError) as caught:
                await run_session(one(), env, ScriptedModel())
            failures.append(caught.value)
        assert failures[0] is not failures[1]
        assert failures[0].__cause__ is failures[1].__cause__ is shared

    @pytest.mark.parametrize("part", ["rewards", "completed", "observation"])
    async def test_a_crash_of_our_own_is_told_as_one(self, part: str, autojump_clock: trio.testing.MockClock) -> None:
        class Nonsense(ScriptedEnv):
            async def reset(self, request: ResetRequest) -> EnvReply:
                await super().reset(request)
                reply: Any = object()
                return reply

        env, model, hooks = Nonsense(1), ScriptedModel(), Recorder()
        with pytest.raises(EngineInternalError) as caught:
            await run_session(one(), env, model, hooks=hooks)
        assert isinstance(caught.value.__cause__, AttributeError)
        assert str(caught.value).startswith("AttributeError: ")
        assert hooks.of(SessionEnded) == []
        assert len(model.released) == env.closes == 1


@pytest.mark.parametrize("fuses", [False, True])
@pytest.mark.parametrize("fail_at", range(1, 12))
async def test_no_task_outlives_a_failed_session(
    fail_at: int, fuses: bool, autojump_clock: trio.testing.MockClock
) -> None:
    def failing_at(number: int) -> Callable[[], None]:
        calls = 0

        def count() -> None:
            nonlocal calls
            calls += 1
            if calls == number:
                raise EndpointError("INTERNAL", "broken")

        return count

    count = failing_at(fail_at)

    async def in_model(number: int) -> None:
        count()

    async def in_step(lane: int, step: int) -> None:
        count()

    living = trio.lowlevel.current_statistics().tasks_living
    env, model = ScriptedEnv(2, 1, 3), ScriptedModel(fuses=fuses, extra=1)
    env.before_step = in_step
    model.before_predict = in_model
    with pytest.raises((EnvRpcError, ModelRpcError)):
        await run_session(lane_spec(3, 9), env, model, prefetch_lead=1)
    assert trio.lowlevel.current_statistics().tasks_living == living
    assert len(model.released) == env.closes == 1
    assert sorted(model.evicted) == sorted(model.predicted)
