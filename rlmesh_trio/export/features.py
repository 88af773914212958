"""What LeRobot calls the leaves of a space, and which of them are cameras. Pure."""

from typing import Any, Final

import attrs

from rlmesh_trio.contract import ValueSpace
from rlmesh_trio.export.columns import LeafColumn, leaf_columns

__all__ = ("DEFAULT_FEATURES", "Feature", "action_features", "observation_features")

DEFAULT_FEATURES: Final[dict[str, str]] = {
    "timestamp": "float32",
    "frame_index": "int64",
    "episode_index": "int64",
    "index": "int64",
    "task_index": "int64",
}
"""What every data set has, with its dtype."""

_SMALLEST_SIDE: Final = 32


@attrs.frozen(eq=False)
class Feature:
    """One leaf as a feature. ``shape`` is never empty: a single number is an array of one."""

    name: str
    column: LeafColumn
    is_camera: bool

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of one row."""
        return self.column.spec.shape or (1,)

    def described(self) -> dict[str, Any]:
        """What the data set's description says of it."""
        if self.is_camera:
            return {"dtype": "video", "shape": list(self.shape), "names": ["height", "width", "channels"]}
        if self.column.is_text:
            return {"dtype": "string", "shape": [1], "names": None}
        return {"dtype": self.column.dtype.name, "shape": list(self.shape), "names": None}


def observation_features(space: ValueSpace, *, cameras: bool) -> tuple[Feature, ...]:
    """``observation.state`` or ``observation.image`` of a space that is one leaf, else ``observation.NAME``.

    With *cameras* leaves of ``uint8`` and shape ``(height, width, 3)``, each side 32 or more, are cameras; inside a
    nested space these are ``observation.images.NAME``.
    """
    found: list[Feature] = []
    for column in leaf_columns(space, "observation"):
        is_camera = cameras and _is_image(column)
        inside = column.spec.path.removeprefix("$").removeprefix(".")
        if is_camera:
            name = f"observation.images.{inside}" if inside else "observation.image"
        else:
            name = f"observation.{inside or 'state'}"
        found.append(Feature(_allowed(name), column, is_camera))
    return tuple(found)


def action_features(space: ValueSpace) -> tuple[Feature, ...]:
    """``action``, or ``action.NAME`` of each leaf of a nested space."""
    return tuple(Feature(_allowed(column.name), column, False) for column in leaf_columns(space, "action"))


def _is_image(column: LeafColumn) -> bool:
    shape = column.spec.shape
    is_frame = len(shape) == 3 and shape[2] == 3 and min(shape[:2]) >= _SMALLEST_SIDE
    return is_frame and column.spec.kind == "box" and column.spec.dtype == "uint8"


def _allowed(name: str) -> str:
    """*name* without the slash, which LeRobot does not take."""
    return name.replace("/", "_")
