"""What a session leaves behind: episode summaries, telemetry, advisories, incidents, and the report of them all."""

from collections.abc import Sequence
from typing import Literal

import attrs

__all__ = ("Advisory", "EpisodeInFlight", "EpisodeSummary", "Incident", "Report", "TelemetryRow", "TelemetrySnapshot")


@attrs.frozen
class EpisodeSummary:
    """One finished episode. ``episode_index`` counts from 1 in start order; the two means are per step.

    ``success`` is ``None`` unless the episode's final info reports it; it is never guessed from ``terminated``.
    """

    episode_index: int
    env_index: int
    seed: int | None
    trial_index: int | None
    step_count: int
    cumulative_reward: float
    terminated: bool
    truncated: bool
    duration_ms: int
    success: bool | None
    predict_ms: float | None
    step_ms: float | None


@attrs.frozen
class EpisodeInFlight:
    """An episode whose reset or step failed: how its summary would begin."""

    episode_index: int
    env_index: int
    seed: int | None


@attrs.frozen
class TelemetryRow:
    """One series: ``count`` values seen, mean and percentiles over those retained. Milliseconds, bytes or counts."""

    op: str
    component: str
    metric: str
    kind: str
    count: int
    avg: float
    p50: float
    p95: float
    p99: float


@attrs.frozen
class TelemetrySnapshot:
    """The rows of one window or of the whole session, ordered by operation, component and metric."""

    horizon: Literal["window", "session"]
    rows: tuple[TelemetryRow, ...]


@attrs.frozen
class Advisory:
    """Something the relay wants known about a payload it converted."""

    severity: Literal["info", "caution"]
    message: str


@attrs.frozen
class Incident:
    """A failure the session recovered from. A ``retry`` or ``quarantine`` concerns one episode.

    ``episode_id`` is the id that was given up, and ``attempt`` how often the episode was started again, this time
    included. Of a ``reconnect`` there is one for all lanes: it names none, and ``attempt`` is how many tries it took.
    ``error`` is the failure's class in ``rlmesh_trio.errors``, ``message`` its text.
    """

    kind: Literal["retry", "quarantine", "reconnect"]
    env_index: int | None
    episode_index: int | None
    episode_id: str | None
    attempt: int
    error: str
    message: str


@attrs.frozen
class Report:
    """The outcome of a session, or what a failed one finished.

    ``total_steps`` counts group steps: one for each env round trip, also when it moved a whole vector, and also those
    of episodes that were given up and started again. ``episodes`` is empty without ``max_episodes``; otherwise it
    holds the finished ones in completion order. ``incidents`` are what the session recovered from, in order.
    """

    session_id: str
    env_id: str
    total_steps: int
    total_episodes: int
    episodes: Sequence[EpisodeSummary]
    telemetry: TelemetrySnapshot | None
    advisories: Sequence[Advisory]
    incidents: Sequence[Incident] = ()
