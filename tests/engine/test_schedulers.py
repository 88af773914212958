"""FullBatch, and what holds for every scheduler that lets time pass: nothing hangs, and results are the eager ones."""

import math
from collections.abc import Callable, Sequence
from typing import Any

import attrs
import pytest
import trio
import trio.testing
from hypothesis import given, settings
from hypothesis import strategies as st

from rlmesh_trio import Adaptive, FullBatch, Scheduler
from rlmesh_trio.engine.session import open_session, run_session
from rlmesh_trio.errors import InvalidSpec, RouteCancelled
from rlmesh_trio.testing.scripted import LaneScript, ScriptedEnv, ScriptedModel, lane_spec, one
from tests.engine.pure_worlds import World

either = pytest.mark.parametrize("fuses", [False, True], ids=["separate", "fused"])


@attrs.define
class Hand:
    """A clock that is set by hand."""

    now: float = 0.0

    def __call__(self) -> float:
        return self.now


class TestFullBatch:
    def test_it_waits_for_its_width(self) -> None:
        scheduler = FullBatch(3, 10.0, clock=Hand())
        assert scheduler.plan([4, 6], 5) == ()
        assert scheduler.plan([4, 6, 7], 4) == [4, 6, 7]
        assert scheduler.wake_at is None

    def test_it_waits_no_longer_than_anybody_steps(self) -> None:
        assert FullBatch(3, 10.0, clock=Hand()).plan([0, 1], 0) == [0, 1]

    def test_it_waits_no_longer_than_the_oldest_may(self) -> None:
        hand = Hand()
        scheduler = FullBatch(9, 10.0, clock=hand)
        scheduler.arrived(2)
        hand.now = 4.0
        scheduler.arrived(1)
        assert scheduler.plan([1, 2], 5) == ()
        assert scheduler.wake_at == 10.0
        hand.now = 10.0
        assert scheduler.plan([1, 2], 5) == [1, 2]
        scheduler.arrived(2)
        assert scheduler.plan([2], 6) == ()
        assert scheduler.wake_at == 20.0

    def test_one_it_was_not_told_of_waits_from_when_it_is_first_seen(self) -> None:
        hand = Hand(1.0)
        scheduler = FullBatch(9, 10.0, clock=hand)
        scheduler.plan([3], 5)
        hand.now = 2.0
        scheduler.plan([3, 5], 5)
        assert scheduler.wake_at == 11.0

    def test_without_a_wait_it_is_eager(self) -> None:
        assert FullBatch(9, 0, clock=Hand()).plan([3], 5) == [3]

    @pytest.mark.parametrize("width", [0, -1, 2.0, True, "4", None])
    def test_a_width_that_is_none_is_refused(self, width: Any) -> None:
        with pytest.raises(InvalidSpec, match=r"^[^\n]*FullBatch: width .* not [^\n]*$"):
            FullBatch(width, 1.0)

    @pytest.mark.parametrize("wait", [-0.1, math.inf, math.nan, "1", None, True])
    def test_a_wait_that_is_none_is_refused(self, wait: Any) -> None:
        with pytest.raises(InvalidSpec, match=r"^[^\n]*FullBatch: wait .* not [^\n]*$"):
            FullBatch(4, wait)

    async def test_lanes_that_drifted_apart_are_one_batch_again(self, autojump_clock: trio.testing.MockClock) -> None:
        model = ScriptedModel(fuses=True, delay=5.0)
        env = ScriptedEnv(*(LaneScript(6, 1.0 + 0.1 * lane) for lane in range(4)))
        await run_session(lane_spec(4, 4), env, model, scheduler=FullBatch(4, 3.0))
        assert model.batches == [4] * 6

    async def test_a_straggler_is_waited_for_as_long_as_was_said(self, autojump_clock: trio.testing.MockClock) -> None:
        times: list[float] = []
        start = trio.current_time()

        async def note(number: int) -> None:
            times.append(trio.current_time() - start)

        model = ScriptedModel(fuses=True, delay=1.0)
        model.before_predict = note
        env = ScriptedEnv(LaneScript(2, 0.5), LaneScript(2, 100.0))
        await run_session(lane_spec(2, 2), env, model, scheduler=FullBatch(2, 3.0))
        assert model.batches == [2, 1, 1]
        assert times == pytest.approx([0.0, 4.5, 101.0])

    async def test_time_spent_waiting_for_a_predict_in_flight_counts(
        self, autojump_clock: trio.testing.MockClock
    ) -> None:
        """Lane 1 waits from 1.5 on for the predict that takes lane 0 at 3.1 and lands at 8.1: too long to wait more."""
        times: list[float] = []
        start = trio.current_time()

        async def note(number: int) -> None:
            times.append(trio.current_time() - start)
            await trio.sleep(1.0 if number == 1 else 5.0)

        model = ScriptedModel(fuses=True)
        model.before_predict = note
        env = ScriptedEnv(LaneScript(2, 0.1), LaneScript(2, 4.0), LaneScript(2, 50.0))
        await run_session(lane_spec(3, 3), env, model, scheduler=FullBatch(3, 2.0))
        assert times == pytest.approx([0.0, 3.1, 8.1, 51.0])

    async def test_a_prefetch_is_held_back_for_its_width_too(self, autojump_clock: trio.testing.MockClock) -> None:
        model = ScriptedModel(extra=3, fuses=True, delay=0.5)
        env = ScriptedEnv(LaneScript(16, 1.0), LaneScript(16, 1.3))
        await run_session(lane_spec(2, 2), env, model, prefetch_lead=2, scheduler=FullBatch(2, 10.0))
        assert model.batches == [2] * len(model.batches)

    @either
    async def test_more_lanes_than_there_are_need_not_be_waited_for(
        self, fuses: bool, autojump_clock: trio.testing.MockClock
    ) -> None:
        start = trio.current_time()
        env = ScriptedEnv(*(LaneScript(3, 0.1 * lane) for lane in range(4)))
        await run_session(lane_spec(4, 4), env, ScriptedModel(fuses=fuses), scheduler=FullBatch(99, 1000.0))
        assert trio.current_time() - start < 10


