"""What an env that restarts its lanes in the same step says of their last observations: ``final_obs`` in the infos.

It is a list with one entry a lane, of plain numbers, texts, lists and maps; ``_final_obs`` says which lanes have one.
"""

from collections.abc import Mapping, Sequence
from typing import Any, cast

import gymnasium
import numpy as np
from gymnasium import spaces

from rlmesh_trio.conformance.rows import row_of
from rlmesh_trio.conformance.scripts import Row
from rlmesh_trio.conformance.traces import Answer
from rlmesh_trio.contract import ValueSpace
from rlmesh_trio.errors import SpaceError

__all__ = ("final_entries", "final_mask", "final_row")


def final_mask(answer: Answer, key: str) -> tuple[bool, ...]:
    """For each lane of *answer* whether its infos have *key*, by gymnasium's mask; none where there is no mask."""
    mask = (answer.infos or {}).get(f"_{key}")
    if not isinstance(mask, (list, tuple)) or len(mask) != len(answer.lanes):
        return ()
    return tuple([bool(each) for each in mask])


def final_entries(answer: Answer) -> tuple[object, ...]:
    """What ``final_obs`` has for each lane of *answer*, ``None`` for one without; none where it is no such list."""
    entries = (answer.infos or {}).get("final_obs")
    if not isinstance(entries, (list, tuple)) or len(entries) != len(answer.lanes):
        return ()
    return tuple(entries)


def final_row(space: ValueSpace, entry: object) -> Row | None:
    """*entry* as a row of the observation space; ``None`` when it is none."""
    try:
        return row_of(space, _member(space.space, entry))
    except (SpaceError, TypeError, ValueError, KeyError, OverflowError):
        return None


def _member(space: gymnasium.Space[Any], plain: Any) -> Any:
    if isinstance(space, spaces.Dict):
        children: Mapping[str, gymnasium.Space[Any]] = cast("Any", space).spaces
        return {key: _member(child, plain[key]) for key, child in children.items()}
    if isinstance(space, spaces.Tuple):
        members: Sequence[gymnasium.Space[Any]] = cast("Any", space).spaces
        return tuple([_member(member, part) for member, part in zip(members, plain, strict=True)])
    if isinstance(space, spaces.Text):
        return plain
    return np.array(plain, space.dtype).reshape(cast("tuple[int, ...]", space.shape))
