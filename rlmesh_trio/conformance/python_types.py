"""Python values by their types: what they are called, whether they have a space's dtype, what the wire cannot say."""

from collections.abc import Iterator, Mapping, Sequence
from enum import Enum
from typing import Any, cast

import gymnasium
import numpy as np
import numpy.typing as npt
from gymnasium import spaces

from rlmesh_trio.wire.metadata import MAX_NESTING

__all__ = ("has_dtype", "stored_bits", "type_name", "unplain_parts")

_INT64 = 2**63
_SAYABLE = "biufUS"

_Array = npt.NDArray[Any]


def _array(value: object) -> _Array | None:
    """*value* as an array, if it is one, or a numpy scalar."""
    return np.asarray(cast("Any", value)) if isinstance(value, (np.ndarray, np.generic)) else None


def type_name(value: object) -> str:
    """The type of *value* in few words, those of its parts where it is a tuple."""
    if isinstance(value, tuple):
        return f"({', '.join(map(type_name, cast('tuple[object, ...]', value)))})"
    if isinstance(value, np.ndarray):
        array = cast("_Array", value)
        return f"array of {array.dtype}, shape {array.shape}"
    return "None" if value is None else type(value).__name__


def has_dtype(space: gymnasium.Space[Any], value: object) -> bool:
    """Whether *value* has the type of members of *space*, a fundamental one; for a Discrete any whole number has."""
    array = _array(value)
    match space:
        case spaces.Text():
            return isinstance(value, str)
        case spaces.Discrete():
            return isinstance(value, int) or (array is not None and array.shape == () and array.dtype.kind in "iu")
        case spaces.Box() | spaces.MultiBinary() | spaces.MultiDiscrete():
            return array is not None and array.dtype == cast("Any", space).dtype
        case _:
            return True


def stored_bits(value: object) -> tuple[object, ...]:
    """What two values share that are the same to the bit."""
    array = _array(value)
    if array is None:
        return type(value), repr(value)
    return array.dtype, array.shape, repr(array.tolist()) if array.dtype.kind == "O" else array.tobytes()


def unplain_parts(path: str, value: object, depth: int = 0) -> Iterator[tuple[str, str]]:
    """What in *value*, an info, has no form on the wire but ``str()``: its path, and what it is."""
    array = _array(value)
    if array is not None and array.dtype.kind == "O":
        yield from unplain_parts(path, array.tolist(), depth)
    elif depth > MAX_NESTING:
        yield path, f"is nested deeper than {MAX_NESTING}"
    elif isinstance(value, Mapping):
        for key, part in cast("Mapping[object, object]", value).items():
            if not isinstance(key, str):
                yield path, f"has the key {key!r}, {type_name(key)}"
            yield from unplain_parts(f"{path}.{key}", part, depth + 1)
    elif isinstance(value, (list, tuple)):
        for number, part in enumerate(cast("Sequence[object]", value)):
            yield from unplain_parts(f"{path}[{number}]", part, depth + 1)
    elif isinstance(value, Enum):
        yield from unplain_parts(path, value.value, depth)
    elif not _is_sayable(value, array):
        yield path, "is an int beyond 64 bits" if isinstance(value, int) else f"is {type_name(value)}"


def _is_sayable(value: object, array: _Array | None) -> bool:
    if array is not None:
        return array.dtype.kind in _SAYABLE and (array.dtype.kind != "f" or array.dtype.itemsize <= 8)
    if isinstance(value, int):
        return -_INT64 <= value < _INT64
    return value is None or isinstance(value, (float, str, bytes)) or callable(getattr(value, "tolist", None))
