"""SpaceSpec <-> gymnasium spaces. The wire's order of Dict keys is the order of the leaves, whatever gymnasium sorts.

Reading goes through the message; writing builds the message and reads it back, so that a space is the same gymnasium
object whether its env runs in this process or behind a wire: same checks, same samples from the same seed.

A Box is written as unbounded when all bounds are infinite (or it has no elements), as uniform when all are equal, else
element by element; all three are read. An unbounded integer Box spans its dtype.
"""

import math
import re
from collections.abc import Mapping, Sequence
from typing import Any, cast

import betterproto
import gymnasium
import numpy as np
import numpy.typing as npt
from gymnasium import spaces
from gymnasium.spaces.text import alphanumeric

from rlmesh_trio.errors import SpaceError
from rlmesh_trio.spaces.slabs import array_dtype
from rlmesh_trio.spaces.texts import OpenText
from rlmesh_trio.spec import MAX_MESSAGE_BYTES, WIRE_DTYPES, LeafSpec, ValueSpace
from rlmesh_trio.wire.pb.rlmesh.spaces.v1 import (
    BoxSpec,
    DataType,
    DictSpec,
    DiscreteSpec,
    ElementwiseBounds,
    MultiBinarySpec,
    MultiDiscreteSpec,
    SpaceSpec,
    TextSpec,
    TupleSpec,
    UniformBounds,
)
from rlmesh_trio.wire.strict import decode, encode

__all__ = ("key_path", "space_from_gymnasium", "space_from_wire")

_MAX_NESTING = 32
_MAX_RANK = 32
_INT64_MAX = 2**63 - 1
_PLAIN_KEY = re.compile(r"[^\s.\[\]\"]+")

_Array = npt.NDArray[Any]


def space_from_wire(data: bytes) -> ValueSpace:
    """The space that *data*, an encoded ``rlmesh.spaces.v1.SpaceSpec``, declares.

    Raises :exc:`ProtocolError` when *data* is no such message, :exc:`SpaceError` with the ``$``-rooted path when it
    declares nothing a value could have.
    """
    reader = _Reader()
    space = reader.read(decode(SpaceSpec, data, what="space"), "$", 0)
    return ValueSpace(space, tuple(reader.leaves), bytes(data))


def space_from_gymnasium(space: gymnasium.Space[Any]) -> ValueSpace:
    """The wire's form of a gymnasium *space*; ``.space`` equals *space* and has its leaves in the same order.

    A Text of gymnasium's default alphabet is declared open, as rlmesh declares it: envs use it for any text. Raises
    :exc:`SpaceError` for what the wire cannot say: other kinds (Sequence, Graph, OneOf, …), a MultiDiscrete that does
    not start at 0, other dtypes, keys that are not text. rlmesh 0.1.0 reads less than this writes: it refuses a Box
    without a shape or with a size of 0, a Text that may be empty, a Discrete that is not uint8, int32 or int64.
    """
    return space_from_wire(encode(_write(space, "$", 0)))


def key_path(path: str, key: str) -> str:
    """The path of the child *key* of the Dict at *path*: ``$.key``, or ``$["a key"]`` when that would be unclear."""
    if _PLAIN_KEY.fullmatch(key):
        return f"{path}.{key}"
    quoted = key.replace("\\", "\\\\").replace('"', '\\"')
    return f'{path}["{quoted}"]'


