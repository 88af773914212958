"""Members of a space, drawn leaf by leaf: what is ordinary, what lies on a bound, and what lies just inside one."""

import math
from collections.abc import Sequence
from typing import Any, cast
from weakref import WeakKeyDictionary

import gymnasium
import numpy as np
import numpy.typing as npt
from gymnasium import spaces
from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

from rlmesh_trio.conformance.scripts import Row
from rlmesh_trio.contract import LeafSpec, ValueSpace
from rlmesh_trio.spaces import OpenText, leaf_spaces
from rlmesh_trio.spaces.slabs import Slab, array_dtype, slab_for

__all__ = ("corner_rows", "rows")

_REACH = 1000
_ELEMENTWISE = 32
_OWN_ELEMENTS = 4
_CORNERS = 8
_EXTRA_TEXT = 20
_LONGEST_TEXT = 256

_Array = npt.NDArray[Any]
_strategies: WeakKeyDictionary[ValueSpace, SearchStrategy[Row]] = WeakKeyDictionary()


def rows(space: ValueSpace) -> SearchStrategy[Row]:
    """Members of *space* as rows. Shrinks to the first or middle member."""
    strategy = _strategies.get(space)
    if strategy is None:
        leaves = [_leaves(spec, leaf_space) for spec, leaf_space in leaf_spaces(space)]
        strategy = _strategies[space] = st.tuples(*leaves)
    return strategy


def corner_rows(space: ValueSpace) -> tuple[Row, ...]:
    """A few members of *space* that are worth trying: the plainest first, then the ends of every leaf together.

    Small Discrete leaves bring every value they have, up to eight.
    """
    columns = [_corners(spec, leaf_space) for spec, leaf_space in leaf_spaces(space)]
    count = max(map(len, columns), default=1)
    return tuple([tuple([column[i % len(column)] for column in columns]) for i in range(count)])


def _packed(slab: Slab, value: Any) -> bytes:
    return bytes(slab.pack_rows((value,)))


def _leaves(spec: LeafSpec, space: gymnasium.Space[Any]) -> SearchStrategy[bytes]:
    slab = slab_for(spec, space)

    def packed(value: Any) -> bytes:
        return _packed(slab, value)

    if isinstance(space, spaces.Text):
        return _texts(space).map(packed)
    window = _Window(spec, space)
    if window.size <= _ELEMENTWISE:
        return window.arrays().map(packed)
    return window.patterned_arrays().map(packed)


def _corners(spec: LeafSpec, space: gymnasium.Space[Any]) -> list[bytes]:
    if isinstance(space, spaces.Text):
        values: list[Any] = [_alphabet(space)[0] * n for n in (space.min_length, _long(space))]
    elif isinstance(space, spaces.Discrete):
        first, count = int(space.start), int(space.n)
        values = [*range(first, first + min(count, _CORNERS - 1)), first + count - 1]
    else:
        values = [*_Window(spec, space).corners]
    slab = slab_for(spec, space)
    return list(dict.fromkeys(_packed(slab, value) for value in values))


def _alphabet(space: spaces.Text) -> str:
    # An open one may stand for gymnasium's default alphabet, which the wire does not tell from it.
    characters = spaces.Text(1).character_list if isinstance(space, OpenText) else space.character_list
    return "".join(sorted(characters))


def _long(space: spaces.Text) -> int:
    return min(space.max_length, max(space.min_length, _LONGEST_TEXT))


def _texts(space: spaces.Text) -> SearchStrategy[str]:
    alphabet = _alphabet(space)
    longest = min(space.max_length, space.min_length + _EXTRA_TEXT)
    ordinary = st.text(st.sampled_from(alphabet), min_size=space.min_length, max_size=longest)
    return st.one_of(st.sampled_from((alphabet[0] * space.min_length, alphabet[-1] * _long(space))), ordinary)


