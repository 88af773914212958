"""The MCAP file under a recording: where its chunks lie, what is in one, and whether every byte is as it was written.

A file without its end, as a killed process leaves it, is read up to its last whole chunk.
"""

import os
import struct
import zlib
from collections.abc import Iterator
from typing import Any, BinaryIO, Final, NamedTuple

from rlmesh_trio.observers.extras import load_extra
from rlmesh_trio.recording.errors import RecordingError
from rlmesh_trio.recording.mcap_file import MCAP_MAGIC, Opcode
from rlmesh_trio.recording.records import CHANNELS, PROFILE

__all__ = ("Container", "Message", "Span")

_LARGEST_CHUNK: Final = 1 << 30
_FOOTER_SIZE: Final = 9 + 20 + len(MCAP_MAGIC)
_BLOCK: Final = 1 << 20

_record_head = struct.Struct("<BQ")
_chunk_head = struct.Struct("<QQQII")
_message_head = struct.Struct("<HIQQ")


class _Broken(Exception):
    """A record that is not what it must be; the text says how."""


class Span(NamedTuple):
    """One chunk: the offset and length of its record's content, and the log times of its messages."""

    start: int
    length: int
    first: int
    last: int


class Message(NamedTuple):
    """One message of a channel; its log time is a tick."""

    topic: str
    tick: int
    data: bytes


