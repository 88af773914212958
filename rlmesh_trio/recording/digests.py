"""The digests of single values: xxh3-128 of each leaf of each lane, and of each lane's infos. Pure.

A lane has the digests it would have alone: rows of a batch are cut out of their leaves, and infos out of gymnasium's
vector form. Infos are taken in the wire's value types, keys sorted, without what a clock or a session decides.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final, cast

from rlmesh_trio.contract import EnvContract
from rlmesh_trio.editions import RETAINED_EDITIONS
from rlmesh_trio.errors import ProtocolError, SpaceError
from rlmesh_trio.messages import Leaf, Leaves, Metadata, MetaValue
from rlmesh_trio.observers.extras import load_extra
from rlmesh_trio.spaces import codec_for
from rlmesh_trio.spaces.lane_infos import lane_part
from rlmesh_trio.spaces.metadata import plain_metadata
from rlmesh_trio.spec import ValueSpace
from rlmesh_trio.wire.metadata import LazyMetadata, encode_metadata
from rlmesh_trio.wire.pb.rlmesh.core import v1 as core
from rlmesh_trio.wire.strict import encode, relay_field

__all__ = ("SESSION_ENTRIES", "Digester", "RowCutter", "lane_infos", "ordered_spec", "sorted_infos")

SESSION_ENTRIES: Final = (
    "episode.t",
    "timestamp",
    "timestamps",
    "start_timestamp_ns",
    "end_timestamp_ns",
    "endpoint_total_ns",
    "episode_id",
    "request_id",
    *(edition.conformance_warning_key for edition in RETAINED_EDITIONS),
)
"""Infos that differ between equal runs: keys, or ``outer.inner``, at any depth."""

_ADDRESS: Final = re.compile(r" at 0x[0-9a-fA-F]+\b")
_FAN_OUT: Final = frozenset(("final_info", "_final_info"))


class RowCutter:
    """Cuts the leaves of one space's batches into rows. Leaves that break the layout belong to every row, whole."""

    def __init__(self, space: ValueSpace | None) -> None:
        self._codec = None
        if space is not None and any(leaf.kind == "text" for leaf in space.leaves):
            self._codec = codec_for(space)

    def cut(self, leaves: Leaves, rows: int) -> Sequence[Leaves]:
        """By row its leaves; views, unless there is just one row."""
        if rows == 1:
            return (leaves,)
        if self._codec is not None:
            try:
                return self._codec.split(leaves, [1] * rows)
            except SpaceError:
                return [leaves] * rows
        columns = [_slices(leaf, rows) for leaf in leaves]
        return list(zip(*columns, strict=True)) if columns else [()] * rows


def _slices(leaf: Leaf, rows: int) -> list[Leaf]:
    view = memoryview(leaf)
    if view.ndim != 1 or view.itemsize != 1:
        view = view.cast("B")
    width, rest = divmod(len(view), rows)
    if rest:
        return [leaf] * rows
    return [view[start : start + width] for start in range(0, width * rows, width)] if width else [b""] * rows


class Digester:
    """Digests observations, actions and infos of one env. ``ignored`` adds to :data:`SESSION_ENTRIES`.

    Raises :exc:`~rlmesh_trio.observers.MissingExtra` without the package xxhash.
    """

    def __init__(self, observation: ValueSpace | None, action: ValueSpace | None, ignored: Sequence[str] = ()) -> None:
        self.digest = load_extra("xxhash", extra="mcap", wanted_by="a recording").xxh3_128_digest
        self.observations = RowCutter(observation)
        self.actions = RowCutter(action)
        self._ignored = tuple(f".{name}" for name in (*SESSION_ENTRIES, *ignored))
        self._nothing = cast("bytes", self.digest(b""))

    def observation_rows(self, leaves: Leaves | None, rows: int) -> bytes:
        """Row by row, and in a row leaf by leaf, 16 bytes each."""
        if not leaves:
            return b""
        if rows == 1 and len(leaves) == 1:
            return self.digest(leaves[0])
        return b"".join(self._rows(self.observations, leaves, rows))

    def action_rows(self, leaves: Leaves, rows: int) -> list[bytes]:
        """By row the digests of its leaves."""
        if rows == 1 and len(leaves) == 1:
            return [self.digest(leaves[0])]
        return self._rows(self.actions, leaves, rows)

    def _rows(self, cutter: RowCutter, leaves: Leaves, rows: int) -> list[bytes]:
        digest = self.digest
        if len(leaves) == 1:
            return [digest(row[0]) for row in cutter.cut(leaves, rows)]
        return [b"".join([digest(leaf) for leaf in row]) for row in cutter.cut(leaves, rows)]

    def info_rows(self, infos: Metadata | None, rows: int) -> bytes:
        """Row by row 16 bytes; infos that nobody can read count as the bytes they are."""
        # Asking it for its length would decode it.
        if infos is None or (isinstance(infos, LazyMetadata) and not infos.encoded):
            return self._nothing * rows
        try:
            told = plain_metadata(infos)
        except ProtocolError:
            return cast("bytes", self.digest(infos.encoded if isinstance(infos, LazyMetadata) else b"")) * rows
        if rows == 1 or not told:
            return self._info(told) * rows
        return b"".join([self._info(lane_infos(told, row, rows)) for row in range(rows)])

    def _info(self, told: Mapping[str, MetaValue]) -> bytes:
        return self.digest(encode_metadata(sorted_infos(told, self._ignored))) if told else self._nothing

    def compared_infos(self, infos: Metadata) -> dict[str, MetaValue]:
        """What the digest of one lane's infos is made of. Raises :exc:`ProtocolError` for infos nobody can read."""
        return sorted_infos(plain_metadata(infos), self._ignored)


def lane_infos(infos: Mapping[str, MetaValue], row: int, rows: int) -> dict[str, MetaValue]:
    """One lane's part of plain infos in gymnasium's vector form.

    Where ``final_info`` is all there is, it is the infos.
    """
    own = lane_part(infos, row, rows)
    if infos.keys() <= _FAN_OUT:
        final = own.get("final_info")
        return dict(cast("Mapping[str, MetaValue]", final)) if isinstance(final, Mapping) else {}
    return own


def sorted_infos(infos: Mapping[str, MetaValue], ignored: tuple[str, ...] = (), path: str = "") -> dict[str, MetaValue]:
    """Plain *infos* with keys in order, without what is *ignored*: ends of paths, as ``.outer.inner``.

    Where an object stood its text stands now, and in that its address, which is another each time, does not count.
    """
    kept: dict[str, MetaValue] = {}
    for key in sorted(infos):
        here = f"{path}.{key}"
        if not here.endswith(ignored):
            kept[key] = _sorted_value(infos[key], ignored, here)
    return kept


def _sorted_value(value: MetaValue, ignored: tuple[str, ...], path: str) -> MetaValue:
    if isinstance(value, Mapping):
        return sorted_infos(cast("Mapping[str, Any]", value), ignored, path)
    if isinstance(value, list):
        return [_sorted_value(item, ignored, path) for item in value]
    if isinstance(value, str) and " at 0x" in value:
        return _ADDRESS.sub("", value)
    return value


def ordered_spec(contract: EnvContract) -> bytes:
    """The env's encoded spec with its metadata in order of keys: a server may write them in another order each time."""
    spec = core.EnvSpec(id=contract.env_id)
    spaces = {"action_space": contract.action_space, "observation_space": contract.observation_space}
    for name, space in spaces.items():
        if space is not None:
            relay_field(spec, name, space.encoded)
    return encode(relay_field(spec, "metadata", encode_metadata(sorted_infos(plain_metadata(contract.metadata)))))
