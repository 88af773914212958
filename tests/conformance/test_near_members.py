"""Values that are just no members: what is made of a member is none, and is told to be none of its sort."""

from typing import Any, cast

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from hypothesis import given, settings
from hypothesis import strategies as st

from rlmesh_trio.conformance.near_members import deviation_of, near_members, slipped_example, slipped_scripts, sorts_of
from rlmesh_trio.conformance.rows import member_of
from rlmesh_trio.conformance.scripts import Reset, Step
from rlmesh_trio.spaces import space_from_gymnasium
from tests.conformance.making import facts_for

SPACES: dict[str, gymnasium.Space[Any]] = {
    "box": spaces.Box(np.array([-1, -np.inf], np.float32), np.array([1, 5], np.float32)),
    "half": spaces.Box(-1, 1, (), np.float16),
    "unbounded": spaces.Box(-np.inf, np.inf, (2,), np.float64),
    "small ints": spaces.Box(0, 254, (2,), np.uint8),
    "lowest ints": spaces.Box(-128, 3, (2,), np.int8),
    "discrete": spaces.Discrete(3, start=-1),
    "many": spaces.MultiDiscrete([2, 5]),
    "text": spaces.Text(4, min_length=1, charset="ab"),
    "nested": spaces.Dict({"a": spaces.Tuple([spaces.Discrete(2), spaces.Box(-1, 1, (40,))]), "b": spaces.Text(3)}),
}
WHOLE: dict[str, gymnasium.Space[Any]] = {
    "bytes": spaces.Box(0, 255, (2,), np.uint8),
    "bools": spaces.Box(0, 1, (2,), cast("Any", np.bool_)),
    "bits": spaces.MultiBinary(3),
}
SORTS = {
    "unbounded": {"structural"},
    "discrete": {"structural"},
    "many": {"structural"},
    "small ints": {"range"},
    "lowest ints": {"range"},
    "text": {"range"},
}
FEW = settings(max_examples=20)


@pytest.mark.parametrize("name", SPACES)
@FEW
@given(data=st.data())
def test_what_is_made_of_a_member_is_none(name: str, data: st.DataObject) -> None:
    space = space_from_gymnasium(SPACES[name])
    member, other = data.draw(near_members(space))
    assert space.space.contains(member_of(space, member))
    assert not space.space.contains(member_of(space, other)) or "NaN" in str(deviation_of(other, space))
    assert deviation_of(member, space) is None
    deviation = deviation_of(other, space)
    assert deviation is not None
    assert sum(a != b for a, b in zip(member, other, strict=True)) == 1


@pytest.mark.parametrize("name", SPACES)
def test_the_sorts_are_those_of_the_leaves(name: str) -> None:
    assert sorts_of(facts_for(actions=SPACES[name])) == SORTS.get(name, {"structural", "range"})


@pytest.mark.parametrize("name", WHOLE)
def test_a_space_of_all_values_has_none(name: str) -> None:
    assert sorts_of(facts_for(actions=WHOLE[name])) == set()


@pytest.mark.parametrize("name", SPACES)
@FEW
@given(data=st.data())
def test_a_script_gets_steps_in_which_one_lane_strays(name: str, data: st.DataObject) -> None:
    facts = facts_for(actions=SPACES[name], lanes=3)
    space = facts.contract.action_space
    assert space is not None
    script = data.draw(slipped_scripts(facts, fewest=2))
    assert isinstance(script.ops[0], Reset)
    steps = [op for op in script.ops if isinstance(op, Step)]
    strays = [sum(deviation_of(row, space) is not None for row in step.actions) for step in steps]
    assert 2 <= sum(strays) <= 3
    assert max(strays) == 1


def test_the_example_strays_in_every_way_and_what_all_refuse_comes_first() -> None:
    facts = facts_for(actions=SPACES["nested"], lanes=2)
    space = facts.contract.action_space
    assert space is not None
    steps = [op for op in slipped_example(facts).ops if isinstance(op, Step)]
    found = [found for step in steps for row in step.actions if (found := deviation_of(row, space)) is not None]
    assert [(each.sort, each.path) for each in found] == [
        *[("structural", "$.a[0]")] * 2,
        ("structural", "$.a[1]"),
        *[("range", "$.a[1]")] * 2,
        *[("range", "$.b")] * 2,
    ]