class _Reader:
    """Reads one space, depth first, collecting its leaves and minding that a row stays within a message."""

    def __init__(self) -> None:
        self.leaves: list[LeafSpec] = []
        self._row_bytes = 0

    def read(self, spec: SpaceSpec, path: str, depth: int) -> gymnasium.Space[Any]:
        _check_nesting(path, depth)
        kind, _ = betterproto.which_one_of(spec, "spec")
        if spec.shape and kind in ("discrete", "text", "dict", "tuple"):
            raise SpaceError(path, f"a {kind} space has no shape, got {tuple(spec.shape)}")
        match kind:
            case "box":
                return self._box(spec, path)
            case "discrete":
                return self._discrete(spec, path)
            case "multi_binary":
                return self._multi_binary(spec, path)
            case "multi_discrete":
                return self._multi_discrete(spec, path)
            case "text":
                return self._text(spec, path)
            case "dict":
                return self._dict(spec.dict, path, depth)
            case "tuple":
                members = enumerate(spec.tuple.spaces)
                return spaces.Tuple([self.read(member, f"{path}[{i}]", depth + 1) for i, member in members])
            case _:
                raise SpaceError(path, "the space has no kind this build knows")

    def _leaf(self, spec: SpaceSpec, path: str, kind: str, allowed: str) -> LeafSpec:
        """Note a leaf whose dtype is of one of the numpy kinds *allowed*."""
        number = int(spec.dtype)
        if not 1 <= number <= len(WIRE_DTYPES):
            raise SpaceError(path, f"unknown dtype number {number}")
        name = WIRE_DTYPES[number - 1]
        dtype = np.dtype(name)
        if dtype.kind not in allowed:
            raise SpaceError(path, f"a {kind} space cannot have the dtype {name}")
        shape = tuple(spec.shape)
        if any(size < 0 for size in shape) or len(shape) > _MAX_RANK:
            raise SpaceError(path, f"bad shape {shape}: at most {_MAX_RANK} sizes, none negative")
        # Counted as if no size were 0: numpy refuses such a shape too.
        self._row_bytes += math.prod(size for size in shape if size) * dtype.itemsize
        if self._row_bytes > MAX_MESSAGE_BYTES:
            raise SpaceError(path, f"a row up to here exceeds the largest message, {MAX_MESSAGE_BYTES} bytes")
        leaf = LeafSpec(path, kind, name, shape)
        self.leaves.append(leaf)
        return leaf

    def _box(self, spec: SpaceSpec, path: str) -> spaces.Box[Any]:
        leaf = self._leaf(spec, path, "box", "biuf")
        low, high = _read_bounds(spec.box, leaf)
        for side, bound in (("low", low), ("high", high)):
            if bound.dtype.kind == "f" and np.isnan(bound).any():
                raise SpaceError(path, f"the {side} bound at {_first(np.isnan(bound))} is NaN")
        if (crossed := low > high).any():
            where = _first(crossed)
            raise SpaceError(path, f"the low bound {low[where]} exceeds the high bound {high[where]} at {where}")
        return spaces.Box(low, high, leaf.shape, low.dtype)

    def _discrete(self, spec: SpaceSpec, path: str) -> spaces.Discrete[Any]:
        leaf = self._leaf(spec, path, "discrete", "iu")
        n, start, limits = spec.discrete.n, spec.discrete.start, np.iinfo(leaf.dtype)
        if n < 1:
            raise SpaceError(path, f"a discrete space needs at least one value, got n={n}")
        if start < limits.min or start + n - 1 > limits.max or n > limits.max:
            raise SpaceError(path, f"n={n} values from start={start} do not fit {leaf.dtype}")
        return spaces.Discrete(n, start=start, dtype=leaf.dtype)

    def _multi_binary(self, spec: SpaceSpec, path: str) -> spaces.MultiBinary:
        if not all(spec.shape):
            raise SpaceError(path, f"a multi_binary space has no size 0, got {tuple(spec.shape)}")
        leaf = self._leaf(spec, path, "multi_binary", "biu")
        if np.dtype(leaf.dtype).itemsize != 1:
            raise SpaceError(path, f"a multi_binary space has one byte per value, not the dtype {leaf.dtype}")
        return spaces.MultiBinary(leaf.shape[0] if len(leaf.shape) == 1 else leaf.shape)

    def _multi_discrete(self, spec: SpaceSpec, path: str) -> spaces.MultiDiscrete[Any]:
        leaf = self._leaf(spec, path, "multi_discrete", "iu")
        nvec, limits = spec.multi_discrete.nvec, np.iinfo(leaf.dtype)
        if len(nvec) != math.prod(leaf.shape):
            raise SpaceError(path, f"the shape {leaf.shape} takes {math.prod(leaf.shape)} counts, got {len(nvec)}")
        for i, n in enumerate(nvec):
            if not 1 <= n <= limits.max:
                raise SpaceError(path, f"count {i} must be 1 to {limits.max} for {leaf.dtype}, got {n}")
        return spaces.MultiDiscrete(np.array(nvec, leaf.dtype).reshape(leaf.shape), dtype=leaf.dtype)

    def _text(self, spec: SpaceSpec, path: str) -> spaces.Text:
        leaf = self._leaf(spec, path, "text", "biuf")
        if leaf.dtype != "uint8":
            raise SpaceError(path, f"a text space has the dtype uint8, not {leaf.dtype}")
        shortest, longest, charset = spec.text.min_length, spec.text.max_length, spec.text.charset
        if not 0 <= shortest <= longest:
            raise SpaceError(path, f"bad text lengths: at least {shortest} and at most {longest} characters")
        if not charset:
            return OpenText(longest, min_length=shortest)
        return spaces.Text(longest, min_length=shortest, charset=charset)

    def _dict(self, spec: DictSpec, path: str, depth: int) -> spaces.Dict:
        if len(spec.keys) != len(spec.spaces):
            raise SpaceError(path, f"{len(spec.keys)} keys for {len(spec.spaces)} spaces")
        children: dict[str, gymnasium.Space[Any]] = {}
        for key, child in zip(spec.keys, spec.spaces, strict=True):
            if key in children:
                raise SpaceError(path, f"the key {key!r} is repeated")
            children[key] = self.read(child, key_path(path, key), depth + 1)
        return spaces.Dict(children, sort_keys=False)


