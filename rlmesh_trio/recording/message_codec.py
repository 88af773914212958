"""The messages that come once or once an episode, as bytes: header, episodes, decisions, footer. Pure."""

import json
from collections.abc import Iterator, Mapping
from typing import Any, Final, TypeVar

import attrs

from rlmesh_trio.errors import ProtocolError, SpaceError
from rlmesh_trio.messages import Metadata
from rlmesh_trio.recording.records import (
    FORMAT_VERSION,
    Batch,
    BatchRow,
    Decision,
    EndKind,
    Episode,
    EpisodeEntry,
    Footer,
    Header,
    Kept,
    LevelName,
    Mishap,
    SeedRuleName,
)
from rlmesh_trio.recording.tick_codec import encode_infos
from rlmesh_trio.report import EpisodeSummary
from rlmesh_trio.spaces import contract_from_wire, contract_to_wire
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
from rlmesh_trio.wire.metadata import LazyMetadata
from rlmesh_trio.wire.pb.rlmesh.spaces import v1 as spaces
from rlmesh_trio.wire.pb.rlmesh_trio.recording import v1 as pb
from rlmesh_trio.wire.strict import decode, encode, encoded_field, relay_field

__all__ = (
    "ForeignVersion",
    "decode_decision",
    "decode_episode",
    "decode_run",
    "encode_decision",
    "encode_episode",
    "encode_footer",
    "encode_header",
)

_LEVELS: Final[Mapping[LevelName, int]] = {"digest": 1, "ring": 2, "full": 3}
_SEED_RULES: Final[Mapping[SeedRuleName, int]] = {"by=slot": 1, "by=lane": 2}
_ENDS: Final[Mapping[EndKind, int]] = {"terminated": 1, "truncated": 2, "capped": 3, "interrupted": 4, "error": 5}

_RENAMED: Final = {"episode_index": "ordinal", "env_index": "lane", "step_count": "steps"}
_SUMMARY_NAMES: Final = {name: _RENAMED.get(name, name) for name in attrs.fields_dict(EpisodeSummary)}
_KEPT_TAG: Final = 14 << 3 | 2
_ROW_TAGS: Final = (b"\x08", b"\x10", b"\x18", b"\x20")

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
    """An episode message. A return of -0.0 is left off; the root tells."""
    message = pb.Episode(
        ordinal=episode.ordinal,
        attempt=episode.attempt,
        episode_id=episode.episode_id,
        seed=episode.seed,
        lane=episode.lane,
        first_tick=episode.first_tick,
        last_tick=episode.last_tick,
        end=pb.End(_ENDS[episode.end]),
        error_code=episode.error_code,
        steps=episode.steps,
        cumulative_reward=episode.cumulative_reward,
        root=episode.root,
    )
    _relay_infos(message, "options", episode.options)
    for kept in episode.kept:
        told = pb.Kept(tick=kept.tick)
        if kept.observation is not None:
            relay_field(told, "observation", encode(spaces.SpaceValue(leaves=list(kept.observation))))
        relay_field(message, "kept", encode(_relay_infos(told, "infos", kept.infos)))
    return encode(message)


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


def encode_decision(decision: Decision) -> bytes:
    """A decision message; its tick is the log time of the message and not in it. Batches come often: they are quick."""
    match decision.what:
        case Batch(rows, took_ns):
            parts = [length_prefixed(b"\x0a", _encode_row(row)) for row in rows]
            batch = b"".join(parts) + b"\x10" + encode_int64(took_ns)
            return b"\x08" + encode_int64(decision.unix_ns) + length_prefixed(b"\x12", batch)
        case Mishap() as mishap:
            incident = pb.Incident(**attrs.asdict(mishap))
            return encode(pb.Decision(unix_ns=decision.unix_ns, incident=incident))
        case EpisodeSummary() as told:
            fields = {there: getattr(told, name) for name, there in _SUMMARY_NAMES.items()}
            return encode(pb.Decision(unix_ns=decision.unix_ns, summary=pb.Summary(**fields)))


def _encode_row(row: BatchRow) -> bytes:
    numbers = (row.ordinal, row.step, row.request, row.frames)
    return b"".join(tag + encode_varint(number) for tag, number in zip(_ROW_TAGS, numbers, strict=True))


def decode_decision(data: bytes, tick: int) -> Decision:
    """Read a decision message that was logged at *tick*. Raises :exc:`~rlmesh_trio.errors.ProtocolError`."""
    try:
        if (batch := _read_batch(data, tick)) is not None:
            return batch
    except READ_FAULTS as fault:
        raise malformed("a message of the channel /decision", fault) from None
    message = decode(pb.Decision, data, what="a message of the channel /decision")
    if encoded_field(pb.Decision, data, "summary") is not None:
        return Decision(tick, message.unix_ns, _read_summary(message.summary))
    told = message.incident
    return Decision(
        tick,
        message.unix_ns,
        Mishap(told.kind, told.ordinal, told.attempt, told.error, told.message, told.lane, told.episode_id),
    )


def _read_batch(data: bytes, tick: int) -> Decision | None:
    """The decision in *data* if it is a batch as :func:`encode_decision` writes one."""
    unix_ns, position = read_int64(data, 1) if data[:1] == b"\x08" else (0, 0)
    if data[position : position + 1] != b"\x12":
        return None
    size, position = read_uint32(data, position + 1)
    if position + size != len(data):
        raise ProtocolError(TRUNCATED)
    rows, took_ns = list[BatchRow](), 0
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
    return Decision(tick, unix_ns, Batch(tuple(rows), took_ns))


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


def _read_summary(told: pb.Summary) -> EpisodeSummary:
    return EpisodeSummary(**{name: getattr(told, there) for name, there in _SUMMARY_NAMES.items()})
