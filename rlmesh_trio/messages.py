"""What crosses the Env and Model Protocols: requests, replies, and the episode facts inside them.

A payload is never opened here. It travels as its *leaves*: one buffer per fundamental leaf of the space, depth
first, each the row-major little-endian slab of all rows of the message.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import attrs

__all__ = (
    "EnvReply",
    "EpisodeInfo",
    "EpisodeRecord",
    "HistoryRow",
    "Leaf",
    "Leaves",
    "MetaValue",
    "Metadata",
    "Phases",
    "PredictReply",
    "PredictRequest",
    "ReleaseAdapterRequest",
    "ResetAdapterRequest",
    "ResetRequest",
    "StepTarget",
)

Leaf = bytes | memoryview
Leaves = Sequence[Leaf]

MetaValue = int | float | str | bool | bytes | None | Sequence["MetaValue"] | Mapping[str, "MetaValue"]
Metadata = Mapping[str, MetaValue]


class EpisodeInfo(NamedTuple):
    """The episode one row of a predict belongs to: its id (empty when none) and the seed it was reset with."""

    episode_id: str
    seed: int | None


@attrs.frozen
class ResetRequest:
    """Start episodes on the named lanes, or on all lanes when ``env_indices`` is empty.

    ``seeds`` is empty (unseeded) or holds one seed per lane; ``episode_ids`` holds one fresh id per lane.
    """

    seeds: tuple[int, ...] = ()
    options: Metadata | None = None
    timeout_ms: int = 0
    env_indices: tuple[int, ...] = ()
    episode_ids: tuple[str, ...] = ()


@attrs.define(eq=False)
class StepTarget:
    """Whom a step addresses: constant for an episode, so an endpoint may keep its wire form in ``encoded``."""

    timeout_ms: int
    env_indices: tuple[int, ...]
    episode_ids: tuple[str, ...]
    encoded: bytes | None = None


@attrs.define
class EpisodeRecord:
    """One finished episode as the env accounts it (``EpisodeMetadata`` on the wire). Times are unix nanoseconds."""

    episode_id: str = ""
    seed: int | None = None
    env_index: int = 0
    step_count: int = 0
    cumulative_reward: float = 0.0
    terminated: bool = False
    truncated: bool = False
    start_timestamp_ns: int = 0
    end_timestamp_ns: int = 0
    final_info: Metadata | None = None


@attrs.define(eq=False)
class Phases:
    """How an endpoint spent its time, in nanoseconds: 0 means not measured.

    ``lane_skew_ns``, ``held_episodes`` and ``held_state_bytes`` are ``None`` when not measured; 0 is a real sample.
    """

    decode_ns: int = 0
    user_ns: int = 0
    encode_ns: int = 0
    queue_ns: int = 0
    adapter_ns: int = 0
    in_flight: int = 0
    lane_skew_ns: int | None = None
    held_episodes: int | None = None
    held_state_bytes: int | None = None


@attrs.define(eq=False)
class EnvReply:
    """The answer to a reset or a step. ``rewards`` and the masks hold one entry per lane and are empty on a reset.

    ``infos`` is a mapping that may decode itself on first access. ``request_bytes`` and ``response_bytes`` are
    the encoded message sizes, 0 for an endpoint that encodes nothing. ``timings`` is what a served env measured, as it
    travelled, where that is not decoded yet: ``endpoint_total_ns`` and ``phases`` are ``None`` then.
    """

    observation: Leaves | None = None
    infos: Metadata | None = None
    rewards: Sequence[float] = ()
    terminated_mask: bytes = b""
    truncated_mask: bytes = b""
    completed: Sequence[EpisodeRecord] = ()
    env_indices: Sequence[int] = ()
    endpoint_total_ns: int | None = None
    phases: Phases | None = None
    request_bytes: int = 0
    response_bytes: int = 0
    timings: bytes = b""


class HistoryRow(NamedTuple):
    """One earlier observation that rides a predict; each observation leaves a group at most once."""

    observation: Leaves | None
    episode_info: tuple[EpisodeInfo, ...]
    step: int


@attrs.define(eq=False)
class PredictRequest:
    """Ask for the actions of one group. ``episode_info`` has one entry per row of ``observation``.

    ``episode_steps`` (steps taken in each row's episode) is for local policies and does not travel. ``history`` and
    ``step`` are set only for a model that wants history.
    """

    session_id: str
    env_id: str
    request_id: str
    observation: Leaves | None
    episode_info: tuple[EpisodeInfo, ...]
    episode_steps: tuple[int, ...] = ()
    history: Sequence[HistoryRow] = ()
    step: int | None = None


@attrs.define(eq=False)
class PredictReply:
    """The action frames of one group, in play order: frame 0 is for the observation asked about.

    The three ids mirror the request's context.
    """

    session_id: str
    env_id: str
    request_id: str
    actions: Sequence[Leaves]
    endpoint_total_ns: int | None = None
    phases: Phases | None = None
    group_size: int | None = None
    request_bytes: int = 0
    response_bytes: int = 0


@attrs.frozen
class ResetAdapterRequest:
    """End the named episodes on the model."""

    session_id: str
    env_id: str
    request_id: str
    episode_ids: tuple[str, ...]


@attrs.frozen
class ReleaseAdapterRequest:
    """The route is over, for ``reason``."""

    session_id: str
    env_id: str
    request_id: str
    reason: str
