"""Ticks as bytes: our message around the wire's own request and answer. On the step path, so written by hand. Pure."""

from functools import lru_cache
from struct import Struct
from typing import Final

from rlmesh_trio.errors import EndpointError, ProtocolError
from rlmesh_trio.messages import EnvReply, EpisodeRecord, Leaf, Metadata
from rlmesh_trio.recording.records import Tick
from rlmesh_trio.spaces.metadata import plain_metadata
from rlmesh_trio.wire.fields import (
    READ_FAULTS,
    TRUNCATED,
    encode_int64,
    encode_text,
    encode_varint,
    length_prefixed,
    malformed,
    read_uint32,
    read_varint,
    skip_field,
)
from rlmesh_trio.wire.hot_env import decode_env_join, encode_reset, encode_step
from rlmesh_trio.wire.metadata import LazyMetadata, encode_metadata
from rlmesh_trio.wire.served_env import decode_served, encode_served_error
from rlmesh_trio.wire.space_value import encode_leaves

__all__ = ("decode_tick", "encode_infos", "encode_plain_step", "encode_tick")

_pack_double: Final = Struct("<d").pack
# The answer to a plain step, without observation and infos: reward and both masks.
_pack_answer: Final = Struct("<6sd6s").pack
_BEFORE_REWARD: Final = b"\x32\x12\x12\x10\x12\x08"
_GOES_ON: Final = b"\x1a\x01\0\x22\x01\0"


def encode_tick(tick: Tick, *, full: bool) -> bytes:
    """Write *tick*; unless *full* without step target, observation, infos and completed episodes.

    The times in episode records are left off, so that equal runs make equal ticks. Raises what encoding a request does.
    """
    reset, reply, action = tick.reset, tick.reply, tick.action
    parts: list[Leaf] = [b"\x08", encode_varint(tick.number), _places(tick.lanes, tick.episodes, tick.begins)]
    if reset is not None:
        parts.append(length_prefixed(b"\x2a", encode_reset("", reset)))
    elif full and tick.target is not None:
        parts.append(length_prefixed(b"\x2a", encode_step("", action, tick.target)))
    else:
        pieces, size = encode_leaves(b"\x0a", action)
        parts.append(length_prefixed(b"\x2a", b"".join((b"\x12", encode_varint(size), *pieces))))
    if reply is not None:
        answer = _encode_reply(reply, is_reset=reset is not None, full=full)
        parts += (b"\x32", encode_varint(len(answer)), answer)
    elif tick.error is not None:
        parts.append(length_prefixed(b"\x32", encode_served_error("", tick.error, 0)))
    if tick.observation_digests:
        parts += (b"\x3a", encode_varint(len(tick.observation_digests)), tick.observation_digests)
    if tick.info_digests:
        parts += (b"\x42", encode_varint(len(tick.info_digests)), tick.info_digests)
    if tick.error is not None:
        parts.append(encode_text(b"\x4a", tick.error.code))
    return b"".join(parts)


def encode_plain_step(
    number: int, lane: int, ordinal: int, action: bytes, reward: float, observed: bytes, infos: bytes
) -> bytes:
    """What :func:`encode_tick` makes of the answered step of one lane whose episode goes on; the action is one leaf.

    *ordinal* is 0 for none, *observed* and *infos* are the digests.
    """
    return b"".join(
        (
            b"\x08",
            encode_varint(number),
            _before_action(lane, ordinal, len(action)),
            action,
            _pack_answer(_BEFORE_REWARD, reward, _GOES_ON),
            _before_digests(len(observed)),
            observed,
            b"\x42\x10",
            infos,
        )
    )


@lru_cache(maxsize=4096)
def _before_action(lane: int, ordinal: int, size: int) -> bytes:
    """What stands between the number and the action's only leaf, which is *size* bytes long."""
    leaf = b"\x0a" + encode_varint(size)
    value = b"\x0a" + encode_varint(len(leaf) + size) + leaf
    step = b"\x12" + encode_varint(len(value) + size) + value
    return _places((lane,), (ordinal,) if ordinal else (), ()) + b"\x2a" + encode_varint(len(step) + size) + step


@lru_cache(maxsize=64)
def _before_digests(size: int) -> bytes:
    return b"\x3a" + encode_varint(size) if size else b""


@lru_cache(maxsize=4096)
def _places(lanes: tuple[int, ...], episodes: tuple[int, ...], begins: tuple[int, ...]) -> bytes:
    """Three fields that stay the same from step to step of an episode."""
    fields = ((b"\x12", lanes), (b"\x1a", episodes), (b"\x22", begins))
    return b"".join(tag + _packed(numbers) for tag, numbers in fields if numbers)


