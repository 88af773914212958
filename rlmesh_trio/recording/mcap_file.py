"""Writes MCAP: chunks compressed with zstd, a checksum over everything, an index of chunks and of messages in them.

Ours rather than the ``mcap`` package's, whose writer takes several times as long for a message;
that package is what our files are tested with. Records are written as the MCAP specification lays them out.
"""

import struct
import zlib
from typing import Any, BinaryIO, Final

import attrs

from rlmesh_trio.observers.extras import load_extra

__all__ = ("MCAP_MAGIC", "McapFile", "Opcode")

MCAP_MAGIC: Final = b"\x89MCAP0\r\n"


class Opcode:
    """The kinds of records."""

    HEADER, FOOTER, SCHEMA, CHANNEL, MESSAGE, CHUNK = 0x01, 0x02, 0x03, 0x04, 0x05, 0x06
    MESSAGE_INDEX, CHUNK_INDEX, STATISTICS, SUMMARY_OFFSET, DATA_END = 0x07, 0x08, 0x0B, 0x0E, 0x0F


_MESSAGE_HEAD_BYTES: Final = 22
_message_head: Final = struct.Struct("<BQHIQQ").pack


def _record(opcode: int, *parts: bytes) -> bytes:
    content = b"".join(parts)
    return struct.pack("<BQ", opcode, len(content)) + content


def _text(text: str) -> bytes:
    return _sized(text.encode())


def _sized(data: bytes) -> bytes:
    return struct.pack("<I", len(data)) + data


@attrs.define(eq=False)
class _Channel:
    """What the open chunk holds of one channel, and how many messages there are in all.

    ``index`` has of each message two numbers: its time, and where in the chunk it stands.
    """

    schema: bytes
    record: bytes
    index: list[int] = attrs.field(factory=list[int])
    messages: int = 0


class McapFile:
    """An MCAP file in the making, on *stream*, which is written whole chunk by whole chunk. Times must never fall.

    Whatever writing to *stream* raises comes out. Raises ``MissingExtra`` without the package zstandard.
    """

    def __init__(self, stream: BinaryIO, *, profile: str, library: str, chunk_bytes: int) -> None:
        self._compress: Any = (
            load_extra("zstandard", extra="mcap", wanted_by="a recording").ZstdCompressor(level=1).compress
        )
        self._stream = stream
        self._chunk_bytes = chunk_bytes
        self._position = 0
        self._crc = 0
        self._channels: list[_Channel] = []
        self._parts: list[bytes] = []
        self._size = 0
        self._begin: int | None = None
        self._first = self._last = 0
        self._pending = 0
        self._chunks: list[bytes] = []
        self._write(MCAP_MAGIC + _record(Opcode.HEADER, _text(profile), _text(library)))

    def _write(self, data: bytes) -> None:
        self._stream.write(data)
        self._crc = zlib.crc32(data, self._crc)
        self._position += len(data)

    def add_channel(self, topic: str, schema: str, described: bytes) -> int:
        """A channel of protobuf messages *schema*, which the descriptor set *described* describes; its number."""
        number = len(self._channels) + 1
        schema_record = _record(
            Opcode.SCHEMA, struct.pack("<H", number), _text(schema), _text("protobuf"), _sized(described)
        )
        record = _record(
            Opcode.CHANNEL, struct.pack("<HH", number, number), _text(topic), _text("protobuf"), _sized(b"")
        )
        self._channels.append(_Channel(schema_record, record))
        self._put(schema_record + record)
        return number

    def _put(self, data: bytes) -> None:
        self._parts.append(data)
        self._size += len(data)

    def add(self, channel: int, time: int, data: bytes) -> None:
        """Add a message; the chunk ends with it if it has grown enough."""
        self._channels[channel - 1].index += (time, self._size)
        if not self._pending:
            self._first = time
            if self._begin is None:
                self._begin = time
        self._last = time
        self._pending += 1
        size = _MESSAGE_HEAD_BYTES + len(data)
        self._parts += (_message_head(Opcode.MESSAGE, size, channel, 0, time, time), data)
        self._size += size + 9
        if self._size > self._chunk_bytes:
            self._end_chunk()

    def flush(self) -> None:
        """End the chunk, if there is anything in it, and hand it to the operating system."""
        self._end_chunk()
        self._stream.flush()

    def _end_chunk(self) -> None:
        if not self._pending:
            return
        records = b"".join(self._parts)
        squeezed: bytes = self._compress(records)
        times = struct.pack("<QQ", self._first, self._last)
        chunk = _record(
            Opcode.CHUNK,
            times,
            struct.pack("<QI", len(records), zlib.crc32(records)),
            _text("zstd"),
            struct.pack("<Q", len(squeezed)),
            squeezed,
        )
        start, indexes, offsets = self._position, b"", b""
        for number, channel in enumerate(self._channels, 1):
            if channel.index:
                offsets += struct.pack("<HQ", number, start + len(chunk) + len(indexes))
                entries = struct.pack(f"<{len(channel.index)}Q", *channel.index)
                indexes += _record(Opcode.MESSAGE_INDEX, struct.pack("<H", number), _sized(entries))
                channel.messages += len(channel.index) // 2
                channel.index.clear()
        self._chunks.append(
            _record(
                Opcode.CHUNK_INDEX,
                times,
                struct.pack("<QQ", start, len(chunk)),
                _sized(offsets),
                struct.pack("<Q", len(indexes)),
                _text("zstd"),
                struct.pack("<QQ", len(squeezed), len(records)),
            )
        )
        self._parts.clear()
        self._size = self._pending = 0
        self._write(chunk + indexes)

    def finish(self) -> None:
        """End the chunk and write the index. The stream stays open."""
        self._end_chunk()
        self._write(_record(Opcode.DATA_END, struct.pack("<I", self._crc)))
        start = self._position
        summary, groups = b"", b""
        for opcode, records in (
            (Opcode.SCHEMA, [channel.schema for channel in self._channels]),
            (Opcode.CHANNEL, [channel.record for channel in self._channels]),
            (Opcode.STATISTICS, [self._statistics()]),
            (Opcode.CHUNK_INDEX, self._chunks),
        ):
            group = b"".join(records)
            place = struct.pack("<BQQ", opcode, start + len(summary), len(group))
            groups += _record(Opcode.SUMMARY_OFFSET, place) if group else b""
            summary += group
        ahead = summary + groups
        footer = struct.pack("<BQQQ", Opcode.FOOTER, 20, start, start + len(summary))
        crc = zlib.crc32(footer, zlib.crc32(ahead))
        self._write(ahead + footer + struct.pack("<I", crc) + MCAP_MAGIC)
        self._stream.flush()

    def _statistics(self) -> bytes:
        channels, messages = len(self._channels), sum(channel.messages for channel in self._channels)
        counts = b"".join(
            struct.pack("<HQ", number, channel.messages)
            for number, channel in enumerate(self._channels, 1)
            if channel.messages
        )
        return _record(
            Opcode.STATISTICS,
            struct.pack("<QHIIII", messages, channels, channels, 0, 0, len(self._chunks)),
            struct.pack("<QQ", self._begin or 0, self._last),
            _sized(counts),
        )
