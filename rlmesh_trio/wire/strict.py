"""The one way to and from betterproto messages: nothing is parsed before its structure was checked.

betterproto accepts cut messages, wrong wire types and illegal numbers, and reads some legal but unusual forms wrongly.
The check refuses both, so that what is accepted means the same to every protobuf implementation. Refused although
legal: a field with another wire type than its own, groups, unknown fields inside a map entry, a singular message field
that comes twice, a packed field after other elements of it, a number beyond its field's range.
"""

from functools import cache
from typing import Any, NamedTuple, TypeVar, cast

import betterproto

from rlmesh_trio.errors import ProtocolError
from rlmesh_trio.wire.fields import (
    READ_FAULTS,
    STRANGE_ENTRY,
    TRUNCATED,
    encode_varint,
    length_prefixed,
    malformed,
    read_uint32,
    read_varint,
    skip_field,
)

__all__ = ("MAX_DEPTH", "decode", "encode", "encoded_field", "present", "relay_field")

MAX_DEPTH = 100

M = TypeVar("M", bound=betterproto.Message)

_VARINT_LIMITS = {"bool": 1 << 64, "int64": 1 << 64, "uint64": 1 << 64, "uint32": 1 << 32, "enum": 1 << 31}
_EIGHT_BYTES = ("double", "sfixed64")


class _Field(NamedTuple):
    """How a field must look. ``varint_limit`` is 0 unless it is a varint, ``message`` the class of what it holds."""

    name: str
    number: int
    wire_type: int
    repeated: bool
    varint_limit: int = 0
    message: type[betterproto.Message] | None = None
    is_map: bool = False


def decode(message_class: type[M], data: bytes, *, what: str) -> M:
    """Parse *data*, which is *what* (``"the env's handshake reply"``).

    Raises :exc:`~rlmesh_trio.errors.ProtocolError`, and nothing else, for bytes that are not such a message.
    """
    try:
        _check_message(data, 0, len(data), message_class, 0)
        return message_class().parse(data)
    except READ_FAULTS as fault:
        raise malformed(f"{what} ({message_class.__name__})", fault) from None
    except Exception as fault:  # the parser promises nothing about what it raises
        raise ProtocolError(f"{what} cannot be read as {message_class.__name__}: {fault!r}") from fault


def encode(message: betterproto.Message) -> bytes:
    """Write *message*.

    A double of -0.0 outside a oneof, and a map entry whose key and value are both empty, are left off. Raises
    :exc:`~rlmesh_trio.errors.ProtocolError` when a value does not fit its field.
    """
    name = type(message).__name__
    try:
        data = bytes(message)
        _check_message(data, 0, len(data), type(message), 0)
    except ProtocolError as fault:
        raise ProtocolError(f"cannot write {name}: {fault.why}") from None
    except Exception as fault:  # the writer promises nothing about what it raises
        raise ProtocolError(f"cannot write {name}: {fault!r}") from fault
    return data


def present(message: M) -> M:
    """*message*, which its parent will write even if it is empty."""
    vars(message)["_serialized_on_wire"] = True
    return message


def relay_field(message: M, name: str, encoded: bytes) -> M:
    """*message*, which will carry *encoded* as its message field *name*, byte for byte."""
    field = _fields_by_name(type(message))[name]
    vars(message)["_unknown_fields"] += length_prefixed(encode_varint(field.number << 3 | 2), encoded)
    return present(message)


def encoded_field(message_class: type[betterproto.Message], data: bytes, *path: str) -> bytes | None:
    """The bytes of the message field at *path* in *data*, as they came; ``None`` when it is absent.

    *data* must have passed :func:`decode`.
    """
    for name in path:
        field = _fields_by_name(message_class)[name]
        found = _find_field(data, field.number)
        if found is None:
            return None
        data = found
        message_class = cast("type[betterproto.Message]", field.message)
    return data


def _find_field(data: bytes, number: int) -> bytes | None:
    pos, end = 0, len(data)
    while pos < end:
        tag, pos = read_uint32(data, pos)
        stop = skip_field(data, tag, pos)
        if tag >> 3 == number:
            _, start = read_uint32(data, pos)
            return data[start:stop]
        pos = stop
    return None


def _check_message(
    data: bytes, pos: int, end: int, message_class: type[betterproto.Message], depth: int, *, is_entry: bool = False
) -> None:
    if depth > MAX_DEPTH:
        raise ProtocolError(f"messages nest more than {MAX_DEPTH} deep")
    fields = _fields_by_number(message_class)
    seen: set[int] = set()
    while pos < end:
        tag, pos = read_uint32(data, pos)
        start, pos = pos, skip_field(data, tag, pos)
        field = fields.get(tag >> 3)
        if field is not None:
            _check_field(data, start, pos, field, tag & 7, field.number in seen, depth)
            seen.add(field.number)
        elif is_entry:
            raise ProtocolError(STRANGE_ENTRY)
    if pos != end:
        raise ProtocolError(TRUNCATED)


def _check_field(data: bytes, pos: int, end: int, field: _Field, wire_type: int, again: bool, depth: int) -> None:
    if wire_type == 2:
        _, pos = read_uint32(data, pos)
    if wire_type == field.wire_type:
        if field.message is not None:
            if again and not field.repeated:
                raise ProtocolError(f"field {field.name} comes twice")
            _check_message(data, pos, end, field.message, depth + 1, is_entry=field.is_map)
        elif field.varint_limit:
            _check_varint(data, pos, field)
    elif wire_type == 2 and field.repeated:
        if again:
            raise ProtocolError(f"field {field.name} is packed in several pieces")
        if field.varint_limit:
            while pos < end:
                pos = _check_varint(data, pos, field)
            if pos != end:
                raise ProtocolError(TRUNCATED)
    else:
        raise ProtocolError(f"field {field.name} has the wire type {wire_type} instead of {field.wire_type}")


def _check_varint(data: bytes, pos: int, field: _Field) -> int:
    value, end = read_varint(data, pos)
    if value >= field.varint_limit or (end - pos == 10 and data[end - 1] > 1):
        raise ProtocolError(f"field {field.name} is out of range")
    return end


@cache
def _fields_by_number(message_class: type[betterproto.Message]) -> dict[int, _Field]:
    return {field.number: field for field in _fields_by_name(message_class).values()}


@cache
def _fields_by_name(message_class: type[betterproto.Message]) -> dict[str, _Field]:
    described: Any = cast("Any", message_class)._betterproto
    fields: dict[str, _Field] = {}
    for name, meta in described.meta_by_field_name.items():
        repeated = described.default_gen[name] in (list, dict)
        message: type[betterproto.Message] | None = None
        if meta.proto_type in ("message", "map"):
            message = described.cls_by_field[name]
        limit = _VARINT_LIMITS.get(meta.proto_type, 0)
        wire_type = 0 if limit else 1 if meta.proto_type in _EIGHT_BYTES else 2
        fields[name] = _Field(name, meta.number, wire_type, repeated, limit, message, meta.proto_type == "map")
    return fields
