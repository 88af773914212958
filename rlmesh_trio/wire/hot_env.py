"""The env leg's per-step messages, straight to and from the records: a join request out, a join response in.

What google protobuf reads, these read the same way: any field order, unknown fields, packed or not, repeated message
fields merged, the last arm of a oneof wins. What it refuses is refused. Refused besides: groups, and a render, close
or configure arm beside another arm.
"""

from struct import Struct, unpack_from
from typing import Literal

from rlmesh_trio.errors import EndpointError, ProtocolError
from rlmesh_trio.messages import EnvReply, EpisodeRecord, Leaves, Phases, ResetRequest, StepTarget
from rlmesh_trio.wire.endpoint_errors import ErrorParts, read_error
from rlmesh_trio.wire.fields import (
    READ_FAULTS,
    TRUNCATED,
    encode_int64,
    encode_text,
    encode_texts,
    encode_unsigned,
    encode_varint,
    extended,
    length_prefixed,
    malformed,
    read_int64,
    read_uint32,
    read_varint,
    skip_field,
)
from rlmesh_trio.wire.metadata import LazyMetadata, encode_metadata
from rlmesh_trio.wire.space_value import encode_leaves, read_leaves

__all__ = ("ENV_ERROR_NAMES", "EnvAnswer", "EnvArm", "decode_env_join", "encode_reset", "encode_step")

EnvArm = Literal["reset", "step", "render", "close", "configure", "error", "none"]
EnvAnswer = EnvReply | EndpointError | bytes

ENV_ERROR_NAMES = {
    0: "UNSPECIFIED",
    1: "TIMEOUT",
    2: "INVALID_ACTION",
    3: "NOT_READY",
    4: "BUSY",
    5: "UNSUPPORTED",
    10: "INTERNAL",
    11: "CRASHED",
    12: "CANCELLED",
    13: "CLOSED",
}

_RAW_ARMS: dict[int, EnvArm] = {0x1A: "render", 0x22: "close", 0x3A: "configure"}
_TOTAL_NS = 0x30
_TIMINGS = frozenset((_TOTAL_NS, 0x58, 0x60, 0x68, 0x70, 0x78))
_read_double = Struct("<d").unpack_from


def encode_step(request_id: str, action: Leaves, target: StepTarget) -> bytes:
    """The join request that steps *target* with *action*. Keeps the target's wire form in ``target.encoded``."""
    tail = target.encoded
    if tail is None:
        tail = target.encoded = _encode_target(target)
    pieces, size = encode_leaves(b"\x0a", action)
    return b"".join((b"\x12", encode_varint(size + len(tail)), *pieces, tail, encode_text(b"\x2a", request_id)))


def _encode_target(target: StepTarget) -> bytes:
    pieces: list[bytes] = []
    if target.timeout_ms:
        pieces.append(b"\x10" + encode_unsigned(target.timeout_ms, 64))
    if target.env_indices:
        pieces.append(length_prefixed(b"\x1a", b"".join(encode_unsigned(lane, 32) for lane in target.env_indices)))
    pieces.append(encode_texts(b"\x22", target.episode_ids))
    return b"".join(pieces)


def encode_reset(request_id: str, request: ResetRequest) -> bytes:
    """The join request that carries *request*.

    Raises :exc:`~rlmesh_trio.errors.SpaceError` for options metadata cannot hold.
    """
    pieces: list[bytes] = []
    if request.seeds:
        pieces.append(length_prefixed(b"\x0a", b"".join(map(encode_int64, request.seeds))))
    if request.options is not None:
        pieces.append(length_prefixed(b"\x12", encode_metadata(request.options)))
    if request.timeout_ms:
        pieces.append(b"\x18" + encode_unsigned(request.timeout_ms, 64))
    if request.env_indices:
        pieces.append(length_prefixed(b"\x22", b"".join(encode_unsigned(lane, 32) for lane in request.env_indices)))
    pieces.append(encode_texts(b"\x2a", request.episode_ids))
    return length_prefixed(b"\x0a", b"".join(pieces)) + encode_text(b"\x2a", request_id)


