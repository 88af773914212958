"""What a bad, late or useless answer of the model does to a session."""

from collections.abc import Callable, Sequence
from typing import Any

import attrs
import pytest
import trio
import trio.testing

from rlmesh_trio.engine.session import run_session
from rlmesh_trio.errors import (
    EndpointError,
    EnvRpcError,
    ModelRouteMismatch,
    ModelRpcError,
    OperationTimeout,
    ProtocolError,
    SpaceError,
)
from rlmesh_trio.messages import PredictReply, PredictRequest
from rlmesh_trio.spec import Limits
from rlmesh_trio.testing.scripted import LaneScript, ScriptedEnv, ScriptedModel, lane_spec, one, vector_spec

either = pytest.mark.parametrize("fuses", [False, True], ids=["separate", "fused"])


Answers = Callable[[Sequence[PredictReply | Exception]], Any]


class Answering(ScriptedModel):
    """Answers a group with what *answers* makes of the honest answers."""

    def __init__(self, answers: Answers, *, fuses: bool) -> None:
        super().__init__(fuses=fuses)
        self.answers = answers

    async def predict_group(self, requests: Sequence[PredictRequest]) -> Sequence[PredictReply | Exception]:
        return self.answers(await super().predict_group(requests))


def changed(**fields: Any) -> Answers:
    return lambda replies: [attrs.evolve(reply, **fields) for reply in replies if isinstance(reply, PredictReply)]


class TestBadAnswers:
    @either
    @pytest.mark.parametrize("count", [0, 2])
    async def test_a_wrong_number_of_results(
        self, count: int, fuses: bool, autojump_clock: trio.testing.MockClock
    ) -> None:
        model = Answering(lambda replies: [*replies, *replies][:count], fuses=fuses)
        with pytest.raises(ProtocolError, match=f"model-1 answered {count} of 1 grouped predicts"):
            await run_session(one(), ScriptedEnv(1), model)

    @either
    @pytest.mark.parametrize("field", ["session_id", "env_id", "request_id"])
    async def test_another_route_s_context(
        self, field: str, fuses: bool, autojump_clock: trio.testing.MockClock
    ) -> None:
        with pytest.raises(ModelRouteMismatch) as caught:
            await run_session(one(), ScriptedEnv(1), Answering(changed(**{field: "other"}), fuses=fuses))
        assert caught.value.component_id == "model-1"
        assert caught.value.request_id == "TestEnv-v0:reset_observation:000001"

    @either
    async def test_no_actions(self, fuses: bool, autojump_clock: trio.testing.MockClock) -> None:
        with pytest.raises(ProtocolError, match="model component model-1 returned no actions"):
            await run_session(one(), ScriptedEnv(1), Answering(changed(actions=()), fuses=fuses))

    @either
    @pytest.mark.parametrize("raised", [False, True], ids=["returned", "raised"])
    @pytest.mark.parametrize(
        ("error", "expected", "code", "recoverable"),
        [
            (EndpointError("NOT_FOUND", "no such route", recoverable=True), ModelRpcError, "NOT_FOUND", True),
            (ValueError("bad row"), ModelRpcError, "INTERNAL", False),
            (SpaceError("$.x", "too big"), SpaceError, None, False),
        ],
    )
    async def test_a_model_s_error(
        self,
        error: Exception,
        expected: type[Exception],
        code: str | None,
        recoverable: bool,
        raised: bool,
        fuses: bool,
        autojump_clock: trio.testing.MockClock,
    ) -> None:
        def answers(replies: Sequence[PredictReply | Exception]) -> Sequence[Exception]:
            if raised:
                raise error
            return [error]

        with pytest.raises(expected) as caught:
            await run_session(one(), ScriptedEnv(1), Answering(answers, fuses=fuses))
        failure = caught.value
        if isinstance(failure, ModelRpcError):
            assert (failure.code, failure.recoverable) == (code, recoverable)
            assert failure.__cause__ is error
        else:
            assert failure is error
            assert failure.__cause__ is not failure

    async def test_one_bad_request_of_a_batch_fails_the_route_after_the_ones_before_it_landed(
        self, autojump_clock: trio.testing.MockClock
    ) -> None:
        model = Answering(lambda replies: [*replies[:-1], ValueError("bad row")], fuses=True)
        with pytest.raises(ModelRpcError, match="bad row"):
            await run_session(lane_spec(3, 3), ScriptedEnv(1, 1, 1), model)


