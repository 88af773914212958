"""The seam for schedulers that let time pass: when they are asked again, what they are told, what their errors do."""

from collections.abc import Collection, Sequence

import attrs
import pytest
import trio
import trio.testing

from rlmesh_trio.engine.patience import is_patient
from rlmesh_trio.engine.schedulers import EagerScheduler, FullBatch
from rlmesh_trio.engine.session import run_session
from rlmesh_trio.errors import HookError
from rlmesh_trio.testing.scripted import LaneScript, ScriptedEnv, ScriptedModel, lane_spec

either = pytest.mark.parametrize("fuses", [False, True], ids=["separate", "fused"])


@attrs.define(eq=False)
class Diary:
    """Takes nothing before *until*, then everything; names *wake* as its time. Writes down all it is told."""

    until: float = 0.0
    wake: float | None = None
    plans: list[tuple[float, tuple[int, ...]]] = attrs.field(factory=list[tuple[float, tuple[int, ...]]])
    landings: list[tuple[tuple[int, ...], float]] = attrs.field(factory=list[tuple[tuple[int, ...], float]])
    started: float = attrs.field(factory=trio.current_time)

    @property
    def wake_at(self) -> float | None:
        return None if self.wake is None else self.started + self.wake

    def plan(self, waiting: Sequence[int], busy: int) -> Collection[int]:
        now = trio.current_time() - self.started
        self.plans.append((now, tuple(waiting)))
        return waiting if now >= self.until else ()

    def landed(self, groups: Sequence[int], seconds: float) -> None:
        self.landings.append((tuple(groups), seconds))


@attrs.define(eq=False)
class ToldDiary(Diary):
    """Wants to know of arrivals, too."""

    arrivals: list[tuple[float, int]] = attrs.field(factory=list[tuple[float, int]])

    def arrived(self, group: int) -> None:
        self.arrivals.append((trio.current_time() - self.started, group))


def slow_and_quick(steps: int = 1) -> ScriptedEnv:
    """Lane 0 steps in a second; lane 1 in a hundred."""
    return ScriptedEnv(LaneScript(steps, 1.0), LaneScript(steps, 100.0))


class TestWaking:
    @either
    async def test_a_scheduler_is_asked_again_at_its_time(
        self, fuses: bool, autojump_clock: trio.testing.MockClock
    ) -> None:
        class Once(Diary):
            def plan(self, waiting: Sequence[int], busy: int) -> Collection[int]:
                chosen = super().plan(waiting, busy)
                return waiting if len(self.plans) == 1 else chosen

        scheduler = Once(until=7.5, wake=7.5)
        await run_session(lane_spec(2, 2), slow_and_quick(2), ScriptedModel(fuses=fuses), scheduler=scheduler)
        assert [(now, waiting) for now, waiting in scheduler.plans if now <= 7.5][-2:] == [(1.0, (0,)), (7.5, (0,))]

    @pytest.mark.parametrize("wake", [None, 1.0, 0.5, -3.0, float("inf"), float("nan")])
    async def test_a_time_that_is_not_ahead_is_not_waited_for(
        self, wake: float | None, autojump_clock: trio.testing.MockClock
    ) -> None:
        class OnceAgain(Diary):
            def plan(self, waiting: Sequence[int], busy: int) -> Collection[int]:
                super().plan(waiting, busy)
                return waiting if len(self.plans) != 2 else ()

        scheduler = OnceAgain(wake=wake)
        await run_session(lane_spec(2, 2), slow_and_quick(2), ScriptedModel(fuses=True), scheduler=scheduler)
        assert [now for now, _ in scheduler.plans] == pytest.approx([0.0, 1.0, 100.0])

    async def test_a_later_plan_moves_the_time(self, autojump_clock: trio.testing.MockClock) -> None:
        """Lane 1 arrives at 2 and puts the alarm, set to 4 by lane 0, off to 9."""

        class PutOff(Diary):
            def plan(self, waiting: Sequence[int], busy: int) -> Collection[int]:
                super().plan(waiting, busy)
                self.wake = 9.0 if len(waiting) == 2 else 4.0
                return waiting if len(self.plans) == 1 or self.plans[-1][0] >= 9.0 else ()

        scheduler = PutOff()
        env = ScriptedEnv(LaneScript(2, 1.0), LaneScript(2, 2.0), LaneScript(2, 100.0))
        await run_session(lane_spec(3, 3), env, ScriptedModel(fuses=True), scheduler=scheduler)
        assert [now for now, _ in scheduler.plans[:4]] == pytest.approx([0.0, 1.0, 2.0, 9.0])

    async def test_it_rings_for_waiting_groups_only(self, autojump_clock: trio.testing.MockClock) -> None:
        scheduler = Diary(wake=50.0)
        await run_session(lane_spec(2, 2), slow_and_quick(), ScriptedModel(fuses=True), scheduler=scheduler)
        assert [now for now, _ in scheduler.plans] == [0.0]


