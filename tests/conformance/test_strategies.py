"""Strategies: everything drawn lies in its space, the corners come, and it shrinks to what is plainest."""

from collections.abc import Callable
from random import Random
from typing import Any, TypeVar

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from hypothesis import Phase, find, given, settings
from hypothesis.strategies import SearchStrategy

from rlmesh_trio.conformance import strategies
from rlmesh_trio.conformance.members import corner_rows
from rlmesh_trio.conformance.rows import member_of
from rlmesh_trio.conformance.scripts import Reset, Script, Step, Wait
from rlmesh_trio.spaces import codec_for, space_from_gymnasium
from tests.conformance.making import facts_for

ALL_KINDS = spaces.Dict(
    {
        "box": spaces.Box(-1.0, 1.0, (2, 3), np.float64),
        "discrete": spaces.Discrete(4, start=-2),
        "binary": spaces.MultiBinary(3),
        "multi": spaces.MultiDiscrete([2, 5]),
        "nested": spaces.Tuple((spaces.Text(6, min_length=2), spaces.Box(0, 255, (4,), np.uint8))),
    }
)
T = TypeVar("T")
BOOL: Any = np.bool_
LOW, HIGH = np.array([-np.inf, -1, 3], np.float32), np.array([2, np.inf, 3], np.float32)
SPACES: list[tuple[gymnasium.Space[Any], Any]] = [
    (spaces.Discrete(4, start=-2), -2),
    (spaces.Discrete(2**40), 0),
    (spaces.MultiDiscrete([3, 2]), [0, 0]),
    (spaces.MultiBinary((2, 2)), [[0, 0], [0, 0]]),
    (spaces.Box(-1, 3, (3,), np.float32), [1, 1, 1]),
    (spaces.Box(-1, 1, (), np.float16), 0),
    (spaces.Box(-1, 1, (0,), np.float32), []),
    (spaces.Box(-np.inf, np.inf, (2,), np.float64), [0, 0]),
    (spaces.Box(5, np.inf, (1,), np.float16), [5]),
    (spaces.Box(LOW, HIGH, dtype=np.float32), [2, -1, 3]),
    (spaces.Box(1.7e308, np.inf, (1,), np.float64), [1.7e308]),
    (spaces.Box(-(2**63), 2**63 - 1, (2,), np.int64), [0, 0]),
    (spaces.Box(0, 2**64 - 1, (1,), np.uint64), [0]),
    (spaces.Box(0, 1, (2,), BOOL), [False, False]),
    (spaces.Box(0, 255, (7, 9), np.uint8), [[127] * 9] * 7),
    (spaces.Box(0, 1, (40,), BOOL), [False] * 40),
    (spaces.Box(-1, 1, (40,), np.float32), [0] * 40),
    (spaces.Text(5, min_length=2, charset="xyz"), "xx"),
    (spaces.Text(3, min_length=0), ""),
    (spaces.Tuple(()), ()),
]
QUICK = settings(max_examples=60, database=None)
SHRINKING = settings(database=None, phases=[Phase.generate, Phase.shrink])


def shrunk(strategy: SearchStrategy[T], condition: Callable[[T], bool]) -> T:
    return find(strategy, condition, settings=SHRINKING, random=Random(0))


def plainest(strategy: SearchStrategy[T]) -> T:
    return shrunk(strategy, lambda _: True)


@pytest.mark.parametrize(("space", "least"), SPACES)
@pytest.mark.filterwarnings("error::RuntimeWarning")
def test_what_is_drawn_is_a_member_and_shrinks(space: gymnasium.Space[Any], least: Any) -> None:
    wire = space_from_gymnasium(space)

    @QUICK
    @given(strategies.actions(wire))
    def check(row: tuple[bytes, ...]) -> None:
        codec_for(wire).check_members(row, 1)

    check()
    for row in corner_rows(wire):
        codec_for(wire).check_members(row, 1)
    assert np.array_equal(member_of(wire, plainest(strategies.actions(wire))), least)
    assert np.array_equal(member_of(wire, corner_rows(wire)[0]), least)


@QUICK
@given(strategies.actions(space_from_gymnasium(ALL_KINDS)))
def test_every_kind_is_built_leaf_by_leaf(row: tuple[bytes, ...]) -> None:
    codec_for(space_from_gymnasium(ALL_KINDS)).check_members(row, 1)


@pytest.mark.parametrize("value", [-1.0, 1.0, np.nextafter(np.float32(-1), 0), np.nextafter(np.float32(1), 0)])
def test_bounds_and_what_lies_just_inside_are_drawn(value: float) -> None:
    wire = space_from_gymnasium(spaces.Box(-1, 1, (2,), np.float32))
    shrunk(strategies.actions(wire), lambda row: member_of(wire, row)[1] == np.float32(value))


