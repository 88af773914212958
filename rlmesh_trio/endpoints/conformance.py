"""What an env's own values must satisfy: membership in the space, except that bounds are only warned about.

Bounds are those of a Box, and the length and the characters of a Text. Many envs leave them by a little. Such a value
passes; the first time at each leaf the infos of that reply carry a warning, as a served env's do. NaN and everything
else outside the space is refused.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, cast

import attrs
import gymnasium
import numpy as np
from gymnasium import spaces

from rlmesh_trio.errors import SpaceError
from rlmesh_trio.messages import Leaves, Metadata
from rlmesh_trio.spaces import OpenText, SpaceCodec, codec_for
from rlmesh_trio.spec import LeafSpec, ValueSpace

__all__ = ("Conformance",)

_BOUNDED = ("box", "text")
_LONGEST_TEXT = 2**31 - 1


class Conformance:
    """Checks the values of one space; ``kind`` (``observation`` or ``action``) goes into the warnings it collects."""

    def __init__(self, kind: str, space: ValueSpace, warnings: list[Metadata]) -> None:
        self._kind = kind
        self._space = space
        self._codec = codec_for(space)
        self._warnings = warnings
        self._lenient = {leaf.path for leaf in space.leaves if leaf.kind in _BOUNDED}

    def check(self, leaves: Leaves, rows: int) -> None:
        """Raise :exc:`SpaceError` unless *leaves* conform; bounds left for the first time are added to the warnings."""
        while True:
            try:
                self._codec.check_members(leaves, rows)
            except SpaceError as outside:
                if outside.path not in self._lenient:
                    raise
                self._loosen(outside)
            else:
                return

    def _loosen(self, outside: SpaceError) -> None:
        self._lenient.remove(outside.path)
        self._space = _unbounded_at(self._space, outside.path)
        self._codec = SpaceCodec(self._space)
        self._warnings.append({"kind": self._kind, "path": outside.path, "detail": str(outside)})


def _unbounded_at(space: ValueSpace, path: str) -> ValueSpace:
    return attrs.evolve(space, space=_loosened(space.space, iter(space.leaves), path))


def _loosened(space: gymnasium.Space[Any], leaves: Iterator[LeafSpec], path: str) -> gymnasium.Space[Any]:
    if isinstance(space, spaces.Dict):
        children: Mapping[str, gymnasium.Space[Any]] = cast("Any", space).spaces
        return spaces.Dict({key: _loosened(child, leaves, path) for key, child in children.items()}, sort_keys=False)
    if isinstance(space, spaces.Tuple):
        members: Sequence[gymnasium.Space[Any]] = cast("Any", space).spaces
        return spaces.Tuple([_loosened(member, leaves, path) for member in members])
    leaf = next(leaves)
    if leaf.path != path:
        return space
    if isinstance(space, spaces.Text):
        return OpenText(_LONGEST_TEXT, min_length=0)
    dtype = np.dtype(leaf.dtype)
    low, high = _extremes(dtype)
    return spaces.Box(low, high, leaf.shape, dtype.type)


def _extremes(dtype: np.dtype[Any]) -> tuple[Any, Any]:
    if dtype.kind == "f":
        return -np.inf, np.inf
    if dtype.kind == "b":
        return 0, 1
    return np.iinfo(dtype).min, np.iinfo(dtype).max
