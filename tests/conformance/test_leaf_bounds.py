"""What a leaf admits: where a value leaves it first, by how much, and how near it came."""

from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

from rlmesh_trio.conformance.leaf_bounds import LeafBounds, bounds_of
from rlmesh_trio.conformance.rows import row_of
from rlmesh_trio.spaces import OpenText, space_from_gymnasium

UP = np.nextafter(np.float32(1), np.float32(2))


def leaf_of(space: gymnasium.Space[Any], value: Any) -> tuple[LeafBounds, bytes]:
    known = space_from_gymnasium(space)
    return bounds_of(known)[0], row_of(known, value)[0]


@pytest.mark.parametrize(
    ("space", "value", "index", "why"),
    [
        (spaces.Box(-1, 1, (3,)), np.array([0, UP, 9], np.float32), (1,), "above the high bound 1.0, by 1 ulp"),
        (spaces.Box(-1, 1, (3,)), np.array([0, 0, -2.5], np.float32), (2,), "below the low bound -1.0, by 1.5"),
        (spaces.Box(-1, 1, ()), np.float32(np.inf), (), "above the high bound 1.0"),
        (
            spaces.Box(-1, 1, (1,), np.float16),
            np.array([1.001], np.float16),
            (0,),
            "above the high bound 1.0, by 1 ulp",
        ),
        (
            spaces.Box(0, 9, (2, 2), np.int32),
            np.array([[0, 0], [12, 0]], np.int32),
            (1, 0),
            "above the high bound 9, by 3",
        ),
        (spaces.Discrete(3, start=-1), -3, (), "below the low bound -1, by 2"),
        (spaces.MultiDiscrete([2, 3]), np.array([1, 3]), (1,), "above the high bound 2, by 1"),
        (spaces.MultiBinary(2), np.array([1, 2], np.int8), (1,), "above the high bound 1, by 1"),
        (spaces.Text(3, charset="ab"), "abab", (), "4 characters, 3 are the most"),
        (spaces.Text(3, min_length=2, charset="ab"), "a", (), "1 characters, 2 are the least"),
        (spaces.Text(3, charset="ab"), "abc", (2,), "'c' is not in the charset"),
    ],
)
def test_the_first_that_is_outside_is_told(
    space: gymnasium.Space[Any], value: Any, index: tuple[int, ...], why: str
) -> None:
    bounds, leaf = leaf_of(space, value)
    outside = bounds.first_outside(leaf)
    assert outside is not None
    assert (outside.index, outside.why) == (index, why)


@pytest.mark.parametrize(
    ("space", "value"),
    [
        (spaces.Box(-1, 1, (2,)), np.array([-1, 1], np.float32)),
        (spaces.Box(-np.inf, np.inf, (2,)), np.array([-np.inf, np.inf], np.float32)),
        (spaces.Box(0, np.inf, (2,)), np.array([-0.0, np.inf], np.float32)),
        (spaces.Box(-1, 1, (2,)), np.array([np.nan, 0], np.float32)),
        (spaces.Box(0, 1, (0,)), np.zeros(0, np.float32)),
        (spaces.Discrete(3, start=-1), 1),
        (spaces.Text(3), "\u4e16\u754c"),
        (OpenText(1), "\u2603"),
    ],
)
def test_what_lies_on_a_bound_is_inside_and_nan_is_another_matter(space: gymnasium.Space[Any], value: Any) -> None:
    bounds, leaf = leaf_of(space, value)
    assert bounds.first_outside(leaf) is None


def test_the_first_nan_is_told() -> None:
    bounds, leaf = leaf_of(spaces.Box(-1, 1, (2, 2)), np.array([[0, 1], [np.nan, np.nan]], np.float32))
    assert bounds.first_nan(leaf) == (1, 0)
    assert bounds.first_nan(bytes(16)) is None


@pytest.mark.parametrize(
    ("space", "value", "near"),
    [
        (spaces.Box(-4, 4, (2,)), np.array([0, -3], np.float32), 0.75),
        (spaces.Box(0, 255, (1,), np.uint8), np.array([255], np.uint8), 1.0),
        (spaces.Box(np.array([-1, 0]), np.array([1, np.inf]), dtype=np.float64), np.array([0.5, 9]), 0.5),
        (spaces.Box(-np.inf, np.inf, (1,)), np.ones(1, np.float32), None),
        (spaces.Box(1, 1, (1,)), np.ones(1, np.float32), None),
        (spaces.Discrete(3), 2, None),
        (spaces.Text(3), "abc", None),
    ],
)
def test_how_near_a_value_is_to_a_bound(space: gymnasium.Space[Any], value: Any, near: float | None) -> None:
    bounds, leaf = leaf_of(space, value)
    assert bounds.nearness(leaf) == near
