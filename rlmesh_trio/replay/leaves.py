"""Two values of one leaf as a difference: the first element that is not the same, and how far apart they are. Pure.

Nothing here says that two values are equal: whoever asks has found by their bytes that they are not.
"""

import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, cast

import attrs
import numpy as np
import numpy.typing as npt

from rlmesh_trio.contract import LeafSpec
from rlmesh_trio.messages import Metadata, MetaValue
from rlmesh_trio.replay.findings import LeafDifference, Part
from rlmesh_trio.replay.tolerance import EXACT, Allowance
from rlmesh_trio.spaces.bits import (
    ABSENT,
    array_spot,
    number_arrays,
    number_spot,
    ulps_apart,
    unequal,
    value_spot,
)
from rlmesh_trio.spaces.leaf_values import leaf_text, leaf_value

__all__ = ("info_differences", "is_whole", "leaf_difference", "reward_difference", "unknown_difference", "unlike")

_DISCRETE: Final = ("discrete", "multi_discrete", "multi_binary", "text")

_Array = npt.NDArray[Any]


def is_whole(spec: LeafSpec) -> bool:
    """Whether a leaf holds no floats."""
    return np.dtype(spec.dtype).kind != "f"


def unlike(part: Part, path: str, a: object, b: object) -> LeafDifference:
    """Two plain values that are not the same and are no numbers to be measured: flags, codes, what one side lacks."""
    return LeafDifference(part=part, path=path, values=(a, b), differing=1, size=1)


def unknown_difference(part: Part, path: str) -> LeafDifference:
    """A leaf whose digests differ and whose values are not known on both sides."""
    return LeafDifference(part=part, path=path)


def leaf_difference(
    part: Part, path: str, specs: tuple[LeafSpec, LeafSpec], a: bytes, b: bytes, allowed: Allowance, *, past: bool
) -> LeafDifference:
    """The rows *a* and *b* of one leaf that each side declares as its of *specs*.

    With *past* the element that is shown is the first beyond what is *allowed*, if there is one. Discrete leaves are
    exact whatever is allowed.
    """
    first, second = leaf_value(specs[0], a), leaf_value(specs[1], b)
    if not isinstance(first, np.ndarray) or not isinstance(second, np.ndarray):
        return unlike(part, path, leaf_text(first, a), leaf_text(second, b))
    if (first.shape, first.dtype) != (second.shape, second.dtype):
        return unlike(part, path, *(f"{array.dtype} of shape {array.shape}" for array in (first, second)))
    return _array_difference(part, path, first, second, EXACT if specs[0].kind in _DISCRETE else allowed, past=past)


def _array_difference(part: Part, path: str, a: _Array, b: _Array, allowed: Allowance, *, past: bool) -> LeafDifference:
    differs = unequal(a, b)
    beyond = differs & ~allowed.admits(a, b)
    spot = array_spot(a, b, beyond if past and beyond.any() else differs)
    found = LeafDifference(
        part=part,
        path=path,
        values=spot.values,
        index=spot.index,
        bits=spot.bits,
        differing=int(differs.sum()),
        size=a.size,
        tolerated=not beyond.any(),
    )
    return _measured(found, a, b, differs) if a.dtype.kind == "f" else found


def _measured(found: LeafDifference, a: _Array, b: _Array, differs: npt.NDArray[np.bool_]) -> LeafDifference:
    """*found* with how far apart the elements that differ are."""
    magnitudes = np.abs(a[np.isfinite(a)])
    scale = float(magnitudes.max()) if magnitudes.size else 0.0
    first, second = a[differs], b[differs]
    if not (np.isfinite(first) & np.isfinite(second)).all():
        return attrs.evolve(found, absolute=math.inf, relative=math.inf, scale=scale)
    with np.errstate(over="ignore"):
        wide = [array.astype(np.float64) for array in (first, second)]
        apart = np.abs(wide[0] - wide[1])
        larger = np.maximum(np.abs(wide[0]), np.abs(wide[1]))
    relative = np.divide(apart, larger, out=np.zeros_like(apart), where=larger > 0)
    return attrs.evolve(
        found,
        ulps=int(ulps_apart(first, second).max()),
        absolute=float(apart.max()),
        relative=float(relative.max()),
        scale=scale,
    )


def reward_difference(a: float | None, b: float | None, allowed: Allowance) -> LeafDifference | None:
    """Two rewards; ``None`` where they are the same bits."""
    return None if a is b is None else _value_difference("reward", "reward", a, b, allowed, past=False)


def info_differences(
    a: Metadata, b: Metadata, allowed: Callable[[str], Allowance], *, past: bool
) -> Iterator[LeafDifference]:
    """The entries in which two infos differ, in order of their paths; a list of floats is one entry."""
    yield from _entries("info", a, b, allowed, past)


def _entries(
    path: str, a: MetaValue, b: MetaValue, allowed: Callable[[str], Allowance], past: bool
) -> Iterator[LeafDifference]:
    if isinstance(a, Mapping) and isinstance(b, Mapping):
        for key in sorted({*a, *b}):
            below = f"{path}.{key}"
            if key in a and key in b:
                yield from _entries(below, a[key], b[key], allowed, past)
            else:
                yield unlike("info", below, a.get(key, ABSENT), b.get(key, ABSENT))
    elif isinstance(a, list) and isinstance(b, list) and len(a) == len(b):
        if _are_floats(a) and _are_floats(b):
            first, second = number_arrays(cast("list[float]", a), cast("list[float]", b))
            if unequal(first, second).any():
                yield _array_difference("info", path, first, second, allowed(path), past=past)
        else:
            for place, (one, other) in enumerate(zip(a, b, strict=True)):
                yield from _entries(f"{path}[{place}]", one, other, allowed, past)
    else:
        found = _value_difference("info", path, a, b, allowed(path), past=past)
        if found is not None:
            yield found


def _are_floats(values: list[MetaValue]) -> bool:
    return bool(values) and all(isinstance(value, float) for value in values)


def _value_difference(
    part: Part, path: str, a: object, b: object, allowed: Allowance, *, past: bool
) -> LeafDifference | None:
    if isinstance(a, float) and isinstance(b, float):
        same = number_spot(a, b) is None
        return None if same else _array_difference(part, path, *number_arrays(a, b), allowed, past=past)
    return None if value_spot(a, b) is None else unlike(part, path, a, b)
