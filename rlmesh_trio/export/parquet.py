"""A recording as one Parquet file, a row a request: of each episode its reset as step 0, then its steps.

A row has the action and what the env answered to it; what was acted on is the observation of the row before. A row
group is written as soon as it is full, so that memory does not grow with the recording.
"""

import os
from collections.abc import Mapping, Sequence
from typing import Any, Final

import attrs
import numpy as np

from rlmesh_trio.errors import SpaceError
from rlmesh_trio.export.columns import LeafColumn, leaf_columns
from rlmesh_trio.export.destination import appearing_file
from rlmesh_trio.export.episodes import Exported, Source, is_step, open_source, plain_infos, run_facts_of, seed_of
from rlmesh_trio.export.errors import ExportError
from rlmesh_trio.messages import Leaf, Leaves
from rlmesh_trio.observers.extras import load_extra
from rlmesh_trio.observers.records import strict_json
from rlmesh_trio.recording import EpisodeEntry, Row
from rlmesh_trio.recording.records import DIGEST_BYTES

__all__ = ("export_parquet",)

_FACTS_KEY: Final = "rlmesh_trio"
"""The key of the file's metadata under which the facts of the run stand, as JSON."""

_GROUP_ROWS: Final = 1 << 16
_GROUP_BYTES: Final = 8 << 20


def export_parquet(
    path: str | os.PathLike[str],
    out: str | os.PathLike[str],
    *,
    everything: bool = False,
    force: bool = False,
) -> Exported:
    """Write the episodes of the recording at *path* to the file *out*, in order of ordinals; with *force* over a file.

    Columns: ``episode`` (the ordinal), ``step``, ``seed``, ``reward``, ``terminated``, ``truncated``, ``error`` (of a
    request that failed), ``end`` (how the episode ended, on each of its rows), and by leaf ``action…`` and
    ``observation…``: numbers, fixed-size lists or, of two and more dimensions, tensors. Below level ``full`` the
    recording has only digests: ``observation_digest…``. Null is what the recording does not have: in row 0 the action,
    in the last one of an episode that the env restarted by itself the observation.

    *everything* exports episodes that ended in an error too. Raises :exc:`ExportError`, ``RecordingError``, and
    ``MissingExtra`` without the extra ``parquet``.
    """
    parquet = load_extra("pyarrow.parquet", extra="parquet", wanted_by="an export to Parquet")
    with open_source(path, everything=everything) as source, appearing_file(out, path, force=force) as draft:
        group = _Group(source)
        with parquet.ParquetWriter(draft, group.schema, compression="zstd") as writer:
            steps = 0
            for entry in source.entries:
                steps += _write(source, entry, group, writer)
            if group.rows:
                writer.write_table(group.taken())
        return Exported(len(source.entries), steps, tuple(source.remarks))


def _write(source: Source, entry: EpisodeEntry, group: "_Group", writer: Any) -> int:
    """Add the rows of one episode; how many steps it has."""
    steps, seed = 0, None
    for row in source.recording.rows(entry.ordinal):
        if row.reset is not None:
            seed = seed_of(row)
        group.add(row, entry, 0 if row.reset is not None else steps + 1, seed)
        steps += is_step(row)
        if group.is_full:
            writer.write_table(group.taken())
    return steps


@attrs.frozen(eq=False)
class _Column:
    """One column under way; *build* makes an Arrow array of its cells."""

    field: Any
    build: Any
    cells: list[Any] = attrs.field(factory=list[Any])


