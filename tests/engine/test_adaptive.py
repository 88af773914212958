"""Adaptive: what it makes of the times it sees, when it holds back, and that it is never much worse than eager."""

import random
from collections.abc import Callable, Sequence
from operator import attrgetter
from typing import Any

import attrs
import numpy as np
import pytest
import trio
import trio.testing

from rlmesh_trio import Adaptive, EagerScheduler, Scheduler
from rlmesh_trio.engine.adaptive import PredictTime, fit_predict_time, mean_rounds
from rlmesh_trio.engine.session import open_session
from rlmesh_trio.errors import InvalidSpec
from rlmesh_trio.testing.scripted import ScriptedEnv, ScriptedModel, lane_spec

MS = 1e-3


class TestPredictTime:
    def test_a_line_is_found_again(self) -> None:
        fit = fit_predict_time([(rows, 5 * MS + rows * MS) for rows in range(1, 17)], 0.0)
        assert (fit.fixed, fit.per_row) == pytest.approx((5 * MS, MS))

    def test_outliers_do_not_bend_it(self) -> None:
        predicts = [(rows, 5 * MS + rows * MS) for rows in range(1, 17)] * 2
        predicts[0], predicts[-1], predicts[7] = (1, 3.0), (16, 2.0), (8, 9.0)
        fit = fit_predict_time(predicts, 0.0)
        assert fit.seconds(np.array([10.0])) == pytest.approx([15 * MS], rel=0.1)

    def test_a_slope_is_kept_where_all_batches_are_alike(self) -> None:
        fit = fit_predict_time([(16, 21 * MS)] * 60 + [(1, 6 * MS)] * 4, MS)
        assert (fit.fixed, fit.per_row) == pytest.approx((5 * MS, MS))

    def test_predicts_do_not_get_cheaper_by_the_row(self) -> None:
        fit = fit_predict_time([(rows, 9 * MS - rows * MS / 2) for rows in range(1, 10)], 0.0)
        assert fit.per_row == 0.0


def rounds_of(steps: list[float], predict: PredictTime, lanes: int) -> tuple[float, float]:
    """At once, and holding until the slowest step can be over."""
    ordered = np.sort(np.array(steps))
    at_once, held = mean_rounds(ordered, np.array([0.0, ordered[-1]]), predict, lanes)
    return float(at_once), float(held)


class TestMeanRounds:
    def test_half_batches_against_full_ones(self) -> None:
        """Steps of 5 and predicts of 20: a lane that comes back is 15 too late or waits for nobody."""
        assert rounds_of([5 * MS] * 9, PredictTime(20 * MS, 0.0), 16) == pytest.approx((40 * MS, 25 * MS))

    def test_steps_as_long_as_predicts_fit_into_each_other(self) -> None:
        assert rounds_of([5 * MS] * 9, PredictTime(5 * MS, 0.0), 16) == pytest.approx((10 * MS, 10 * MS))

    def test_rows_cost_the_same_in_any_batch(self) -> None:
        at_once, held = rounds_of([5 * MS] * 9, PredictTime(0.0, MS), 16)
        assert at_once == pytest.approx(16 * MS, rel=0.02)
        assert held == pytest.approx(21 * MS)

    def test_a_model_that_is_mostly_idle_disturbs_nobody(self) -> None:
        at_once, held = rounds_of([100 * MS] * 9, PredictTime(MS, 0.0), 2)
        assert at_once == pytest.approx(101 * MS, rel=0.001)
        assert held == pytest.approx(101 * MS, rel=0.001)

    @pytest.mark.parametrize("step", [0.0, 5 * MS])
    def test_a_model_that_takes_no_time_disturbs_nobody(self, step: float) -> None:
        assert rounds_of([step] * 9, PredictTime(0.0, 0.0), 4) == pytest.approx((step, step))

    def test_the_slowest_of_many_is_waited_for(self) -> None:
        steps = [1 * MS] * 99 + [100 * MS]
        few, many = (rounds_of(steps, PredictTime(10 * MS, 0.0), lanes)[1] for lanes in (2, 64))
        assert few < 14 * MS
        assert many > 50 * MS


Draw = Callable[[random.Random, int], float]


