"""What a session tells while it runs: one record per thing that happened.

Payloads are leaves as they travel; ``rlmesh_trio.spaces.codec_for`` turns them into numpy with the space beside them.
The three per-step records are plain slotted objects because they are built on the step path: treat them as read-only.
"""

from typing import Literal

import attrs

from rlmesh_trio.messages import Leaves, Metadata
from rlmesh_trio.report import Advisory, Incident, TelemetrySnapshot
from rlmesh_trio.spec import ValueSpace

__all__ = (
    "ActionReceived",
    "EnvConnected",
    "EpisodeCompleted",
    "EpisodeStarted",
    "Event",
    "IncidentHappened",
    "LogEmitted",
    "ModelConnected",
    "ObservationEmitted",
    "RelayAdvised",
    "Route",
    "SessionEnded",
    "SessionFailed",
    "SessionStarted",
    "StepCompleted",
    "TelemetryTaken",
)


@attrs.frozen
class Route:
    """Where an event comes from; ``lane`` is ``None`` for a whole-vector group and for the session itself."""

    env_id: str
    env_component_id: str
    model_component_id: str
    lane: int | None = None


@attrs.frozen
class EnvConnected:
    """The env's handshake succeeded. Fired by whoever connects, not by the engine."""

    session_id: str
    route: Route
    env_id: str


@attrs.frozen
class ModelConnected:
    """The model's handshake succeeded. Fired by whoever connects, not by the engine."""

    session_id: str
    route: Route


@attrs.frozen
class SessionStarted:
    """The spec is valid and the session begins; always the first event of a session."""

    session_id: str
    route: Route
    env_id: str


@attrs.frozen
class SessionEnded:
    """The session reached its budget; always the last event of a successful one."""

    session_id: str
    route: Route
    reason: str
    total_steps: int
    total_episodes: int


@attrs.frozen
class SessionFailed:
    """The session failed or was cancelled; always the last event of such a one."""

    session_id: str
    route: Route
    reason: str


@attrs.frozen
class LogEmitted:
    """A line meant for people."""

    session_id: str
    route: Route
    level: Literal["debug", "info", "warn", "error"]
    message: str
    source: str


@attrs.frozen
class EpisodeStarted:
    """An episode within the budget began. ``env_index`` is the position within the group's own lanes."""

    session_id: str
    route: Route
    episode_id: str
    episode_record_id: str
    episode_index: int
    env_index: int
    started_from_auto_reset: bool
    seed: int | None
    trial_index: int | None


@attrs.frozen
class EpisodeCompleted:
    """An episode within the budget ended: the last event under its id. ``env_index`` is the lane."""

    session_id: str
    route: Route
    episode_id: str
    episode_record_id: str
    episode_index: int
    env_index: int
    step_count: int
    cumulative_reward: float
    terminated: bool
    truncated: bool
    duration_ms: int
    final_info: Metadata | None
    success: bool | None
    seed: int | None
    trial_index: int | None
    predict_ms: float | None
    step_ms: float | None


@attrs.define(eq=False)
class ObservationEmitted:
    """A group holds an observation, after transform and relay; ``raw_observation`` is as the env sent it."""

    session_id: str
    route: Route
    episode_id: str
    episode_ids: tuple[str, ...]
    episode_record_id: str
    episode_record_ids: tuple[str, ...]
    step: int
    env_index: int
    is_reset: bool
    num_envs: int
    observation_space: ValueSpace
    observation: Leaves | None
    raw_observation: Leaves | None
    infos: Metadata | None


@attrs.define(eq=False)
class ActionReceived:
    """An action is about to be stepped, after transform and relay; ``raw_action`` is as the model sent it."""

    session_id: str
    route: Route
    episode_id: str
    episode_ids: tuple[str, ...]
    episode_record_id: str
    episode_record_ids: tuple[str, ...]
    step: int
    env_index: int
    action_space: ValueSpace
    action: Leaves
    raw_action: Leaves


@attrs.define(eq=False)
class StepCompleted:
    """A group's step was accounted. The lists are in lane order; ``predict_ms`` is 0 on a replayed frame."""

    session_id: str
    route: Route
    episode_id: str
    episode_record_id: str
    step: int
    env_index: int
    rewards: tuple[float, ...]
    infos: Metadata | None
    terminated: tuple[bool, ...]
    truncated: tuple[bool, ...]
    autoreset_roll: tuple[bool, ...]
    predict_ms: float
    step_ms: float


@attrs.frozen
class RelayAdvised:
    """The relay changed a payload for the first time in this way."""

    session_id: str
    route: Route
    leg: Literal["env_to_model", "model_to_env"]
    advisory: Advisory


@attrs.frozen
class IncidentHappened:
    """The session recovered from a failed env operation: an episode is started again, or the env was reconnected."""

    session_id: str
    route: Route
    incident: Incident


@attrs.frozen
class TelemetryTaken:
    """A telemetry snapshot: of each window while running, and of the session once at its end."""

    session_id: str
    route: Route
    snapshot: TelemetrySnapshot


Event = (
    EnvConnected
    | ModelConnected
    | SessionStarted
    | SessionEnded
    | SessionFailed
    | LogEmitted
    | EpisodeStarted
    | EpisodeCompleted
    | ObservationEmitted
    | ActionReceived
    | StepCompleted
    | RelayAdvised
    | IncidentHappened
    | TelemetryTaken
)
