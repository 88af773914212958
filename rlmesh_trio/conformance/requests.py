"""The bytes of a request: good ones, and ones with a flaw of which no server can say that it is none."""

import struct
from functools import lru_cache

from rlmesh_trio.conformance.members import corner_rows
from rlmesh_trio.conformance.moves import MESSAGE_FLAWS, Move
from rlmesh_trio.conformance.scripts import Row
from rlmesh_trio.contract import EnvContract, ValueSpace
from rlmesh_trio.editions import CURRENT_EDITION
from rlmesh_trio.messages import Leaf, Metadata, ResetRequest, StepTarget
from rlmesh_trio.spaces import codec_for
from rlmesh_trio.wire.fields import encode_varint, length_prefixed
from rlmesh_trio.wire.hot_env import encode_reset, encode_step
from rlmesh_trio.wire.pb.rlmesh.env import v1 as pb
from rlmesh_trio.wire.strict import encode, present

__all__ = ("request_bytes",)

_UNKNOWN_ARM = b"\x72\x00"  # field 14, an empty message
_PADDING_FIELD = 1000
_HUGE = 1 << 60


def request_bytes(
    move: Move, contract: EnvContract, options: Metadata | None, request_id: str, episode_ids: tuple[str, ...]
) -> bytes:
    """What *move* sends to an env of *contract*. A reset carries *options*, and seed and episode id of each lane."""
    request = _plain(move, contract, options, request_id, episode_ids)
    return _padded(request, move.padding << 20) if move.padding else request


def _plain(
    move: Move, contract: EnvContract, options: Metadata | None, request_id: str, episode_ids: tuple[str, ...]
) -> bytes:
    rows = len(move.lanes) or contract.num_envs
    match move.what:
        case "reset":
            seeds = move.lanes or tuple(range(rows))
            request = ResetRequest(seeds, options, move.timeout_ms, move.lanes, episode_ids)
            return encode_reset(request_id, request)
        case "step":
            return _step(move, contract.action_space, rows, request_id, episode_ids)
        case "configure":
            edition = move.edition or CURRENT_EDITION.name
            return _encoded(pb.JoinRequest(configure=present(pb.ConfigureEnvRequest(edition))), request_id)
        case "render":
            return _encoded(pb.JoinRequest(render=present(pb.RenderRequest(list(move.lanes)))), request_id)
        case "close":
            return _encoded(pb.JoinRequest(close=present(pb.CloseEnvsRequest("client close"))), request_id)
        case "unknown":
            return _UNKNOWN_ARM + _encoded(pb.JoinRequest(), request_id)
        case _:
            return _encoded(pb.JoinRequest(), request_id)


def _encoded(request: pb.JoinRequest, request_id: str) -> bytes:
    request.request_id = request_id
    return encode(request)


def _padded(request: bytes, size: int) -> bytes:
    """*request* with a field of *size* bytes that no schema knows, which every server has to skip."""
    return length_prefixed(encode_varint(_PADDING_FIELD << 3 | 2), bytes(size)) + request


@lru_cache(maxsize=16)
def _rows(space: ValueSpace) -> tuple[Row, ...]:
    return corner_rows(space)


def _step(move: Move, space: ValueSpace | None, rows: int, request_id: str, episode_ids: tuple[str, ...]) -> bytes:
    target = StepTarget(move.timeout_ms, move.lanes, episode_ids)
    leaves = [] if space is None else _leaves(space, move.action, rows)
    if move.flaw in MESSAGE_FLAWS:
        return _no_message(move, encode_step("", leaves, target), request_id)
    if move.flaw == "action-missing":
        return _encoded(pb.JoinRequest(step=present(pb.StepRequest(env_indices=list(move.lanes)))), request_id)
    if space is not None and move.flaw:
        leaves = _spoilt(move, space, leaves, rows)
    return encode_step(request_id, leaves, target)


def _leaves(space: ValueSpace, number: int, rows: int) -> list[Leaf]:
    known = _rows(space)
    row = known[number % len(known)]
    return [*codec_for(space).concatenate([row] * rows, [1] * rows)]


def _spoilt(move: Move, space: ValueSpace, leaves: list[Leaf], rows: int) -> list[Leaf]:
    places = range(len(leaves))
    if move.flaw.startswith("text-"):
        places = [place for place, spec in enumerate(space.leaves) if spec.kind == "text"]
    place = places[move.amount % len(places)]
    leaf, short = bytes(leaves[place]), max(0, len(leaves[place]) - move.amount)
    match move.flaw:
        case "leaf-missing":
            return leaves[:-1]
        case "leaf-extra":
            return [*leaves, leaf]
        case "leaf-short" if leaf:
            leaf = leaf[:short]
        case "leaf-short" | "leaf-long":
            leaf += bytes(move.amount)
        case flaw:
            leaf = _spoilt_text(flaw, leaf, move.amount, rows)
    return [*leaves[:place], leaf, *leaves[place + 1 :]]


def _spoilt_text(flaw: str, slab: bytes, amount: int, rows: int) -> bytes:
    """A text slab, which is a count, a length for each text, and the texts, with one of the three wrong."""
    match flaw:
        case "text-count":
            return struct.pack("<Q", rows + amount) + slab[8:]
        case "text-huge":
            return struct.pack("<Q", _HUGE) + slab[8:]
        case "text-length":
            (length,) = struct.unpack_from("<Q", slab, 8)
            return slab[:8] + struct.pack("<Q", length + amount) + slab[16:]
        case _:
            broken = b"\xff" * amount
            return struct.pack(f"<{rows + 1}Q", rows, len(broken), *[0] * (rows - 1)) + broken


def _no_message(move: Move, step: bytes, request_id: str) -> bytes:
    """*step* (without a request id) in bytes that are no message, its id in front where it is to be read."""
    named = length_prefixed(b"\x2a", request_id.encode())
    match move.flaw:
        case "message-cut":
            return named + step[: -min(move.amount, len(step) - 1)]
        case "wire-type":
            return named + b"\x17" + step
        case "field-zero":
            return named + b"\x02\x00" + step
        case "endless-number":
            return named + b"\x38" + b"\xff" * (10 + move.amount)
        case _:
            return length_prefixed(b"\x2a", b"\xff" * move.amount) + step
