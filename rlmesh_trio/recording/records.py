"""What a recording holds: header, ticks, episodes, decisions, footer.

An episode's *ordinal* counts from 1 in the order of the budget and is its identity: ids, lanes and tick numbers are
noted and never compared. A *tick* is one request to the env with its answer; its rows are the lanes it concerns.
"""

from collections.abc import Mapping
from typing import Any, Literal, NamedTuple

import attrs

from rlmesh_trio.errors import EndpointError, InvalidSpec
from rlmesh_trio.messages import EnvReply, Leaves, Metadata, ResetRequest, StepTarget
from rlmesh_trio.report import EpisodeSummary
from rlmesh_trio.spec import EnvContract

__all__ = (
    "CASE",
    "CHANNELS",
    "DIGEST_BYTES",
    "FORMAT_VERSION",
    "PROFILE",
    "Batch",
    "BatchRow",
    "Decision",
    "EndKind",
    "Episode",
    "EpisodeEntry",
    "Footer",
    "Header",
    "Kept",
    "LevelName",
    "Mishap",
    "SeedRuleName",
    "Tick",
    "parse_level",
)

FORMAT_VERSION = 1
DIGEST_BYTES = 16

CASE = "conform.blob"
"""The setting of a header that says of which failed conformance case the recording is."""

PROFILE = "rlmesh_trio.recording.v1"
CHANNELS = {"/run": "Run", "/episode": "Episode", "/tick": "Tick", "/decision": "Decision"}
"""The file's channels, each with the name of its message."""

LevelName = Literal["digest", "ring", "full"]
SeedRuleName = Literal["by=slot", "by=lane"]
EndKind = Literal["terminated", "truncated", "capped", "interrupted", "error"]


def parse_level(text: str) -> tuple[LevelName, int]:
    """Read ``digest``, ``full`` or ``ring=K``; the number is K, 0 for the others. Raises :exc:`InvalidSpec`."""
    match text.partition("="):
        case ("digest" | "full" as name, "", ""):
            return name, 0
        case ("ring", "=", count) if count.isascii() and count.isdecimal() and 0 < int(count) < 1 << 32:
            return "ring", int(count)
        case _:
            raise InvalidSpec(f"the level of a recording is digest, full or ring=K with K of 1 or more, not {text!r}")


@attrs.frozen(eq=False, kw_only=True)
class Header:
    """Which run it is.

    Digests of ``unstable_leaves`` (paths of observation leaves that are not deterministic) are in the ticks and in no
    root; ``ignored_infos`` (keys, or ``outer.inner``) are in no digest. ``tolerance`` is the standard a comparison
    should go by, empty for exact. ``settings`` is what JSON can hold; ``machine`` says where it ran.
    """

    contract: EnvContract
    level: LevelName = "digest"
    ring: int = 0
    workflow_edition: str = ""
    base_seed: int | None = None
    seed_rule: SeedRuleName = "by=slot"
    unstable_leaves: tuple[str, ...] = ()
    ignored_infos: tuple[str, ...] = ()
    tolerance: str = ""
    settings: Mapping[str, Any] = attrs.field(factory=dict[str, Any])
    env_address: str = ""
    env_peer: bytes = b""
    model_peer: bytes = b""
    machine: Mapping[str, str] = attrs.field(factory=dict[str, str])


@attrs.define(eq=False, kw_only=True)
class Tick:
    """One request and its answer: a reset has ``reset``, a step ``action`` (one row a lane) and ``target``.

    By row, ``episodes`` are the ordinals of what was stepped and ``begins`` those of what begins with this answer's
    observation, 0 for none and for what the budget does not count; both are empty when they hold nothing. ``reply`` and
    ``error`` are both ``None`` for a request that was never answered. Below level ``full`` a read reply lacks
    observation, infos and completed episodes. Digests stand row by row, and in a row leaf by leaf.
    """

    number: int
    lanes: tuple[int, ...]
    episodes: tuple[int, ...] = ()
    begins: tuple[int, ...] = ()
    reset: ResetRequest | None = None
    action: Leaves = ()
    target: StepTarget | None = None
    reply: EnvReply | None = None
    error: EndpointError | None = None
    observation_digests: bytes = b""
    info_digests: bytes = b""


@attrs.frozen(kw_only=True)
class Kept:
    """One lane's observation leaves and infos at a tick."""

    tick: int
    observation: tuple[bytes, ...] | None
    infos: Metadata | None


@attrs.frozen(kw_only=True)
class Episode:
    """One episode, or one attempt at it (``attempt`` counts from 0). ``kept`` is for one that ended in an error."""

    ordinal: int
    attempt: int
    episode_id: str
    seed: int | None
    options: Metadata | None
    lane: int
    first_tick: int
    last_tick: int
    end: EndKind
    error_code: str
    steps: int
    cumulative_reward: float
    root: bytes
    kept: tuple[Kept, ...] = ()

    @property
    def entry(self) -> "EpisodeEntry":
        """What the footer says of it."""
        return EpisodeEntry(self.ordinal, self.first_tick, self.last_tick, self.end, self.root, self.steps)


@attrs.frozen
class EpisodeEntry:
    """Where an episode's last attempt lies in the file, how it ended, its root, and its steps."""

    ordinal: int
    first_tick: int
    last_tick: int
    end: EndKind
    root: bytes
    steps: int


@attrs.frozen
class Footer:
    """What the whole file holds: its run root, its ticks, and the episodes in order of their ordinals."""

    run_root: bytes
    ticks: int
    episodes: tuple[EpisodeEntry, ...]


class BatchRow(NamedTuple):
    """One row of a model batch: its episode and step, which of the batch's requests it came with, frames answered."""

    ordinal: int
    step: int
    request: int
    frames: int


@attrs.frozen
class Batch:
    """One call to the model, its rows in the order in which they were asked."""

    rows: tuple[BatchRow, ...]
    took_ns: int


@attrs.frozen
class Mishap:
    """Something the run recovered from (``retry``, ``quarantine``, ``reconnect``), or what ended it (``failed``).

    ``resumed`` says that another process went on from here. ``lane`` and ``episode_id`` are of the attempt given up.
    """

    kind: str
    ordinal: int
    attempt: int
    error: str
    message: str
    lane: int | None = None
    episode_id: str = ""


@attrs.frozen
class Decision:
    """What equal runs may do differently, and when (unix nanoseconds). ``tick`` is the newest tick then.

    An episode's summary is what the run counted as finished, with the times it took.
    """

    tick: int
    unix_ns: int
    what: Batch | Mishap | EpisodeSummary
