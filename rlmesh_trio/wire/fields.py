"""What lies below every message: varints, tags, lengths and skipping, by the rules google protobuf reads them.

Readers take the whole message and a position. They may run past the end of the part they read, or raise one of
:data:`READ_FAULTS`: each loop over the fields of a message ends by checking that it stopped exactly at its end, and
the public decoders turn every fault into one :exc:`~rlmesh_trio.errors.ProtocolError` by :func:`malformed`.

Two things are refused that no message of this protocol has, and that implementations read differently or not at all:
groups, and unknown fields inside a map entry.
"""

import struct
from collections.abc import Iterable, Sequence
from typing import TypeVar

from rlmesh_trio.errors import ProtocolError

__all__ = (
    "READ_FAULTS",
    "STRANGE_ENTRY",
    "TRUNCATED",
    "encode_int64",
    "encode_text",
    "encode_texts",
    "encode_unsigned",
    "encode_varint",
    "extended",
    "length_prefixed",
    "malformed",
    "read_int64",
    "read_uint32",
    "read_varint",
    "skip_field",
)

T = TypeVar("T")

TRUNCATED = "it ends in the middle of a field"
STRANGE_ENTRY = "a map entry holds more than a key and a value"
READ_FAULTS = (ProtocolError, IndexError, struct.error, UnicodeDecodeError)

_SHORT_VARINTS = tuple(
    bytes((number,)) if number < 128 else bytes((number & 127 | 128, number >> 7)) for number in range(1 << 14)
)


def malformed(what: str, fault: Exception) -> ProtocolError:
    """The error to raise for *fault*, one of :data:`READ_FAULTS` met while reading *what*."""
    if isinstance(fault, ProtocolError):
        why = fault.why
    else:
        why = "a text is not UTF-8" if isinstance(fault, UnicodeDecodeError) else TRUNCATED
    return ProtocolError(f"{what} is malformed: {why}")


def read_varint(data: bytes, pos: int) -> tuple[int, int]:
    """The number at *pos*, cut to 64 bits, and the position behind it; more than ten bytes are refused."""
    first = data[pos]
    if first < 128:
        return first, pos + 1
    second = data[pos + 1]
    if second < 128:
        return first + (second << 7) - 0x80, pos + 2
    third = data[pos + 2]
    if third < 128:
        return first + (second << 7) + (third << 14) - 0x4080, pos + 3
    value = first + (second << 7) + (third << 14) - 0x204080
    for index in range(3, 10):
        byte = data[pos + index]
        if byte < 128:
            return (value + (byte << 7 * index)) & 0xFFFF_FFFF_FFFF_FFFF, pos + index + 1
        value += (byte - 128) << 7 * index
    raise ProtocolError("a number takes more than ten bytes")


def read_uint32(data: bytes, pos: int) -> tuple[int, int]:
    """The tag or length at *pos* and the position behind it; more than five bytes or 32 bits are refused."""
    first = data[pos]
    if first < 128:
        return first, pos + 1
    second = data[pos + 1]
    if second < 128:
        return first + (second << 7) - 0x80, pos + 2
    value, end = read_varint(data, pos)
    if end - pos > 5 or value > 0xFFFF_FFFF:
        raise ProtocolError("a tag or length takes more than 32 bits")
    return value, end


def read_int64(data: bytes, pos: int) -> tuple[int, int]:
    """The signed number at *pos* and the position behind it."""
    value, end = read_varint(data, pos)
    return (value - (1 << 64) if value >> 63 else value), end


def skip_field(data: bytes, tag: int, pos: int) -> int:
    """The position behind the unknown field whose *tag* was just read."""
    if tag < 8:
        raise ProtocolError("a field has the number 0")
    wire_type = tag & 7
    if wire_type == 0:
        return read_varint(data, pos)[1]
    if wire_type == 1:
        return pos + 8
    if wire_type == 2:
        size, pos = read_uint32(data, pos)
        return pos + size
    if wire_type == 5:
        return pos + 4
    raise ProtocolError(f"field {tag >> 3} has the wire type {wire_type}")


def extended(values: Sequence[T], more: Iterable[T]) -> list[T]:
    """*values*, in place if it is a list, with those of a repeated field that came in another piece."""
    grown = values if isinstance(values, list) else list(values)
    grown.extend(more)
    return grown


def encode_varint(number: int) -> bytes:
    """The shortest form of *number*, which is at least 0."""
    if number < 1 << 14:
        return _SHORT_VARINTS[number]
    encoded = bytearray()
    while number > 127:
        encoded.append(number & 127 | 128)
        number >>= 7
    encoded.append(number)
    return bytes(encoded)


def encode_unsigned(number: int, bits: int) -> bytes:
    """*number* as a varint; raises :exc:`~rlmesh_trio.errors.ProtocolError` unless it fits *bits* unsigned bits."""
    if not 0 <= number < 1 << bits:
        raise ProtocolError(f"{number} does not fit an unsigned {bits}-bit integer of the wire")
    return encode_varint(number)


def encode_int64(number: int) -> bytes:
    """*number* as a varint; raises :exc:`~rlmesh_trio.errors.ProtocolError` unless it fits a signed 64-bit integer."""
    if not -(1 << 63) <= number < 1 << 63:
        raise ProtocolError(f"{number} does not fit a signed 64-bit integer of the wire")
    return encode_varint(number & 0xFFFF_FFFF_FFFF_FFFF)


def encode_text(tag: bytes, text: str) -> bytes:
    """A text field, left off when empty; raises :exc:`~rlmesh_trio.errors.ProtocolError` for a lone surrogate."""
    if not text:
        return b""
    try:
        body = text.encode()
    except UnicodeEncodeError:
        raise ProtocolError(f"{text!r} has no UTF-8 form") from None
    return tag + encode_varint(len(body)) + body


def encode_texts(tag: bytes, texts: Iterable[str]) -> bytes:
    """A repeated text field; raises :exc:`~rlmesh_trio.errors.ProtocolError` for a lone surrogate."""
    return b"".join([encode_text(tag, text) or tag + b"\x00" for text in texts])


def length_prefixed(tag: bytes, body: bytes) -> bytes:
    """A field that holds *body*: a message, bytes or packed numbers."""
    return tag + encode_varint(len(body)) + body
