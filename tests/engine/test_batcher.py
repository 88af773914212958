"""The batcher: which groups go into one predict and in what order, by default and by another scheduler's plan."""

from collections.abc import Callable, Collection, Sequence
from typing import Any

import attrs
import pytest
import trio
import trio.testing

from rlmesh_trio.engine.session import open_session, run_session
from rlmesh_trio.errors import (
    HookError,
)
from rlmesh_trio.messages import PredictReply, PredictRequest
from rlmesh_trio.testing.scripted import LaneScript, ScriptedEnv, ScriptedModel, lane_spec, one

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

    async def test_a_prefetch_that_is_withheld_is_forced_when_the_plan_runs_out(
        self, autojump_clock: trio.testing.MockClock
    ) -> None:
        scheduler = Planned(lambda waiting, busy: ())
        model = ScriptedModel(extra=1)
        report = await run_session(one(), ScriptedEnv(6), model, scheduler=scheduler, prefetch_lead=1)
        assert report.total_steps == 6
        assert len(model.batches) == 3

    async def test_a_request_withdrawn_while_it_waits_does_not_stand_in_the_way_of_the_next(
        self, autojump_clock: trio.testing.MockClock
    ) -> None:
        """Lane 1's episode ends while its prefetch waits for lane 0's predict; it asks again only after that landed."""

        async def take_a_while(lanes: tuple[int, ...]) -> None:
            if lanes == (0,):
                await trio.sleep(0.5)
            elif len(env.resets) > 2:
                await trio.sleep(1)

        model = ScriptedModel(extra=2, delay=1.0, fuses=True)
        env = ScriptedEnv(LaneScript(2, 5.0), LaneScript(2, 0.3))
        env.before_reset = take_a_while
        report = await run_session(lane_spec(2, 4), env, model, prefetch_lead=1)
        assert report.total_episodes == 4
