"""Any message of our schemas, and the many byte forms one message can take on the wire.

Messages are drawn by hypothesis and shrink; the forms of a message come from a seeded generator, many per message.
"""

from random import Random
from struct import pack
from typing import Any

from hypothesis import strategies as st

from tests.wire.oracle import descriptor, google, is_map

__all__ = ("damaged", "messages", "varint", "wire_form")

_VARINT_TYPES = {"int64", "uint64", "uint32", "bool", "enum"}
_TYPE_NAMES = {
    1: "double",
    3: "int64",
    4: "uint64",
    8: "bool",
    9: "string",
    11: "message",
    12: "bytes",
    13: "uint32",
    16: "sfixed64",
}
_EIGHT_BYTES = {"double", "sfixed64"}
_LARGE = (bytes(4096), bytes(range(251)) * 17)

_MOSTLY = st.sampled_from((True, True, True, False))
_VALUES: dict[str, st.SearchStrategy[Any]] = {
    "double": st.floats(),
    "int64": st.integers(-(2**63), 2**63 - 1),
    "sfixed64": st.integers(-(2**63), 2**63 - 1),
    "uint64": st.integers(0, 2**64 - 1),
    "uint32": st.integers(0, 2**32 - 1),
    "bool": st.booleans(),
    "enum": st.integers(0, 14),
    "string": st.sampled_from(("", "a", "b")) | st.text(min_size=1, max_size=6),
    "bytes": st.binary(max_size=5) | st.sampled_from(_LARGE),
}


def _type_of(field: Any) -> str:
    return _TYPE_NAMES.get(field.type, "enum")


@st.composite
def _fields(draw: st.DrawFn, name: str, arms: tuple[str, ...], depth: int) -> list[Any]:
    """Most of the fields of a message, and at most one arm of each oneof."""
    fields: list[Any] = []
    choices: dict[str, list[Any]] = {}
    for field in descriptor(name).fields:
        oneof = field.containing_oneof
        if field.message_type and depth == 0:
            continue
        if oneof is None or len(oneof.fields) == 1:
            fields += [field] * draw(_MOSTLY)
        elif not arms or field.name in arms:
            choices.setdefault(oneof.name, []).append(field)
    fields += [draw(st.sampled_from(options)) for options in choices.values() if draw(_MOSTLY)]
    return fields


@st.composite
def messages(draw: st.DrawFn, name: str, *, arms: tuple[str, ...] = (), depth: int = 5) -> Any:
    """A google message called *name*; of its oneofs only *arms* are used, when given."""
    message = google(name)()
    for field in draw(_fields(name, arms, depth)):
        kind = _type_of(field)
        value = messages(field.message_type.full_name, depth=depth - 1) if kind == "message" else _VALUES[kind]
        target = getattr(message, field.name)
        if is_map(field):
            entry = field.message_type.fields_by_name["value"]
            for key in draw(st.lists(_VALUES["string"], max_size=2)):
                if entry.message_type is None:
                    target[key] = draw(_VALUES["string"])
                else:
                    target[key].CopyFrom(draw(messages(entry.message_type.full_name, depth=depth - 1)))
        elif field.is_repeated:
            target.extend(draw(st.lists(value, max_size=3)))
        elif kind == "message":
            target.CopyFrom(draw(value))
            target.SetInParent()
        else:
            setattr(message, field.name, draw(value))
    return message


def varint(number: int, length: int = 1) -> bytes:
    """*number* in at least *length* bytes."""
    encoded = bytearray()
    while number > 127 or len(encoded) + 1 < length:
        encoded.append(number & 127 | 128)
        number >>= 7
    encoded.append(number)
    return bytes(encoded)


