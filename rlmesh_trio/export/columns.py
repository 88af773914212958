"""One leaf of a space as a column: its name, and the values of many rows at once."""

from collections.abc import Sequence
from typing import Any

import attrs
import numpy as np

from rlmesh_trio.contract import LeafSpec, ValueSpace
from rlmesh_trio.messages import Leaf
from rlmesh_trio.spaces import leaf_spaces
from rlmesh_trio.spaces.slabs import Slab, array_dtype, slab_for

__all__ = ("LeafColumn", "leaf_columns")


@attrs.frozen(eq=False)
class LeafColumn:
    """A leaf's column. ``name`` is its path with ``observation`` or ``action`` in the place of ``$``."""

    name: str
    spec: LeafSpec
    slab: Slab

    @property
    def is_text(self) -> bool:
        """Whether its values are texts, not arrays."""
        return self.spec.kind == "text"

    @property
    def dtype(self) -> np.dtype[Any]:
        """The dtype of its values, of a column of arrays."""
        return array_dtype(self.spec.kind, self.spec.dtype)

    def values(self, rows: Sequence[Leaf]) -> Any:
        """The values of *rows*, each the leaf of one row: an array ``(rows, *shape)``, or a list of texts.

        Raises :exc:`SpaceError` for a leaf that breaks its layout.
        """
        return self.slab.unpack(self.slab.join(rows, [1] * len(rows)), len(rows))


def leaf_columns(space: ValueSpace, root: str) -> tuple[LeafColumn, ...]:
    """The columns of *space*'s leaves, in wire order; *root* is what their names begin with."""
    return tuple(
        LeafColumn(root + spec.path.removeprefix("$"), spec, slab_for(spec, leaf)) for spec, leaf in leaf_spaces(space)
    )
