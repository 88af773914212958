"""Scripts, values and differences for people."""

from typing import Any

import numpy as np
import pytest
from gymnasium import spaces

from rlmesh_trio.conformance.differences import first_difference
from rlmesh_trio.conformance.printing import difference_lines, place_text, row_text, script_text, value_text
from rlmesh_trio.conformance.rows import row_of
from rlmesh_trio.conformance.scripts import Op, Reset, Script, Step, Wait
from rlmesh_trio.spaces import space_from_gymnasium
from tests.conformance.making import facts_for, row, script_of, trace_of

DISCRETE = space_from_gymnasium(spaces.Discrete(3))
ONE, TWO = row_of(DISCRETE, 1), row_of(DISCRETE, 2)


@pytest.mark.parametrize(
    ("lanes", "ops", "text"),
    [
        (1, [Reset((0,)), Step((TWO,))], "reset(seed=0) step(2)"),
        (1, [Reset(), Step((ONE,)), Step((ONE,))], "reset() step(1) step(1)"),
        (1, [Reset((5,), {"level": 2}), Wait(0.25)], "reset(seed=5, options={'level': 2}) wait(0.25)"),
        (1, [Step((TWO,)), *[Step((ONE,))] * 3], "step(2) step(1) x3"),
        (2, [Reset((0, 1)), Step((ONE, TWO))], "reset(seeds=[0, 1]) step([1, 2])"),
        (2, [Reset((7,), lanes=(1,)), Step((TWO,), (0,))], "reset(seeds=[7], lanes=[1]) step([2], lanes=[0])"),
        (9, [Step((ONE,) * 9)], "step([1] * 9)"),
        (9, [Reset(tuple(range(9)))], "reset(seeds=[0, 1, 2, 3, ... 9 in all])"),
        (1, [Reset((1,), lanes=(0,))], "reset(seed=1, lanes=[0])"),
        (1, [Reset((1, 2), lanes=(0,))], "reset(seeds=[1, 2], lanes=[0])"),
    ],
)  # fmt: skip
def test_a_script_is_told_in_one_line(lanes: int, ops: list[Op], text: str) -> None:
    assert script_text(Script(lanes, tuple(ops)), DISCRETE) == text


def test_a_long_script_is_told_in_part() -> None:
    ops = tuple([Step((ONE,)), Step((TWO,))] * 30)
    text = script_text(Script(1, ops), DISCRETE)
    assert "... 36 more ..." in text
    assert text.count("step") == 24


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (np.float32(0.1), "0.1"),
        (np.array([0.1, -1], np.float32), "[0.1, -1.0]"),
        (np.array([[1, 2], [3, 4]]), "[[1, 2], [3, 4]]"),
        (np.array(3.5), "3.5"),
        (np.zeros((4, 4), np.uint8), "full((4, 4), 0)"),
        (np.arange(20), "[0, 1, 2, 3, ... 20 in all]"),
        (np.arange(20).reshape(4, 5), "[0, 1, 2, 3, ... 20 in all, shape (4, 5)]"),
        ({"a": np.int64(1), "b": (np.array([True, False]), "x")}, "{'a': 1, 'b': ([True, False], 'x')}"),
        ([1] * 9, "[1, 1, 1, 1, ... 9 in all]"),
        (None, "None"),
        ("x" * 100, f"'{'x' * 59}... 102 characters"),
    ],
)
def test_values_take_few_characters(value: Any, text: str) -> None:
    assert value_text(value) == text


def test_a_row_that_is_no_value_is_told_as_bytes() -> None:
    assert row_text(ONE, DISCRETE) == "1"
    assert row_text((b"\x01\x02", bytes(40)), DISCRETE) == "<0102 40 bytes>"
    assert row_text(ONE, None) == "<0100000000000000>"


def test_ops_are_counted_from_their_reset() -> None:
    once, twice = script_of(2), Script(1, (*script_of(2).ops, Reset(), Step((ONE,)), Wait(1)))
    assert [place_text(once, place) for place in range(3)] == ["reset", "step 1", "step 2"]
    assert [place_text(twice, place) for place in range(6)] == [
        "reset 1", "step 1 after reset 1", "step 2 after reset 1", "reset 2", "step 1 after reset 2", "wait",
    ]  # fmt: skip


def told(a: dict[str, Any], b: dict[str, Any], *, lanes: int = 1) -> tuple[str, str]:
    traces = trace_of({}, a, lanes=lanes), trace_of({}, b, lanes=lanes)
    difference = first_difference(*traces, facts_for(lanes=lanes))
    assert difference is not None
    return difference_lines(difference, (traces[0].script, traces[1].script), ("B alone", "B after A"))


def test_a_difference_is_two_lines() -> None:
    assert told({"observation": (row(0.0917, 0),)}, {"observation": (row(0.09170001, 0),)}) == (
        "B alone    step 1  obs[0] = 0.0917     (0x3dbbcd36)",
        "B after A  step 1  obs[0] = 0.09170001 (0x3dbbcd37)   1 ulp apart; the reset is equal",
    )
    assert told({"rewards": (0.0, 1.0)}, {"rewards": (0.0, 2.0)}, lanes=2) == (
        "B alone    step 1 lane 1  reward = 1.0        (0x3f800000)",
        "B after A  step 1 lane 1  reward = 2.0        (0x40000000)   far apart; the reset is equal",
    )
    assert told({"infos": {"a": "x"}}, {}) == (
        "B alone    step 1  info.a = 'x'",
        "B after A  step 1  info.a = nothing   infos are all that differs",
    )
    assert told({}, {"observation": ()})[1] == "B after A  step 1  obs = nothing   the reset is equal"
