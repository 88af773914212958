"""Rows <-> values: one lane's value of a space as leaf bytes, as a member of the gymnasium space, and leaf by leaf."""

from typing import Any

import numpy as np
import numpy.typing as npt

from rlmesh_trio.conformance.scripts import Row
from rlmesh_trio.contract import LeafSpec, ValueSpace
from rlmesh_trio.spaces import codec_for
from rlmesh_trio.spaces.slabs import array_dtype

__all__ = ("leaf_name", "leaf_value", "member_of", "row_of")

_ONE_TEXT_HEADER = 16


def row_of(space: ValueSpace, member: Any) -> Row:
    """*member* of the gymnasium space as a row, not checked for membership. Raises :exc:`SpaceError`."""
    return tuple([bytes(leaf) for leaf in codec_for(space).pack_rows((member,))])


def member_of(space: ValueSpace, row: Row) -> Any:
    """*row* as a member of the gymnasium space, not checked for membership. Raises :exc:`SpaceError`."""
    return codec_for(space).unpack_row(row, 1, 0)


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


def leaf_name(role: str, path: str) -> str:
    """The name of a leaf for people: its ``$``-rooted *path* under *role*, as in ``obs.velocity``."""
    return role + path.removeprefix("$")