class TestTimeouts:
    @either
    async def test_a_predict_has_its_limit(self, fuses: bool, autojump_clock: trio.testing.MockClock) -> None:
        async def hang_third(number: int) -> None:
            if number == 3:
                await trio.sleep_forever()

        model = ScriptedModel(fuses=fuses)
        model.before_predict = hang_third
        model.before_evict = trio.sleep_forever
        start = trio.current_time()
        with pytest.raises(OperationTimeout) as caught:
            await run_session(one(limits=Limits(model_predict_timeout=2)), ScriptedEnv(9), model)
        error = caught.value
        assert (error.route_id, error.component_id, error.operation, error.step, error.timeout) == (
            "TestEnv-v0",
            "model-1",
            "model.predict",
            2,
            2,
        )
        assert trio.current_time() - start == pytest.approx(2, abs=0.1)
        assert (model.evicted, len(model.released)) == ([], 1)

    async def test_the_step_of_a_late_fused_predict_is_the_largest_of_its_groups(
        self, autojump_clock: trio.testing.MockClock
    ) -> None:
        async def hang_third(number: int) -> None:
            if number == 3:
                await trio.sleep_forever()

        model = ScriptedModel(fuses=True)
        model.before_predict = hang_third
        env = ScriptedEnv(LaneScript(9, 1.0), LaneScript(9, 0.5))
        with pytest.raises(OperationTimeout) as caught:
            await run_session(lane_spec(2, 2, limits=Limits(model_predict_timeout=2)), env, model)
        assert model.batches == [2, 1, 2]
        assert caught.value.step == 2

    async def test_each_predict_has_its_own_limit(self, autojump_clock: trio.testing.MockClock) -> None:
        spec = lane_spec(4, 8, limits=Limits(model_predict_timeout=1.0))
        report = await run_session(spec, ScriptedEnv(*[3] * 4), ScriptedModel(delay=0.9, fuses=True))
        assert report.total_episodes == 8

    @either
    async def test_a_stale_predict_that_hangs_fails_the_route_too(
        self, fuses: bool, autojump_clock: trio.testing.MockClock
    ) -> None:
        async def hang_second(number: int) -> None:
            if number == 2:
                await trio.sleep_forever()

        model = ScriptedModel(extra=1, fuses=fuses)
        model.before_predict = hang_second
        spec = one(3, limits=Limits(model_predict_timeout=2))
        with pytest.raises(OperationTimeout) as caught:
            await run_session(spec, ScriptedEnv(2), model, prefetch_lead=1)
        assert caught.value.operation == "model.predict"
        assert caught.value.report is not None
        assert caught.value.report.total_episodes == 1


class TestStalePredicts:
    async def test_the_frames_of_an_ended_episode_are_never_played(
        self, autojump_clock: trio.testing.MockClock
    ) -> None:
        model = ScriptedModel(extra=1, delay=1.0)
        env = ScriptedEnv(2)
        report = await run_session(one(3), env, model, prefetch_lead=1)
        assert report.total_episodes == 3
        assert [action for _, action in env.actions] == [[b"\0"], [b"d"]] * 3

    async def test_a_stale_predict_under_env_owned_resets_replans_from_the_terminal_observation(
        self, autojump_clock: trio.testing.MockClock
    ) -> None:
        model = ScriptedModel(extra=1, delay=1.0)
        report = await run_session(vector_spec(1, 3), ScriptedEnv(2, next_step=True), model, prefetch_lead=1)
        assert report.total_episodes == 3
        assert [s.step_count for s in report.episodes] == [2, 2, 2]

    @either
    async def test_an_unwanted_predict_that_fails_after_the_last_episode_spoils_nothing(
        self, fuses: bool, autojump_clock: trio.testing.MockClock
    ) -> None:
        async def fail_late(number: int) -> None:
            if number == 2:
                await trio.sleep(1)
                raise EndpointError("INTERNAL", "too late to matter")

        model = ScriptedModel(extra=1, fuses=fuses)
        model.before_predict = fail_late
        report = await run_session(one(), ScriptedEnv(2), model, prefetch_lead=1)
        assert report.total_episodes == 1


class TestNothingIsSentToTheModelOnceTheSessionEnds:
    async def test_no_predict_for_groups_that_are_no_more(self, autojump_clock: trio.testing.MockClock) -> None:
        """One lane's step fails while another's predict flies and a third waits its turn: that turn never comes."""

        async def fail_in_lane_0(lane: int, step: int) -> None:
            if lane == 0:
                await trio.sleep(0.5)
                raise EndpointError("INTERNAL", "broken")

        model = ScriptedModel(fuses=True, delay=1.0)
        env = ScriptedEnv(LaneScript(9), LaneScript(9, 0.1), LaneScript(9, 0.3))
        env.before_step = fail_in_lane_0
        with pytest.raises(EnvRpcError, match="broken"):
            await run_session(lane_spec(3, 3), env, model)
        assert model.batches == [3, 1]
        assert sorted(model.evicted) == sorted(model.predicted)

    async def test_no_predict_after_a_cancel(self, autojump_clock: trio.testing.MockClock) -> None:
        model = ScriptedModel(fuses=True)
        env = ScriptedEnv(*(LaneScript(9, 1.0) for _ in range(4)))
        with trio.move_on_after(2.5):
            await run_session(lane_spec(4, 4), env, model)
        assert model.batches == [4, 4, 4]
        assert sorted(model.evicted) == sorted(model.predicted)
