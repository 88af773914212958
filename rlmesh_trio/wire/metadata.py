"""Metadata maps: kept as the bytes that came until somebody looks, and written from plain Python values.

A value is ``None``, bool, int (signed 64-bit), float, text, bytes, a list, or a map with text keys. Values nest at most
:data:`MAX_NESTING` deep, so that every protobuf implementation can read the message around them.
"""

from collections.abc import Iterator, Mapping, Sequence
from struct import Struct
from typing import Any, cast

import numpy as np

from rlmesh_trio.errors import ProtocolError, SpaceError
from rlmesh_trio.messages import MetaValue
from rlmesh_trio.wire.fields import (
    READ_FAULTS,
    STRANGE_ENTRY,
    TRUNCATED,
    encode_varint,
    length_prefixed,
    malformed,
    read_int64,
    read_uint32,
    read_varint,
    skip_field,
)

__all__ = ("MAX_NESTING", "LazyMetadata", "encode_metadata")

MAX_NESTING = 32

_DOUBLE = Struct("<d")


class LazyMetadata(Mapping[str, MetaValue]):
    """The mapping in an encoded metadata map, decoded on first access.

    Maps in it are dicts and lists are lists. An access raises :exc:`~rlmesh_trio.errors.ProtocolError` when the bytes
    are not a metadata map.
    """

    __slots__ = ("_decoded", "_parts")

    def __init__(self, encoded: bytes = b"") -> None:
        self._parts = [encoded]
        self._decoded: dict[str, MetaValue] | None = None

    @property
    def encoded(self) -> bytes:
        """The map's bytes as they came."""
        return b"".join(self._parts)

    def merge(self, encoded: bytes) -> None:
        """Add the map that a repeated field carries once more: its entries win."""
        self._parts.append(encoded)
        self._decoded = None

    def decode(self) -> dict[str, MetaValue]:
        """The whole mapping; the same dict each time."""
        decoded = self._decoded
        if decoded is None:
            decoded = self._decoded = _decode_parts(self._parts)
        return decoded

    def __getitem__(self, key: str) -> MetaValue:
        return self.decode()[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self.decode())

    def __len__(self) -> int:
        return len(self.decode())

    def __repr__(self) -> str:
        try:
            return f"LazyMetadata({self.decode()!r})"
        except ProtocolError:
            return f"LazyMetadata(<{len(self.encoded)} undecodable bytes>)"

    def __reduce__(self) -> tuple[type["LazyMetadata"], tuple[bytes]]:
        return LazyMetadata, (self.encoded,)


def _decode_parts(parts: Sequence[bytes]) -> dict[str, MetaValue]:
    decoded: dict[str, MetaValue] = {}
    try:
        for part in parts:
            _read_map(decoded, part, 0, len(part), 1)
    except READ_FAULTS as fault:
        raise malformed("metadata", fault) from None
    return decoded


def _read_map(into: dict[str, MetaValue], data: bytes, pos: int, end: int, level: int) -> None:
    while pos < end:
        tag, pos = read_uint32(data, pos)
        if tag == 0x0A:
            size, pos = read_uint32(data, pos)
            stop = pos + size
            _read_entry(into, data, pos, stop, level)
            pos = stop
        else:
            pos = skip_field(data, tag, pos)
    if pos != end:
        raise ProtocolError(TRUNCATED)


def _read_entry(into: dict[str, MetaValue], data: bytes, pos: int, end: int, level: int) -> None:
    key = ""
    value: MetaValue = None
    while pos < end:
        tag, pos = read_uint32(data, pos)
        if tag not in (0x0A, 0x12):
            raise ProtocolError(STRANGE_ENTRY)
        size, pos = read_uint32(data, pos)
        stop = pos + size
        if tag == 0x0A:
            key = str(data[pos:stop], "utf-8")
        else:
            value = _read_value(value, data, pos, stop, level)
        pos = stop
    if pos != end:
        raise ProtocolError(TRUNCATED)
    into[key] = value


