"""Each fault of the kit, as a session meets it."""

from collections.abc import Callable
from typing import Any

import pytest
import trio
import trio.testing

from rlmesh_trio import Report, SessionSpec, run_session
from rlmesh_trio.errors import (
    EnvRpcError,
    ModelRouteMismatch,
    ModelRpcError,
    OperationTimeout,
    ProtocolError,
    SessionError,
)
from rlmesh_trio.messages import EpisodeInfo, PredictRequest, ResetRequest, StepTarget
from rlmesh_trio.testing import Action, Delay, Fail, Fault, Gate, Hang, ScriptedEnv, ScriptedModel, Wrong, answers
from rlmesh_trio.testing.faults import Operation

UNKNOWN: Any = "render"


def asking(*episode_ids: str) -> PredictRequest:
    return PredictRequest(
        "s", "e", "r", [bytes(len(episode_ids))], tuple(EpisodeInfo(id_, None) for id_ in episode_ids)
    )


async def play(env: ScriptedEnv, model: ScriptedModel | None = None) -> Report:
    return await run_session(SessionSpec.for_env(env, max_episodes=2), env, model or ScriptedModel())


class TestWhatIsRefused:
    @pytest.mark.parametrize(
        ("operation", "call", "lane", "why"),
        [
            ("step", 0, None, "no call 0 of step"),
            ("close", None, 1, "close names no lanes"),
            ("predict", None, 0, "predict names no lanes"),
        ],
    )
    def test_a_fault_that_could_never_come(
        self, operation: Operation, call: int | None, lane: int | None, why: str
    ) -> None:
        with pytest.raises(ValueError, match=why):
            Fault(operation, Hang(), call, lane)

    def test_a_fault_on_the_other_endpoint(self) -> None:
        with pytest.raises(ValueError, match="no operation 'predict' here; there are reset, step, close"):
            ScriptedEnv(1, faults=[Fault("predict", Hang())])
        with pytest.raises(ValueError, match="no operation 'step' here; there are predict, predict_group, evict, rel"):
            ScriptedModel(faults=[Fault("step", Hang())])
        with pytest.raises(ValueError, match="no operation 'render' here"):
            ScriptedEnv(1, faults=[Fault(UNKNOWN, Hang())])


class TestWhichCall:
    async def test_calls_are_counted_from_one(self, autojump_clock: trio.testing.MockClock) -> None:
        env = ScriptedEnv(5, faults=[Fault("step", Fail(), call=3)])
        with pytest.raises(EnvRpcError) as caught:
            await play(env)
        assert (caught.value.step, len(env.actions)) == (3, 3)

    async def test_those_on_a_lane_are_counted_for_it_alone(self, autojump_clock: trio.testing.MockClock) -> None:
        env = ScriptedEnv(4, 4, faults=[Fault("step", Fail("INTERNAL", "stuck"), call=3, lane=1)])
        with pytest.raises(EnvRpcError, match="stuck"):
            await play(env)
        assert sum(indices == (1,) for indices, _ in env.actions) == 3

    async def test_a_vector_s_call_names_all_its_lanes(self, autojump_clock: trio.testing.MockClock) -> None:
        env = ScriptedEnv(4, 4, next_step=True, faults=[Fault("step", Fail(), call=3, lane=1)])
        with pytest.raises(EnvRpcError) as caught:
            await play(env)
        assert caught.value.step == 3

    async def test_without_a_number_each_call(self, autojump_clock: trio.testing.MockClock) -> None:
        start = trio.current_time()
        await play(ScriptedEnv(2, faults=[Fault("reset", Delay(10)), Fault("step", Delay(1))]))
        assert trio.current_time() - start == 2 * 10 + 4 * 1


class TestFail:
    @pytest.mark.parametrize(
        ("operation", "expected"),
        [("reset", EnvRpcError), ("step", EnvRpcError), ("predict", ModelRpcError), ("predict_group", ModelRpcError)],
    )
    async def test_the_code_and_the_flag_arrive(
        self, operation: Operation, expected: type[EnvRpcError | ModelRpcError], autojump_clock: trio.testing.MockClock
    ) -> None:
        faults = [Fault(operation, Fail("UNAVAILABLE", "gone", recoverable=True))]
        on_env = expected is EnvRpcError
        env = ScriptedEnv(1, faults=faults if on_env else ())
        with pytest.raises(expected) as caught:
            await play(env, ScriptedModel(faults=() if on_env else faults))
        error = caught.value
        assert (error.code, error.message, error.recoverable) == ("UNAVAILABLE", "gone", True)

    async def test_one_request_of_a_group_can_fail_alone(self, autojump_clock: trio.testing.MockClock) -> None:
        model = ScriptedModel(faults=[Fault("predict", Fail("INTERNAL", "second"), call=2)])
        first, second, third = await model.predict_group([asking("a"), asking("b"), asking("c")])
        assert not isinstance(first, Exception)
        assert not isinstance(third, Exception)
        assert str(second) == "second"

    @pytest.mark.parametrize("operation", ["close", "evict", "release"])
    async def test_what_fails_at_the_end_does_not_fail_the_session(
        self, operation: Operation, autojump_clock: trio.testing.MockClock
    ) -> None:
        faults = [Fault(operation, Fail())]
        env = ScriptedEnv(1, faults=faults if operation == "close" else ())
        model = ScriptedModel(faults=() if operation == "close" else faults)
        spec = SessionSpec.for_env(env, max_episodes=1, close_env_on_end=True)
        report = await run_session(spec, env, model)
        assert report.total_episodes == 1
        assert env.closes == (operation != "close")
        assert len(model.released) == (operation != "release")