def _packed(numbers: tuple[int, ...]) -> bytes:
    body = b"".join([encode_varint(number) for number in numbers])
    return encode_varint(len(body)) + body


def _encode_reply(reply: EnvReply, *, is_reset: bool, full: bool) -> bytes:
    pieces: list[Leaf] = []
    if full and reply.observation is not None:
        pieces += encode_leaves(b"\x0a", reply.observation)[0]
    if is_reset:
        if full and reply.infos is not None:
            pieces.append(length_prefixed(b"\x12", encode_infos(reply.infos)))
        return length_prefixed(b"\x0a", b"".join(pieces))
    if reply.rewards:
        body = b"".join(map(_pack_double, reply.rewards))
        pieces += (b"\x12", encode_varint(len(body)), body)
    for tag, mask in ((b"\x1a", reply.terminated_mask), (b"\x22", reply.truncated_mask)):
        if mask:
            pieces += (tag, encode_varint(len(mask)), mask)
    if full:
        if reply.infos is not None:
            pieces.append(length_prefixed(b"\x2a", encode_infos(reply.infos)))
        pieces += [length_prefixed(b"\x32", _encode_record(record)) for record in reply.completed]
        if reply.env_indices:
            pieces += (b"\x3a", _packed(tuple(reply.env_indices)))
    return length_prefixed(b"\x12", b"".join(pieces))


def encode_infos(infos: Metadata) -> bytes:
    """The infos' bytes: those that came, or the plain form of what an env in this process told."""
    return infos.encoded if isinstance(infos, LazyMetadata) else encode_metadata(plain_metadata(infos))


def _encode_record(record: EpisodeRecord) -> bytes:
    parts = [encode_text(b"\x0a", record.episode_id)]
    if record.seed is not None:
        parts.append(b"\x10" + encode_int64(record.seed))
    for tag, number in ((b"\x18", record.env_index), (b"\x20", record.step_count)):
        if number:
            parts.append(tag + encode_int64(number))
    parts.append(b"\x29" + _pack_double(record.cumulative_reward))
    for tag, flag in ((b"\x30\x01", record.terminated), (b"\x38\x01", record.truncated)):
        if flag:
            parts.append(tag)
    if record.final_info is not None:
        parts.append(length_prefixed(b"\x52", encode_infos(record.final_info)))
    return b"".join(parts)


def decode_tick(data: bytes) -> Tick:
    """Read a tick. Raises :exc:`~rlmesh_trio.errors.ProtocolError` for bytes that are none."""
    try:
        return _read_tick(data)
    except READ_FAULTS as fault:
        raise malformed("tick", fault) from None


def _read_tick(data: bytes) -> Tick:
    tick = Tick(number=0, lanes=())
    answer, error_code = None, ""
    pos, end = 0, len(data)
    while pos < end:
        tag, pos = read_uint32(data, pos)
        if tag == 0x08:
            tick.number, pos = read_varint(data, pos)
            continue
        if tag & 7 != 2:
            pos = skip_field(data, tag, pos)
            continue
        size, pos = read_uint32(data, pos)
        stop = pos + size
        match tag:
            case 0x12:
                tick.lanes = _read_numbers(data, pos, stop)
            case 0x1A:
                tick.episodes = _read_numbers(data, pos, stop)
            case 0x22:
                tick.begins = _read_numbers(data, pos, stop)
            case 0x2A:
                request = decode_served(data[pos:stop])
                tick.reset, tick.action, tick.target = request.reset, request.action, request.target
            case 0x32:
                answer = data[pos:stop]
            case 0x3A:
                tick.observation_digests = data[pos:stop]
            case 0x42:
                tick.info_digests = data[pos:stop]
            case 0x4A:
                error_code = data[pos:stop].decode()
            case _:
                pass
        pos = stop
    if pos != end:
        raise ProtocolError(TRUNCATED)
    if answer is not None:
        _, _, held = decode_env_join(answer)
        if isinstance(held, EnvReply):
            tick.reply = held
        elif isinstance(held, EndpointError):
            tick.error = EndpointError(error_code, held.message, held.recoverable)
        else:
            raise ProtocolError("it holds an answer to no reset and no step")
    return tick


def _read_numbers(data: bytes, pos: int, end: int) -> tuple[int, ...]:
    numbers: list[int] = []
    while pos < end:
        number, pos = read_varint(data, pos)
        numbers.append(number)
    if pos != end:
        raise ProtocolError(TRUNCATED)
    return tuple(numbers)
