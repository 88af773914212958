"""Values compared by their bits: the first element that differs, both values, and how far they are apart.

A distance in ulps is counted in the narrowest float that holds both values exactly: a reward that an env computed in
float32 is one ulp away from its neighbour, not 2**29.
"""

import struct
from typing import Any, Final

import attrs
import numpy as np
import numpy.typing as npt

from rlmesh_trio.conformance.rows import leaf_value
from rlmesh_trio.contract import LeafSpec

__all__ = ("ABSENT", "Spot", "leaf_spot", "number_spot", "value_spot")


class _Absent:
    def __repr__(self) -> str:
        return "nothing"


ABSENT: Final = _Absent()
"""Stands in a :class:`Spot` for a value that one side does not have."""

_Array = npt.NDArray[Any]
_UNSIGNED = {1: np.uint8, 2: np.uint16, 4: np.uint32, 8: np.uint64}


@attrs.frozen
class Spot:
    """Where two values differ: the index in an array (empty for a scalar), and the values there.

    ``bits`` are theirs in hexadecimal, empty for what is no number; ``ulps`` is the distance of two floats, ``None``
    where there is none.
    """

    values: tuple[object, object]
    index: tuple[int, ...] = ()
    bits: tuple[str, str] = ("", "")
    ulps: int | None = None


def leaf_spot(spec: LeafSpec, a: bytes, b: bytes, ulps: int = 0) -> Spot | None:
    """The first element of the leaf *spec* in which the rows *a* and *b* differ by more than *ulps*."""
    if a == b:
        return None
    first, second = leaf_value(spec, a), leaf_value(spec, b)
    if isinstance(first, np.ndarray) and isinstance(second, np.ndarray):
        return _array_spot(first, second, ulps)
    return Spot((_told(first, a), _told(second, b)))


def _told(value: object, raw: bytes) -> str:
    return value if isinstance(value, str) else f"{len(raw)} bytes"


def _array_spot(a: _Array, b: _Array, ulps: int) -> Spot | None:
    stored: list[_Array] = [array.view(_UNSIGNED[array.dtype.itemsize]) for array in (a, b)]
    differs: _Array = np.asarray(stored[0] != stored[1])
    if ulps and a.dtype.kind == "f":
        first, second = (_ordered(bits) for bits in stored)
        differs &= np.isnan(a) | np.isnan(b) | (np.maximum(first, second) - np.minimum(first, second) > ulps)
    if not differs.any():
        return None
    index = tuple(int(i) for i in np.argwhere(differs)[0])
    width = 2 * a.dtype.itemsize
    bits = tuple(f"0x{int(array[index]):0{width}x}" for array in stored)
    values = a[index].item(), b[index].item()
    apart = None
    if a.dtype.kind == "f" and not (np.isnan(a[index]) or np.isnan(b[index])):
        first, second = (int(_ordered(bits)[index]) for bits in stored)
        apart = abs(first - second)
    return Spot(values, index, (bits[0], bits[1]), apart)


def _ordered(stored: _Array) -> _Array:
    """Unsigned numbers that stand in the order of the floats of these bits."""
    sign = stored.dtype.type(1 << (8 * stored.dtype.itemsize - 1))
    return np.where((stored & sign) != 0, ~stored, stored | sign)


def number_spot(a: float, b: float, ulps: int = 0) -> Spot | None:
    """Two floats as a spot, unless they are the same bits or no more than *ulps* apart."""
    if struct.pack("<d", a) == struct.pack("<d", b):
        return None
    dtype = np.float32 if _narrow(a) and _narrow(b) else np.float64
    return _array_spot(np.array(a, dtype), np.array(b, dtype), ulps)


def _narrow(value: float) -> bool:
    with np.errstate(over="ignore"):
        return float(np.float32(value)) == value


def value_spot(a: object, b: object, ulps: int = 0) -> Spot | None:
    """Two plain values, neither lists nor maps, as a spot, unless they are equal and of one type."""
    if isinstance(a, float) and isinstance(b, float):
        return number_spot(a, b, ulps)
    return None if type(a) is type(b) and a == b else Spot((a, b))
