"""The parts of the benchmarks that decide what a figure means."""

import pytest

from benchmarks.__main__ import BUDGETS, RACES, chosen
from benchmarks.jobs import Sample, SchedulerName, ServerPlan
from benchmarks.overlap import ROUND_TRIP, SHARE_GOALS, Timing, greedy_bound, share_of_bound
from benchmarks.races import Outcome, Race
from benchmarks.schedulers import CONTESTS, Contest, Standing, run_contest


def test_each_case_has_a_name_of_its_own() -> None:
    names = [case.name for case in (*RACES, *BUDGETS, *CONTESTS)]
    assert len(set(names)) == len(names)
    assert set(SHARE_GOALS) <= set(names)


def test_cases_are_chosen_by_how_their_names_begin() -> None:
    assert chosen("box4 single tcp", ())
    assert chosen("box4 single tcp", ("hooks", "box4 s"))
    assert not chosen("box4 single tcp", ("single",))


def test_a_quick_race_still_gives_each_lane_an_episode() -> None:
    assert Race("r", 1.0, ServerPlan("lanes", 16), episodes=16).quick().episodes == 16
    assert Race("r", 1.0, ServerPlan(), episodes=12).quick().episodes == 3


def test_one_lane_is_bound_by_its_own_pauses() -> None:
    bound = greedy_bound(1, 4000, Timing(env=5e-3, forward=5e-3))
    assert bound == pytest.approx(1 / (10e-3 + ROUND_TRIP), rel=0.03)


def test_lanes_that_share_forwards_stay_below_the_ideal() -> None:
    pauses = Timing(env=5e-3, forward=5e-3)
    four, sixteen = (greedy_bound(lanes, 200, pauses, trials=3) for lanes in (4, 16))
    assert 3 * four < sixteen < 16 / 10e-3
    assert four > 2 * greedy_bound(1, 200, pauses, trials=3)


def test_an_outcome_compares_rates_round_by_round() -> None:
    ours = [Sample(100, 1.0, 0.1, 10, 0.05), Sample(300, 1.0, 0.1, 10, 0.05), Sample(200, 1.0, 0.1, 10, 0.05)]
    peers = [Sample(100, 1.0, 0.1, 10, 0.05), Sample(100, 1.0, 0.1, 10, 0.05), Sample(200, 2.0, 0.1, 10, 0.05)]
    outcome = Outcome(Race("r", 1.0, ServerPlan("lanes", 1), 1), ours, peers, env_seconds=5e-3)
    assert outcome.ratios == [1.0, 3.0, 2.0]
    assert outcome.ratio == 2.0
    assert ours[0].cpu_us == pytest.approx(1000.0)
    assert share_of_bound(outcome) == pytest.approx(200 / greedy_bound(1, 200, Timing(5e-3, 5e-3)))


def test_a_contest_in_virtual_time_gives_each_scheduler_the_same_steps() -> None:
    standing = run_contest(Contest("even", 20e-3, seconds=0.5), 1, None)
    assert standing.batches["eager"] == pytest.approx(8, abs=0.5)
    assert standing.rates["full batch"] == pytest.approx(16 / 25.3e-3, rel=0.05)
    assert standing.best == "full batch, adaptive"


def test_schedulers_within_two_percent_are_both_best() -> None:
    rates: dict[SchedulerName, float] = {"eager": 99.0, "full batch": 90.0, "adaptive": 100.0}
    assert Standing(CONTESTS[0], rates, rates).best == "eager, adaptive"
