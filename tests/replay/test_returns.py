"""Episodes that are random by nature, compared by their returns and lengths."""

import math
from fractions import Fraction
from pathlib import Path

import attrs
import pytest

from rlmesh_trio.recording import RecordingWriter, open_recording
from rlmesh_trio.replay.returns import SignTest, compare_returns
from tests.recording.plays import Op, record, recorded
from tests.replay.runs import episode, header, opened


def rewarded(ordinal: int, rewards: list[float]) -> list[Op]:
    ops = episode(ordinal, len(rewards))
    return [ops[0], *(attrs.evolve(op, rewards=(reward,)) for op, reward in zip(ops[1:], rewards, strict=True))]


def signs(folder: Path, before: list[list[float]], after: list[list[float]]) -> tuple[SignTest, SignTest]:
    sides = [[rewarded(ordinal, rewards) for ordinal, rewards in enumerate(side, 1)] for side in (before, after)]
    with opened(folder, *sides, level="digest") as (first, second):
        found = compare_returns(first, second)
    assert found.pairs == len(before)
    return found.returns, found.lengths


def test_pairs_are_counted_and_tested(tmp_path: Path) -> None:
    before = [[1.0]] * 12
    after = [[2.0]] * 9 + [[0.5]] + [[1.0]] + [[0.25, 0.75]]
    returns, lengths = signs(tmp_path, before, after)
    assert (returns.higher, returns.lower, returns.equal) == (9, 1, 2)
    assert returns.p_value == float(Fraction(2 * (1 + 10), 2**10))
    assert (returns.means, returns.difference) == ((1.0, 20.5 / 12), 8.5 / 12)
    assert (lengths.higher, lengths.lower, lengths.equal, lengths.p_value) == (1, 0, 11, 1.0)


@pytest.mark.parametrize(("higher", "lower"), [(0, 0), (1, 1), (5, 4), (6, 0), (3, 17), (40, 60)])
def test_the_probability_is_exact(higher: int, lower: int, tmp_path: Path) -> None:
    after = [[2.0]] * higher + [[0.0]] * lower
    returns, _ = signs(tmp_path, [[1.0]] * len(after), after)
    throws = higher + lower
    tail = sum(math.comb(throws, count) for count in range(min(higher, lower) + 1))
    assert returns.p_value == min(1.0, float(Fraction(2 * tail, 2**throws)))


def test_nothing_to_pair_and_what_is_not_finite(tmp_path: Path) -> None:
    returns, _ = signs(tmp_path, [], [])
    assert (returns.p_value, returns.equal) == (1.0, 0)
    assert all(map(math.isnan, (*returns.means, returns.difference)))
    returns, _ = signs(tmp_path, [[math.nan], [math.inf], [math.inf]], [[1.0], [1.0], [-math.inf]])
    assert (returns.higher, returns.lower, returns.equal) == (0, 2, 0)
    assert math.isnan(returns.means[0])


def test_only_episodes_that_both_finished_are_paired(tmp_path: Path) -> None:
    before = [episode(ordinal, 3) for ordinal in (1, 2, 3, 4)]
    after = [episode(ordinal, 3) for ordinal in (1, 2, 3, 5)]
    del after[1][2:]
    with opened(tmp_path, before, after) as (first, second):
        found = compare_returns(first, second)
        assert (found.pairs, found.left_out) == (2, (2, 4, 5))
        assert compare_returns(first, second, episodes={1, 2}).left_out == (2,)


def test_a_file_without_its_end_has_its_episodes_all_the_same(tmp_path: Path) -> None:
    recorded(tmp_path / "a", [*episode(1, 3), *episode(2, 3)], header())
    writer = RecordingWriter(tmp_path / "b", header())
    for op in [*episode(1, 3), *episode(2, 3)[:2]]:
        record(writer, op)
    writer.flush()
    writer.close()
    with open_recording(tmp_path / "a") as first, open_recording(tmp_path / "b") as second:
        assert (second.episode(2).steps, second.episode(2).end) == (1, "interrupted")
        found = compare_returns(first, second)
    assert (found.pairs, found.left_out, found.returns.equal) == (1, (2,), 1)
