"""Values compared by their bits: the first element that differs, both values, and how far they are apart.

A distance in ulps is counted in the narrowest float that holds both values exactly: a reward that an env computed in
float32 is one ulp away from its neighbour, not 2**29.
"""

import struct
from typing import Any, Final

import attrs
import numpy as np
import numpy.typing as npt

from rlmesh_trio.contract import LeafSpec
from rlmesh_trio.spaces.leaf_values import leaf_text, leaf_value

__all__ = (
    "ABSENT",
    "Spot",
    "array_spot",
    "leaf_spot",
    "number_arrays",
    "number_spot",
    "ulps_apart",
    "unequal",
    "value_spot",
)


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
    return Spot((leaf_text(first, a), leaf_text(second, b)))


def _array_spot(a: _Array, b: _Array, ulps: int) -> Spot | None:
    differs = unequal(a, b)
    if ulps and a.dtype.kind == "f":
        differs &= np.isnan(a) | np.isnan(b) | (ulps_apart(a, b) > ulps)
    return array_spot(a, b, differs) if differs.any() else None


def unequal(a: _Array, b: _Array) -> npt.NDArray[np.bool_]:
    """Which elements of two arrays of one shape and dtype are not the same bits."""
    return np.asarray(_stored(a) != _stored(b))


def ulps_apart(a: _Array, b: _Array) -> _Array:
    """How many floats lie between the elements of two float arrays of one shape and dtype, as unsigned numbers.

    Means nothing where an element is NaN.
    """
    first, second = _ordered(_stored(a)), _ordered(_stored(b))
    return np.maximum(first, second) - np.minimum(first, second)


def array_spot(a: _Array, b: _Array, chosen: npt.NDArray[np.bool_]) -> Spot:
    """The first of the *chosen* elements of two arrays of one shape and dtype; there must be one."""
    index = tuple(int(i) for i in np.argwhere(chosen)[0])
    width = 2 * a.dtype.itemsize
    bits = tuple(f"0x{int(_stored(array)[index]):0{width}x}" for array in (a, b))
    values = a[index].item(), b[index].item()
    apart = None
    if a.dtype.kind == "f" and not (np.isnan(a[index]) or np.isnan(b[index])):
        apart = int(ulps_apart(a, b)[index])
    return Spot(values, index, (bits[0], bits[1]), apart)


def _stored(array: _Array) -> _Array:
    return array.view(_UNSIGNED[array.dtype.itemsize])


def _ordered(stored: _Array) -> _Array:
    """Unsigned numbers that stand in the order of the floats of these bits."""
    sign = stored.dtype.type(1 << (8 * stored.dtype.itemsize - 1))
    return np.where((stored & sign) != 0, ~stored, stored | sign)


def number_spot(a: float, b: float, ulps: int = 0) -> Spot | None:
    """Two floats as a spot, unless they are the same bits or no more than *ulps* apart."""
    if struct.pack("<d", a) == struct.pack("<d", b):
        return None
    return _array_spot(*number_arrays(a, b), ulps)


def number_arrays(a: npt.ArrayLike, b: npt.ArrayLike) -> tuple[_Array, _Array]:
    """Floats of Python as arrays of the narrowest float that holds all of them exactly: float32 or float64."""
    first, second = np.asarray(a, np.float64), np.asarray(b, np.float64)
    if _narrow(first) and _narrow(second):
        return first.astype(np.float32), second.astype(np.float32)
    return first, second


def _narrow(values: _Array) -> bool:
    with np.errstate(over="ignore"):
        return bool((values.astype(np.float32) == values).all())


def value_spot(a: object, b: object, ulps: int = 0) -> Spot | None:
    """Two plain values, neither lists nor maps, as a spot, unless they are equal and of one type."""
    if isinstance(a, float) and isinstance(b, float):
        return number_spot(a, b, ulps)
    return None if type(a) is type(b) and a == b else Spot((a, b))