@pytest.mark.parametrize("ends", [(np.inf, np.inf), (-np.inf, -np.inf), (65504, 65504), (-65504, -65504)])
def test_ends_beyond_which_there_is_no_number(ends: tuple[float, float]) -> None:
    low, high = ends
    wire = space_from_gymnasium(spaces.Box(np.float16(low), np.float16(high), (), np.float16))
    assert {float(np.frombuffer(row[0], np.float16)[0]) for row in corner_rows(wire)} == {low, high}


def test_every_discrete_value_is_drawn() -> None:
    wire = space_from_gymnasium(spaces.Discrete(6))
    for value in range(6):
        shrunk(strategies.actions(wire), lambda row, value=value: member_of(wire, row) == value)


def test_an_unbounded_side_is_not_taken_to_its_end() -> None:
    wire = space_from_gymnasium(spaces.Box(-np.inf, np.inf, (1,), np.float64))

    @QUICK
    @given(strategies.actions(wire))
    def check(row: tuple[bytes, ...]) -> None:
        assert abs(member_of(wire, row)[0]) <= 1000

    check()


def test_seeds_are_all_that_the_wire_has() -> None:
    assert plainest(strategies.seeds()) == 0
    assert shrunk(strategies.seeds(), lambda seed: seed >= 2**63 - 1) == 2**63 - 1
    assert plainest(strategies.lane_seeds(3)) == (0, 0, 0)
    assert sorted(plainest(strategies.lane_seeds(3, distinct=True))) == [0, 1, 2]
    assert len(set(plainest(strategies.lane_seeds(40, distinct=True)))) == 40


@pytest.mark.parametrize("lanes", [1, 3, 40])
def test_scripts_fit_their_target(lanes: int) -> None:
    facts = facts_for(lanes=lanes)
    kinds: set[str] = set()

    @QUICK
    @given(strategies.scripts(facts, steps=20, reseed=True, unseeded=True, partial=True, pauses=True))
    def check(script: Script) -> None:
        assert script.lanes == lanes
        first = script.ops[0]
        assert isinstance(first, Reset)
        assert (len(first.seeds), first.lanes) == (lanes, ())
        assert sum(isinstance(op, Step) for op in script.ops) <= 20
        for op in script.ops:
            if isinstance(op, Wait):
                kinds.add("wait")
                continue
            rows = op.actions if isinstance(op, Step) else op.seeds
            assert len(rows) in ((len(op.lanes) or lanes,) if isinstance(op, Step) else (len(op.lanes) or lanes, 0))
            kinds.add("partial" if op.lanes else "step" if isinstance(op, Step) else "seeded" if rows else "unseeded")

    check()
    assert kinds == {"wait", "step", "seeded", "unseeded"} | ({"partial"} if lanes > 1 else set())


def test_scripts_are_not_as_short_as_they_could_be() -> None:
    lengths: list[int] = []

    @settings(max_examples=100, database=None)
    @given(strategies.scripts(facts_for(), steps=40))
    def check(script: Script) -> None:
        lengths.append(len(script.ops))

    check()
    assert sum(length > 20 for length in lengths) > 20


def test_scripts_shrink() -> None:
    facts = facts_for()
    action = (np.int64(2).tobytes(),)

    def twice(script: Script) -> bool:
        return [op.actions[0] for op in script.ops if isinstance(op, Step)].count(action) >= 2

    script = shrunk(strategies.scripts(facts, reseed=True, pauses=True), twice)
    assert script == Script(1, (Reset((0,)), Step((action,)), Step((action,))))
    assert plainest(strategies.scripts(facts, fewest=2)).ops == (Reset((0,)), *[Step(((bytes(8),),))] * 2)
    assert plainest(strategies.scripts(facts, start=False)).ops == ()
    assert plainest(strategies.waits()) == Wait(0.02)


def test_the_example_is_the_same_each_time_and_tries_every_corner() -> None:
    facts = facts_for(lanes=2)
    script = strategies.example_script(facts, steps=4)
    assert script == strategies.example_script(facts, steps=4)
    assert script.ops[0] == Reset((0, 1))
    steps = [op for op in script.ops if isinstance(op, Step)]
    assert len(steps) == 4
    assert {step.actions[0] for step in steps} == {(np.int64(n).tobytes(),) for n in range(3)}
    assert steps[0].actions[1] == steps[1].actions[0]


def test_options_that_nobody_knows_are_plain() -> None:
    assert plainest(strategies.options()) == {"x": None}
