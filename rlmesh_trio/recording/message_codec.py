"""The messages that come once or once an episode, as bytes: header, episodes, footer. Pure."""

import json
from collections.abc import Iterator, Mapping
from struct import Struct
from typing import Any, Final, TypeVar

from rlmesh_trio.errors import ProtocolError, SpaceError
from rlmesh_trio.messages import Metadata
from rlmesh_trio.recording.records import (
    FORMAT_VERSION,
    EndKind,
    Episode,
    EpisodeEntry,
    Footer,
    Header,
    Kept,
    LevelName,
    SeedRuleName,
)
from rlmesh_trio.recording.tick_codec import encode_infos
from rlmesh_trio.spaces import contract_from_wire, contract_to_wire
from rlmesh_trio.wire.fields import (
    encode_int64,
    encode_text,
    encode_varint,
    length_prefixed,
    read_uint32,
    skip_field,
)
from rlmesh_trio.wire.metadata import LazyMetadata
from rlmesh_trio.wire.pb.rlmesh.spaces import v1 as spaces
from rlmesh_trio.wire.pb.rlmesh_trio.recording import v1 as pb
from rlmesh_trio.wire.strict import decode, encode, encoded_field, relay_field

__all__ = (
    "ForeignVersion",
    "decode_episode",
    "decode_run",
    "encode_episode",
    "encode_footer",
    "encode_header",
)

_LEVELS: Final[Mapping[LevelName, int]] = {"digest": 1, "ring": 2, "full": 3}
_SEED_RULES: Final[Mapping[SeedRuleName, int]] = {"by=slot": 1, "by=lane": 2}
_ENDS: Final[Mapping[EndKind, int]] = {"terminated": 1, "truncated": 2, "capped": 3, "interrupted": 4, "error": 5}

_pack_double: Final = Struct("<d").pack
_KEPT_TAG: Final = 14 << 3 | 2

T = TypeVar("T")


class ForeignVersion(ProtocolError):
    """A header of a format version that this build does not know."""


def _name(table: Mapping[T, int], number: int, what: str) -> T:
    for name, known in table.items():
        if known == number:
            return name
    raise ProtocolError(f"there is no {what} of number {number}")


def encode_header(header: Header, contract_digest: bytes) -> bytes:
    """A run message that holds *header*; maps are written in order of their keys."""
    message = pb.Header(
        format=FORMAT_VERSION,
        level=pb.Level(_LEVELS[header.level]),
        ring=header.ring,
        contract_digest=contract_digest,
        workflow_edition=header.workflow_edition,
        base_seed=header.base_seed,
        seed_rule=pb.SeedRule(_SEED_RULES[header.seed_rule]),
        unstable_leaves=list(header.unstable_leaves),
        ignored_infos=list(header.ignored_infos),
        tolerance=header.tolerance,
        settings=json.dumps(header.settings, sort_keys=True, separators=(",", ":")) if header.settings else "",
        env_address=header.env_address,
        machine=dict(sorted(header.machine.items())),
    )
    relay_field(message, "contract", contract_to_wire(header.contract))
    for field in ("env_peer", "model_peer"):
        if told := getattr(header, field):
            relay_field(message, field, told)
    return encode(relay_field(pb.Run(), "header", encode(message)))


def encode_footer(footer: Footer) -> bytes:
    """A run message that holds *footer*."""
    entries = [
        pb.EpisodeEntry(
            ordinal=entry.ordinal,
            first_tick=entry.first_tick,
            last_tick=entry.last_tick,
            end=pb.End(_ENDS[entry.end]),
            root=entry.root,
            steps=entry.steps,
        )
        for entry in footer.episodes
    ]
    return encode(pb.Run(footer=pb.Footer(run_root=footer.run_root, ticks=footer.ticks, episodes=entries)))


def decode_run(data: bytes) -> Header | Footer:
    """Read a run message.

    Raises :exc:`ForeignVersion`, or :exc:`~rlmesh_trio.errors.ProtocolError` for bytes that are no such message.
    """
    message = decode(pb.Run, data, what="a message of the channel /run")
    if (told := encoded_field(pb.Run, data, "header")) is not None:
        return _read_header(message.header, told)
    if encoded_field(pb.Run, data, "footer") is None:
        raise ProtocolError("a message of the channel /run is neither header nor footer")
    footer = message.footer
    entries = tuple(
        EpisodeEntry(
            entry.ordinal,
            entry.first_tick,
            entry.last_tick,
            _name(_ENDS, int(entry.end), "end"),
            bytes(entry.root),
            entry.steps,
        )
        for entry in footer.episodes
    )
    return Footer(bytes(footer.run_root), footer.ticks, entries)