MAKERS: dict[str, Callable[[], Scheduler]] = {
    "full": lambda: FullBatch(2, 1000.0),
    "adaptive": lambda: Holding(1000.0),
}


class Holding(Adaptive):
    """One that has made up its mind."""

    def __init__(self, hold: float) -> None:
        super().__init__()
        self.hold = hold


class TestWhileItWaits:
    """Lane 0 waits for the scheduler, which waits for lane 1."""

    @pytest.mark.parametrize("make", MAKERS.values(), ids=MAKERS)
    @either
    async def test_the_session_can_be_cancelled(
        self, make: Callable[[], Scheduler], fuses: bool, autojump_clock: trio.testing.MockClock
    ) -> None:
        model = ScriptedModel(fuses=fuses)
        env = ScriptedEnv(LaneScript(None, 0.5), LaneScript(None, 200.0))
        start = trio.current_time()
        async with open_session(lane_spec(2, None), env, model, scheduler=make()) as session:
            await trio.sleep(100)
            session.cancel("enough")
            with pytest.raises(RouteCancelled):
                await session.wait()
        assert trio.current_time() - start == pytest.approx(100)
        assert sum(model.batches) == 2
        assert len(model.released) == 1

    @pytest.mark.parametrize("make", MAKERS.values(), ids=MAKERS)
    async def test_the_caller_can_be_cancelled(
        self, make: Callable[[], Scheduler], autojump_clock: trio.testing.MockClock
    ) -> None:
        model = ScriptedModel(fuses=True)
        env = ScriptedEnv(LaneScript(None, 0.5), LaneScript(None, 200.0))
        start = trio.current_time()
        with trio.move_on_after(100) as scope:
            await run_session(lane_spec(2, None), env, model, scheduler=make())
        assert scope.cancelled_caught
        assert trio.current_time() - start == pytest.approx(100)
        assert len(model.released) == 1

    async def test_a_lane_that_ends_is_waited_for_no_more(self, autojump_clock: trio.testing.MockClock) -> None:
        start = trio.current_time()
        env = ScriptedEnv(LaneScript(3, 0.5), LaneScript(1, 10.0))
        await run_session(lane_spec(2, 2), env, ScriptedModel(fuses=True), scheduler=FullBatch(2, 1000.0))
        assert trio.current_time() - start == pytest.approx(11)


def full_batches(terms: tuple[int, float]) -> Callable[[], Scheduler]:
    return lambda: FullBatch(*terms)


def holders(hold: float) -> Callable[[], Scheduler]:
    return lambda: Holding(hold)


@pytest.mark.parametrize("fuses", [False, True])
@settings(max_examples=10)
@given(
    lanes=st.integers(1, 8),
    horizon=st.integers(1, 3),
    delay_seed=st.none() | st.integers(0, 2**32),
    make=st.one_of(
        st.tuples(st.integers(1, 9), st.sampled_from([0, 0.25, 0.3, 1.0, 1e6])).map(full_batches),
        st.sampled_from([0.0, 0.25, 0.4, 2.0, 1e6]).map(holders),
    ),
)
def test_no_schedule_hangs_and_results_are_those_of_the_eager_one(
    fuses: bool, lanes: int, horizon: int, delay_seed: int | None, make: Callable[[], Scheduler]
) -> None:
    world = World(lanes=lanes, fuses=fuses, delay_seed=delay_seed, horizon=horizon)
    assert attrs.evolve(world, scheduler=make).run() == world.run()


@either
@settings(max_examples=20)
@given(data=st.data())
def test_a_scheduler_that_does_as_it_likes_cannot_make_a_session_hang(fuses: bool, data: st.DataObject) -> None:
    class Whimsical:
        @property
        def wake_at(self) -> float | None:
            ahead = data.draw(st.sampled_from([None, -1.0, 0.0, 0.1, 7.0, math.inf, -math.inf, math.nan]))
            return None if ahead is None else trio.current_time() + ahead

        def plan(self, waiting: Sequence[int], busy: int) -> Sequence[int]:
            return data.draw(st.lists(st.sampled_from([*waiting, 99]), max_size=len(waiting)))

        def landed(self, groups: Sequence[int], seconds: float) -> None:
            assert groups
            assert seconds >= 0

    async def play() -> int:
        model = ScriptedModel(fuses=fuses, delay=0.5)
        env = ScriptedEnv(*(LaneScript(2, 0.3 * lane) for lane in range(3)))
        with trio.fail_after(1000):
            return (await run_session(lane_spec(3, 5), env, model, scheduler=Whimsical())).total_episodes

    assert trio.run(play, clock=trio.testing.MockClock(autojump_threshold=0)) == 5


async def test_a_scheduler_may_serve_one_lane(autojump_clock: trio.testing.MockClock) -> None:
    for scheduler in (FullBatch(4, 50.0), Holding(50.0)):
        start = trio.current_time()
        await run_session(one(), ScriptedEnv(LaneScript(5, 1.0)), ScriptedModel(fuses=True), scheduler=scheduler)
        assert trio.current_time() - start == pytest.approx(5)