class TestWaiting:
    @pytest.mark.parametrize(
        ("operation", "name"),
        [
            ("reset", "env.reset"),
            ("step", "env.step"),
            ("predict", "model.predict"),
            ("predict_group", "model.predict"),
        ],
    )
    async def test_a_hang_ends_at_the_operation_s_limit(
        self, operation: Operation, name: str, autojump_clock: trio.testing.MockClock
    ) -> None:
        faults = [Fault(operation, Hang(), call=2)]
        on_env = name.startswith("env")
        env = ScriptedEnv(1, faults=faults if on_env else ())
        with pytest.raises(OperationTimeout) as caught:
            await play(env, ScriptedModel(faults=() if on_env else faults))
        assert caught.value.operation == name
        assert caught.value.report is not None
        assert caught.value.report.total_episodes == 1

    async def test_a_gate_holds_its_call_until_it_is_opened(self, autojump_clock: trio.testing.MockClock) -> None:
        gate = Gate()
        env = ScriptedEnv(3, faults=[Fault("step", gate, call=2)])
        async with trio.open_nursery() as nursery:
            nursery.start_soon(play, env)
            await gate.reached()
            await trio.testing.wait_all_tasks_blocked()
            assert (len(env.actions), gate.arrived) == (2, 1)
            gate.open()
        assert len(env.actions) == 6

    async def test_an_open_gate_holds_nobody(self, autojump_clock: trio.testing.MockClock) -> None:
        gate = Gate()
        gate.open()
        report = await play(ScriptedEnv(3, faults=[Fault("step", gate)]))
        assert (report.total_steps, gate.arrived) == (6, 6)


async def test_several_faults_of_one_call_act_in_order(autojump_clock: trio.testing.MockClock) -> None:
    start = trio.current_time()
    with pytest.raises(EnvRpcError, match="after a while"):
        await play(ScriptedEnv(1, faults=[Fault("reset", Delay(7)), Fault("reset", Fail(message="after a while"))]))
    assert trio.current_time() - start == 7


async def test_an_action_of_one_s_own(autojump_clock: trio.testing.MockClock) -> None:
    class Crash(Action):
        async def before(self) -> None:
            raise ZeroDivisionError("division by zero")

    with pytest.raises(EnvRpcError, match="ZeroDivisionError: division by zero"):
        await play(ScriptedEnv(1, faults=[Fault("step", Crash())]))


class TestWrongAnswers:
    @pytest.mark.parametrize(
        ("operation", "answer", "expected", "why"),
        [
            ("predict", answers.another_request, ModelRouteMismatch, "mismatched route identity"),
            ("predict", answers.no_actions, ProtocolError, "returned no actions"),
            ("predict_group", answers.too_few_results, ProtocolError, "answered 0 of 1"),
        ],
    )
    async def test_those_that_fail_a_session(
        self,
        operation: Operation,
        answer: Callable[[Any], Any],
        expected: type[SessionError],
        why: str,
        autojump_clock: trio.testing.MockClock,
    ) -> None:
        with pytest.raises(expected, match=why):
            await play(ScriptedEnv(1), ScriptedModel(faults=[Fault(operation, Wrong(answer), call=2)]))

    async def test_a_missing_reward_counts_as_nothing(self, autojump_clock: trio.testing.MockClock) -> None:
        env = ScriptedEnv(3, None, next_step=True, faults=[Fault("step", Wrong(answers.short_rewards), call=1)])
        reply = await reset_and_step(env)
        assert reply.rewards == [1.0]
        assert (await step(env)).rewards == [1.0, 1.0]

    async def test_a_stale_completion_ends_nothing(self, autojump_clock: trio.testing.MockClock) -> None:
        env = ScriptedEnv(3, faults=[Fault("step", Wrong(answers.stale_completion))])
        report = await play(env)
        assert [s.step_count for s in report.episodes] == [3, 3]

    async def test_what_is_misshapen_lacks_a_byte(self, autojump_clock: trio.testing.MockClock) -> None:
        env = ScriptedEnv(
            None,
            None,
            next_step=True,
            faults=[
                Fault("reset", Wrong(answers.misshapen_observation)),
                Fault("step", Wrong(answers.no_observation)),
            ],
        )
        reply = await env.reset(ResetRequest(episode_ids=("a", "b")))
        assert reply.observation == [b"\1"]
        assert (await step(env)).observation is None
        model = ScriptedModel(extra=1, faults=[Fault("predict", Wrong(answers.misshapen_actions))])
        answer = await model.predict(asking("a", "b"))
        assert answer.actions == [[b"\0"], [b"d"]]


async def step(env: ScriptedEnv) -> Any:
    return await env.step([bytes(len(env.lanes))], StepTarget(0, (), tuple("ab"[: len(env.lanes)])))


async def reset_and_step(env: ScriptedEnv) -> Any:
    await env.reset(ResetRequest(episode_ids=tuple("ab"[: len(env.lanes)])))
    return await step(env)
