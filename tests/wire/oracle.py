"""google protobuf as the judge: its classes for our schemas, and its messages as plain values.

Plain: a message is a dict of the fields that are set (numbers and texts without presence always), a list a list, a map
a dict, a float its eight bytes so that NaN and -0.0 compare.
"""

import importlib
from functools import cache
from pathlib import Path
from struct import pack
from typing import Any, cast

import betterproto
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.message import DecodeError

__all__ = (
    "MESSAGES",
    "descriptor",
    "generated",
    "google",
    "google_parses",
    "is_map",
    "plain_float",
    "plain_generated",
    "plain_google",
)

_FILES = descriptor_pb2.FileDescriptorSet.FromString(
    (Path(__file__).parents[2] / "schemas" / "rlmesh.binpb").read_bytes()
).file
_pool = descriptor_pool.DescriptorPool()
for _file in _FILES:
    _pool.Add(_file)

MESSAGES = tuple(f"{file.package}.{message.name}" for file in _FILES for message in file.message_type)


def descriptor(name: str) -> Any:
    return _pool.FindMessageTypeByName(name)


@cache
def google(name: str) -> Any:
    """google's class of the message called *name* in full."""
    return message_factory.GetMessageClass(descriptor(name))


def generated(name: str) -> type[betterproto.Message]:
    """betterproto's class of the message called *name* in full."""
    package, _, short = name.rpartition(".")
    return getattr(importlib.import_module(f"rlmesh_trio.wire.pb.{package}"), short)


def google_parses(name: str, data: bytes) -> Any:
    """What google reads, or ``None`` when it refuses."""
    try:
        return google(name).FromString(data)
    except DecodeError:
        return None


def is_map(field: Any) -> bool:
    return field.message_type is not None and field.message_type.GetOptions().map_entry


def plain_float(number: float) -> bytes:
    return pack("<d", number)


def _plain(value: Any) -> Any:
    return plain_float(value) if isinstance(value, float) else value


def plain_google(message: Any) -> dict[str, Any]:
    fields: dict[str, Any] = {}
    for field in message.DESCRIPTOR.fields:
        value = getattr(message, field.name)
        if is_map(field):
            holds_messages = field.message_type.fields_by_name["value"].message_type is not None
            fields[field.name] = {key: plain_google(value[key]) if holds_messages else value[key] for key in value}
        elif field.is_repeated:
            fields[field.name] = [plain_google(item) if field.message_type else _plain(item) for item in value]
        elif field.has_presence and not message.HasField(field.name):
            continue
        else:
            fields[field.name] = plain_google(value) if field.message_type else _plain(value)
    return fields


def plain_generated(message: betterproto.Message) -> dict[str, Any]:
    """The same of a parsed betterproto message."""
    described: Any = message
    fields: dict[str, Any] = {}
    for name, meta in described._betterproto.meta_by_field_name.items():
        if meta.group and betterproto.which_one_of(message, meta.group)[0] != name:
            continue
        value: Any = getattr(message, name)
        if isinstance(value, dict):
            fields[name] = {key: _plain_item(item) for key, item in cast("dict[Any, Any]", value).items()}
        elif isinstance(value, list):
            fields[name] = [_plain_item(item) for item in cast("list[Any]", value)]
        elif meta.proto_type == "message" and not betterproto.serialized_on_wire(value):
            continue
        elif not (meta.optional and value is None):
            fields[name] = _plain_item(value)
    return fields


def _plain_item(value: Any) -> Any:
    return plain_generated(value) if isinstance(value, betterproto.Message) else _plain(value)
