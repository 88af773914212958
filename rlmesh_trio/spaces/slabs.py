"""One leaf's slab: the bytes of all rows of a message at one leaf, read, written, checked, joined and cut.

An array slab is the row-major little-endian array ``(rows, *shape)`` and nothing else. A text slab is the row count,
then every row's length in bytes, then the UTF-8 bodies back to back; counts are unsigned 64-bit little-endian.
A slab that breaks its layout, and a value that does not fit its leaf, raise :exc:`SpaceError` naming the leaf.
"""

import struct
from collections.abc import Sequence
from operator import le
from typing import Any, Protocol, cast

import gymnasium
import numpy as np
import numpy.typing as npt
from gymnasium import spaces

from rlmesh_trio.errors import SpaceError
from rlmesh_trio.messages import Leaf
from rlmesh_trio.spaces.texts import OpenText
from rlmesh_trio.spec import WIRE_DTYPES, LeafSpec

__all__ = ("Slab", "array_dtype", "slab_for")

# Below these sizes Python beats numpy, and a copy a view.
_FEW = 32
_COPIED_BELOW = 4096

_COUNT_BYTES = 8
_DTYPES = {name: np.dtype(np.dtype(name).newbyteorder("<").str) for name in WIRE_DTYPES}
_STRUCT_CODES = {1: "b", 2: "h", 4: "i", 8: "q"}

_Array = npt.NDArray[Any]


def array_dtype(kind: str, dtype: str) -> np.dtype[Any]:
    """The numpy dtype of a leaf's values: the wire's, little-endian, save that MultiBinary is ``int8`` in gymnasium."""
    return np.dtype(np.int8) if kind == "multi_binary" else _DTYPES[dtype]


class Slab(Protocol):
    """What a codec asks of one leaf. ``rows`` is always the number of rows the slab must hold."""

    def check_members(self, leaf: Leaf, rows: int) -> None:
        """Raise when a row of *leaf* is outside the space."""
        ...

    def unpack(self, leaf: Leaf, rows: int) -> Any:
        """All rows: a read-only array ``(rows, *shape)`` over the leaf's own memory, or a list of texts."""
        ...

    def unpack_row(self, leaf: Leaf, rows: int, row: int) -> Any:
        """One row as a member of the gymnasium space, owned by the caller."""
        ...

    def pack(self, value: Any, rows: int) -> bytes:
        """The inverse of :meth:`unpack`."""
        ...

    def pack_members(self, value: Any, rows: int) -> bytes:
        """As :meth:`pack`; raises when a row is outside the space, as :meth:`check_members` does."""
        ...

    def pack_rows(self, values: Sequence[Any]) -> bytes:
        """One slab of one member of the gymnasium space per row."""
        ...

    def join(self, parts: Sequence[Leaf], rows: Sequence[int]) -> bytes:
        """One slab from several, in order; part ``i`` holds ``rows[i]`` rows."""
        ...

    def cut(self, leaf: Leaf, rows: Sequence[int]) -> list[Leaf]:
        """The inverse of :meth:`join`."""
        ...


def slab_for(spec: LeafSpec, space: gymnasium.Space[Any]) -> Slab:
    """The slab of the leaf *spec*, whose gymnasium space is *space*."""
    match space:
        case spaces.Text():
            return _TextSlab(spec, space)
        case spaces.Discrete():
            first = int(space.start)
            dtype = array_dtype(spec.kind, spec.dtype)
            return _DiscreteSlab(spec, np.array(first, dtype), np.array(first + int(space.n) - 1, dtype))
        case spaces.MultiDiscrete():
            nvec = cast("_Array", space.nvec)
            return _ArraySlab(spec, np.zeros_like(nvec), nvec - 1)
        case spaces.MultiBinary():
            return _ArraySlab(spec, np.zeros(spec.shape, np.int8), np.ones(spec.shape, np.int8))
        case spaces.Box():
            return _ArraySlab(spec, cast("_Array", space.low), cast("_Array", space.high))
        case _:
            raise SpaceError(spec.path, f"{type(space).__name__} is not a fundamental leaf")