def _read_value(value: MetaValue, data: bytes, pos: int, end: int, level: int) -> MetaValue:
    """The value at *pos* merged into *value*: a later arm wins, a repeated list or map grows."""
    if level > MAX_NESTING:
        raise ProtocolError(f"values nest more than {MAX_NESTING} deep")
    while pos < end:
        tag, pos = read_uint32(data, pos)
        if tag in _VALUE_ARMS_WITH_LENGTH:
            size, pos = read_uint32(data, pos)
            stop = pos + size
            if tag == 0x1A:
                value = str(data[pos:stop], "utf-8")
            elif tag == 0x2A:
                value = data[pos:stop]
            elif tag == 0x32:
                items = value if isinstance(value, list) else []
                _read_list(items, data, pos, stop, level + 1)
                value = items
            else:
                entries = value if isinstance(value, dict) else {}
                _read_map(entries, data, pos, stop, level + 1)
                value = entries
            pos = stop
        elif tag == 0x08:
            value, pos = read_int64(data, pos)
        elif tag == 0x11:
            value = _DOUBLE.unpack_from(data, pos)[0]
            pos += 8
        elif tag == 0x20:
            number, pos = read_varint(data, pos)
            value = number != 0
        else:
            pos = skip_field(data, tag, pos)
    if pos != end:
        raise ProtocolError(TRUNCATED)
    return value


_VALUE_ARMS_WITH_LENGTH = frozenset((0x1A, 0x2A, 0x32, 0x3A))


def _read_list(into: list[MetaValue], data: bytes, pos: int, end: int, level: int) -> None:
    while pos < end:
        tag, pos = read_uint32(data, pos)
        if tag == 0x0A:
            size, pos = read_uint32(data, pos)
            stop = pos + size
            into.append(_read_value(None, data, pos, stop, level))
            pos = stop
        else:
            pos = skip_field(data, tag, pos)
    if pos != end:
        raise ProtocolError(TRUNCATED)


def encode_metadata(metadata: Mapping[str, object]) -> bytes:
    """Write *metadata* as an encoded map.

    Besides the values of :data:`~rlmesh_trio.messages.MetaValue`, numpy scalars and arrays are written as the numbers
    and lists they hold. Raises :exc:`~rlmesh_trio.errors.SpaceError`, naming the ``$``-rooted path, for anything else,
    for an int beyond signed 64 bits, for a key that is no text, and for values nested more than :data:`MAX_NESTING`
    deep.
    """
    return _encode_map(cast("Mapping[object, object]", metadata), "$", 1)


def _encode_map(values: Mapping[object, object], path: str, level: int) -> bytes:
    encoded: list[bytes] = []
    for key, value in values.items():
        if not isinstance(key, str):
            raise SpaceError(path, f"a metadata key must be a text, not {key!r}")
        child = f"{path}.{key}"
        entry = length_prefixed(b"\x0a", _encode_utf8(key, path)) + length_prefixed(
            b"\x12", _encode_value(value, child, level)
        )
        encoded.append(length_prefixed(b"\x0a", entry))
    return b"".join(encoded)


def _encode_value(value: object, path: str, level: int) -> bytes:
    if level > MAX_NESTING:
        raise SpaceError(path, f"metadata nests more than {MAX_NESTING} values deep")
    if isinstance(value, np.ndarray | np.generic):
        value = _plain(cast("np.ndarray[Any, np.dtype[Any]] | np.generic", value), path)
    match value:
        case None:
            return b""
        case bool():
            return b"\x20\x01" if value else b"\x20\x00"
        case int():
            if not -(1 << 63) <= value < 1 << 63:
                raise SpaceError(path, f"{value} does not fit the signed 64-bit integer of metadata")
            return b"\x08" + encode_varint(value & 0xFFFF_FFFF_FFFF_FFFF)
        case float():
            return b"\x11" + _DOUBLE.pack(value)
        case str():
            return length_prefixed(b"\x1a", _encode_utf8(value, path))
        case bytes():
            return length_prefixed(b"\x2a", value)
        case Mapping():
            return length_prefixed(b"\x3a", _encode_map(cast("Mapping[object, object]", value), path, level + 1))
        case Sequence() if not isinstance(value, bytearray | memoryview):
            items = (
                length_prefixed(b"\x0a", _encode_value(item, f"{path}[{index}]", level + 1))
                for index, item in enumerate(cast("Sequence[object]", value))
            )
            return length_prefixed(b"\x32", b"".join(items))
        case other:
            raise SpaceError(path, f"metadata cannot hold a {type(other).__name__}")


def _plain(value: np.ndarray[Any, np.dtype[Any]] | np.generic, path: str) -> object:
    if value.dtype.kind not in "biufSUO":
        raise SpaceError(path, f"metadata cannot hold numpy's {value.dtype}")
    return value.tolist()


def _encode_utf8(text: str, path: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError:
        raise SpaceError(path, f"{text!r} has no UTF-8 form") from None
