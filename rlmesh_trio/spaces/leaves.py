"""Values <-> leaves: a codec, planned once per space, that runs on every step.

A leaf is the slab of all rows at one fundamental leaf of the space; leaves come depth first, Dict children in the
space's key order. Reading copies nothing (:meth:`SpaceCodec.unpack_batch`) unless it says so; writing always copies,
for an env may reuse its buffers.

Values are taken as they are, or converted by these rules and no others:

- a float leaf takes any real numbers, rounded to its width; a finite number that would become infinite is refused;
- an integer, bool or MultiBinary leaf takes integers and bools that it can hold exactly, and never a float;
- a Text leaf takes ``str``; a Dict takes a mapping with exactly its keys, a Tuple a tuple or list of its length;
- shapes must be equal; nothing is broadcast, squeezed or padded.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Protocol, cast
from weakref import WeakKeyDictionary

import gymnasium
from gymnasium import spaces

from rlmesh_trio.errors import SpaceError
from rlmesh_trio.messages import Leaf, Leaves
from rlmesh_trio.spaces.convert import key_path
from rlmesh_trio.spaces.slabs import Slab, slab_for
from rlmesh_trio.spec import LeafSpec, ValueSpace

__all__ = ("SpaceCodec", "codec_for")


class SpaceCodec:
    """Reads, writes, checks, joins and splits the leaves of one space's values.

    ``rows`` is the number of rows a message carries: it travels beside the leaves, never in them. Whatever does not
    fit raises :exc:`SpaceError` with the ``$``-rooted path of the leaf.
    """

    def __init__(self, space: ValueSpace) -> None:
        specs = iter(space.leaves)
        self._slabs: list[Slab] = []
        self._root = _plan(space.space, "$", specs, self._slabs)
        self._only = self._slabs[0] if isinstance(self._root, _LeafNode) else None

    def unpack_batch(self, leaves: Leaves, rows: int) -> Any:
        """The whole batch, shaped like one member of the space: dicts and tuples of batched leaves.

        A numeric leaf is an array ``(rows, *shape)``, a read-only view of the leaf's memory; a Text leaf is a list of
        ``rows`` texts.
        """
        if self._only is not None and len(leaves) == 1:
            return self._only.unpack(leaves[0], rows)
        slabs = self._counted(leaves)
        return self._root.build(slab.unpack(leaf, rows) for slab, leaf in zip(slabs, leaves, strict=True))

    def unpack_row(self, leaves: Leaves, rows: int, row: int) -> Any:
        """Row *row* (below *rows*) of the batch as a member of the gymnasium space.

        Arrays are the caller's own and writable; a Discrete is a numpy scalar of the leaf's dtype.
        """
        if self._only is not None and len(leaves) == 1:
            return self._only.unpack_row(leaves[0], rows, row)
        slabs = self._counted(leaves)
        return self._root.build(slab.unpack_row(leaf, rows, row) for slab, leaf in zip(slabs, leaves, strict=True))

    def pack_batch(self, value: Any, rows: int) -> list[Leaf]:
        """The leaves of a batch given as :meth:`unpack_batch` returns it, its values not checked for membership."""
        if self._only is not None:
            return [self._only.pack(value, rows)]
        values: list[Any] = []
        self._root.flatten(value, values)
        return [slab.pack(given, rows) for slab, given in zip(self._slabs, values, strict=True)]

    def pack_members(self, value: Any, rows: int) -> list[Leaf]:
        """As :meth:`pack_batch` and then :meth:`check_members`, in one go."""
        if self._only is not None:
            return [self._only.pack_members(value, rows)]
        leaves = self.pack_batch(value, rows)
        self.check_members(leaves, rows)
        return leaves

    def pack_rows(self, values: Sequence[Any]) -> list[Leaf]:
        """The leaves of a batch given as one member of the space per row, not checked for membership."""
        if self._only is not None:
            return [self._only.pack_rows(values)]
        flat: list[list[Any]] = []
        for row, value in enumerate(values):
            flat.append([])
            try:
                self._root.flatten(value, flat[row])
            except SpaceError as error:
                raise SpaceError(error.path, f"row {row}: {error.why}") from error
        return [slab.pack_rows([cells[i] for cells in flat]) for i, slab in enumerate(self._slabs)]

    def check_layout(self, leaves: Leaves, rows: int) -> None:
        """Raise unless *leaves* can be read as *rows* rows: the right number of them, each well-formed."""
        for slab, leaf in zip(self._counted(leaves), leaves, strict=True):
            slab.unpack(leaf, rows)

    def check_members(self, leaves: Leaves, rows: int) -> None:
        """Raise unless every row is in the space, naming leaf, row, index, value and bound of the first that is not.

        Infinity lies in an unbounded Box, NaN in none.
        """
        for slab, leaf in zip(self._counted(leaves), leaves, strict=True):
            slab.check_members(leaf, rows)

    def concatenate(self, parts: Sequence[Leaves], rows: Sequence[int]) -> Leaves:
        """One batch from several, in order; part ``i`` holds ``rows[i]`` rows. A single part is returned as it is."""
        if len(parts) == 1:
            return parts[0]
        if set(map(len, parts)) != {len(self._slabs)}:
            for part in parts:
                self._counted(part)
        return [slab.join([part[i] for part in parts], rows) for i, slab in enumerate(self._slabs)]

    def split(self, leaves: Leaves, rows: Sequence[int]) -> list[Leaves]:
        """The inverse of :meth:`concatenate`. Large parts are views of the leaf; a single part is *leaves* itself."""
        if len(rows) == 1:
            return [leaves]
        columns = [slab.cut(leaf, rows) for slab, leaf in zip(self._counted(leaves), leaves, strict=True)]
        return list(map(list, zip(*columns, strict=True))) if columns else [[] for _ in rows]

    def _counted(self, leaves: Leaves) -> list[Slab]:
        if len(leaves) != len(self._slabs):
            raise SpaceError("$", f"expected {len(self._slabs)} leaves, got {len(leaves)}")
        return self._slabs


_codecs: WeakKeyDictionary[ValueSpace, SpaceCodec] = WeakKeyDictionary()


def codec_for(space: ValueSpace) -> SpaceCodec:
    """The codec of *space*, planned on the first call and shared afterwards. Per-step code keeps it."""
    codec = _codecs.get(space)
    if codec is None:
        codec = _codecs[space] = SpaceCodec(space)
    return codec


class _Node(Protocol):
    def flatten(self, value: Any, out: list[Any]) -> None:
        """Append the values of the leaves below, in leaf order."""
        ...

    def build(self, values: Iterator[Any]) -> Any:
        """Take the values of the leaves below from *values*, in leaf order."""
        ...


class _LeafNode:
    def flatten(self, value: Any, out: list[Any]) -> None:
        out.append(value)

    def build(self, values: Iterator[Any]) -> Any:
        return next(values)


class _DictNode:
    def __init__(self, path: str, children: dict[str, _Node]) -> None:
        self._path, self._children = path, children

    def flatten(self, value: Any, out: list[Any]) -> None:
        if not isinstance(value, Mapping):
            raise SpaceError(
                self._path, f"expected a mapping with the keys {list(self._children)}, got {type(value).__name__}"
            )
        given = cast("Mapping[Any, Any]", value)
        if given.keys() != self._children.keys():
            raise SpaceError(self._path, f"expected the keys {list(self._children)}, got {list(given)}")
        for key, child in self._children.items():
            child.flatten(given[key], out)

    def build(self, values: Iterator[Any]) -> dict[str, Any]:
        return {key: child.build(values) for key, child in self._children.items()}


class _TupleNode:
    def __init__(self, path: str, children: tuple[_Node, ...]) -> None:
        self._path, self._children = path, children

    def flatten(self, value: Any, out: list[Any]) -> None:
        if not isinstance(value, (tuple, list)):
            raise SpaceError(
                self._path, f"expected a tuple of {len(self._children)} values, got {type(value).__name__}"
            )
        given = cast("Sequence[Any]", value)
        if len(given) != len(self._children):
            raise SpaceError(self._path, f"expected {len(self._children)} values, got {len(given)}")
        for item, child in zip(given, self._children, strict=True):
            child.flatten(item, out)

    def build(self, values: Iterator[Any]) -> tuple[Any, ...]:
        return tuple([child.build(values) for child in self._children])


def _plan(space: gymnasium.Space[Any], path: str, specs: Iterator[LeafSpec], slabs: list[Slab]) -> _Node:
    """Plan *space* depth first: its slabs are appended to *slabs*, its nodes returned."""
    if isinstance(space, spaces.Dict):
        children: Mapping[str, gymnasium.Space[Any]] = cast("Any", space).spaces
        return _DictNode(
            path, {key: _plan(child, key_path(path, key), specs, slabs) for key, child in children.items()}
        )
    if isinstance(space, spaces.Tuple):
        members: Sequence[gymnasium.Space[Any]] = cast("Any", space).spaces
        return _TupleNode(path, tuple(_plan(m, f"{path}[{i}]", specs, slabs) for i, m in enumerate(members)))
    slabs.append(slab_for(next(specs), space))
    return _LeafNode()