class Container:
    """An MCAP file that is open for reading. ``damage`` says what is wrong with the file as a whole, if something is.

    Raises :exc:`RecordingError` for a file that is no MCAP file of ours. With *by_index* the file's own index is
    trusted if it is whole; without it each chunk is looked at, and what comes behind a broken one is left out.
    """

    def __init__(self, path: str | os.PathLike[str], *, by_index: bool = True) -> None:
        self.path = os.fspath(path)
        self.damage = ""
        self._topics: dict[int, str] = {}
        self._decompress: Any = (
            load_extra("zstandard", extra="mcap", wanted_by="a recording").ZstdDecompressor().decompress
        )
        try:
            self._file: BinaryIO = open(self.path, "rb")  # noqa: SIM115 - closed by close
        except OSError as error:
            raise self.refusal(f"it cannot be read: {error.strerror or error}") from error
        try:
            self.size = os.fstat(self._file.fileno()).st_size
            self._check_beginning()
            spans = self._indexed() if by_index else None
            self.spans = self._found() if spans is None else spans
            self._learn_topics()
        except BaseException:
            self._file.close()
            raise

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def refusal(self, why: str) -> RecordingError:
        """The error that says *why* of this file."""
        return RecordingError(self.path, why)

    def _read(self, start: int, length: int) -> bytes:
        try:
            self._file.seek(start)
            data = self._file.read(length)
        except OSError as error:
            raise self.refusal(f"it cannot be read: {error.strerror or error}") from error
        if len(data) < length:
            raise _Broken("it ends in the middle of a record")
        return data

    def _check_beginning(self) -> None:
        if not self.size:
            raise self.refusal("it is empty")
        if self._read(0, min(len(MCAP_MAGIC), self.size)) != MCAP_MAGIC[: self.size]:
            raise self.refusal("it is no MCAP file")
        try:
            opcode, start, length = self._record_at(len(MCAP_MAGIC))
            profile = _text_at(self._read(start, length), 0)[0] if opcode == Opcode.HEADER else ""
        except _Broken as broken:
            raise self.refusal(f"it is cut off or damaged at its beginning: {broken}") from None
        if profile != PROFILE:
            raise self.refusal(f"it is an MCAP file of another kind: its profile is {profile!r}, not {PROFILE!r}")

    def _record_at(self, position: int) -> tuple[int, int, int]:
        """The opcode of the record at *position*, and where its content starts and how long it is."""
        opcode, length = _record_head.unpack(self._read(position, _record_head.size))
        start = position + _record_head.size
        if start + length > self.size:
            raise _Broken("it ends in the middle of a record")
        return opcode, start, length

    def _records(self, position: int) -> Iterator[tuple[int, int, int]]:
        """The records from *position* to the data's end, that one included; raises :exc:`_Broken`."""
        while True:
            opcode, start, length = self._record_at(position)
            yield opcode, start, length
            if opcode == Opcode.DATA_END:
                return
            position = start + length

    def _summary(self) -> tuple[int, bytes]:
        """Where the summary starts, and its bytes, which are as they were written."""
        if self.size < 2 * len(MCAP_MAGIC) + _FOOTER_SIZE:
            raise _Broken("it has no end")
        end = self.size - _FOOTER_SIZE
        footer = self._read(end, _FOOTER_SIZE)
        opcode, length, start, _, crc = struct.unpack("<BQQQI", footer[: -len(MCAP_MAGIC)])
        if footer[-len(MCAP_MAGIC) :] != MCAP_MAGIC or opcode != Opcode.FOOTER or length != 20 or not 0 < start <= end:
            raise _Broken("it has no end")
        summary = self._read(start, end - start)
        if zlib.crc32(footer[:25], zlib.crc32(summary)) != crc:
            raise _Broken("its index is damaged")
        return start, summary

    def _indexed(self) -> list[Span] | None:
        """The chunks by the file's index; ``None`` when that is missing or damaged."""
        try:
            _, summary = self._summary()
        except _Broken:
            return None
        spans: list[Span] = []
        position = 0
        while position < len(summary):
            opcode, length = _record_head.unpack_from(summary, position)
            position += _record_head.size
            if opcode == Opcode.CHUNK_INDEX:
                first, last, offset, size = struct.unpack_from("<QQQQ", summary, position)
                spans.append(Span(offset + _record_head.size, size - _record_head.size, first, last))
            position += length
        return spans

    def _found(self) -> list[Span]:
        """The chunks by looking for them, up to the first that is not whole."""
        spans: list[Span] = []
        try:
            for opcode, start, length in self._records(len(MCAP_MAGIC)):
                if opcode == Opcode.CHUNK:
                    first, last, _, _, _ = _chunk_head.unpack(self._read(start, _chunk_head.size))
                    span = Span(start, length, first, last)
                    self._chunk(span)
                    spans.append(span)
            self._summary()
        except (_Broken, struct.error) as broken:
            told = str(broken) if isinstance(broken, _Broken) else "a record is damaged"
            self.damage = f"{told}; its chunks up to tick {spans[-1].last if spans else 0} are whole"
        return spans

    def _chunk(self, span: Span) -> bytes:
        """The records in a chunk."""
        content = self._read(span.start, span.length)
        try:
            _, _, size, crc, name_length = _chunk_head.unpack_from(content)
            start = _chunk_head.size + name_length
            (length,) = struct.unpack_from("<Q", content, start)
            squeezed = content[start + 8 :]
            is_plausible = content[_chunk_head.size : start] == b"zstd" and len(squeezed) == length
            data = self._decompress(squeezed, size) if is_plausible and size <= _LARGEST_CHUNK else b""
        except Exception as error:  # the decompressor promises nothing about what it raises
            raise _Broken(f"a chunk is damaged: {error}") from error
        if zlib.crc32(data) != crc or len(data) != size or not data:
            raise _Broken("a chunk is damaged")
        return data

    def _inside(self, span: Span) -> Iterator[tuple[int, bytes]]:
        data = self._chunk(span)
        position = 0
        while position < len(data):
            opcode, length = _record_head.unpack_from(data, position)
            position += _record_head.size
            yield opcode, data[position : position + length]
            position += length

    def _learn_topics(self) -> None:
        if not self.spans:
            raise self.refusal("it holds no whole chunk: it was cut off before its header was written")
        try:
            for opcode, content in self._inside(self.spans[0]):
                if opcode == Opcode.CHANNEL:
                    self._topics[struct.unpack_from("<H", content)[0]] = _text_at(content, 4)[0]
        except (_Broken, struct.error) as broken:
            raise self.refusal(f"its first chunk cannot be read: {broken}") from None
        if missing := CHANNELS.keys() - self._topics.values():
            raise self.refusal(f"it lacks the channels {', '.join(sorted(missing))}")

    def messages(self, span: Span) -> list[Message]:
        """What is in a chunk, in the order of recording. Raises :exc:`RecordingError` when it is damaged."""
        found: list[Message] = []
        try:
            for opcode, content in self._inside(span):
                if opcode == Opcode.MESSAGE:
                    channel, _, tick, _ = _message_head.unpack_from(content)
                    found.append(Message(self._topics.get(channel, ""), tick, content[_message_head.size :]))
        except (_Broken, struct.error) as broken:
            raise self.refusal(f"it cannot be read between ticks {span.first} and {span.last}: {broken}") from None
        return found

    def check_bytes(self) -> list[str]:
        """What says that the file is not, byte for byte, as it was written."""
        try:
            start, _ = self._summary()
            data_end = 0
            for opcode, content, length in self._records(len(MCAP_MAGIC)):
                if opcode == Opcode.DATA_END:
                    data_end = content - _record_head.size
                    (crc,) = struct.unpack("<I", self._read(content, length))
                    if crc != self._checksum(data_end):
                        return ["its data is damaged: the checksum is another"]
                    if content + length != start:
                        return ["there is something between its data and its index"]
        except (_Broken, struct.error) as broken:
            return [str(broken) if isinstance(broken, _Broken) else "a record is damaged"]
        return []

    def _checksum(self, end: int) -> int:
        crc, position = 0, 0
        while position < end:
            block = self._read(position, min(_BLOCK, end - position))
            crc = zlib.crc32(block, crc)
            position += len(block)
        return crc


def _text_at(content: bytes, position: int) -> tuple[str, int]:
    """The text at *position* and the position behind it."""
    try:
        (length,) = struct.unpack_from("<I", content, position)
        stop = position + 4 + length
        if stop > len(content):
            raise _Broken("a text is cut off")
        return content[position + 4 : stop].decode(), stop
    except (struct.error, UnicodeDecodeError):
        raise _Broken("a text is damaged") from None
