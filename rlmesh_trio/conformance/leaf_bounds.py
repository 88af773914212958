"""What a leaf admits, and how far a value lies outside or inside of it. NaN is told apart."""

from typing import Any, cast
from weakref import WeakKeyDictionary

import attrs
import gymnasium
import numpy as np
import numpy.typing as npt
from gymnasium import spaces

from rlmesh_trio.contract import LeafSpec, ValueSpace
from rlmesh_trio.spaces import OpenText, leaf_spaces
from rlmesh_trio.spaces.bits import leaf_spot
from rlmesh_trio.spaces.leaf_values import leaf_name, leaf_value
from rlmesh_trio.spaces.slabs import array_dtype

__all__ = ("LeafBounds", "Outside", "bounds_of")

_MANY_ULPS = 1_000_000

_Array = npt.NDArray[Any]
_known: WeakKeyDictionary[ValueSpace, tuple["LeafBounds", ...]] = WeakKeyDictionary()


@attrs.frozen
class Outside:
    """A value that its leaf does not admit: where it is in the leaf, and in words what is wrong with it.

    ``side`` is ``"high"``, ``"low"``, ``"long"``, ``"short"`` or ``"charset"``.
    """

    index: tuple[int, ...]
    value: str
    side: str
    why: str


class LeafBounds:
    """The leaf *spec*, the space of which is *space*. ``low`` and ``high`` are arrays of its shape, or text lengths."""

    def __init__(self, spec: LeafSpec, space: gymnasium.Space[Any]) -> None:
        self.spec = spec
        self.space = space
        self.low, self.high = _bounds(spec, space)
        self.charset: frozenset[str] | None = None
        if isinstance(space, spaces.Text) and not isinstance(space, OpenText):
            self.charset = frozenset(space.character_set)

    def name(self, role: str) -> str:
        """The leaf's name for people, under *role*: ``obs.velocity``."""
        return leaf_name(role, self.spec.path)

    def first_nan(self, leaf: bytes) -> tuple[int, ...] | None:
        """The index of the first NaN in *leaf*, one row."""
        value = leaf_value(self.spec, leaf)
        if not isinstance(value, np.ndarray) or value.dtype.kind != "f":
            return None
        found = np.isnan(value)
        return _first(found) if found.any() else None

    def first_outside(self, leaf: bytes) -> Outside | None:
        """The first element of *leaf*, one row, that is a number, or a text, and not admitted."""
        value = leaf_value(self.spec, leaf)
        if isinstance(value, str):
            return self._text_outside(value)
        if value is None:
            return None
        above: _Array = value > self.high
        below: _Array = value < self.low
        outside = above | below
        return self._array_outside(value, _first(outside), above) if outside.any() else None

    def _array_outside(self, value: _Array, index: tuple[int, ...], above: _Array) -> Outside:
        side, bounds = ("high", self.high) if above[index] else ("low", self.low)
        given, bound = value[index], bounds[index]
        beyond = "above" if side == "high" else "below"
        return Outside(index, str(given), side, f"{beyond} the {side} bound {bound}{self._excess(given, bound)}")

    def _excess(self, value: Any, bound: Any) -> str:
        if not np.isfinite(value):
            return ""
        if self.spec.dtype.startswith("float"):
            element = attrs.evolve(self.spec, shape=())
            spot = leaf_spot(element, value.tobytes(), bound.astype(value.dtype).tobytes())
            if spot is not None and spot.ulps is not None and spot.ulps <= _MANY_ULPS:
                return f", by {spot.ulps} ulp"
            return f", by {abs(float(value) - float(bound)):.6g}"
        return f", by {abs(int(value) - int(bound))}"

    def _text_outside(self, text: str) -> Outside | None:
        shortest, longest = int(self.low), int(self.high)
        if len(text) > longest:
            return Outside((), repr(text), "long", f"{len(text)} characters, {longest} are the most")
        if len(text) < shortest:
            return Outside((), repr(text), "short", f"{len(text)} characters, {shortest} are the least")
        for place, character in enumerate(text):
            if self.charset is not None and character not in self.charset:
                return Outside((place,), repr(text), "charset", f"{character!r} is not in the charset")
        return None

    def nearness(self, leaf: bytes) -> float | None:
        """How near the boldest element of *leaf* is to a bound: 0 in the middle, 1 on it.

        ``None`` without two finite bounds anywhere, and for leaves that only count.
        """
        value = leaf_value(self.spec, leaf)
        if self.spec.kind != "box" or not isinstance(value, np.ndarray) or not value.size or value.dtype.kind == "b":
            return None
        low, high = self.low.astype(np.float64), self.high.astype(np.float64)
        with np.errstate(invalid="ignore", over="ignore"):
            half = high / 2 - low / 2
            share = np.abs(value.astype(np.float64) - low - half) / half
        shares: _Array = share[np.isfinite(share)]
        return float(shares.max()) if shares.size else None


def bounds_of(space: ValueSpace) -> tuple[LeafBounds, ...]:
    """The leaves of *space*, in wire order."""
    found = _known.get(space)
    if found is None:
        found = _known[space] = tuple([LeafBounds(spec, leaf) for spec, leaf in leaf_spaces(space)])
    return found


def _bounds(spec: LeafSpec, space: gymnasium.Space[Any]) -> tuple[_Array, _Array]:
    match space:
        case spaces.Text():
            return np.array(space.min_length), np.array(space.max_length)
        case spaces.Discrete():
            first = int(space.start)
            low, high = np.array(first), np.array(first + int(space.n) - 1)
        case spaces.MultiDiscrete():
            low, high = np.zeros(spec.shape), cast("_Array", space.nvec) - 1
        case spaces.Box():
            low, high = cast("_Array", space.low), cast("_Array", space.high)
        case _:
            low, high = np.zeros(spec.shape), np.ones(spec.shape)
    dtype = array_dtype(spec.kind, spec.dtype)
    return low.astype(dtype), high.astype(dtype)


def _first(mask: _Array) -> tuple[int, ...]:
    return tuple(int(i) for i in np.argwhere(mask)[0])
