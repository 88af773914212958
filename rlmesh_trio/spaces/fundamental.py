"""The fundamental spaces inside a nested one, in wire order."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, cast

import gymnasium
from gymnasium import spaces

from rlmesh_trio.contract import LeafSpec, ValueSpace

__all__ = ("leaf_spaces",)


def leaf_spaces(space: ValueSpace) -> tuple[tuple[LeafSpec, gymnasium.Space[Any]], ...]:
    """The fundamental spaces of *space*, in wire order, each with its layout."""
    return tuple(zip(space.leaves, _fundamental(space.space), strict=True))


def _fundamental(space: gymnasium.Space[Any]) -> Iterator[gymnasium.Space[Any]]:
    if isinstance(space, spaces.Dict):
        children: Mapping[str, gymnasium.Space[Any]] = cast("Any", space).spaces
        for child in children.values():
            yield from _fundamental(child)
    elif isinstance(space, spaces.Tuple):
        members: Sequence[gymnasium.Space[Any]] = cast("Any", space).spaces
        for member in members:
            yield from _fundamental(member)
    else:
        yield space