@attrs.frozen
class Bench:
    """Lanes that never end, whose steps take what *draw* says of a die and how many lanes step, and a model."""

    draw: Draw = attrs.field(repr=attrgetter("__name__"))
    fixed: float
    per_row: float = 0.0
    lanes: int = 16
    fuses: bool = True

    def rate(self, scheduler: Scheduler, seconds: float = 1.0) -> float:
        """Lane steps per second in *seconds* of virtual time after as many of practice."""

        async def play() -> float:
            dice = [random.Random(lane) for lane in range(self.lanes)]
            stepping = 0

            async def step(lane: int, number: int) -> None:
                nonlocal stepping
                stepping += 1
                await trio.sleep(self.draw(dice[lane], stepping))
                stepping -= 1

            async def think(number: int) -> None:
                await trio.sleep(self.fixed + self.per_row * model.batches[-1])

            env, model = ScriptedEnv(*[None] * self.lanes), ScriptedModel(fuses=self.fuses)
            env.before_step = step
            model.before_predict = think
            async with open_session(lane_spec(self.lanes, None), env, model, scheduler=scheduler) as session:
                await trio.sleep(seconds)
                before = session.report.total_steps
                await trio.sleep(seconds)
                return (session.report.total_steps - before) / seconds

        return trio.run(play, clock=trio.testing.MockClock(autojump_threshold=0))


def jittered(dice: random.Random, stepping: int = 0) -> float:
    return dice.uniform(4.7 * MS, 5.3 * MS)


def exponential(dice: random.Random, stepping: int = 0) -> float:
    return dice.expovariate(1 / (5 * MS))


def with_resets(dice: random.Random, stepping: int = 0) -> float:
    return 200 * MS if dice.random() < 0.005 else jittered(dice)


class TestThroughput:
    @pytest.mark.parametrize(
        ("bench", "gain"),
        [
            (Bench(jittered, 20 * MS), 1.5),
            (Bench(jittered, 10 * MS), 1.25),
            (Bench(jittered, 5 * MS), 1.15),
            (Bench(exponential, 20 * MS), 1.15),
            (Bench(with_resets, 20 * MS), 1.25),
            (Bench(jittered, 20 * MS, lanes=2), 1.5),
        ],
        ids=repr,
    )
    def test_it_waits_where_waiting_wins(self, bench: Bench, gain: float) -> None:
        assert bench.rate(Adaptive()) > gain * bench.rate(EagerScheduler())

    @pytest.mark.parametrize(
        "bench",
        [
            Bench(exponential, 5 * MS),
            Bench(exponential, 2 * MS, lanes=8),
            Bench(exponential, 0.1 * MS, 1 * MS),
            Bench(jittered, 0.1 * MS, 1 * MS),
            Bench(jittered, 1 * MS, lanes=4),
            Bench(jittered, 20 * MS, lanes=1),
        ],
        ids=repr,
    )
    def test_it_is_eager_where_that_is_best(self, bench: Bench) -> None:
        assert bench.rate(Adaptive()) > 0.98 * bench.rate(EagerScheduler())

    def test_predicts_that_overlap_are_not_held_back(self) -> None:
        bench = Bench(jittered, 20 * MS, fuses=False)
        scheduler = Adaptive()
        assert bench.rate(scheduler) == pytest.approx(bench.rate(EagerScheduler()), rel=0.01)
        assert scheduler.hold == 0.0

    def test_it_does_the_same_every_time(self) -> None:
        bench = Bench(jittered, 10 * MS)
        assert bench.rate(Adaptive(), 0.5) == bench.rate(Adaptive(), 0.5)


def test_a_hold_that_disappoints_is_given_up_and_tried_ever_less_often() -> None:
    """Steps take six times as long when more than half of the lanes step at once, as they do after a full batch."""
    tried: list[float] = []

    class Watched(Adaptive):
        def landed(self, groups: Sequence[int], seconds: float) -> None:
            before = self.hold
            super().landed(groups, seconds)
            if self.hold and not before:
                tried.append(trio.current_time())

    def crowded(_: random.Random, stepping: int) -> float:
        return 30 * MS if stepping > 8 else 5 * MS

    bench = Bench(crowded, 20 * MS)
    assert bench.rate(Watched(), 15.0) > 0.95 * bench.rate(EagerScheduler(), 5.0)
    gaps = np.diff(tried)
    assert 2 <= len(gaps) <= 4
    assert (gaps[1:] > 1.3 * gaps[:-1]).all()


@pytest.mark.parametrize("gain", [0.0, 1.0, -1, "much", None, True])
def test_a_gain_that_is_no_fraction_is_refused(gain: Any) -> None:
    with pytest.raises(InvalidSpec, match=r"^[^\n]*Adaptive: gain .* not [^\n]*$"):
        Adaptive(gain=gain)
