"""Spaces for people and for programs: one entry per leaf, with its path, kind, dtype, shape and what it admits."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, cast

import attrs
import gymnasium
import numpy as np
from gymnasium import spaces

from rlmesh_trio.spaces import OpenText
from rlmesh_trio.spec import LeafSpec, ValueSpace

__all__ = ("LeafRow", "leaf_rows")

_MOST_SHOWN = 6


@attrs.frozen
class LeafRow:
    """One leaf: ``admits`` says in words which values it holds."""

    path: str
    kind: str
    dtype: str
    shape: tuple[int, ...]
    admits: str


def leaf_rows(space: ValueSpace) -> list[LeafRow]:
    """The leaves of *space*, in wire order."""
    return [_row(leaf, member) for leaf, member in zip(space.leaves, _members(space.space), strict=True)]


def _members(space: gymnasium.Space[Any]) -> Iterator[gymnasium.Space[Any]]:
    if isinstance(space, spaces.Dict):
        children: Mapping[str, gymnasium.Space[Any]] = cast("Any", space).spaces
        for child in children.values():
            yield from _members(child)
    elif isinstance(space, spaces.Tuple):
        parts: Sequence[gymnasium.Space[Any]] = cast("Any", space).spaces
        for part in parts:
            yield from _members(part)
    else:
        yield space


def _row(leaf: LeafSpec, space: gymnasium.Space[Any]) -> LeafRow:
    return LeafRow(leaf.path, leaf.kind, leaf.dtype, leaf.shape, _admitted(space))


def _admitted(space: gymnasium.Space[Any]) -> str:
    match space:
        case spaces.Box():
            low, high = _values(space.low), _values(space.high)
            return f"{low} to {high}"
        case spaces.Discrete():
            return f"{space.start} to {space.start + space.n - 1}"
        case spaces.MultiDiscrete():
            return f"0 to {_values(space.nvec - 1)}"
        case spaces.MultiBinary():
            return "0 or 1"
        case spaces.Text():
            alphabet = "any characters" if isinstance(space, OpenText) else f"of {len(space.character_set)} characters"
            return f"{space.min_length} to {space.max_length} long, {alphabet}"
        case _:
            return ""


def _values(array: Any) -> str:
    """One number when all are equal, else the first few."""
    flat = np.asarray(array).ravel()
    if not flat.size:
        return "nothing"
    if (flat == flat[0]).all():
        return f"{flat[0]:.6g}"
    shown = " ".join(f"{value:.4g}" for value in flat[:_MOST_SHOWN])
    return f"[{shown}{' …' if flat.size > _MOST_SHOWN else ''}]"
