import math

import pytest

from rlmesh_trio.cli.statistics import (
    StepTimes,
    lane_steps,
    spread_of,
    step_times,
    steps_per_second,
    success_rate,
)
from tests.cli.reports import episode, report


def test_spread_is_mean_sample_deviation_and_range() -> None:
    spread = spread_of([1.0, 2.0, 3.0, 6.0])
    assert spread is not None
    assert (spread.mean, spread.low, spread.high) == (3.0, 1.0, 6.0)
    assert spread.deviation == pytest.approx(math.sqrt(14 / 3))


def test_one_value_has_no_deviation_and_none_no_spread() -> None:
    single = spread_of([4.0])
    assert single is not None
    assert (single.mean, single.deviation) == (4.0, None)
    assert spread_of([]) is None


@pytest.mark.parametrize("odd", [math.nan, math.inf, -math.inf])
def test_a_value_that_is_not_finite_shows_in_the_mean(odd: float) -> None:
    spread = spread_of([1.0, odd])
    assert spread is not None
    assert not math.isfinite(spread.mean)


@pytest.mark.parametrize(
    ("hits", "trials", "low", "high"),
    [
        (0, 10, 0.0, 0.2775),
        (5, 10, 0.2366, 0.7634),
        (10, 10, 0.7225, 1.0),
        (1, 1, 0.2065, 1.0),
        (81, 263, 0.2553, 0.3662),
    ],
)
def test_wilson_interval(hits: int, trials: int, low: float, high: float) -> None:
    rate = success_rate([episode(k, success=k < hits) for k in range(trials)])
    assert rate is not None
    assert (rate.hits, rate.trials) == (hits, trials)
    assert (rate.low, rate.high) == (pytest.approx(low, abs=5e-5), pytest.approx(high, abs=5e-5))


def test_success_counts_only_episodes_that_report_it() -> None:
    rate = success_rate([episode(1, success=True), episode(2), episode(3, success=False)])
    assert rate is not None
    assert (rate.hits, rate.trials) == (1, 2)
    assert success_rate([episode(1)]) is None


def test_pace_counts_every_lane_and_survives_no_time() -> None:
    episodes = [episode(1, step_count=30), episode(2, step_count=10)]
    assert lane_steps(episodes) == 40
    assert steps_per_second(episodes, 8.0) == 5.0
    assert steps_per_second(episodes, 0.0) == 0.0


def test_time_per_step_is_weighted_by_length_and_the_rest_is_what_is_left_of_the_round() -> None:
    episodes = [
        episode(1, step_count=30, step_ms=1.0, predict_ms=4.0),
        episode(2, step_count=10, step_ms=5.0, predict_ms=0.0),
    ]
    assert step_times(episodes, report(round_ms=6.0).telemetry) == StepTimes(env=2.0, model=3.0, rest=1.0)
    assert step_times(episodes, report(round_ms=4.0).telemetry) == StepTimes(env=2.0, model=3.0, rest=0.0)


def test_no_split_without_episodes_or_rounds() -> None:
    assert step_times([], report(round_ms=6.0).telemetry) is None
    assert step_times([episode(1)], report().telemetry) is None