class _Window:
    """What of a numeric leaf is drawn: element by element from ``low`` to ``high``, the plainest being ``middle``."""

    def __init__(self, spec: LeafSpec, space: gymnasium.Space[Any]) -> None:
        self.shape = spec.shape
        self.dtype = array_dtype(spec.kind, spec.dtype)
        self.size = math.prod(spec.shape)
        self.is_float = self.dtype.kind == "f"
        if isinstance(space, spaces.Box):
            bounds = _bounds(spec, cast("spaces.Box[Any]", space))
        else:
            bounds = _counted(spec, space)
        self.low, self.middle, self.high = (np.asarray(bound).astype(self.dtype) for bound in bounds)

    @property
    def corners(self) -> list[_Array]:
        """The plainest value, both ends, and a step inside each; ends alternating by element, too."""
        odd = np.arange(self.size).reshape(self.shape) % 2 == 1
        mixed = [np.where(odd, self.low, self.high), np.where(odd, self.high, self.low)] if self.size > 1 else []
        return [self.middle, self.low, self.high, *self._inside(), *mixed]

    def _inside(self) -> tuple[_Array, _Array]:
        if self.is_float:
            with np.errstate(over="ignore"):  # An end may be infinite, or the largest number there is.
                return np.nextafter(self.low, self.high), np.nextafter(self.high, self.low)
        room = self.low < self.high
        low, high = self.low.astype(object), self.high.astype(object)
        return np.asarray(low + room).astype(self.dtype), np.asarray(high - room).astype(self.dtype)

    def arrays(self) -> SearchStrategy[_Array]:
        """Values drawn element by element, sometimes a corner as a whole."""
        elements = [self._element(i) for i in range(self.size)]
        drawn = st.tuples(*elements).map(lambda values: np.array(values, self.dtype).reshape(self.shape))
        return st.one_of(st.sampled_from(self.corners), drawn) if self.size else st.just(self.middle)

    def patterned_arrays(self) -> SearchStrategy[_Array]:
        """Values of many elements: a corner or noise, with a few elements drawn on their own."""
        place = st.integers(0, self.size - 1)
        own = st.lists(place.flatmap(lambda i: st.tuples(st.just(i), self._element(i))), max_size=_OWN_ELEMENTS)
        base = st.one_of(st.sampled_from(self.corners), st.integers(0, 2**32 - 1).map(self._noise))
        return st.tuples(base, own).map(self._with_own)

    def _with_own(self, drawn: tuple[_Array, Sequence[tuple[int, Any]]]) -> _Array:
        base, own = drawn
        values = base.copy()
        for place, value in own:
            values.flat[place] = value
        return values

    def _noise(self, seed: int) -> _Array:
        generator = np.random.default_rng(seed)
        if self.is_float:
            share = generator.random(self.shape)
            mixed = self.low.astype(np.float64) * (1 - share) + self.high.astype(np.float64) * share
            return np.clip(mixed.astype(self.dtype), self.low, self.high)
        dtype = np.dtype(np.uint8) if self.dtype.kind == "b" else self.dtype.newbyteorder("=")
        drawn = generator.integers(self.low.astype(dtype), self.high.astype(dtype), dtype=dtype, endpoint=True)
        return drawn.astype(self.dtype)

    def _element(self, place: int) -> SearchStrategy[Any]:
        low, middle, high = (bound.flat[place].item() for bound in (self.low, self.middle, self.high))
        if low == high:
            return st.just(low)
        if not self.is_float:
            return _integers(int(low), int(middle), int(high))
        ends = [float(bound.flat[place]) for bound in (self.low, self.high, *self._inside())]
        width = cast("Any", self.dtype.itemsize * 8)
        ordinary = st.floats(low, high, allow_nan=False, allow_infinity=False, width=width)
        return st.one_of(st.just(middle), st.sampled_from(ends), ordinary)


def _integers(low: int, middle: int, high: int) -> SearchStrategy[int]:
    """Integers from *low* to *high* that shrink to *middle*."""
    drawn = st.integers(low - middle, high - middle).map(middle.__add__)
    return drawn if high - low <= _ELEMENTWISE else st.one_of(drawn, st.sampled_from((low, high, low + 1, high - 1)))


def _counted(spec: LeafSpec, space: gymnasium.Space[Any]) -> tuple[_Array, _Array, _Array]:
    """The first, plainest and last value of every element of a space that counts its values."""
    match space:
        case spaces.Discrete():
            first, last = np.array(int(space.start)), np.array(int(space.start) + int(space.n) - 1)
        case spaces.MultiDiscrete():
            first, last = np.zeros(spec.shape), space.nvec - 1
        case _:
            first, last = np.zeros(spec.shape), np.ones(spec.shape)
    return first, first, last


def _bounds(spec: LeafSpec, space: spaces.Box[Any]) -> tuple[_Array, _Array, _Array]:
    """The lowest, plainest and highest value to draw for every element of a Box, unbounded sides drawn in."""
    dtype = array_dtype(spec.kind, spec.dtype)
    wide = np.float64 if dtype.kind == "f" else object
    low, high = np.asarray(space.low).astype(wide), np.asarray(space.high).astype(wide)
    lowest, highest = _limits(dtype)
    no_low, no_high = low <= lowest, high >= highest
    with np.errstate(over="ignore", invalid="ignore"):
        between = low / 2 + high / 2 if dtype.kind == "f" else (low + high) // 2
        middle = np.where(no_low, np.where(no_high, 0, high), np.where(no_high, low, between))
        # The dtype is named because numpy turns object arrays of rank 0 into ints, and those into int64.
        reach = np.maximum(abs(middle), _REACH, dtype=wide)
        least = np.minimum(np.maximum(middle - reach, lowest, dtype=wide), high, dtype=wide)
        most = np.maximum(np.minimum(middle + reach, highest, dtype=wide), low, dtype=wide)
        drawn_low, drawn_high = np.where(no_low, least, low), np.where(no_high, most, high)
    return drawn_low, middle, drawn_high


def _limits(dtype: np.dtype[Any]) -> tuple[Any, Any]:
    """The bounds that say nothing: those of the dtype, where it is a wide one."""
    if dtype.kind == "f":
        limits = np.finfo(cast("Any", dtype))
        return float(limits.min), float(limits.max)
    if dtype.kind in "iu" and dtype.itemsize >= 4:
        return np.iinfo(dtype).min, np.iinfo(dtype).max
    return -math.inf, math.inf
