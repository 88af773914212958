"""Decisions as bytes. Batches come with nearly every step, so these are written and read by hand. Pure."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from struct import Struct
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
    read_uint32,
    read_varint,
    skip_field,
)
from rlmesh_trio.wire.pb.rlmesh_trio.recording import v1 as pb
from rlmesh_trio.wire.strict import decode, encode

__all__ = ("decode_decision", "encode_batch", "encode_decision")

_pack_time: Final = Struct("<q").pack
_pack_double: Final = Struct("<d").pack
_read_time: Final = Struct("<q").unpack_from
_RENAMED: Final = {"episode_index": "ordinal", "env_index": "lane", "step_count": "steps"}
_SUMMARY_NAMES: Final = {name: _RENAMED.get(name, name) for name in attrs.fields_dict(EpisodeSummary)}


def encode_decision(decision: Decision) -> bytes:
    """A decision message; its tick is the log time of the message and not in it."""
    match decision.what:
        case Batch(rows, took_ns):
            ordinals, steps, requests, frames = zip(*rows, strict=True) if rows else ((), (), (), ())
            return _encode_batch(decision.unix_ns, took_ns, ordinals, steps, _last_columns(requests, frames))
        case Mishap() as mishap:
            return _before_kind(decision) + length_prefixed(b"\x1a", encode(pb.Incident(**attrs.asdict(mishap))))
        case EpisodeSummary() as told:
            return _before_kind(decision) + length_prefixed(b"\x22", _encode_summary(told))


def _encode_summary(told: EpisodeSummary) -> bytes:
    whole = (
        (b"\x08", told.episode_index),
        (b"\x10", told.env_index),
        (b"\x18", told.seed),
        (b"\x20", told.trial_index),
        (b"\x28", told.step_count),
        (b"\x38", told.terminated),
        (b"\x40", told.truncated),
        (b"\x48", told.duration_ms),
        (b"\x50", told.success),
    )
    means = ((b"\x31", told.cumulative_reward), (b"\x59", told.predict_ms), (b"\x61", told.step_ms))
    return b"".join(
        [tag + encode_int64(number) for tag, number in whole if number is not None]
        + [tag + _pack_double(number) for tag, number in means if number is not None]
    )


def _before_kind(decision: Decision) -> bytes:
    return b"\x09" + _pack_time(decision.unix_ns)


def encode_batch(
    unix_ns: int,
    took_ns: int,
    ordinals: Sequence[int],
    steps: Sequence[int],
    widths: tuple[int, ...],
    frames: tuple[int, ...],
) -> bytes:
    """The decision message of a batch: by row its ordinal and step, by request how many rows and frames it has."""
    return _encode_batch(unix_ns, took_ns, ordinals, steps, _by_request(widths, frames))


@lru_cache(maxsize=1024)
def _by_request(widths: tuple[int, ...], frames: tuple[int, ...]) -> bytes:
    """Two columns that are the same for most batches of a size. A request without an answer has no frames."""
    requests = [request for request, width in enumerate(widths) for _ in range(width)]
    return _last_columns(requests, [frames[request] if request < len(frames) else 0 for request in requests])


def _last_columns(requests: Iterable[int], frames: Iterable[int]) -> bytes:
    return length_prefixed(b"\x1a", _packed(requests)) + length_prefixed(b"\x22", _packed(frames))


def _encode_batch(unix_ns: int, took_ns: int, ordinals: Iterable[int], steps: Iterable[int], last: bytes) -> bytes:
    first, second = _packed(ordinals), _packed(steps)
    batch = b"".join(
        (b"\x0a", encode_varint(len(first)), first, b"\x12", encode_varint(len(second)), second, last, b"\x29")
    )
    return b"".join((b"\x09", _pack_time(unix_ns), b"\x12", encode_varint(len(batch) + 8), batch, _pack_time(took_ns)))


def _packed(numbers: Iterable[int]) -> bytes:
    return b"".join(map(encode_varint, numbers))


def decode_decision(data: bytes, tick: int) -> Decision:
    """Read a decision message that was logged at *tick*. Raises :exc:`~rlmesh_trio.errors.ProtocolError`."""
    try:
        return _read_decision(data, tick)
    except READ_FAULTS as fault:
        raise malformed("a message of the channel /decision", fault) from None


def _read_decision(data: bytes, tick: int) -> Decision:
    unix_ns, what, position = 0, None, 0
    while position < len(data):
        tag, position = read_uint32(data, position)
        if tag == 0x09:
            (unix_ns,) = _read_time(data, position)
            position += 8
        elif tag in (0x12, 0x1A, 0x22):
            size, position = read_uint32(data, position)
            body, position = data[position : position + size], position + size
            what = _READERS[tag](body)
        else:
            position = skip_field(data, tag, position)
    if position != len(data):
        raise ProtocolError(TRUNCATED)
    if what is None:
        raise ProtocolError("it is of no known kind")
    return Decision(tick, unix_ns, what)


def _read_mishap(data: bytes) -> Mishap:
    told = decode(pb.Incident, data, what="an incident")
    return Mishap(told.kind, told.ordinal, told.attempt, told.error, told.message, told.lane, told.episode_id)


def _read_summary(data: bytes) -> EpisodeSummary:
    told = decode(pb.Summary, data, what="a summary")
    return EpisodeSummary(**{name: getattr(told, there) for name, there in _SUMMARY_NAMES.items()})


def _read_batch(data: bytes) -> Batch:
    columns: list[list[int]] = [[], [], [], []]
    took_ns, position = 0, 0
    while position < len(data):
        tag, position = read_uint32(data, position)
        if tag in (0x0A, 0x12, 0x1A, 0x22):
            size, position = read_uint32(data, position)
            columns[(tag >> 3) - 1] += _read_numbers(data, position, position + size)
            position += size
        elif tag == 0x29:
            (took_ns,) = _read_time(data, position)
            position += 8
        else:
            position = skip_field(data, tag, position)
    if position != len(data):
        raise ProtocolError(TRUNCATED)
    if len({len(column) for column in columns}) > 1:
        raise ProtocolError("its columns differ in length")
    return Batch(tuple(map(BatchRow, *columns)), took_ns)


def _read_numbers(data: bytes, position: int, end: int) -> list[int]:
    numbers: list[int] = []
    while position < end:
        number, position = read_varint(data, position)
        numbers.append(number)
    if position != end:
        raise ProtocolError(TRUNCATED)
    return numbers


_READERS: Final[Mapping[int, Callable[[bytes], Batch | Mishap | EpisodeSummary]]] = {
    0x12: _read_batch,
    0x1A: _read_mishap,
    0x22: _read_summary,
}
