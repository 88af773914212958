"""The batcher: which groups go into one predict, in what order, and what a bad answer does."""

from collections.abc import Callable, Collection, Sequence
from typing import Any

import attrs
import pytest
import trio
import trio.testing

from rlmesh_trio.engine.session import open_session, run_session
from rlmesh_trio.errors import (
    EndpointError,
    EnvRpcError,
    HookError,
    ModelRouteMismatch,
    ModelRpcError,
    OperationTimeout,
    ProtocolError,
    SpaceError,
)
from rlmesh_trio.messages import PredictReply, PredictRequest
from rlmesh_trio.spec import Limits
from tests.engine.recorder import row
from tests.engine.scripted import LaneScript, ScriptedEnv, ScriptedModel, lane_spec, one, vector_spec

either = pytest.mark.parametrize("fuses", [False, True], ids=["separate", "fused"])


class TestBatches:
    @pytest.mark.parametrize("lanes", [2, 7, 16])
    async def test_all_groups_ready_in_one_pass_are_one_batch(
        self, lanes: int, autojump_clock: trio.testing.MockClock
    ) -> None:
        model = ScriptedModel(fuses=True)
        env = ScriptedEnv(*(LaneScript(5, 0.01) for _ in range(lanes)))
        await run_session(lane_spec(lanes, lanes), env, model)
        assert model.batches == [lanes] * 5

    async def test_groups_that_become_ready_during_a_predict_are_the_next_batch(
        self, autojump_clock: trio.testing.MockClock
    ) -> None:
        model = ScriptedModel(fuses=True, delay=1.0)
        delays = (0.1, 1.0, 1.0, 5.0)
        env = ScriptedEnv(*(LaneScript(2, delay) for delay in delays))
        await run_session(lane_spec(4, 4), env, model)
        assert model.batches == [4, 1, 2, 1]

    async def test_a_predict_that_lands_as_groups_get_ready_does_not_split_them(
        self, autojump_clock: trio.testing.MockClock
    ) -> None:
        """Four steps end in the very pass a predict lands in, two of their tasks run before the batcher's."""
        gate = trio.Event()

        async def hold_second(number: int) -> None:
            if number == 2:
                await gate.wait()

        async def hold_siblings(lane: int, step: int) -> None:
            if lane and step == 1:
                await trio.sleep(0.1 if lane < 3 else 1.5)
                await gate.wait()

        async def open_gate() -> None:
            await trio.sleep(3)
            gate.set()

        model = ScriptedModel(fuses=True)
        model.before_predict = hold_second
        env = ScriptedEnv(LaneScript(2, 1.0), *[2] * 4)
        env.before_step = hold_siblings
        async with trio.open_nursery() as nursery:
            nursery.start_soon(open_gate)
            await run_session(lane_spec(5, 5), env, model)
        assert model.batches == [5, 1, 4]

    async def test_separate_predicts_are_all_in_flight_together(self, autojump_clock: trio.testing.MockClock) -> None:
        model = ScriptedModel(delay=1.0)
        start = trio.current_time()
        await run_session(lane_spec(8, 8), ScriptedEnv(*[1] * 8), model)
        assert trio.current_time() - start == pytest.approx(1.0, abs=0.1)
        assert model.batches == [1] * 8

    async def test_a_fused_model_has_one_call_at_a_time(self, autojump_clock: trio.testing.MockClock) -> None:
        flying = 0

        async def count(number: int) -> None:
            nonlocal flying
            assert flying == 0
            flying += 1
            await trio.sleep(0.3)
            flying -= 1

        model = ScriptedModel(fuses=True)
        model.before_predict = count
        env = ScriptedEnv(*(LaneScript(4, 0.1 * lane) for lane in range(6)))
        report = await run_session(lane_spec(6, 12), env, model)
        assert report.total_episodes == 12

    async def test_requests_of_a_fused_call_stand_in_order_of_their_slots(
        self, autojump_clock: trio.testing.MockClock
    ) -> None:
        class SlotOrder(ScriptedModel):
            async def predict_group(self, requests: Sequence[PredictRequest]) -> Sequence[PredictReply | Exception]:
                seeds = [request.episode_info[0].seed or 0 for request in requests]
                assert seeds == sorted(seeds)
                return await super().predict_group(requests)

        model = SlotOrder(fuses=True)
        env = ScriptedEnv(*(LaneScript(length, 0.01) for length in (5, 1, 4, 2, 3)))
        report = await run_session(lane_spec(5, 30, range(30)), env, model)
        assert report.total_episodes == 30
        assert max(model.batches) == 5


