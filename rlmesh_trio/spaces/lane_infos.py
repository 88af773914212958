"""Gymnasium's vector form of infos: ``key`` holds the values of all lanes, and ``_key`` says which lanes have it."""

from collections.abc import Mapping, Sequence
from typing import Any, TypeGuard, cast

import numpy as np
import numpy.typing as npt

from rlmesh_trio.messages import Metadata

__all__ = ("lane_part",)


def lane_part(infos: Metadata, lane: int, lanes: int) -> dict[str, Any]:
    """One lane's part of *infos*, at any depth. What is no list or array of one value a lane is all lanes' own.

    A mask ``_key`` is dropped, and counts only if it is such a list or array.
    """
    own: dict[str, Any] = {}
    for key, value in infos.items():
        if key.startswith("_") and key[1:] in infos:
            continue
        mask = infos.get(f"_{key}")
        if _is_by_lane(mask, lanes) and not mask[lane]:
            continue
        if isinstance(value, Mapping):
            own[key] = lane_part(value, lane, lanes)
        elif _is_by_lane(value, lanes):
            own[key] = value[lane]
        else:
            own[key] = value
    return own


def _is_by_lane(value: object, lanes: int) -> TypeGuard[Sequence[Any]]:
    if isinstance(value, np.ndarray):
        return cast("npt.NDArray[Any]", value).shape[:1] == (lanes,)
    return isinstance(value, list) and len(cast("list[Any]", value)) == lanes