class _Writer:
    """Writes one message in one of its forms: *oddness* is how often it leaves the usual one."""

    def __init__(self, random: Random, oddness: float) -> None:
        self.random = random
        self.oddness = oddness

    def odd(self) -> bool:
        return self.random.random() < self.oddness

    def number(self, number: int, longest: int) -> bytes:
        return varint(number, self.random.randint(1, longest) if self.odd() else 1)

    def field(self, number: int, wire_type: int, body: bytes) -> bytes:
        tag = self.number(number << 3 | wire_type, 5)
        return tag + (self.number(len(body), 5) if wire_type == 2 else b"") + body

    def scalar(self, kind: str, value: Any) -> bytes:
        if kind == "double":
            return pack("<d", value)
        if kind == "sfixed64":
            return pack("<q", value)
        if kind in ("uint32", "enum") and self.odd():
            value = value % 2**32 + self.random.randrange(2**31) * 2**32
        if kind == "bool" and value and self.odd():
            value = self.random.randrange(1, 2**64)
        return self.number(value % 2**64, 10)

    def unknown(self) -> bytes:
        number = self.random.choice((48, 53, 1000, 2**29 - 1))
        wire_type, body = self.random.choice(
            ((0, varint(self.random.randrange(2**64))), (1, bytes(8)), (2, b"\xff\x0a\x00"), (5, bytes(4)))
        )
        return self.field(number, wire_type, body)

    def message(self, message: Any) -> list[bytes]:
        """The fields of *message*, in an order that reads the same."""
        groups: dict[str, list[bytes]] = {}
        for field in message.DESCRIPTOR.fields:
            oneof = field.containing_oneof
            if field.has_presence and not message.HasField(field.name):
                continue
            value = getattr(message, field.name)
            pieces = self.repeated(field, value) if field.is_repeated else self.singular(field, value)
            if oneof is not None and len(oneof.fields) > 1 and self.odd():
                other = self.random.choice([arm for arm in oneof.fields if arm.number != field.number])
                pieces.insert(0, self.default(other))
            groups.setdefault(field.name, []).extend(pieces)
        order = [name for name, pieces in groups.items() for _ in pieces]
        if self.odd():
            self.random.shuffle(order)
        written = [groups[name].pop(0) for name in order]
        while self.odd():
            written.insert(self.random.randint(0, len(written)), self.unknown())
        return written

    def default(self, field: Any) -> bytes:
        kind = _type_of(field)
        if kind in _VARINT_TYPES:
            return self.field(field.number, 0, b"\x00")
        return self.field(field.number, 1, bytes(8)) if kind in _EIGHT_BYTES else self.field(field.number, 2, b"")

    def singular(self, field: Any, value: Any) -> list[bytes]:
        kind = _type_of(field)
        if kind == "message":
            inner = self.message(value)
            cut = self.random.randint(0, len(inner)) if self.odd() else 0
            halves = (inner[:cut], inner[cut:]) if cut else (inner,)
            return [self.field(field.number, 2, b"".join(half)) for half in halves]
        if not field.has_presence and value == field.default_value and not self.odd():
            return []
        earlier = [self.default(field)] if self.odd() else []
        return [*earlier, self.element(field, kind, value)]

    def element(self, field: Any, kind: str, value: Any) -> bytes:
        if kind == "message":
            return self.field(field.number, 2, b"".join(self.message(value)))
        if kind in ("string", "bytes"):
            return self.field(field.number, 2, value.encode() if kind == "string" else value)
        return self.field(field.number, 1 if kind in _EIGHT_BYTES else 0, self.scalar(kind, value))

    def repeated(self, field: Any, value: Any) -> list[bytes]:
        kind = _type_of(field)
        if is_map(field):
            return [self.entry(field, key, value[key]) for key in value]
        if kind in ("message", "string", "bytes"):
            return [self.element(field, kind, item) for item in value]
        pieces: list[bytes] = []
        items = list(value)
        while items:
            size = self.random.randint(1, len(items)) if self.odd() else len(items)
            run, items = items[:size], items[size:]
            if self.odd():
                pieces += [self.element(field, kind, item) for item in run]
            else:
                pieces.append(self.field(field.number, 2, b"".join(self.scalar(kind, item) for item in run)))
        return pieces

    def entry(self, field: Any, key: str, value: Any) -> bytes:
        entry = field.message_type.fields_by_name["value"]
        pieces = [self.field(1, 2, key.encode())]
        pieces += self.singular(entry, value) if entry.message_type else [self.element(entry, "string", value)]
        if self.odd():
            pieces = [*pieces[1:], pieces[0]]
        return self.field(field.number, 2, b"".join(pieces))


def wire_form(message: Any, seed: int) -> bytes:
    """One of the forms of *message*; even seeds stay near the usual one."""
    random = Random(seed)
    return b"".join(_Writer(random, 0.3 if seed % 2 else 0.05).message(message))


def damaged(data: bytes, seed: int) -> bytes:
    """*data* with a few bits flipped, bytes dropped, doubled or thrown in, or cut short."""
    random = Random(seed)
    wrong = bytearray(data)
    for _ in range(random.randint(1, 3)):
        at = random.randrange(len(wrong) + 1)
        kind = random.randrange(5)
        if kind == 0 and at < len(wrong):
            wrong[at] ^= 1 << random.randrange(8)
        elif kind == 1:
            del wrong[at : at + random.randint(1, 4)]
        elif kind == 2:
            wrong[at:at] = wrong[at : at + random.randint(1, 8)]
        elif kind == 3:
            wrong[at:at] = random.choice((b"\x00", b"\x0b", b"\x0c", b"\x0e", b"\xff", b"\x80" * 10, b"\x92\x00\x00"))
        else:
            del wrong[at:]
    return bytes(wrong)