def decode_env_join(data: bytes | bytearray | memoryview) -> tuple[str, EnvArm, EnvAnswer]:
    """The request id, the arm, and what the arm holds.

    A reset or step is an :class:`~rlmesh_trio.messages.EnvReply`, its metadata undecoded; an error is the
    :exc:`~rlmesh_trio.errors.EndpointError` to raise; a render, close or configure is its message's bytes, unchecked;
    ``"none"`` is a reply without an arm this build knows, and holds nothing. Leaves above 4 KiB are views of *data*,
    which is copied once unless it is :class:`bytes`. Raises :exc:`~rlmesh_trio.errors.ProtocolError`, and nothing
    else, for bytes that are not a join response.
    """
    try:
        return _read_join(data if type(data) is bytes else bytes(data))
    except READ_FAULTS as fault:
        raise malformed("env reply", fault) from None


def _read_join(data: bytes) -> tuple[str, EnvArm, EnvAnswer]:
    request_id = ""
    arm: EnvArm = "none"
    reply, error, raw = EnvReply(), None, b""
    timings: dict[int, int] = {}
    pos, end = 0, len(data)
    while pos < end:
        tag = data[pos]
        pos += 1
        if tag > 127:
            tag, pos = read_uint32(data, pos - 1)
        if tag in _TIMINGS:
            number = data[pos]
            if number < 128:
                pos += 1
            elif (second := data[pos + 1]) > 127 and (third := data[pos + 2]) < 128:
                number += (second << 7) + (third << 14) - 0x4080
                pos += 3
            else:
                number, pos = read_varint(data, pos)
            timings[tag] = number
        elif tag & 7 == 2:
            size = data[pos]
            pos += 1
            if size > 127:
                size, pos = read_uint32(data, pos - 1)
            stop = pos + size
            if tag == 0x12:
                if arm != "step":
                    if arm != "none":
                        reply = _leave_arm(arm, reply)
                    arm = "step"
                _read_step(reply, data, pos, stop)
            elif tag == 0x2A:
                request_id = data[pos:stop].decode()
            elif tag == 0x0A:
                if arm != "reset":
                    if arm != "none":
                        reply = _leave_arm(arm, reply)
                    arm = "reset"
                _read_reset(reply, data, pos, stop)
            elif tag == 0x52:
                if error is None or arm != "error":
                    reply, arm, error = _leave_arm(arm, reply), "error", ErrorParts()
                read_error(error, data, pos, stop)
                _check_interrupted(data, pos, stop)
            elif tag in _RAW_ARMS:
                if arm != "none":
                    raise ProtocolError(f"a {_RAW_ARMS[tag]} arm comes after a {arm} arm")
                arm, raw = _RAW_ARMS[tag], data[pos:stop]
            elif tag < 8:
                raise ProtocolError("a field has the number 0")
            pos = stop
        else:
            pos = skip_field(data, tag, pos)
    if pos != end:
        raise ProtocolError(TRUNCATED)
    if arm == "step" or arm == "reset":
        reply.endpoint_total_ns = timings.pop(_TOTAL_NS, None)
        if timings:
            took = timings.get
            reply.phases = Phases(took(0x58, 0), took(0x60, 0), took(0x68, 0), took(0x78, 0), 0, 0, took(0x70))
        reply.response_bytes = end
        return request_id, arm, reply
    return request_id, arm, raw if error is None or arm != "error" else error.to_error(ENV_ERROR_NAMES)


def _leave_arm(arm: EnvArm, reply: EnvReply) -> EnvReply:
    """A fresh reply for another arm, once what it replaces is known to be well formed."""
    if arm in _RAW_ARMS.values():
        raise ProtocolError(f"another arm comes after a {arm} arm")
    for metadata in (reply.infos, *(episode.final_info for episode in reply.completed)):
        if isinstance(metadata, LazyMetadata):
            metadata.decode()
    return EnvReply()