class _ArraySlab:
    """A numeric leaf, each element of which lies between ``low`` and ``high`` (arrays of the leaf's shape)."""

    def __init__(self, spec: LeafSpec, low: _Array, high: _Array) -> None:
        self.path = spec.path
        self.shape = spec.shape
        self.dtype = array_dtype(spec.kind, spec.dtype)
        self.row_bytes = self.dtype.itemsize * int(np.prod(spec.shape, dtype=np.int64))
        self._low, self._high = low, high
        self._uniform = low.size > 0 and bool((low == low.flat[0]).all() and (high == high.flat[0]).all())
        if self._uniform:
            self._low, self._high = low.flat[0], high.flat[0]
        self._admits_all = low.size == 0 or (self._uniform and self._spans_dtype())
        self._lows, self._highs = (bound.ravel().tolist() if low.size <= _FEW else [] for bound in (low, high))

    def _spans_dtype(self) -> bool:
        if self.dtype.kind not in "iu":
            return self.dtype.kind == "b" and not self._low and bool(self._high)
        limits = np.iinfo(self.dtype)
        return int(self._low) == limits.min and int(self._high) == limits.max

    def _check_length(self, leaf: Leaf, rows: int) -> None:
        want = rows * self.row_bytes
        if len(leaf) != want:
            raise SpaceError(
                self.path,
                f"{rows} rows of shape {self.shape} and dtype {self.dtype} take {want} bytes, got {len(leaf)}",
            )

    def unpack(self, leaf: Leaf, rows: int) -> _Array:
        if len(leaf) != rows * self.row_bytes:
            self._check_length(leaf, rows)
        buffer = leaf if type(leaf) is bytes else memoryview(leaf).toreadonly()
        array: _Array = np.ndarray((rows, *self.shape), self.dtype, buffer)
        if self.dtype.kind == "b":
            self._check_bools(array)
        return array

    def _check_bools(self, array: _Array) -> None:
        stored = array.view(np.uint8)
        if stored.size and stored.max() > 1:
            where = tuple(int(i) for i in np.argwhere(stored > 1)[0])
            raise SpaceError(self.path, f"{_place(where)}: the byte {stored[where]} is neither 0 nor 1")

    def unpack_row(self, leaf: Leaf, rows: int, row: int) -> Any:
        return self.unpack(leaf, rows)[row, ...].copy()

    def check_members(self, leaf: Leaf, rows: int) -> None:
        self._check_inside(self.unpack(leaf, rows), rows)

    def _check_inside(self, array: _Array, rows: int) -> None:
        if self._admits_all or not rows:
            return
        if array.size <= _FEW:
            values = array.ravel().tolist()
            inside = all(map(le, self._lows * rows, values)) and all(map(le, values, self._highs * rows))
        else:
            with np.errstate(invalid="ignore"):
                if self._uniform:
                    inside = self._low <= array.min() and array.max() <= self._high
                else:
                    inside = (array >= self._low).all() and (array <= self._high).all()
        if not inside:
            raise self._outside(array)

    def _outside(self, array: _Array) -> SpaceError:
        low, high = np.broadcast_to(self._low, self.shape), np.broadcast_to(self._high, self.shape)
        with np.errstate(invalid="ignore"):
            outside = ~((array >= low) & (array <= high))
        where = tuple(int(i) for i in np.argwhere(outside)[0])
        value, index = array[where], where[1:]
        if value != value:
            return SpaceError(self.path, f"{_place(where)}: the value is NaN")
        side, bound = ("below the lowest", low[index]) if value < low[index] else ("above the highest", high[index])
        return SpaceError(self.path, f"{_place(where)}: the value {value} is {side} value, {bound}")

    def pack(self, value: Any, rows: int) -> bytes:
        return self._array(value, rows).tobytes()

    def pack_members(self, value: Any, rows: int) -> bytes:
        array = self._array(value, rows)
        self._check_inside(array, rows)
        return array.tobytes()

    def _array(self, value: Any, rows: int) -> _Array:
        shape = (rows, *self.shape)
        if type(value) is np.ndarray and value.dtype == self.dtype and value.shape == shape:
            return value
        return self._cast(value, shape)

    def pack_rows(self, values: Sequence[Any]) -> bytes:
        packed: list[bytes] = []
        for row, value in enumerate(values):
            try:
                packed.append(self._pack_row(value))
            except SpaceError as error:
                raise SpaceError(self.path, f"row {row}: {error.why}") from error
        return b"".join(packed)

    def _pack_row(self, value: Any) -> bytes:
        if type(value) is np.ndarray and value.dtype == self.dtype and value.shape == self.shape:
            return value.tobytes()
        return self._cast(value, self.shape).tobytes()

    def _cast(self, value: Any, shape: tuple[int, ...]) -> _Array:
        """*value* as an array of *shape* and the leaf's dtype; only a float leaf may round what it is given."""
        try:
            given: _Array = np.asarray(value)
        except (TypeError, ValueError, OverflowError, RuntimeError) as error:
            raise SpaceError(self.path, f"cannot read {type(value).__name__} as an array: {error}") from error
        if given.shape != shape:
            raise SpaceError(self.path, f"expected the shape {shape}, got {given.shape}")
        if given.dtype == self.dtype or not given.size:
            return given.astype(self.dtype)
        if given.dtype.kind not in ("fiub" if self.dtype.kind == "f" else "iub"):
            raise SpaceError(self.path, f"{given.dtype} values are not cast to {self.dtype}")
        with np.errstate(over="ignore", invalid="ignore"):
            cast_value = given.astype(self.dtype)
            changed = np.isinf(cast_value) & np.isfinite(given) if self.dtype.kind == "f" else cast_value != given
        if changed.any():
            where = tuple(int(i) for i in np.argwhere(changed)[0])
            raise SpaceError(self.path, f"the value {given[where]} at {list(where)} does not fit {self.dtype}")
        return cast_value

    def join(self, parts: Sequence[Leaf], rows: Sequence[int]) -> bytes:
        width = self.row_bytes
        if list(map(len, parts)) != [count * width for count in rows]:
            for part, count in zip(parts, rows, strict=True):
                self._check_length(part, count)
        return b"".join(parts)

    def cut(self, leaf: Leaf, rows: Sequence[int]) -> list[Leaf]:
        self._check_length(leaf, sum(rows))
        source = leaf if len(leaf) < _COPIED_BELOW else memoryview(leaf)
        start, parts = 0, list[Leaf]()
        for count in rows:
            stop = start + count * self.row_bytes
            parts.append(source[start:stop])
            start = stop
        return parts


