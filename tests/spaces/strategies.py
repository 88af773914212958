"""Gymnasium spaces for tests: a few known ones, random ones of every kind the wire knows, and leaves for them."""

import struct
from collections.abc import Sequence
from typing import Any, NamedTuple

import gymnasium
import numpy as np
import numpy.typing as npt
from gymnasium import spaces
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from rlmesh_trio.messages import Leaf
from rlmesh_trio.spaces import SpaceCodec, space_from_gymnasium
from rlmesh_trio.spec import WIRE_DTYPES, LeafSpec, ValueSpace

CARTPOLE = spaces.Box(np.array([-4.8, -np.inf], np.float32), np.array([4.8, np.inf], np.float32))
NESTED = spaces.Dict(
    [
        ("z", spaces.Tuple([spaces.Discrete(3, start=-1), spaces.Text(4)])),
        ("a", spaces.Box(-1, 1, (2,))),
    ]
)
MEMBER = {"z": (1, "abc"), "a": np.array([0.5, -0.5], np.float32)}

INTEGERS = [name for name in WIRE_DTYPES if "int" in name]

shapes = hnp.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=3)
filled_shapes = hnp.array_shapes(min_dims=1, max_dims=2, min_side=1, max_side=4)


def _elements(dtype: str) -> Any:
    if "float" in dtype:
        return hnp.from_dtype(np.dtype(dtype), allow_nan=False)
    return hnp.from_dtype(np.dtype(dtype))


@st.composite
def boxes(draw: st.DrawFn) -> gymnasium.Space[Any]:
    dtype, shape = draw(st.sampled_from(WIRE_DTYPES)), draw(shapes)
    if "float" in dtype and draw(st.booleans()):
        return spaces.Box(-np.inf, np.inf, shape, np.dtype(dtype))
    fill = draw(st.sampled_from([st.nothing(), _elements(dtype)]))
    first, second = (draw(hnp.arrays(dtype, shape, elements=_elements(dtype), fill=fill)) for _ in range(2))
    low, high = np.asarray(np.minimum(first, second)), np.asarray(np.maximum(first, second))
    return spaces.Box(low, high, shape, np.dtype(dtype))


@st.composite
def discretes(draw: st.DrawFn) -> gymnasium.Space[Any]:
    dtype = np.dtype(draw(st.sampled_from(INTEGERS)))
    limits = np.iinfo(dtype)
    highest = min(limits.max, 2**63 - 1)
    start = draw(st.integers(limits.min, highest))
    n = draw(st.integers(1, min(highest, limits.max - start + 1)))
    return spaces.Discrete(n, start=start, dtype=dtype.type)


@st.composite
def multi_discretes(draw: st.DrawFn) -> gymnasium.Space[Any]:
    dtype = np.dtype(draw(st.sampled_from(INTEGERS)))
    counts = st.integers(1, min(np.iinfo(dtype).max, 2**63 - 1))
    return spaces.MultiDiscrete(draw(hnp.arrays(dtype, draw(shapes), elements=counts)), dtype=dtype.type)


def multi_binaries() -> st.SearchStrategy[gymnasium.Space[Any]]:
    return filled_shapes.map(lambda shape: spaces.MultiBinary(shape[0] if len(shape) == 1 else shape))


@st.composite
def texts(draw: st.DrawFn) -> gymnasium.Space[Any]:
    shortest = draw(st.integers(0, 4))
    longest = draw(st.integers(max(shortest, 1), 6))
    if draw(st.booleans()):
        return spaces.Text(longest, min_length=shortest)
    return spaces.Text(longest, min_length=shortest, charset=draw(st.text(min_size=1, max_size=5)))


leaf_spaces = st.one_of(boxes(), discretes(), multi_discretes(), multi_binaries(), texts())


def _dicts(children: st.SearchStrategy[gymnasium.Space[Any]]) -> st.SearchStrategy[gymnasium.Space[Any]]:
    items = st.tuples(st.text(max_size=4), children)
    return st.lists(items, max_size=3, unique_by=lambda item: item[0]).map(spaces.Dict)


def _tuples(children: st.SearchStrategy[gymnasium.Space[Any]]) -> st.SearchStrategy[gymnasium.Space[Any]]:
    return st.lists(children, max_size=3).map(spaces.Tuple)


any_spaces = st.recursive(leaf_spaces, lambda children: _dicts(children) | _tuples(children), max_leaves=6)


def codec(space: gymnasium.Space[Any]) -> SpaceCodec:
    return SpaceCodec(space_from_gymnasium(space))


def slab_of(texts: Sequence[str]) -> bytes:
    """The text slab, written by the rule: count, lengths, bodies."""
    bodies = [text.encode() for text in texts]
    return struct.pack(f"<{len(bodies) + 1}Q", len(bodies), *map(len, bodies)) + b"".join(bodies)


@st.composite
def slabs(draw: st.DrawFn, leaf: LeafSpec, rows: int) -> Leaf:
    """Any slab of the right layout, whatever its values mean: NaN payloads and non-members included."""
    if leaf.kind == "text":
        return slab_of([draw(st.text(max_size=8)) for _ in range(rows)])
    size = rows * int(np.prod(leaf.shape, dtype=int)) * np.dtype(leaf.dtype).itemsize
    if leaf.dtype == "bool":
        slab = bytes(draw(st.lists(st.integers(0, 1), min_size=size, max_size=size)))
    else:
        slab = draw(st.binary(min_size=size, max_size=size))
    return memoryview(slab) if draw(st.booleans()) else slab


class Batch(NamedTuple):
    """A space with leaves for it that have the right layout."""

    space: ValueSpace
    leaves: Sequence[Leaf]
    rows: int


@st.composite
def batches(draw: st.DrawFn) -> Batch:
    space, rows = space_from_gymnasium(draw(any_spaces)), draw(st.integers(1, 5))
    return Batch(space, [draw(slabs(leaf, rows)) for leaf in space.leaves], rows)


@st.composite
def corners(draw: st.DrawFn, space: Any) -> Any:
    """A member of *space* made of its bounds."""
    match type(space).__name__:
        case "Box":
            low_side = draw(hnp.arrays(np.bool_, space.shape))
            return _choice(low_side, space.low, space.high)
        case "Discrete":
            return draw(st.sampled_from([space.start, space.start + (space.n - 1)]))
        case "MultiDiscrete":
            return _choice(draw(hnp.arrays(np.bool_, space.shape)), np.zeros_like(space.nvec), space.nvec - 1)
        case "MultiBinary":
            return draw(hnp.arrays(np.int8, space.shape, elements=st.integers(0, 1)))
        case "Text" | "OpenText":
            return draw(st.text(sorted(space.character_set), min_size=space.min_length, max_size=space.max_length))
        case "Dict":
            return {key: draw(corners(child)) for key, child in space.spaces.items()}
        case "Tuple":
            return tuple(draw(corners(child)) for child in space.spaces)
        case _:
            raise AssertionError(space)


def _choice(first: npt.NDArray[np.bool_], low: npt.NDArray[Any], high: npt.NDArray[Any]) -> npt.NDArray[Any]:
    return np.where(first, low, high)