Choose = Callable[[Sequence[int], int], Any]


@attrs.define(eq=False)
class Planned:
    """Plans by *choose*, and writes down what it was asked."""

    choose: Choose
    asked: list[tuple[list[int], int]] = attrs.field(factory=list[tuple[list[int], int]])

    def plan(self, waiting: Sequence[int], busy: int) -> Collection[int]:
        self.asked.append((list(waiting), busy))
        return self.choose(waiting, busy)


class TestSchedulers:
    async def test_a_scheduler_may_wait_until_nobody_is_busy(self, autojump_clock: trio.testing.MockClock) -> None:
        scheduler = Planned(lambda waiting, busy: waiting if not busy else ())
        model = ScriptedModel(fuses=True)
        env = ScriptedEnv(*(LaneScript(3, 0.1 * lane) for lane in range(4)))
        await run_session(lane_spec(4, 4), env, model, scheduler=scheduler)
        assert model.batches == [4, 4, 4]

    @either
    async def test_an_empty_plan_is_overruled_when_nothing_else_can_happen(
        self, fuses: bool, autojump_clock: trio.testing.MockClock
    ) -> None:
        scheduler = Planned(lambda waiting, busy: ())
        model = ScriptedModel(fuses=fuses)
        env = ScriptedEnv(*(LaneScript(3, 0.1 * lane) for lane in range(4)))
        report = await run_session(lane_spec(4, 8), env, model, scheduler=scheduler)
        assert report.total_episodes == 8
        if fuses:
            assert model.batches[0] == 4

    @either
    async def test_numbers_are_ascending_and_busy_counts_the_others(
        self, fuses: bool, autojump_clock: trio.testing.MockClock
    ) -> None:
        scheduler = Planned(lambda waiting, busy: waiting)
        env = ScriptedEnv(*(LaneScript(5, 0.1 * lane) for lane in range(4)))
        await run_session(lane_spec(4, 8), env, ScriptedModel(fuses=fuses), scheduler=scheduler)
        for waiting, busy in scheduler.asked:
            assert waiting == sorted(set(waiting))
            assert 0 <= busy <= 4 - len(waiting)

    @either
    async def test_repeated_and_unknown_numbers_are_discarded(
        self, fuses: bool, autojump_clock: trio.testing.MockClock
    ) -> None:
        scheduler = Planned(lambda waiting, busy: [*waiting, *waiting, 99, -1])
        model = ScriptedModel(fuses=fuses)
        report = await run_session(lane_spec(3, 3), ScriptedEnv(2, 2, 2), model, scheduler=scheduler)
        assert report.total_episodes == 3
        assert sum(model.batches) == 6

    @either
    async def test_a_plan_of_unknown_numbers_is_an_empty_plan(
        self, fuses: bool, autojump_clock: trio.testing.MockClock
    ) -> None:
        scheduler = Planned(lambda waiting, busy: [77])
        report = await run_session(
            lane_spec(3, 3), ScriptedEnv(2, 2, 2), ScriptedModel(fuses=fuses), scheduler=scheduler
        )
        assert report.total_episodes == 3

    @either
    @pytest.mark.parametrize("plan", ["raise", None, 5, [[]]])
    async def test_a_plan_that_cannot_be_used_fails_the_route(
        self, plan: object, fuses: bool, autojump_clock: trio.testing.MockClock
    ) -> None:
        def choose(waiting: Sequence[int], busy: int) -> object:
            if plan == "raise":
                raise ZeroDivisionError("division by zero")
            return plan

        model = ScriptedModel(fuses=fuses)
        with pytest.raises(HookError) as caught:
            await run_session(one(), ScriptedEnv(1), model, scheduler=Planned(choose))
        assert isinstance(caught.value.__cause__, (ZeroDivisionError, TypeError))
        assert len(model.released) == 1

    async def test_a_group_whose_frames_have_just_landed_is_busy(self, autojump_clock: trio.testing.MockClock) -> None:
        """A plan that takes one group while nobody steps: the other must wait for that group's whole step."""
        scheduler = Planned(lambda waiting, busy: waiting[:1] if busy == 0 else ())
        model = ScriptedModel(fuses=True, delay=0.1)
        spec, env = lane_spec(2, None), ScriptedEnv(LaneScript(None, 1.0), LaneScript(None, 1.0))
        start = trio.current_time()
        async with open_session(spec, env, model, scheduler=scheduler):
            await trio.sleep_until(start + 10.9)
            assert len(model.batches) == 10
        assert {len(waiting) + busy for waiting, busy in scheduler.asked} == {2}

    async def test_a_withheld_group_is_asked_about_again_when_another_ends(
        self, autojump_clock: trio.testing.MockClock
    ) -> None:
        scheduler = Planned(lambda waiting, busy: waiting if len(waiting) == 2 else ())
        env = ScriptedEnv(LaneScript(1, 0.1), LaneScript(6, 0.1))
        report = await run_session(lane_spec(2, 2), env, ScriptedModel(fuses=True), scheduler=scheduler)
        assert report.total_episodes == 2


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
        assert model.evicted == model.predicted

    async def test_the_step_of_a_late_fused_predict_is_the_largest_of_its_groups(
        self, autojump_clock: trio.testing.MockClock
    ) -> None:
        async def hang_third(number: int) -> None:
            if number == 5:
                await trio.sleep_forever()

        model = ScriptedModel(fuses=True, delay=0.2)
        model.before_predict = hang_third
        scheduler = Planned(lambda waiting, busy: waiting if 0 in waiting or len(model.batches) > 3 else ())
        env = ScriptedEnv(LaneScript(9, 0.1), LaneScript(9, 0.05))
        spec = lane_spec(2, 2, limits=Limits(model_predict_timeout=2))
        with pytest.raises(OperationTimeout) as caught:
            await run_session(spec, env, model, scheduler=scheduler)
        assert caught.value.step == 4

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