class TestTelling:
    async def test_a_fused_predict_is_told_with_its_groups_and_its_time(
        self, autojump_clock: trio.testing.MockClock
    ) -> None:
        scheduler = Diary()
        env, model = slow_and_quick(2), ScriptedModel(fuses=True, delay=0.5)
        await run_session(lane_spec(2, 2), env, model, scheduler=scheduler)
        assert [sorted(groups) for groups, _ in scheduler.landings] == [[0, 1], [0], [1]]
        assert [seconds for _, seconds in scheduler.landings] == pytest.approx([0.5] * 3)

    async def test_separate_predicts_are_told_one_by_one(self, autojump_clock: trio.testing.MockClock) -> None:
        async def take_a_while(number: int) -> None:
            await trio.sleep(number)

        scheduler = Diary()
        model = ScriptedModel()
        model.before_predict = take_a_while
        await run_session(lane_spec(2, 2), slow_and_quick(), model, scheduler=scheduler)
        assert sorted(groups for groups, _ in scheduler.landings) == [(0,), (1,)]
        assert [seconds for _, seconds in scheduler.landings] == pytest.approx([1.0, 2.0])

    async def test_arrivals_are_told_when_they_happen(self, autojump_clock: trio.testing.MockClock) -> None:
        """Lane 0 is back at 1.5, in the middle of nothing; lane 1 at 2.5, while lane 0 is being predicted."""

        async def dawdle(number: int) -> None:
            await trio.sleep(3.0 if number == 2 else 0.0)

        scheduler = ToldDiary()
        env = ScriptedEnv(LaneScript(2, 1.0), LaneScript(2, 2.0))
        model = ScriptedModel(fuses=True, delay=0.5)
        model.before_predict = dawdle
        await run_session(lane_spec(2, 2), env, model, scheduler=scheduler)
        assert [group for _, group in scheduler.arrivals] in ([0, 1, 0, 1], [1, 0, 0, 1])
        assert [now for now, _ in scheduler.arrivals] == pytest.approx([0.0, 0.0, 1.5, 2.5])
        assert [now for now, _ in scheduler.plans] == pytest.approx([0.0, 1.5, 5.0])

    async def test_a_prefetch_arrives_once(self, autojump_clock: trio.testing.MockClock) -> None:
        scheduler = ToldDiary()
        model = ScriptedModel(fuses=True, extra=3, delay=0.5)
        await run_session(lane_spec(2, 2), slow_and_quick(12), model, scheduler=scheduler, prefetch_lead=2)
        assert len(scheduler.arrivals) == sum(model.batches) == sum(len(groups) for groups, _ in scheduler.landings)


class TestErrors:
    @pytest.mark.parametrize("member", ["wake_at", "landed", "arrived"])
    @either
    async def test_a_scheduler_that_raises_fails_the_route(
        self, member: str, fuses: bool, autojump_clock: trio.testing.MockClock
    ) -> None:
        def fail(*_: object) -> float | None:
            raise ZeroDivisionError("division by zero")

        faulty = property(fail) if member == "wake_at" else fail
        scheduler = type("Faulty", (ToldDiary,), {member: faulty})(until=50.0)
        model = ScriptedModel(fuses=fuses)
        with pytest.raises(HookError, match=f"the scheduler's {member} raised ZeroDivisionError: div") as caught:
            await run_session(lane_spec(2, 2), slow_and_quick(2), model, scheduler=scheduler)
        assert isinstance(caught.value.__cause__, ZeroDivisionError)
        assert len(model.released) == 1

    async def test_a_time_that_is_no_number_fails_the_route(self, autojump_clock: trio.testing.MockClock) -> None:
        scheduler = type("Worded", (Diary,), {"wake_at": "soon"})(until=9.0)
        with pytest.raises(HookError, match="wake_at raised TypeError"):
            await run_session(lane_spec(2, 2), slow_and_quick(2), ScriptedModel(fuses=True), scheduler=scheduler)


class TestWhoIsPatient:
    def test_the_property_itself_is_not_asked(self) -> None:
        class Raising(EagerScheduler):
            @property
            def wake_at(self) -> float | None:
                raise ZeroDivisionError

        assert is_patient(Raising())

    def test_an_attribute_will_do(self) -> None:
        assert is_patient(FullBatch(1, 1.0))

    @pytest.mark.parametrize("scheduler", [None, EagerScheduler()])
    def test_others_are_not(self, scheduler: EagerScheduler | None) -> None:
        assert not is_patient(scheduler)
