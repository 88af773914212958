import math
from collections.abc import Iterable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rlmesh_trio.telemetry.reservoir import CAPACITY, Reservoir, Summary

_U64 = 2**64 - 1


class OneAtATime:
    """The rule as it is stated: one value, at most one draw."""

    def __init__(self, capacity: int = CAPACITY) -> None:
        self.capacity = capacity
        self.retained: list[float] = []
        self.seen = 0
        self.state = 0x9E3779B97F4A7C15

    def add(self, value: float) -> None:
        self.seen += 1
        if len(self.retained) < self.capacity:
            self.retained.append(value)
            return
        candidate = self._next() % self.seen
        if candidate < self.capacity:
            self.retained[candidate] = value

    def flush(self) -> None:
        self.retained.clear()
        self.seen = 0

    def _next(self) -> int:
        self.state ^= self.state >> 12
        self.state ^= self.state << 25 & _U64
        self.state ^= self.state >> 27
        return self.state * 0x2545F4914F6CDD1D & _U64


def batch(values: Iterable[float]) -> "np.ndarray[tuple[int], np.dtype[np.float64]]":
    return np.array(list(values), dtype=np.float64)


def assert_equal(reservoir: Reservoir, reference: OneAtATime) -> None:
    assert reservoir.seen == reference.seen
    assert reservoir.retained.tolist() == reference.retained


@settings(deadline=None)
@given(
    capacity=st.integers(1, 40),
    # A batch of that many values, or (None) a flush.
    script=st.lists(st.one_of(st.integers(0, 200), st.sampled_from([None, 1023, 1024, 1025, 2500])), max_size=12),
)
def test_batches_give_what_single_values_give(capacity: int, script: list[int | None]) -> None:
    reservoir, reference = Reservoir(capacity), OneAtATime(capacity)
    value = 0.0
    for size in script:
        if size is None:
            reservoir.flush()
            reference.flush()
        else:
            values = [value := value + 1 for _ in range(size)]
            reservoir.extend(batch(values))
            for single in values:
                reference.add(single)
        assert_equal(reservoir, reference)


def test_the_real_capacity_over_several_strides_and_a_flush() -> None:
    reservoir, reference = Reservoir(), OneAtATime()
    for size in (5000, 5000, 1, 20_000):
        values = [float(reference.seen + n) for n in range(size)]
        reservoir.extend(batch(values))
        for single in values:
            reference.add(single)
    assert_equal(reservoir, reference)
    assert reservoir.retained.size == CAPACITY
    reservoir.flush()
    reference.flush()
    again = [float(n) for n in range(9000)]
    reservoir.extend(batch(again))
    for single in again:
        reference.add(single)
    assert_equal(reservoir, reference)


def test_the_replacements_themselves_are_pinned() -> None:
    reservoir = Reservoir(4)
    reservoir.extend(batch(range(100)))
    reference = OneAtATime(4)
    for value in range(100):
        reference.add(value)
    assert reservoir.retained.tolist() == reference.retained
    assert reservoir.retained.tolist() == [85, 44, 25, 38]


def test_two_reservoirs_fed_alike_hold_alike_and_do_not_share() -> None:
    one, other = Reservoir(8), Reservoir(8)
    one.extend(batch(range(3000)))
    other.extend(batch(range(3000)))
    assert one.retained.tolist() == other.retained.tolist()
    one.extend(batch([-1.0] * 100_000))
    assert other.retained.min() >= 0


def test_a_reservoir_not_yet_full_keeps_everything() -> None:
    reservoir = Reservoir(4)
    reservoir.extend(batch([1, 2]))
    assert reservoir.retained.tolist() == [1, 2]
    assert reservoir.seen == 2


def test_every_value_has_the_same_chance() -> None:
    capacity, seen, rounds = 10, 100, 400
    reservoir = Reservoir(capacity)
    kept = np.zeros(seen)
    for _ in range(rounds):
        reservoir.flush()
        reservoir.extend(batch(range(seen)))
        kept[reservoir.retained.astype(int)] += 1
    expected = rounds * capacity / seen
    # Four standard deviations either way; the generator is fixed, so this does not vary.
    assert np.abs(kept - expected).max() < 4 * math.sqrt(expected)


def test_flushing_keeps_the_generator_going() -> None:
    def one_window(reservoir: Reservoir) -> list[float]:
        reservoir.flush()
        reservoir.extend(batch(range(50)))
        return reservoir.retained.tolist()

    reservoir = Reservoir(4)
    assert one_window(reservoir) != one_window(reservoir)


def test_no_values_have_no_summary() -> None:
    reservoir = Reservoir()
    assert reservoir.summary() is None
    reservoir.extend(batch([1]))
    reservoir.flush()
    assert reservoir.summary() is None


def test_four_values() -> None:
    reservoir = Reservoir()
    reservoir.extend(batch([40, 10, 30, 20]))
    assert reservoir.summary() == Summary(seen=4, avg=25, p50=30, p95=40, p99=40)


@pytest.mark.parametrize(
    ("count", "p50", "p95", "p99"),
    [(1, 0, 0, 0), (2, 1, 1, 1), (3, 1, 2, 2), (21, 10, 19, 20), (100, 50, 95, 99), (101, 50, 95, 99)],
)
def test_a_percentile_is_the_element_at_the_share_of_the_last_index_rounded_up(
    count: int, p50: float, p95: float, p99: float
) -> None:
    reservoir = Reservoir()
    reservoir.extend(batch(range(count)))
    summary = reservoir.summary()
    assert summary is not None
    assert summary[2:] == (p50, p95, p99)


def test_the_summary_counts_what_was_seen_and_averages_what_was_kept() -> None:
    reservoir = Reservoir(4)
    reservoir.extend(batch(range(1000)))
    summary = reservoir.summary()
    assert summary is not None
    assert summary.seen == 1000
    assert summary.avg == pytest.approx(sum(reservoir.retained.tolist()) / 4)
