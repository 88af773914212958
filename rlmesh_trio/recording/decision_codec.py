"""Decisions as bytes. Batches come with nearly every step, so these are written and read by hand. Pure."""

from collections.abc import Sequence
from typing import Final

import attrs

from rlmesh_trio.errors import ProtocolError
from rlmesh_trio.recording.records import Batch, BatchRow, Decision, Mishap
from rlmesh_trio.report import EpisodeSummary
from rlmesh_trio.wire.fields import (
    READ_FAULTS,
    TRUNCATED,
    encode_int64,
    encode_varint,
    length_prefixed,
    malformed,
    read_int64,
    read_uint32,
    read_varint,
    skip_field,
)
from rlmesh_trio.wire.pb.rlmesh_trio.recording import v1 as pb
from rlmesh_trio.wire.strict import decode, encode, encoded_field

__all__ = ("decode_decision", "encode_decision")

_RENAMED: Final = {"episode_index": "ordinal", "env_index": "lane", "step_count": "steps"}
_SUMMARY_NAMES: Final = {name: _RENAMED.get(name, name) for name in attrs.fields_dict(EpisodeSummary)}


def encode_decision(decision: Decision) -> bytes:
    """A decision message; its tick is the log time of the message and not in it."""
    match decision.what:
        case Batch(rows, took_ns):
            batch = b"".join(map(_encode_row, rows)) + b"\x10" + encode_int64(took_ns)
            return b"\x08" + encode_int64(decision.unix_ns) + length_prefixed(b"\x12", batch)
        case Mishap() as mishap:
            incident = pb.Incident(**attrs.asdict(mishap))
            return encode(pb.Decision(unix_ns=decision.unix_ns, incident=incident))
        case EpisodeSummary() as told:
            fields = {there: getattr(told, name) for name, there in _SUMMARY_NAMES.items()}
            return encode(pb.Decision(unix_ns=decision.unix_ns, summary=pb.Summary(**fields)))


def _encode_row(row: Sequence[int]) -> bytes:
    ordinal, step, request, frames = map(encode_varint, row)
    body = b"\x08%b\x10%b\x18%b\x20%b" % (ordinal, step, request, frames)
    return b"\x0a%c%b" % (len(body), body)


def decode_decision(data: bytes, tick: int) -> Decision:
    """Read a decision message that was logged at *tick*. Raises :exc:`~rlmesh_trio.errors.ProtocolError`."""
    try:
        unix_ns, batch = _parts(data)
        if batch is not None:
            return Decision(tick, unix_ns, _read_batch(batch))
    except READ_FAULTS as fault:
        raise malformed("a message of the channel /decision", fault) from None
    message = decode(pb.Decision, data, what="a message of the channel /decision")
    if encoded_field(pb.Decision, data, "summary") is not None:
        told = message.summary
        fields = {name: getattr(told, there) for name, there in _SUMMARY_NAMES.items()}
        return Decision(tick, unix_ns, EpisodeSummary(**fields))
    told = message.incident
    given_up = told.lane, told.episode_id
    return Decision(tick, unix_ns, Mishap(told.kind, told.ordinal, told.attempt, told.error, told.message, *given_up))


def _parts(data: bytes) -> tuple[int, bytes | None]:
    """When it was, and the batch if it is one."""
    unix_ns, batch, position = 0, None, 0
    while position < len(data):
        tag, position = read_uint32(data, position)
        if tag == 0x08:
            unix_ns, position = read_int64(data, position)
        elif tag == 0x12:
            size, position = read_uint32(data, position)
            batch, position = data[position : position + size], position + size
        else:
            position = skip_field(data, tag, position)
    if position != len(data):
        raise ProtocolError(TRUNCATED)
    return unix_ns, batch


def _read_batch(data: bytes) -> Batch:
    rows: list[BatchRow] = []
    took_ns, position = 0, 0
    while position < len(data):
        tag, position = read_uint32(data, position)
        if tag == 0x0A:
            size, position = read_uint32(data, position)
            rows.append(_read_row(data, position, position + size))
            position += size
        elif tag == 0x10:
            took_ns, position = read_int64(data, position)
        else:
            position = skip_field(data, tag, position)
    if position != len(data):
        raise ProtocolError(TRUNCATED)
    return Batch(tuple(rows), took_ns)


def _read_row(data: bytes, position: int, end: int) -> BatchRow:
    numbers = [0, 0, 0, 0]
    while position < end:
        tag, position = read_uint32(data, position)
        if tag in (0x08, 0x10, 0x18, 0x20):
            numbers[(tag >> 3) - 1], position = read_varint(data, position)
        else:
            position = skip_field(data, tag, position)
    if position != end:
        raise ProtocolError(TRUNCATED)
    return BatchRow(*numbers)
