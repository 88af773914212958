"""The env leg's messages as a server has them: a join request in, a join response out.

What google protobuf reads in a step or a reset, these read the same way: any field order, unknown fields, packed or
not, repeated message fields merged, the last arm of a oneof wins. What it refuses is refused. Refused besides: groups,
and a render, close or configure arm beside another arm.
"""

from collections.abc import Iterable, Sequence
from struct import Struct, pack
from typing import Literal

import attrs

from rlmesh_trio.errors import EndpointError, ProtocolError
from rlmesh_trio.messages import EnvReply, EpisodeRecord, Leaf, Leaves, Phases, ResetRequest, StepTarget
from rlmesh_trio.wire.fields import (
    READ_FAULTS,
    TRUNCATED,
    encode_int64,
    encode_text,
    encode_unsigned,
    encode_varint,
    length_prefixed,
    malformed,
    read_int64,
    read_uint32,
    read_varint,
    skip_field,
)
from rlmesh_trio.wire.hot_env import ENV_ERROR_NAMES
from rlmesh_trio.wire.metadata import LazyMetadata, encode_metadata
from rlmesh_trio.wire.space_value import encode_leaves, read_leaves

__all__ = (
    "ServedArm",
    "ServedRequest",
    "decode_served",
    "encode_served_error",
    "encode_served_reply",
    "encode_served_reset",
    "encode_served_step",
    "read_served_id",
)

ServedArm = Literal["reset", "step", "render", "close", "configure", "none"]

_RAW_ARMS: dict[int, ServedArm] = {0x1A: "render", 0x22: "close", 0x32: "configure"}
_RAW_TAGS = {"render": b"\x1a", "close": b"\x22", "configure": b"\x3a"}
_ERROR_CODES = {name: number for number, name in ENV_ERROR_NAMES.items()}
_DOUBLE = Struct("<d")
_ONE_REWARD = Struct("<2sd").pack
_PLUS_ZERO = bytes(8)


@attrs.define(eq=False)
class ServedRequest:
    """What a client asks. ``raw`` is the message of a render, close or configure, unchecked.

    ``action`` and ``target`` are those of a step, ``reset`` is that of a reset.
    """

    request_id: str = ""
    arm: ServedArm = "none"
    action: Leaves = ()
    target: StepTarget | None = None
    reset: ResetRequest | None = None
    raw: bytes = b""


@attrs.define(eq=False)
class _Body:
    """A step or a reset as far as it was read."""

    leaves: list[Leaf] = attrs.field(factory=list[Leaf])
    options: LazyMetadata | None = None
    timeout_ms: int = 0
    seeds: list[int] = attrs.field(factory=list[int])
    lanes: list[int] = attrs.field(factory=list[int])
    ids: list[str] = attrs.field(factory=list[str])


def decode_served(data: bytes) -> ServedRequest:
    """Read a join request.

    Leaves above 4 KiB are views of *data*. Raises :exc:`~rlmesh_trio.errors.ProtocolError`, and nothing else, for bytes
    that are not a join request.
    """
    try:
        return _read_request(data)
    except READ_FAULTS as fault:
        raise malformed("env request", fault) from None


def read_served_id(data: bytes) -> str:
    """The request id in *data*, which may be no join request; empty when it cannot be found."""
    pos, end = 0, len(data)
    try:
        while pos < end:
            tag, pos = read_uint32(data, pos)
            if tag == 0x2A:
                size, pos = read_uint32(data, pos)
                return data[pos : pos + size].decode()
            pos = skip_field(data, tag, pos)
    except READ_FAULTS:
        pass
    return ""


