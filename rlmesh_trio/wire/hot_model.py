"""The model leg's per-step messages, straight to and from the records: a join request out, a join response in.

What google protobuf reads, these read the same way: any field order, unknown fields, packed or not, repeated message
fields merged, the last arm of a oneof wins. What it refuses is refused. Refused besides: groups, and a resolve,
release, reset or close arm beside another arm.
"""

from collections.abc import Sequence
from functools import lru_cache
from typing import Literal

from rlmesh_trio.errors import EndpointError, ProtocolError
from rlmesh_trio.messages import (
    EpisodeInfo,
    HistoryRow,
    Leaf,
    Phases,
    PredictReply,
    PredictRequest,
    ReleaseAdapterRequest,
    ResetAdapterRequest,
)
from rlmesh_trio.wire.endpoint_errors import ErrorParts, read_error
from rlmesh_trio.wire.fields import (
    READ_FAULTS,
    TRUNCATED,
    encode_int64,
    encode_text,
    encode_texts,
    encode_varint,
    extended,
    length_prefixed,
    malformed,
    read_uint32,
    read_varint,
    skip_field,
)
from rlmesh_trio.wire.space_value import encode_leaves, read_leaves

__all__ = (
    "ModelAnswer",
    "ModelArm",
    "decode_model_join",
    "encode_grouped_predict",
    "encode_predict",
    "encode_release_adapter",
    "encode_reset_adapter",
)

ModelArm = Literal[
    "resolve_adapter", "predict", "release_adapter", "close", "grouped_predict", "reset_adapter", "error", "none"
]
ModelAnswer = PredictReply | list[PredictReply | EndpointError] | EndpointError | bytes

_RAW_ARMS: dict[int, ModelArm] = {
    0x0A: "resolve_adapter",
    0x1A: "release_adapter",
    0x22: "close",
    0x42: "reset_adapter",
}
_TOTAL_NS = 0x30
_TIMINGS = frozenset((_TOTAL_NS, 0x58, 0x60, 0x68, 0x70, 0x78, 0x80, 0x88, 0x90))
_ERROR_NAMES = {
    0: "UNSPECIFIED",
    2: "INVALID_REQUEST",
    3: "NOT_CONFIGURED",
    4: "BUSY",
    5: "UNSUPPORTED",
    10: "INTERNAL",
    12: "CANCELLED",
    13: "CLOSED",
}


def encode_predict(request_id: str, request: PredictRequest) -> bytes:
    """The join request that carries *request*, its context made of the request's own three ids."""
    pieces, size = _encode_predict_body(request)
    return b"".join((b"\x12", encode_varint(size), *pieces, encode_text(b"\x2a", request_id)))


def encode_grouped_predict(request_id: str, requests: Sequence[PredictRequest]) -> bytes:
    """The join request that carries *requests* as one grouped predict."""
    pieces: list[Leaf] = []
    total = 0
    for request in requests:
        body, size = _encode_predict_body(request)
        head = b"\x0a" + encode_varint(size)
        pieces += (head, *body)
        total += len(head) + size
    return b"".join((b"\x32", encode_varint(total), *pieces, encode_text(b"\x2a", request_id)))


def encode_reset_adapter(request_id: str, request: ResetAdapterRequest) -> bytes:
    """The join request that carries *request*."""
    body = _encode_context(request) + encode_texts(b"\x12", request.episode_ids)
    return length_prefixed(b"\x3a", body) + encode_text(b"\x2a", request_id)


def encode_release_adapter(request_id: str, request: ReleaseAdapterRequest) -> bytes:
    """The join request that carries *request*."""
    body = _encode_context(request) + encode_text(b"\x12", request.reason)
    return length_prefixed(b"\x1a", body) + encode_text(b"\x2a", request_id)


def _encode_context(request: PredictRequest | ResetAdapterRequest | ReleaseAdapterRequest) -> bytes:
    route = encode_text(b"\x0a", request.session_id) + encode_text(b"\x12", request.env_id)
    return length_prefixed(b"\x0a", route + encode_text(b"\x1a", request.request_id))


def _encode_predict_body(request: PredictRequest) -> tuple[list[Leaf], int]:
    """The pieces of a predict message and their size together."""
    context = _encode_context(request)
    pieces: list[Leaf] = [context]
    size = len(context)
    if request.observation is not None:
        observation, observation_size = encode_leaves(b"\x12", request.observation)
        pieces += observation
        size += observation_size
    for info in request.episode_info:
        episode = _encode_episode(b"\x1a", info)
        pieces.append(episode)
        size += len(episode)
    for row in request.history:
        body, row_size = _encode_history_row(row)
        head = b"\x22" + encode_varint(row_size)
        pieces += (head, *body)
        size += len(head) + row_size
    if request.step is not None:
        step = b"\x28" + encode_int64(request.step)
        pieces.append(step)
        size += len(step)
    return pieces, size


def _encode_history_row(row: HistoryRow) -> tuple[list[Leaf], int]:
    pieces: list[Leaf] = []
    size = 0
    if row.observation is not None:
        pieces, size = encode_leaves(b"\x0a", row.observation)
    tail = b"".join(_encode_episode(b"\x12", info) for info in row.episode_info)
    if row.step:
        tail += b"\x18" + encode_int64(row.step)
    pieces.append(tail)
    return pieces, size + len(tail)


@lru_cache(maxsize=4096)
def _encode_episode(tag: bytes, info: EpisodeInfo) -> bytes:
    """The same few episodes ride every predict until they end."""
    seed = b"" if info.seed is None else b"\x10" + encode_int64(info.seed)
    return length_prefixed(tag, encode_text(b"\x0a", info.episode_id) + seed)


