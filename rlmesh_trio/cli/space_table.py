"""Spaces for people and for programs: one entry per leaf, with its path, kind, dtype, shape and what it admits."""

from collections.abc import Mapping
from typing import Any

import attrs
import gymnasium
import numpy as np
from gymnasium import spaces

from rlmesh_trio.spaces import OpenText, leaf_spaces
from rlmesh_trio.spec import LeafSpec, ValueSpace

__all__ = ("LeafRow", "leaf_rows")

_MOST_SHOWN = 6


@attrs.frozen
class LeafRow:
    """One leaf of a space. ``bounds`` are what its kind knows, ``values`` says the same in words.

    Box: ``low`` and ``high``, a number each when all elements share it, else nested lists. Discrete: ``n`` and
    ``start``. MultiDiscrete: ``nvec``. Text: ``min_length``, ``max_length`` and ``charset`` (``None``: any character).
    """

    path: str
    kind: str
    dtype: str
    shape: tuple[int, ...]
    bounds: Mapping[str, Any]
    values: str


def leaf_rows(space: ValueSpace) -> list[LeafRow]:
    """The leaves of *space*, in wire order."""
    return [_row(leaf, member) for leaf, member in leaf_spaces(space)]


def _row(leaf: LeafSpec, space: gymnasium.Space[Any]) -> LeafRow:
    bounds, values = _bounds(space)
    return LeafRow(leaf.path, leaf.kind, leaf.dtype, leaf.shape, bounds, values)


def _bounds(space: gymnasium.Space[Any]) -> tuple[dict[str, Any], str]:
    match space:
        case spaces.Box():
            low, high = _shared(space.low), _shared(space.high)
            return {"low": low, "high": high}, f"{_words(low)} to {_words(high)}"
        case spaces.Discrete():
            n, start = int(space.n), int(space.start)
            return {"n": n, "start": start}, f"{start} to {start + n - 1}"
        case spaces.MultiDiscrete():
            counts = space.nvec.tolist()
            return {"nvec": counts}, f"0 to {_words((space.nvec - 1).tolist())}"
        case spaces.MultiBinary():
            return {}, "0 or 1"
        case spaces.Text():
            charset = None if isinstance(space, OpenText) else "".join(space.character_list)
            bounds = {"min_length": space.min_length, "max_length": space.max_length, "charset": charset}
            alphabet = "any characters" if charset is None else f"characters of {charset!r}"
            return bounds, f"{space.min_length} to {space.max_length} {alphabet}"
        case _:
            return {}, ""


def _shared(bound: np.ndarray[Any, Any]) -> Any:
    """The one number in *bound*, or all of them as nested lists."""
    return bound.flat[0].item() if bound.size and (bound == bound.flat[0]).all() else bound.tolist()


def _words(bound: Any) -> str:
    """A number, or the first few of several."""
    flat = np.asarray(bound).ravel()
    if np.ndim(bound) == 0:
        return f"{bound:.6g}"
    shown = " ".join(f"{value:.4g}" for value in flat[:_MOST_SHOWN])
    return f"[{shown} …]" if flat.size > _MOST_SHOWN else f"[{shown}]"