def _read_header(message: pb.Header, data: bytes) -> Header:
    if message.format != FORMAT_VERSION:
        raise ForeignVersion(f"format version {message.format}; this build reads version {FORMAT_VERSION}")
    try:
        contract = contract_from_wire(encoded_field(pb.Header, data, "contract") or b"")
        settings: Any = json.loads(message.settings or "{}")
    except (SpaceError, ValueError) as error:
        raise ProtocolError(f"the header cannot be read: {error}") from error
    return Header(
        contract=contract,
        level=_name(_LEVELS, int(message.level), "level"),
        ring=message.ring,
        workflow_edition=message.workflow_edition,
        base_seed=message.base_seed,
        seed_rule=_name(_SEED_RULES, int(message.seed_rule), "seed rule"),
        unstable_leaves=tuple(message.unstable_leaves),
        ignored_infos=tuple(message.ignored_infos),
        tolerance=message.tolerance,
        settings=settings,
        env_address=message.env_address,
        env_peer=encoded_field(pb.Header, data, "env_peer") or b"",
        model_peer=encoded_field(pb.Header, data, "model_peer") or b"",
        machine=dict(message.machine),
    )


def encode_episode(episode: Episode) -> bytes:
    """An episode message, by hand because episodes may be short. A return of -0.0 is left off; the root tells."""
    seed, options, total = episode.seed, episode.options, episode.cumulative_reward
    parts = [
        _number(b"\x08", episode.ordinal),
        _number(b"\x10", episode.attempt),
        encode_text(b"\x1a", episode.episode_id),
        b"" if seed is None else b"\x20" + encode_int64(seed),
        b"" if options is None else length_prefixed(b"\x2a", encode_infos(options)),
        _number(b"\x30", episode.lane),
        _number(b"\x38", episode.first_tick),
        _number(b"\x40", episode.last_tick),
        _number(b"\x48", _ENDS[episode.end]),
        encode_text(b"\x52", episode.error_code),
        _number(b"\x58", episode.steps),
        b"\x61" + _pack_double(total) if total else b"",
        length_prefixed(b"\x6a", episode.root),
    ]
    for kept in episode.kept:
        told = pb.Kept(tick=kept.tick)
        if kept.observation is not None:
            relay_field(told, "observation", encode(spaces.SpaceValue(leaves=list(kept.observation))))
        parts.append(length_prefixed(b"\x72", encode(_relay_infos(told, "infos", kept.infos))))
    return b"".join(parts)


def _number(tag: bytes, number: int) -> bytes:
    return tag + encode_varint(number) if number else b""


def _relay_infos(message: Any, field: str, infos: Metadata | None) -> Any:
    return message if infos is None else relay_field(message, field, encode_infos(infos))


def decode_episode(data: bytes) -> Episode:
    """Read an episode message. Raises :exc:`~rlmesh_trio.errors.ProtocolError`."""
    message = decode(pb.Episode, data, what="a message of the channel /episode")
    options = encoded_field(pb.Episode, data, "options")
    return Episode(
        ordinal=message.ordinal,
        attempt=message.attempt,
        episode_id=message.episode_id,
        seed=message.seed,
        options=None if options is None else LazyMetadata(options),
        lane=message.lane,
        first_tick=message.first_tick,
        last_tick=message.last_tick,
        end=_name(_ENDS, int(message.end), "end"),
        error_code=message.error_code,
        steps=message.steps,
        cumulative_reward=message.cumulative_reward,
        root=bytes(message.root),
        kept=tuple(map(_read_kept, _pieces(data, _KEPT_TAG))),
    )


def _pieces(data: bytes, wanted: int) -> Iterator[bytes]:
    """The messages of a repeated field, as they came, in *data* that was checked."""
    position = 0
    while position < len(data):
        tag, position = read_uint32(data, position)
        start, position = position, skip_field(data, tag, position)
        if tag == wanted:
            _, start = read_uint32(data, start)
            yield data[start:position]


def _read_kept(data: bytes) -> Kept:
    message = pb.Kept().parse(data)
    infos = encoded_field(pb.Kept, data, "infos")
    has_observation = encoded_field(pb.Kept, data, "observation") is not None
    return Kept(
        tick=message.tick,
        observation=tuple(map(bytes, message.observation.leaves)) if has_observation else None,
        infos=None if infos is None else LazyMetadata(infos),
    )