def _read_request(data: bytes) -> ServedRequest:
    request = ServedRequest()
    arm: ServedArm = "none"
    body = _Body()
    pos, end = 0, len(data)
    while pos < end:
        tag = data[pos]
        pos += 1
        if tag > 127:
            tag, pos = read_uint32(data, pos - 1)
        if tag & 7 != 2:
            pos = skip_field(data, tag, pos)
            continue
        size = data[pos]
        pos += 1
        if size > 127:
            size, pos = read_uint32(data, pos - 1)
        stop = pos + size
        if tag == 0x12 or tag == 0x0A:
            wanted: ServedArm = "step" if tag == 0x12 else "reset"
            if arm != wanted:
                body, arm = _fresh_body(arm, body), wanted
            _read_body(body, data, pos, stop, wanted == "step")
        elif tag == 0x2A:
            request.request_id = data[pos:stop].decode()
        elif tag in _RAW_ARMS:
            if arm != "none":
                raise ProtocolError(f"a {_RAW_ARMS[tag]} arm comes after a {arm} arm")
            arm, request.raw = _RAW_ARMS[tag], data[pos:stop]
        elif tag < 8:
            raise ProtocolError("a field has the number 0")
        pos = stop
    if pos != end:
        raise ProtocolError(TRUNCATED)
    request.arm = arm
    lanes, ids = tuple(body.lanes), tuple(body.ids)
    if arm == "step":
        request.action, request.target = body.leaves, StepTarget(body.timeout_ms, lanes, ids)
    elif arm == "reset":
        options = None if body.options is None else body.options.decode()
        request.reset = ResetRequest(tuple(body.seeds), options, body.timeout_ms, lanes, ids)
    return request


def _fresh_body(arm: ServedArm, body: _Body) -> _Body:
    """A body for another arm, once what it replaces is known to be well formed."""
    if arm in _RAW_TAGS:
        raise ProtocolError(f"another arm comes after a {arm} arm")
    if body.options is not None:
        body.options.decode()
    return _Body() if arm != "none" else body


def _read_body(body: _Body, data: bytes, pos: int, end: int, is_step: bool) -> None:
    # A reset's fields from the timeout on have the numbers of a step's, plus one.
    shift = 0 if is_step else 8
    while pos < end:
        tag, pos = read_uint32(data, pos)
        if tag & 7 == 2:
            size, pos = read_uint32(data, pos)
            stop = pos + size
            if tag == 0x22 + shift:
                body.ids.append(data[pos:stop].decode())
            elif tag == 0x1A + shift:
                _read_lanes(body.lanes, data, pos, stop)
            elif tag == 0x0A:
                if is_step:
                    body.leaves += read_leaves(data, pos, stop)
                else:
                    _read_seeds(body.seeds, data, pos, stop)
            elif tag == 0x12 and not is_step:
                if body.options is None:
                    body.options = LazyMetadata(data[pos:stop])
                else:
                    body.options.merge(data[pos:stop])
            elif tag < 8:
                raise ProtocolError("a field has the number 0")
            pos = stop
        elif tag == 0x10 + shift:
            body.timeout_ms, pos = read_varint(data, pos)
        elif tag == 0x18 + shift:
            lane, pos = read_varint(data, pos)
            body.lanes.append(lane & 0xFFFF_FFFF)
        elif tag == 0x08 and not is_step:
            seed, pos = read_int64(data, pos)
            body.seeds.append(seed)
        else:
            pos = skip_field(data, tag, pos)
    if pos != end:
        raise ProtocolError(TRUNCATED)


def _read_lanes(lanes: list[int], data: bytes, pos: int, end: int) -> None:
    while pos < end:
        lane, pos = read_varint(data, pos)
        lanes.append(lane & 0xFFFF_FFFF)
    if pos != end:
        raise ProtocolError(TRUNCATED)


def _read_seeds(seeds: list[int], data: bytes, pos: int, end: int) -> None:
    while pos < end:
        seed, pos = read_int64(data, pos)
        seeds.append(seed)
    if pos != end:
        raise ProtocolError(TRUNCATED)


def encode_served_step(request_id: str, reply: EnvReply, queue_ns: int) -> bytes:
    """The join response that carries a step's *reply*, which had waited *queue_ns* before it ran.

    Raises :exc:`~rlmesh_trio.errors.SpaceError` for infos that metadata cannot hold.
    """
    pieces, size = encode_leaves(b"\x0a", reply.observation or ())
    rewards, terminated, truncated = reply.rewards, reply.terminated_mask, reply.truncated_mask
    if len(rewards) == 1:
        tail = [_ONE_REWARD(b"\x12\x08", rewards[0])]
    else:
        tail = [length_prefixed(b"\x12", pack(f"<{len(rewards)}d", *rewards))] if rewards else []
    if terminated:
        tail.append(length_prefixed(b"\x1a", terminated))
    if truncated:
        tail.append(length_prefixed(b"\x22", truncated))
    if reply.infos is not None:
        tail.append(length_prefixed(b"\x2a", encode_metadata(reply.infos)))
    tail += [length_prefixed(b"\x32", _encode_episode(record)) for record in reply.completed]
    if reply.env_indices:
        tail.append(_encode_lanes(b"\x3a", reply.env_indices))
    rest = b"".join(tail)
    times = _encode_times(reply.endpoint_total_ns, reply.phases, queue_ns)
    return b"".join((b"\x12", encode_varint(size + len(rest)), *pieces, rest, encode_text(b"\x2a", request_id), times))