class _DiscreteSlab(_ArraySlab):
    """A single integer a row. Any Python or numpy integer in the dtype's range is taken."""

    def __init__(self, spec: LeafSpec, low: _Array, high: _Array) -> None:
        super().__init__(spec, low, high)
        code = _STRUCT_CODES[self.dtype.itemsize]
        self._pack_one = struct.Struct("<" + (code.upper() if self.dtype.kind == "u" else code)).pack

    def unpack_row(self, leaf: Leaf, rows: int, row: int) -> Any:
        return self.unpack(leaf, rows)[row]

    def _pack_row(self, value: Any) -> bytes:
        try:
            return self._pack_one(value)
        except (struct.error, TypeError, OverflowError):
            return super()._pack_row(value)


class _TextSlab:
    """A text a row, its length bounded in characters; an open charset admits every character."""

    def __init__(self, spec: LeafSpec, space: spaces.Text) -> None:
        self.path = spec.path
        self._shortest, self._longest = space.min_length, space.max_length
        self._charset = None if isinstance(space, OpenText) else space.character_set

    def _lengths(self, leaf: Leaf, rows: int) -> tuple[int, ...]:
        head = _COUNT_BYTES * (rows + 1)
        if len(leaf) < head:
            raise SpaceError(self.path, f"the header of {rows} texts takes {head} bytes, got {len(leaf)}")
        count, *lengths = struct.unpack_from(f"<{rows + 1}Q", leaf)
        if count != rows:
            raise SpaceError(self.path, f"expected {rows} texts, the header counts {count}")
        if (want := head + sum(lengths)) != len(leaf):
            raise SpaceError(self.path, f"the header announces {want} bytes, got {len(leaf)}")
        return tuple(lengths)

    def _bodies(self, leaf: Leaf, rows: int) -> list[Leaf]:
        start, bodies = _COUNT_BYTES * (rows + 1), list[Leaf]()
        for length in self._lengths(leaf, rows):
            bodies.append(leaf[start : start + length])
            start += length
        return bodies

    def unpack(self, leaf: Leaf, rows: int) -> list[str]:
        return [self._decode(body, row) for row, body in enumerate(self._bodies(leaf, rows))]

    def _decode(self, body: Leaf, row: int) -> str:
        try:
            return str(body, "utf-8")
        except UnicodeDecodeError as error:
            raise SpaceError(self.path, f"row {row}: the text is not UTF-8: {error.reason}") from error

    def unpack_row(self, leaf: Leaf, rows: int, row: int) -> str:
        return self._decode(self._bodies(leaf, rows)[row], row)

    def check_members(self, leaf: Leaf, rows: int) -> None:
        for row, text in enumerate(self.unpack(leaf, rows)):
            if not self._shortest <= len(text) <= self._longest:
                raise SpaceError(
                    self.path, f"row {row}: {len(text)} characters, expected {self._shortest} to {self._longest}"
                )
            if self._charset is not None and (strange := set(text) - self._charset):
                raise SpaceError(self.path, f"row {row}: the character {min(strange)!r} is not in the charset")

    def pack_members(self, value: Any, rows: int) -> bytes:
        packed = self.pack(value, rows)
        self.check_members(packed, rows)
        return packed

    def pack(self, value: Any, rows: int) -> bytes:
        if not isinstance(value, (list, tuple, np.ndarray)):
            raise SpaceError(self.path, f"expected a sequence of {rows} texts, got {type(value).__name__}")
        texts = cast("Sequence[object]", value)
        if len(texts) != rows:
            raise SpaceError(self.path, f"expected {rows} texts, got {len(texts)}")
        return self.pack_rows(texts)

    def pack_rows(self, values: Sequence[Any]) -> bytes:
        return self._slab([self._encode(value, row) for row, value in enumerate(values)])

    def _encode(self, value: object, row: int) -> bytes:
        if not isinstance(value, str):
            raise SpaceError(self.path, f"row {row}: expected a text, got {type(value).__name__}")
        try:
            return value.encode()
        except UnicodeEncodeError as error:
            raise SpaceError(self.path, f"row {row}: the text has no UTF-8 form: {error.reason}") from error

    @staticmethod
    def _slab(bodies: Sequence[Leaf]) -> bytes:
        head = struct.pack(f"<{len(bodies) + 1}Q", len(bodies), *map(len, bodies))
        return b"".join((head, *bodies))

    def join(self, parts: Sequence[Leaf], rows: Sequence[int]) -> bytes:
        return self._slab([body for part, count in zip(parts, rows, strict=True) for body in self._bodies(part, count)])

    def cut(self, leaf: Leaf, rows: Sequence[int]) -> list[Leaf]:
        bodies = self._bodies(leaf, sum(rows))
        start, parts = 0, list[Leaf]()
        for count in rows:
            parts.append(self._slab(bodies[start : start + count]))
            start += count
        return parts


def _place(where: tuple[int, ...]) -> str:
    """Where in a batch: the row, and the index within it unless a row is a scalar."""
    row, *index = where
    return f"row {row}, index {index}" if index else f"row {row}"
