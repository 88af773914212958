"""Values that are just no members of an action space: a unit or an ulp outside of a leaf, or NaN.

Two kinds of them are told apart. What is *structural* every server has to refuse: NaN, and a Discrete or MultiDiscrete
outside its values. What is out of *range* is for the server's policy to refuse or to pass on: the bounds of a Box, the
length and the characters of a Text.
"""

from collections.abc import Iterator, Sequence
from typing import Any, Literal

import attrs
import numpy as np
import numpy.typing as npt
from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

from rlmesh_trio.conformance.leaf_bounds import LeafBounds, bounds_of
from rlmesh_trio.conformance.members import corner_rows
from rlmesh_trio.conformance.registry import Facts
from rlmesh_trio.conformance.scripts import Op, Row, Script, Step
from rlmesh_trio.conformance.strategies import actions, example_script, scripts
from rlmesh_trio.contract import ValueSpace
from rlmesh_trio.spaces.leaf_values import leaf_value
from rlmesh_trio.spaces.slabs import slab_for

__all__ = ("Deviation", "Sort", "deviation_of", "near_members", "slipped_example", "slipped_scripts", "sorts_of")

Sort = Literal["structural", "range"]

_COUNTED = ("discrete", "multi_discrete")
_LONGEST_TEXT = 1024
_MOST_WAYS = 16
_EXAMPLE_STEPS = 3
_STRANGERS = "\u00e9\u4e16\u2603#~"

_Array = npt.NDArray[Any]


@attrs.frozen
class Deviation:
    """What makes a row no member: at the leaf of this path and kind, in words."""

    sort: Sort
    path: str
    kind: str
    why: str


def deviation_of(row: Row, space: ValueSpace) -> Deviation | None:
    """The first way in which *row*, which has the layout of *space*, is no member of it.

    Bytes for booleans other than 0 and 1 do not count: they are no values at all.
    """
    for bounds, leaf in zip(bounds_of(space), row, strict=False):
        path, kind = bounds.spec.path, bounds.spec.kind
        if bounds.first_nan(leaf) is not None:
            return Deviation("structural", path, kind, "NaN")
        outside = bounds.first_outside(leaf) if kind != "multi_binary" else None
        if outside is not None:
            sort: Sort = "structural" if kind in _COUNTED else "range"
            return Deviation(sort, path, kind, f"{outside.value}, {outside.why}")
    return None


@attrs.frozen
class _Way:
    """How to spoil leaf *number*: put *values*, one an element, at one of *places*; a text instead of the leaf."""

    sort: Sort
    number: int
    places: tuple[int, ...]
    values: _Array | str

    def spoilt(self, space: ValueSpace, row: Row, at: int) -> Row:
        """*row* with one element, the *at*-th of those that can be, spoilt."""
        bounds = bounds_of(space)[self.number]
        value = leaf_value(bounds.spec, row[self.number])
        if isinstance(self.values, str):
            value = self.values
        else:
            assert isinstance(value, np.ndarray)
            value = value.copy()
            place = self.places[at % len(self.places)]
            value.flat[place] = self.values.flat[place]
        slab = slab_for(bounds.spec, bounds.space)
        packed = bytes(slab.pack_rows((value,)))
        return (*row[: self.number], packed, *row[self.number + 1 :])


def _ways(space: ValueSpace, sort: Sort | None) -> list[_Way]:
    ways = [way for number, bounds in enumerate(bounds_of(space)) for way in _ways_of(number, bounds)]
    return [way for way in ways if sort in (None, way.sort)]


def _ways_of(number: int, bounds: LeafBounds) -> Iterator[_Way]:
    kind = bounds.spec.kind
    if kind == "text":
        for text in _strange_texts(bounds):
            yield _Way("range", number, (), text)
    elif kind != "multi_binary" and bounds.low.dtype.kind != "b":
        sort: Sort = "structural" if kind in _COUNTED else "range"
        for values, possible in _beyond(bounds):
            places = tuple(int(place) for place in np.flatnonzero(possible))
            if places:
                yield _Way(sort, number, places, values)
        if bounds.low.dtype.kind == "f" and bounds.low.size:
            yield _Way("structural", number, tuple(range(bounds.low.size)), np.full_like(bounds.low, np.nan))


