"""What the infos of a step say of an episode that ended with it. Pure."""

from collections.abc import Mapping, Sequence

import numpy as np

from rlmesh_trio.messages import Metadata, MetaValue

__all__ = ("lane_final_info", "read_success")


def lane_final_info(infos: Metadata | None, position: int, width: int) -> Metadata | None:
    """Cut one lane's final info from a step's shared infos.

    Without a ``final_info`` entry a lone lane takes the whole map. With one, its ``_final_info`` mask must be true
    for the lane (a lone lane needs no mask), and the value is the map itself or the lane's element of a list.
    """
    if infos is None:
        return None
    if "final_info" not in infos:
        return infos if width == 1 else None
    mask = infos.get("_final_info")
    if mask is None:
        if width != 1:
            return None
    elif not _flag_at(mask, position):
        return None
    value = infos["final_info"]
    if isinstance(value, Sequence) and not isinstance(value, str | bytes):
        value = value[position] if position < len(value) else None
    return value if isinstance(value, Mapping) else None


def _flag_at(mask: MetaValue, position: int) -> bool:
    if not isinstance(mask, Sequence | np.ndarray) or isinstance(mask, str | bytes) or position >= len(mask):
        return False
    return bool(mask[position])


def read_success(final_info: Metadata | None, keys: Sequence[str]) -> bool | None:
    """The first of *keys* that is present and is a bool or a number (non-zero is success); ``None`` without one."""
    if final_info is None:
        return None
    for key in keys:
        value = final_info.get(key)
        if isinstance(value, bool | int | float | np.bool | np.number):
            return bool(value)
    return None
