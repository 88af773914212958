"""What a divergence looks like: each shape by a pair that has it."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import attrs
import numpy as np
import pytest

from rlmesh_trio.replay.findings import LeafDifference, Shape
from rlmesh_trio.replay.shapes import is_rounding, shape_sentence
from tests.recording.plays import Op
from tests.replay.runs import changed, compared, episode, nudged, planted, run, seen

Plant = Callable[[Op], Op]


def moved(op: Op) -> Op:
    return changed(op, "qvel", lambda old: old + 1)


def told(**fields: Any) -> Plant:
    return lambda op: attrs.evolve(op, **fields)


def one_ulp(op: Op) -> Op:
    return changed(op, "qvel", nudged(1, 0))


@pytest.mark.parametrize(
    ("step", "plant", "shape", "sentence"),
    [
        (0, moved, "from the first observation", "another seed, or another version of the env"),
        (0, told(seeds=(3,)), "from the first observation", "reset with other seeds"),
        (0, told(infos={"mass": 2.0}), "info only", "only infos differ"),
        (0, one_ulp, "growing from one ulp", "at one ulp and stays small: arithmetic"),
        (1, moved, "state kept over reset", "the reset is equal and the first step is not"),
        (1, told(actions=(2,)), "state kept over reset", "the model's action differs"),
        (3, moved, "sudden", "a random draw too many or too few"),
        (3, told(rewards=(9.0,)), "sudden", "only the reward differs"),
        (3, told(actions=(2,)), "sudden", "the model's action differs"),
        (3, told(rows=(), refused="BUSY"), "sudden", "one side answers with an error"),
        (3, told(infos={}), "info only", "only infos differ"),
        (5, told(flags=(1,)), "flags only", "only flags differ"),
        (5, told(rewards=(float(np.nextafter(1.25, 2)),)), "growing from one ulp", "at one ulp at the end"),
    ],
)
def test_each_shape_is_told_by_what_differs_first(
    step: int, plant: Plant, shape: Shape, sentence: str, tmp_path: Path
) -> None:
    found = planted(tmp_path, (2, step), plant)
    assert found.shape == shape
    assert sentence in shape_sentence(found)


def test_a_rounding_error_that_grows(tmp_path: Path) -> None:
    after = run(1, 40)
    for step in range(1, 41):
        after[0][step] = changed(after[0][step], "qvel", nudged(step, 0))
    (found,) = compared(tmp_path, run(1, 40), after).divergences
    assert found.shape == "growing from one ulp"
    assert shape_sentence(found) == (
        "starts at one ulp and grows: arithmetic (threads, BLAS, CPU), not a seed that was lost"
    )


def test_infos_that_differ_before_all_else_do_not_decide(tmp_path: Path) -> None:
    after = run(1)
    after[0][0] = attrs.evolve(after[0][0], infos={"mass": 2.0})
    after[0][3] = moved(after[0][3])
    (found,) = compared(tmp_path, run(1), after).divergences
    assert (found.first.step, found.shape) == (0, "sudden")


def test_an_episode_that_just_ends_is_of_flags(tmp_path: Path) -> None:
    short = [episode(1, 5)[:4]]
    short[0][3] = attrs.evolve(short[0][3], capped=True)
    (found,) = compared(tmp_path, run(1), short).divergences
    assert (found.shape, shape_sentence(found)) == ("flags only", "equal up to where one side ends")


@pytest.mark.parametrize(
    ("step", "shape"), [(0, "from the first observation"), (1, "state kept over reset"), (3, "sudden")]
)
def test_without_values_arithmetic_is_not_excluded(step: int, shape: Shape, tmp_path: Path) -> None:
    found = planted(tmp_path, (2, step), one_ulp, level="digest")
    assert found.shape == shape
    assert shape_sentence(found).count("arithmetic") == 1
    assert shape_sentence(found).endswith("only level full tells")


def test_without_values_a_reward_may_tell(tmp_path: Path) -> None:
    found = planted(tmp_path, (2, 3), lambda op: attrs.evolve(one_ulp(op), rewards=(0.75 + 2**-24,)), level="digest")
    assert found.shape == "growing from one ulp"


def test_what_is_left_of_large_numbers_may_have_few_digits_in_common(tmp_path: Path) -> None:
    def with_small(small: float) -> list[list[Op]]:
        ops = run(1)
        row = {**seen(1, 3), "qvel": np.array([small, *[1000.0] * 8], np.float32)}
        ops[0][3] = attrs.evolve(ops[0][3], rows=(row,))
        return ops

    for other, shape in ((3e-6, "growing from one ulp"), (3e-2, "sudden")):
        (found,) = compared(tmp_path, with_small(1e-6), with_small(other)).divergences
        assert found.first.leaves[0].ulps is not None
        assert found.first.leaves[0].ulps > 1_000_000
        assert found.shape == shape


def test_what_is_no_float_is_no_rounding_error() -> None:
    assert not is_rounding(LeafDifference(part="observation", path="obs.room", values=(1, 2), bits=("0x1", "0x2")))


def test_a_float64_may_have_been_computed_in_float32(tmp_path: Path) -> None:
    for reward, shape in ((0.75 + 1e-8, "growing from one ulp"), (0.7501, "sudden")):
        found = planted(tmp_path, (2, 3), lambda op, reward=reward: attrs.evolve(op, rewards=(reward,)))
        assert found.shape == shape


def test_growth_is_told_by_what_the_env_does(tmp_path: Path) -> None:
    after = run(1, 40)
    after[0][0] = attrs.evolve(after[0][0], infos={"mass": 2.0})
    for step in range(3, 41):
        after[0][step] = changed(after[0][step], "qvel", nudged(40 if step > 8 else 2, 0))
    (found,) = compared(tmp_path, run(1, 40), after).divergences
    assert shape_sentence(found).startswith("starts at a few ulp and grows: arithmetic")