def _read_bounds(box: BoxSpec, leaf: LeafSpec) -> tuple[_Array, _Array]:
    dtype = array_dtype(leaf.kind, leaf.dtype)
    form, _ = betterproto.which_one_of(box, "bounds")
    match form:
        case "unbounded":
            lowest, highest = _extremes(dtype)
            return np.full(leaf.shape, lowest, dtype), np.full(leaf.shape, highest, dtype)
        case "uniform":
            bounds, count = box.uniform, 1
        case "elementwise":
            bounds, count = box.elementwise, math.prod(leaf.shape)
        case _:
            raise SpaceError(leaf.path, "the box has no bounds")
    low, high = (
        _read_bound(side, given, count, leaf, dtype) for side, given in (("low", bounds.low), ("high", bounds.high))
    )
    return low, high


def _read_bound(side: str, given: bytes, count: int, leaf: LeafSpec, dtype: np.dtype[Any]) -> _Array:
    if len(given) != count * dtype.itemsize:
        raise SpaceError(
            leaf.path, f"the {side} bounds take {count * dtype.itemsize} bytes, {count} of {dtype}, got {len(given)}"
        )
    if dtype.kind == "b" and max(given, default=0) > 1:
        raise SpaceError(leaf.path, f"the {side} bounds of a bool box must be 0 or 1")
    values: _Array = np.frombuffer(given, dtype)
    return values.reshape(leaf.shape) if count != 1 else np.full(leaf.shape, values[0], dtype)


def _extremes(dtype: np.dtype[Any]) -> tuple[Any, Any]:
    if dtype.kind == "f":
        return -np.inf, np.inf
    if dtype.kind == "b":
        return False, True
    limits = np.iinfo(dtype)
    return limits.min, limits.max


def _first(mask: _Array) -> tuple[int, ...]:
    return tuple(int(i) for i in np.argwhere(mask)[0])