def decode_model_join(data: bytes | bytearray | memoryview) -> tuple[str, ModelArm, ModelAnswer]:
    """The request id, the arm, and what the arm holds.

    A predict is a :class:`~rlmesh_trio.messages.PredictReply`; a grouped predict is a list of such replies and of
    errors, in the order of the groups; an error is the :exc:`~rlmesh_trio.errors.EndpointError` to raise; a resolve,
    release, reset or close is its message's bytes, unchecked; ``"none"`` is a reply without an arm this build knows,
    and holds nothing. The timings and the size of a grouped predict are on the first reply of its list. Leaves above
    4 KiB are views of *data*, which is copied once unless it is :class:`bytes`. Raises
    :exc:`~rlmesh_trio.errors.ProtocolError`, and nothing else, for bytes that are not a join response.
    """
    try:
        return _read_join(data if type(data) is bytes else bytes(data))
    except READ_FAULTS as fault:
        raise malformed("model reply", fault) from None


def _read_join(data: bytes) -> tuple[str, ModelArm, ModelAnswer]:
    request_id = ""
    arm: ModelArm = "none"
    reply = PredictReply("", "", "", ())
    results: list[PredictReply | EndpointError] = []
    error, raw = ErrorParts(), b""
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
                if arm != "predict":
                    if arm != "none":
                        reply = _leave_arm(arm)
                    arm = "predict"
                _read_predict(reply, data, pos, stop)
            elif tag == 0x2A:
                request_id = data[pos:stop].decode()
            elif tag == 0x3A:
                if arm != "grouped_predict":
                    _leave_arm(arm)
                    results, arm = [], "grouped_predict"
                _read_results(results, data, pos, stop)
            elif tag == 0x52:
                if arm != "error":
                    _leave_arm(arm)
                    error, arm = ErrorParts(), "error"
                read_error(error, data, pos, stop)
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
    if arm == "error":
        return request_id, arm, error.to_error(_ERROR_NAMES)
    if arm == "predict":
        _put_timings(reply, timings, end)
        return request_id, arm, reply
    if arm == "grouped_predict":
        for first in results:
            if isinstance(first, PredictReply):
                _put_timings(first, timings, end)
                break
        return request_id, arm, results
    return request_id, arm, raw


def _leave_arm(arm: ModelArm) -> PredictReply:
    """A fresh reply for another arm, unless what it replaces was never checked."""
    if arm in _RAW_ARMS.values():
        raise ProtocolError(f"another arm comes after a {arm} arm")
    return PredictReply("", "", "", ())


def _put_timings(reply: PredictReply, timings: dict[int, int], size: int) -> None:
    reply.endpoint_total_ns = timings.pop(_TOTAL_NS, None)
    if timings:
        took = timings.get
        in_flight, held_episodes = took(0x78, 0) & 0xFFFF_FFFF, took(0x88)
        if held_episodes is not None:
            held_episodes &= 0xFFFF_FFFF
        reply.phases = Phases(
            took(0x58, 0),
            took(0x60, 0),
            took(0x68, 0),
            took(0x70, 0),
            took(0x80, 0),
            in_flight,
            None,
            held_episodes,
            took(0x90),
        )
    reply.response_bytes = size


def _read_predict(reply: PredictReply, data: bytes, pos: int, end: int) -> None:
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
            if tag == 0x12:
                frame = read_leaves(data, pos, stop)
                reply.actions = extended(reply.actions, (frame,)) if reply.actions else [frame]
            elif tag == 0x0A:
                _read_context(reply, data, pos, stop)
            elif tag < 8:
                raise ProtocolError("a field has the number 0")
            pos = stop
        else:
            pos = skip_field(data, tag, pos)
    if pos != end:
        raise ProtocolError(TRUNCATED)


def _read_context(reply: PredictReply, data: bytes, pos: int, end: int) -> None:
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
                reply.session_id = data[pos:stop].decode()
            elif tag == 0x12:
                reply.env_id = data[pos:stop].decode()
            elif tag == 0x1A:
                reply.request_id = data[pos:stop].decode()
            elif tag < 8:
                raise ProtocolError("a field has the number 0")
            pos = stop
        else:
            pos = skip_field(data, tag, pos)
    if pos != end:
        raise ProtocolError(TRUNCATED)


def _read_results(results: list[PredictReply | EndpointError], data: bytes, pos: int, end: int) -> None:
    while pos < end:
        tag, pos = read_uint32(data, pos)
        if tag == 0x0A:
            size, pos = read_uint32(data, pos)
            stop = pos + size
            results.append(_read_result(data, pos, stop))
            pos = stop
        else:
            pos = skip_field(data, tag, pos)
    if pos != end:
        raise ProtocolError(TRUNCATED)


def _read_result(data: bytes, pos: int, end: int) -> PredictReply | EndpointError:
    outcome: PredictReply | ErrorParts | None = None
    while pos < end:
        tag, pos = read_uint32(data, pos)
        if tag in (0x0A, 0x12):
            size, pos = read_uint32(data, pos)
            stop = pos + size
            if tag == 0x0A:
                if not isinstance(outcome, PredictReply):
                    outcome = PredictReply("", "", "", ())
                _read_predict(outcome, data, pos, stop)
            else:
                if not isinstance(outcome, ErrorParts):
                    outcome = ErrorParts()
                read_error(outcome, data, pos, stop)
            pos = stop
        else:
            pos = skip_field(data, tag, pos)
    if pos != end:
        raise ProtocolError(TRUNCATED)
    if isinstance(outcome, PredictReply):
        return outcome
    if outcome is None:
        return EndpointError("UNSPECIFIED", "the model answered this group with nothing")
    return outcome.to_error(_ERROR_NAMES)
