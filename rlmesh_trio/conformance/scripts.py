"""A script is data: resets, steps and waits, drawn whole before anything runs.

That makes it printable, storable, replayable and easy to shrink. Actions and observations are leaf bytes, so that
comparing them means comparing bits.
"""

import attrs

from rlmesh_trio.messages import Metadata

__all__ = ("Op", "Reset", "Row", "Script", "Step", "Wait")

Row = tuple[bytes, ...]
"""One lane's value of a space: one buffer a leaf, in wire order, each holding exactly one row."""


@attrs.frozen
class Reset:
    """Start episodes. ``seeds`` is empty (unseeded) or has one seed a lane; ``lanes`` is empty for all of them."""

    seeds: tuple[int, ...] = ()
    options: Metadata | None = attrs.field(default=None, hash=False)
    lanes: tuple[int, ...] = ()


@attrs.frozen
class Step:
    """Step lanes with one action row each; ``lanes`` is empty for all of them."""

    actions: tuple[Row, ...]
    lanes: tuple[int, ...] = ()


@attrs.frozen
class Wait:
    """Let *seconds* pass before the next op."""

    seconds: float


Op = Reset | Step | Wait


@attrs.frozen
class Script:
    """What to do with an env of ``lanes`` lanes, in order."""

    lanes: int
    ops: tuple[Op, ...]

    def lanes_of(self, op: Reset | Step) -> tuple[int, ...]:
        """The lanes *op* concerns, in the order of its rows."""
        return op.lanes or tuple(range(self.lanes))
