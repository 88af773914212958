"""Rows <-> values: one lane's value of a space as leaf bytes and as a member of the gymnasium space."""

from typing import Any

from rlmesh_trio.conformance.scripts import Row
from rlmesh_trio.contract import ValueSpace
from rlmesh_trio.spaces import codec_for

__all__ = ("member_of", "row_of")


def row_of(space: ValueSpace, member: Any) -> Row:
    """*member* of the gymnasium space as a row, not checked for membership. Raises :exc:`SpaceError`."""
    return tuple([bytes(leaf) for leaf in codec_for(space).pack_rows((member,))])


def member_of(space: ValueSpace, row: Row) -> Any:
    """*row* as a member of the gymnasium space, not checked for membership. Raises :exc:`SpaceError`."""
    return codec_for(space).unpack_row(row, 1, 0)