def encode_served_reset(request_id: str, reply: EnvReply, queue_ns: int) -> bytes:
    """The join response that carries a reset's *reply*. Raises as :func:`encode_served_step`."""
    pieces, size = encode_leaves(b"\x0a", reply.observation or ())
    rest = b"" if reply.infos is None else length_prefixed(b"\x12", encode_metadata(reply.infos))
    times = _encode_times(reply.endpoint_total_ns, reply.phases, queue_ns)
    return b"".join((b"\x0a", encode_varint(size + len(rest)), *pieces, rest, encode_text(b"\x2a", request_id), times))


def encode_served_reply(
    request_id: str,
    arm: Literal["render", "close", "configure"],
    total_ns: int,
    *,
    frame: bytes | None = None,
    episodes: Iterable[EpisodeRecord] = (),
) -> bytes:
    """The join response to a render (with a PNG *frame*, if there is one), a close (with its *episodes*), a configure.

    Raises :exc:`~rlmesh_trio.errors.SpaceError` for infos that metadata cannot hold.
    """
    body = b"".join([length_prefixed(b"\x0a", _encode_episode(record)) for record in episodes])
    if frame is not None:
        body = length_prefixed(b"\x0a", frame) + b"\x10\x01"
    return length_prefixed(_RAW_TAGS[arm], body) + encode_text(b"\x2a", request_id) + _encode_total(total_ns)


def encode_served_error(request_id: str, error: EndpointError, total_ns: int) -> bytes:
    """The join response that says *error*; a code the wire does not have is written as ``UNSPECIFIED``."""
    code = _ERROR_CODES.get(error.code, 0)
    message = error.message.encode(errors="replace").decode()
    body = (b"\x08" + encode_varint(code) if code else b"") + encode_text(b"\x12", message)
    body += b"\x18\x01" if error.recoverable else b""
    return length_prefixed(b"\x52", body) + encode_text(b"\x2a", request_id) + _encode_total(total_ns)


def _encode_total(total_ns: int) -> bytes:
    return b"\x30" + encode_varint(total_ns)


def _encode_times(total_ns: int | None, phases: Phases | None, queue_ns: int) -> bytes:
    total = b"" if total_ns is None else _encode_total(total_ns)
    if phases is None:
        return total
    skew = b"" if phases.lane_skew_ns is None else b"\x70" + encode_varint(phases.lane_skew_ns)
    return b"".join(
        (
            total,
            b"\x58",
            encode_varint(phases.decode_ns),
            b"\x60",
            encode_varint(phases.user_ns),
            b"\x68",
            encode_varint(phases.encode_ns),
            skew,
            b"\x78",
            encode_varint(queue_ns),
        )
    )


def _encode_lanes(tag: bytes, lanes: Sequence[int]) -> bytes:
    return length_prefixed(tag, b"".join([encode_unsigned(lane, 32) for lane in lanes]))


def _encode_episode(record: EpisodeRecord) -> bytes:
    pieces = [encode_text(b"\x0a", record.episode_id)]
    if record.seed is not None:
        pieces.append(b"\x10" + encode_int64(record.seed))
    if record.env_index:
        pieces.append(b"\x18" + encode_unsigned(record.env_index, 32))
    if record.step_count:
        pieces.append(b"\x20" + encode_int64(record.step_count))
    reward = _DOUBLE.pack(record.cumulative_reward)
    if reward != _PLUS_ZERO:
        pieces.append(b"\x29" + reward)
    if record.terminated:
        pieces.append(b"\x30\x01")
    if record.truncated:
        pieces.append(b"\x38\x01")
    if record.start_timestamp_ns:
        pieces.append(b"\x40" + encode_int64(record.start_timestamp_ns))
    if record.end_timestamp_ns:
        pieces.append(b"\x48" + encode_int64(record.end_timestamp_ns))
    if record.final_info is not None:
        pieces.append(length_prefixed(b"\x52", encode_metadata(record.final_info)))
    return b"".join(pieces)
