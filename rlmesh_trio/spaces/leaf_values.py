"""One row of one leaf: its value, and what people call it."""

from typing import Any, Final

import numpy as np
import numpy.typing as npt

from rlmesh_trio.contract import LeafSpec
from rlmesh_trio.spaces.slabs import array_dtype

__all__ = ("covers", "leaf_name", "leaf_text", "leaf_value")

_ONE_TEXT_HEADER: Final = 16


def leaf_value(spec: LeafSpec, leaf: bytes) -> npt.NDArray[Any] | str | None:
    """One row of the leaf *spec*: an array of its shape, or a text; ``None`` for bytes that are neither."""
    if spec.kind == "text":
        body = leaf[_ONE_TEXT_HEADER:]
        if leaf[:_ONE_TEXT_HEADER] != (1).to_bytes(8, "little") + len(body).to_bytes(8, "little"):
            return None
        return body.decode(errors="backslashreplace")
    dtype = array_dtype(spec.kind, spec.dtype)
    if len(leaf) != dtype.itemsize * int(np.prod(spec.shape, dtype=np.int64)):
        return None
    return np.frombuffer(leaf, dtype).reshape(spec.shape)


def leaf_text(value: object, leaf: bytes) -> str:
    """A value that is no array, for people: the text *value*, or the size of the *leaf* that says nothing."""
    return value if isinstance(value, str) else f"{len(leaf)} bytes"


def leaf_name(role: str, path: str) -> str:
    """The name of a leaf for people: its ``$``-rooted *path* under *role*, as in ``obs.velocity``."""
    return role + path.removeprefix("$")


def covers(name: str, path: str) -> bool:
    """Whether *path* is what *name* says, or inside of it."""
    return path == name or path.startswith((f"{name}.", f"{name}["))