def _read_step(reply: EnvReply, data: bytes, pos: int, end: int) -> None:
    while pos < end:
        tag = data[pos]
        pos += 1
        if tag > 127:
            tag, pos = read_uint32(data, pos - 1)
        if tag & 7 == 2:
            size = data[pos]
            pos += 1
            if size > 127:
                size, pos = read_uint32(data, pos - 1)
            stop = pos + size
            if tag == 0x0A:
                leaves = read_leaves(data, pos, stop)
                reply.observation = leaves if reply.observation is None else extended(reply.observation, leaves)
            elif tag == 0x12:
                if size & 7:
                    raise ProtocolError(TRUNCATED)
                rewards = _read_double(data, pos) if size == 8 else unpack_from(f"<{size >> 3}d", data, pos)
                reply.rewards = extended(reply.rewards, rewards) if reply.rewards else rewards
            elif tag == 0x1A:
                reply.terminated_mask = data[pos:stop]
            elif tag == 0x22:
                reply.truncated_mask = data[pos:stop]
            elif tag == 0x2A:
                infos = data[pos:stop]
                reply.infos = LazyMetadata(infos) if reply.infos is None else _merged(reply.infos, infos)
            elif tag == 0x3A:
                reply.env_indices = extended(reply.env_indices, _read_lanes(data, pos, stop))
            elif tag == 0x32:
                reply.completed = extended(reply.completed, (_read_episode(data, pos, stop),))
            elif tag < 8:
                raise ProtocolError("a field has the number 0")
            pos = stop
        elif tag == 0x11:
            reply.rewards = extended(reply.rewards, _read_double(data, pos))
            pos += 8
        elif tag == 0x38:
            lane, pos = read_varint(data, pos)
            reply.env_indices = extended(reply.env_indices, (lane & 0xFFFF_FFFF,))
        else:
            pos = skip_field(data, tag, pos)
    if pos != end:
        raise ProtocolError(TRUNCATED)


def _read_reset(reply: EnvReply, data: bytes, pos: int, end: int) -> None:
    while pos < end:
        tag, pos = read_uint32(data, pos)
        if tag in (0x0A, 0x12):
            size, pos = read_uint32(data, pos)
            stop = pos + size
            if tag == 0x0A:
                leaves = read_leaves(data, pos, stop)
                reply.observation = leaves if reply.observation is None else extended(reply.observation, leaves)
            else:
                reply.infos = _merged(reply.infos, data[pos:stop])
            pos = stop
        else:
            pos = skip_field(data, tag, pos)
    if pos != end:
        raise ProtocolError(TRUNCATED)


def _merged(metadata: object, encoded: bytes) -> LazyMetadata:
    if isinstance(metadata, LazyMetadata):
        metadata.merge(encoded)
        return metadata
    return LazyMetadata(encoded)


def _read_lanes(data: bytes, pos: int, end: int) -> list[int]:
    lanes: list[int] = []
    while pos < end:
        lane, pos = read_varint(data, pos)
        lanes.append(lane & 0xFFFF_FFFF)
    if pos != end:
        raise ProtocolError(TRUNCATED)
    return lanes


def _read_episode(data: bytes, pos: int, end: int) -> EpisodeRecord:
    episode = EpisodeRecord()
    while pos < end:
        tag, pos = read_uint32(data, pos)
        if tag in (0x0A, 0x52):
            size, pos = read_uint32(data, pos)
            stop = pos + size
            if tag == 0x0A:
                episode.episode_id = data[pos:stop].decode()
            else:
                episode.final_info = _merged(episode.final_info, data[pos:stop])
            pos = stop
        elif tag == 0x29:
            episode.cumulative_reward = _read_double(data, pos)[0]
            pos += 8
        elif tag == 0x10:
            episode.seed, pos = read_int64(data, pos)
        elif tag == 0x18:
            number, pos = read_varint(data, pos)
            episode.env_index = number & 0xFFFF_FFFF
        elif tag == 0x20:
            episode.step_count, pos = read_int64(data, pos)
        elif tag == 0x30:
            number, pos = read_varint(data, pos)
            episode.terminated = number != 0
        elif tag == 0x38:
            number, pos = read_varint(data, pos)
            episode.truncated = number != 0
        elif tag == 0x40:
            episode.start_timestamp_ns, pos = read_int64(data, pos)
        elif tag == 0x48:
            episode.end_timestamp_ns, pos = read_int64(data, pos)
        else:
            pos = skip_field(data, tag, pos)
    if pos != end:
        raise ProtocolError(TRUNCATED)
    return episode


def _check_interrupted(data: bytes, pos: int, end: int) -> None:
    """Read the episodes of an error, which are only checked: no server fills them."""
    while pos < end:
        tag, pos = read_uint32(data, pos)
        stop = skip_field(data, tag, pos)
        if tag == 0x2A:
            _, start = read_uint32(data, pos)
            _leave_arm("error", EnvReply(completed=(_read_episode(data, start, stop),)))
        pos = stop