def _beyond(bounds: LeafBounds) -> Iterator[tuple[_Array, _Array]]:
    """The values next above and next below the leaf, and where there are any."""
    low, high = bounds.low, bounds.high
    if low.dtype.kind == "f":
        infinity = low.dtype.type(np.inf)
        with np.errstate(over="ignore"):
            yield np.nextafter(high, infinity), high < infinity
            yield np.nextafter(low, -infinity), low > -infinity
        return
    limits = np.iinfo(low.dtype)
    one = low.dtype.type(1)
    room_above, room_below = high < limits.max, low > limits.min
    yield np.where(room_above, high + np.where(room_above, one, 0).astype(low.dtype), high), room_above
    yield np.where(room_below, low - np.where(room_below, one, 0).astype(low.dtype), low), room_below


def _strange_texts(bounds: LeafBounds) -> Iterator[str]:
    shortest, longest = int(bounds.low), int(bounds.high)
    plain = min(bounds.charset) if bounds.charset else "a"
    if longest < _LONGEST_TEXT:
        yield plain * (longest + 1)
    if shortest:
        yield plain * (shortest - 1)
    if bounds.charset is not None and longest:
        stranger = next(each for each in (*_STRANGERS, *map(chr, range(0x4E00, 0x9FFF))) if each not in bounds.charset)
        yield stranger + plain * (max(1, shortest) - 1)


def sorts_of(facts: Facts) -> frozenset[Sort]:
    """Which sorts of deviations the target's action space has; none without an action space."""
    space = facts.contract.action_space
    return frozenset[Sort]() if space is None else frozenset(way.sort for way in _ways(space, None))


def near_members(space: ValueSpace, sort: Sort | None = None) -> SearchStrategy[tuple[Row, Row]]:
    """A member of *space*, and what becomes of it when one element is put just outside: of one *sort*, or of both.

    *space* has such values: see :func:`sorts_of`.
    """
    ways = _ways(space, sort)

    def both(row: Row, way: _Way, at: int) -> tuple[Row, Row]:
        return row, way.spoilt(space, row, at)

    return st.builds(both, actions(space), st.sampled_from(ways), st.integers(0, 31))


_Slip = tuple[int, int, tuple[Row, Row]]


def _slipped(script: Script, slips: Sequence[_Slip]) -> Script:
    """*script* with a step for each slip, behind the op at its place: one lane gets what is no member."""
    ops: list[Op] = []
    for place, op in enumerate(script.ops):
        ops.append(op)
        for at, lane, (member, other) in slips:
            if at % len(script.ops) == place:
                taken = [other if number == lane % script.lanes else member for number in range(script.lanes)]
                ops.append(Step(tuple(taken)))
    return attrs.evolve(script, ops=tuple(ops))


def slipped_scripts(
    facts: Facts, sort: Sort | None = None, *, steps: int = 8, fewest: int = 1, most: int = 3
) -> SearchStrategy[Script]:
    """Scripts that begin with a reset, with *fewest* to *most* steps among the others in which a lane gets no member.

    The target's action space has such values: see :func:`sorts_of`.
    """
    space = facts.contract.action_space
    assert space is not None
    slip = st.tuples(st.integers(0, 31), st.integers(0, facts.contract.num_envs - 1), near_members(space, sort))
    return st.builds(_slipped, scripts(facts, steps=steps), st.lists(slip, min_size=fewest, max_size=most))


def slipped_example(facts: Facts, sort: Sort | None = None) -> Script:
    """The same such script each time: up to sixteen ways, those that every server refuses before the others."""
    space = facts.contract.action_space
    assert space is not None
    member = corner_rows(space)[0]
    ways = sorted(_ways(space, sort), key=lambda way: way.sort != "structural")[:_MOST_WAYS]
    script = example_script(facts, steps=_EXAMPLE_STEPS)
    last = len(script.ops) - 1
    slips = [(min(at, last), at, (member, way.spoilt(space, member, 0))) for at, way in enumerate(ways)]
    return _slipped(script, slips)