class TestEvictions:
    async def test_each_predicted_episode_is_ended_once(self, autojump_clock: trio.testing.MockClock) -> None:
        for fuses in (False, True):
            model = ScriptedModel(fuses=fuses, delay=0.01)
            env = ScriptedEnv(LaneScript(2, 0.02), LaneScript(5, 0.01), LaneScript(1))
            await run_session(lane_spec(3, 12), env, model)
            assert sorted(model.evicted) == sorted(model.predicted)

    @pytest.mark.parametrize("lead", [0, 1, 2])
    @pytest.mark.parametrize("extra", [0, 1, 3])
    @either
    async def test_an_episode_is_not_predicted_on_after_it_was_ended(
        self, fuses: bool, extra: int, lead: int, autojump_clock: trio.testing.MockClock
    ) -> None:
        for lanes_alone in (False, True):
            model = ScriptedModel(fuses=fuses, extra=extra, delay=0.01)
            spec = vector_spec(3, 12, subset_step=lanes_alone)
            env = ScriptedEnv(LaneScript(1), LaneScript(3, 0.02), LaneScript(2, 0.01), next_step=True)
            await run_session(spec, env, model, prefetch_lead=lead)
            ended: set[str] = set()
            for kind, ids in model.calls:
                if kind == "evict":
                    assert ended.isdisjoint(ids)
                    ended.update(ids)
                else:
                    assert ended.isdisjoint(ids)
            assert ended == set(model.predicted)

    async def test_they_wait_for_every_predict_in_flight(self, autojump_clock: trio.testing.MockClock) -> None:
        flying = 0

        class Watching(ScriptedModel):
            async def predict_group(self, requests: Sequence[PredictRequest]) -> Sequence[PredictReply | Exception]:
                nonlocal flying
                flying += 1
                try:
                    return await super().predict_group(requests)
                finally:
                    flying -= 1

        async def nothing_flies() -> None:
            assert flying == 0
            await trio.sleep(0.05)
            assert flying == 0

        model = Watching(delay=0.1)
        model.before_evict = nothing_flies
        env = ScriptedEnv(LaneScript(2, 0.03), LaneScript(3, 0.04), LaneScript(1, 0.05))
        await run_session(lane_spec(3, 15), env, model)
        assert sorted(model.evicted) == sorted(model.predicted)

    async def test_one_that_fails_is_logged_and_not_repeated(
        self, caplog: pytest.LogCaptureFixture, autojump_clock: trio.testing.MockClock
    ) -> None:
        async def fail() -> None:
            raise EndpointError("INTERNAL", "no such episode")

        model = ScriptedModel()
        model.before_evict = fail
        report = await run_session(one(3), ScriptedEnv(1), model)
        assert report.total_episodes == 3
        assert len(model.evicted) == len(set(model.evicted)) == 3
        assert caplog.messages == ["model reset_adapter (evict) failed: no such episode"] * 3

    async def test_one_that_hangs_is_given_up_after_the_predict_limit(
        self, caplog: pytest.LogCaptureFixture, autojump_clock: trio.testing.MockClock
    ) -> None:
        hung = False

        async def hang_once() -> None:
            nonlocal hung
            if not hung:
                hung = True
                await trio.sleep_forever()

        model = ScriptedModel()
        model.before_evict = hang_once
        start = trio.current_time()
        report = await run_session(one(2, limits=Limits(model_predict_timeout=7)), ScriptedEnv(1), model)
        assert report.total_episodes == 2
        assert trio.current_time() - start == pytest.approx(7, abs=0.1)
        assert len(model.evicted) == 2
        assert len([text for text in caplog.messages if "reset_adapter (evict)" in text]) == 1
        sample = row(report.telemetry, "model.reset_adapter", "rpc.total")
        assert sample is not None
        assert sample.count == 1

    async def test_one_under_way_when_the_last_episode_ends_is_let_finish(
        self, autojump_clock: trio.testing.MockClock
    ) -> None:
        finished: list[float] = []

        async def slow() -> None:
            await trio.sleep(1)
            finished.append(trio.current_time())

        model = ScriptedModel()
        model.before_evict = slow
        await run_session(lane_spec(2, 2), ScriptedEnv(LaneScript(1), LaneScript(1, 0.5)), model)
        assert len(finished) == 2
        assert sorted(model.evicted) == sorted(model.predicted)

    async def test_one_under_way_when_the_session_is_cancelled_is_abandoned_at_once(
        self, autojump_clock: trio.testing.MockClock
    ) -> None:
        model = ScriptedModel()
        model.before_evict = trio.sleep_forever
        start = trio.current_time()
        async with open_session(one(None), ScriptedEnv(1), model):
            await trio.sleep(1)
            model.before_evict = None
        assert trio.current_time() - start == pytest.approx(1, abs=0.1)

    async def test_live_episodes_are_ended_when_the_session_is(self, autojump_clock: trio.testing.MockClock) -> None:
        model = ScriptedModel()
        env = ScriptedEnv(*(LaneScript(None, 1.0) for _ in range(3)))
        async with open_session(lane_spec(3, None), env, model):
            await trio.sleep(3.5)
        assert len(model.predicted) == 3
        assert sorted(model.evicted) == sorted(model.predicted)
        assert [kind for kind, _ in model.calls].count("evict") == 1
