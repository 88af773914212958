from typing import Any

import numpy as np
import pytest

from rlmesh_trio.spaces.lane_infos import lane_part


def lists(values: list[Any]) -> Any:
    return values


@pytest.mark.parametrize("made", [lists, np.array])
def test_a_lane_has_what_its_mask_says_at_any_depth(made: Any) -> None:
    infos = {
        "score": made([1.5, 2.5]),
        "_score": made([True, False]),
        "inner": {"lives": made([3, 4]), "_lives": made([True, True])},
        "_inner": made([True, True]),
        "name": "both",
    }
    assert lane_part(infos, 0, 2) == {"score": 1.5, "inner": {"lives": 3}, "name": "both"}
    assert lane_part(infos, 1, 2) == {"inner": {"lives": 4}, "name": "both"}


@pytest.mark.parametrize("mask", [True, None, {"0": False}, [False], "ab", np.array(False), np.array([False])])
def test_a_mask_that_is_not_one_flag_a_lane_hides_nothing(mask: Any) -> None:
    assert lane_part({"score": [1, 2], "_score": mask}, 1, 2) == {"score": 2}


@pytest.mark.parametrize("value", [(1, 2), [1, 2, 3], np.array(5), "ab"])
def test_what_is_not_one_value_a_lane_is_every_lanes(value: Any) -> None:
    assert lane_part({"score": value, "_alone": 1}, 1, 2) == {"score": value, "_alone": 1}