def _write(space: gymnasium.Space[Any], path: str, depth: int) -> SpaceSpec:
    _check_nesting(path, depth)
    match space:
        case spaces.Box():
            return SpaceSpec(shape=list(space.shape), dtype=_data_type(space, path), box=_write_bounds(space))
        case spaces.Discrete():
            n, start = int(space.n), int(space.start)
            if n > _INT64_MAX or start > _INT64_MAX:
                raise SpaceError(path, f"the wire holds n and start up to {_INT64_MAX}, got n={n}, start={start}")
            return SpaceSpec(dtype=_data_type(space, path), discrete=DiscreteSpec(n=n, start=start))
        case spaces.MultiBinary():
            return SpaceSpec(shape=list(space.shape), dtype=DataType.UINT8, multi_binary=MultiBinarySpec())
        case spaces.MultiDiscrete():
            return _write_multi_discrete(space, path)
        case spaces.Text():
            text = TextSpec(min_length=space.min_length, max_length=space.max_length, charset=_charset(space, path))
            return SpaceSpec(dtype=DataType.UINT8, text=text)
        case spaces.Dict():
            return SpaceSpec(dict=_write_dict(space, path, depth))
        case spaces.Tuple():
            members: Sequence[gymnasium.Space[Any]] = cast("Any", space).spaces
            written = [_write(member, f"{path}[{i}]", depth + 1) for i, member in enumerate(members)]
            return SpaceSpec(tuple=TupleSpec(spaces=written))
        case _:
            raise SpaceError(
                path,
                f"{type(space).__name__} spaces have no wire form; use Box, Discrete, MultiBinary, MultiDiscrete, "
                "Text, Dict or Tuple",
            )


def _data_type(space: gymnasium.Space[Any], path: str) -> DataType:
    name = str(np.dtype(space.dtype).name)
    if name not in WIRE_DTYPES:
        raise SpaceError(path, f"the dtype {name} has no wire form; use one of {', '.join(WIRE_DTYPES)}")
    return DataType(WIRE_DTYPES.index(name) + 1)


def _write_bounds(space: spaces.Box[Any]) -> BoxSpec:
    low, high = (bound.astype(bound.dtype.newbyteorder("<")) for bound in (space.low, space.high))
    if (np.isneginf(low) & np.isposinf(high)).all():
        return BoxSpec(unbounded=True)
    sides, width = (low.tobytes(), high.tobytes()), low.dtype.itemsize
    if all(side == side[:width] * low.size for side in sides):
        return BoxSpec(uniform=UniformBounds(low=sides[0][:width], high=sides[1][:width]))
    return BoxSpec(elementwise=ElementwiseBounds(low=sides[0], high=sides[1]))


def _write_multi_discrete(space: spaces.MultiDiscrete[Any], path: str) -> SpaceSpec:
    if np.any(space.start):
        raise SpaceError(path, f"the wire's multi_discrete starts at 0, this one at {space.start.tolist()}")
    nvec = [int(n) for n in space.nvec.flat]
    if nvec and max(nvec) > _INT64_MAX:
        raise SpaceError(path, f"the wire holds counts up to {_INT64_MAX}, got {max(nvec)}")
    return SpaceSpec(
        shape=list(space.nvec.shape), dtype=_data_type(space, path), multi_discrete=MultiDiscreteSpec(nvec=nvec)
    )


def _charset(space: spaces.Text, path: str) -> str:
    if isinstance(space, OpenText) or space.character_set == alphanumeric:
        return ""
    charset = "".join(space.character_list)
    if not charset:
        raise SpaceError(
            path, "a text of no characters has no wire form: there an empty charset admits every character"
        )
    return _utf8(charset, "charset", path)


def _write_dict(space: spaces.Dict, path: str, depth: int) -> DictSpec:
    children: Mapping[object, gymnasium.Space[Any]] = cast("Any", space).spaces
    keys, written = list[str](), list[SpaceSpec]()
    for key, child in children.items():
        if not isinstance(key, str):
            raise SpaceError(path, f"the wire's keys are text, this one is {key!r}")
        keys.append(_utf8(key, "key", path))
        written.append(_write(child, key_path(path, key), depth + 1))
    return DictSpec(keys=keys, spaces=written)


def _utf8(text: str, what: str, path: str) -> str:
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise SpaceError(path, f"the {what} {text!r} has no UTF-8 form") from error
    return text


def _check_nesting(path: str, depth: int) -> None:
    if depth > _MAX_NESTING:
        raise SpaceError(path, f"spaces nest at most {_MAX_NESTING} deep")