class _Group:
    """The row group under way."""

    def __init__(self, source: Source) -> None:
        self._pa = pa = load_extra("pyarrow", extra="parquet", wanted_by="an export to Parquet")
        self._path = source.recording.path
        self._observed = leaf_columns(source.observation_space, "observation")
        self._acted = leaf_columns(source.action_space, "action")
        self._full = source.recording.header.level == "full"
        self._columns: dict[str, _Column] = {}
        self.rows = 0
        self._bytes = 0
        for name, kind in (("episode", pa.uint64()), ("step", pa.uint64()), ("seed", pa.int64())):
            self._plain(name, kind)
        for leaf in self._acted:
            self._leaf(leaf)
        for name, kind in (("reward", pa.float64()), ("terminated", pa.bool_()), ("truncated", pa.bool_())):
            self._plain(name, kind)
        self._plain("error", pa.string())
        self._plain("end", pa.string())
        for leaf in self._observed:
            if self._full:
                self._leaf(leaf)
            else:
                self._plain(_digest_name(leaf), pa.binary(DIGEST_BYTES), {"path": leaf.spec.path})
        self._plain("info_digest", pa.binary(DIGEST_BYTES))
        if self._full:
            self._plain("infos", pa.string())
        facts = strict_json(run_facts_of(source.recording))
        self.schema = pa.schema([column.field for column in self._columns.values()], metadata={_FACTS_KEY: facts})

    def _plain(self, name: str, kind: Any, metadata: Mapping[str, str] | None = None) -> None:
        def build(cells: Sequence[Any]) -> Any:
            return self._pa.array(cells, kind)

        self._columns[name] = _Column(self._pa.field(name, kind, metadata=metadata), build)

    def _leaf(self, leaf: LeafColumn) -> None:
        kind = _arrow_type(self._pa, leaf)
        told = {"path": leaf.spec.path, "kind": leaf.spec.kind, "dtype": leaf.spec.dtype, "shape": str(leaf.spec.shape)}

        def build(cells: Sequence[Leaf | None]) -> Any:
            return _arrow_array(self._pa, kind, leaf, cells)

        self._columns[leaf.name] = _Column(self._pa.field(leaf.name, kind, metadata=told), build)

    @property
    def is_full(self) -> bool:
        """Whether it is time to write it."""
        return self.rows >= _GROUP_ROWS or self._bytes >= _GROUP_BYTES

    def add(self, row: Row, entry: EpisodeEntry, step: int, seed: int | None) -> None:
        """Add one row."""
        cells: dict[str, Any] = {
            "episode": entry.ordinal,
            "step": step,
            "seed": seed,
            "reward": row.reward,
            "terminated": row.terminated,
            "truncated": row.truncated,
            "error": row.error.code if row.error is not None else None if row.answered else "UNANSWERED",
            "end": entry.end,
            "info_digest": row.info_digest or None,
        }
        self._spread(cells, self._acted, row.action)
        if self._full:
            self._spread(cells, self._observed, row.observation)
            cells["infos"] = _infos_text(row)
        else:
            cells |= dict.fromkeys(map(_digest_name, self._observed))
            cells |= zip(map(_digest_name, self._observed), row.leaf_digests, strict=False)
        for name, column in self._columns.items():
            column.cells.append(cells[name])
        self.rows += 1

    def _spread(self, cells: dict[str, Any], columns: Sequence[LeafColumn], leaves: Leaves | None) -> None:
        if leaves is None:
            cells.update({column.name: None for column in columns})
            return
        for column, leaf in zip(columns, leaves, strict=True):
            cells[column.name] = own = bytes(leaf)  # a view of one lane's row would keep the rows of all lanes
            self._bytes += len(own)

    def taken(self) -> Any:
        """Its table; it is empty then."""
        try:
            arrays = [column.build(column.cells) for column in self._columns.values()]
        except SpaceError as error:
            raise ExportError(self._path, f"a value does not fit its space: {error}") from error
        for column in self._columns.values():
            column.cells.clear()
        self.rows = self._bytes = 0
        return self._pa.Table.from_arrays(arrays, schema=self.schema)


def _digest_name(leaf: LeafColumn) -> str:
    return leaf.name.replace("observation", "observation_digest", 1)


def _infos_text(row: Row) -> str | None:
    infos = plain_infos(row.infos)
    return strict_json(infos) if infos else None


def _arrow_type(pa: Any, leaf: LeafColumn) -> Any:
    if leaf.is_text:
        return pa.string()
    number, shape = pa.from_numpy_dtype(leaf.dtype), leaf.spec.shape
    if not shape:
        return number
    if 0 in shape:
        return pa.list_(number)
    return pa.list_(number, shape[0]) if len(shape) == 1 else pa.fixed_shape_tensor(number, shape)


def _arrow_array(pa: Any, kind: Any, leaf: LeafColumn, cells: Sequence[Leaf | None]) -> Any:
    """An array of *kind* of the leaf's *cells*, null for ``None``."""
    missing = np.array([cell is None for cell in cells])
    values = leaf.values([cell for cell in cells if cell is not None])
    if leaf.is_text:
        texts = iter(values)
        return pa.array([None if is_missing else next(texts) for is_missing in missing], kind)
    dense = np.zeros((len(cells), *leaf.spec.shape), leaf.dtype)
    dense[~missing] = values
    if not leaf.spec.shape:
        return pa.array(dense, kind, mask=missing)
    if 0 in leaf.spec.shape:
        return pa.array([None if is_missing else [] for is_missing in missing], kind)
    size = int(np.prod(leaf.spec.shape))
    flat = pa.array(dense.reshape(-1))
    lists = pa.FixedSizeListArray.from_arrays(flat, size, mask=pa.array(missing))
    return lists if len(leaf.spec.shape) == 1 else pa.ExtensionArray.from_storage(kind, lists)
