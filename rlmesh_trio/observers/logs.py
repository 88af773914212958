"""A run as log records: one text for people, and its facts as fields of the record, for a formatter that shows them."""

import logging
from functools import cache
from typing import Any, Final

import attrs

from rlmesh_trio.events import (
    EnvConnected,
    EpisodeCompleted,
    EpisodeStarted,
    Event,
    IncidentHappened,
    LogEmitted,
    ModelConnected,
    RelayAdvised,
    SessionEnded,
    SessionFailed,
    SessionStarted,
    StepCompleted,
)
from rlmesh_trio.hooks import Hooks

__all__ = ("LoggingHooks",)

_LEVELS: Final = {"debug": logging.DEBUG, "info": logging.INFO, "warn": logging.WARNING, "error": logging.ERROR}
_NO_FIELDS: Final = frozenset({"route", "final_info", "infos", "advisory", "incident", "level", "message"})


class LoggingHooks(Hooks):
    """Writes what happens to *logger*, by default ``rlmesh_trio.run``, at *level*.

    A failed session is an error, an incident or a caution of the relay a warning, and each step a debug line. Steps are
    only heard, and so only cost anything, where the logger is enabled for debug lines when the hooks are made.

    Each record has the fields of its event (``session_id``, ``env_id``, ``lane``, ``episode_id``, ``episode_index``,
    ``seed`` …) and ``event``, the hook's name. Handlers run inside the hook: one that blocks delays the run.
    """

    def __init__(self, logger: logging.Logger | None = None, level: int = logging.INFO) -> None:
        self._logger = logging.getLogger("rlmesh_trio.run") if logger is None else logger
        self._level = level
        if self._logger.isEnabledFor(logging.DEBUG):
            self.step_completed = self._step

    async def env_connected(self, event: EnvConnected) -> None:
        """Log the env's connection."""
        self._log(self._level, "env_connected", event, "env %s connected", event.env_id)

    async def model_connected(self, event: ModelConnected) -> None:
        """Log the model's connection."""
        self._log(self._level, "model_connected", event, "model %s connected", event.route.model_component_id)

    async def session_started(self, event: SessionStarted) -> None:
        """Log the start."""
        self._log(self._level, "session_started", event, "session %s started", event.session_id)

    async def episode_started(self, event: EpisodeStarted) -> None:
        """Log one start."""
        self._log(self._level, "episode_started", event, "episode %d started", event.episode_index)

    async def episode_completed(self, event: EpisodeCompleted) -> None:
        """Log one result."""
        text = "episode %d finished: return %.6g in %d steps"
        figures = (event.episode_index, event.cumulative_reward, event.step_count)
        self._log(self._level, "episode_completed", event, text, *figures)

    async def relay_advisory(self, event: RelayAdvised) -> None:
        """Log what the relay changed."""
        level = logging.WARNING if event.advisory.severity == "caution" else self._level
        self._log(level, "relay_advisory", event, "%s", event.advisory.message, severity=event.advisory.severity)

    async def incident_happened(self, event: IncidentHappened) -> None:
        """Log what the session recovered from."""
        incident = attrs.asdict(event.incident)
        text = f"{incident['error']}: {incident.pop('message')}"
        self._log(logging.WARNING, "incident_happened", event, "%s after %s", event.incident.kind, text, **incident)

    async def log(self, event: LogEmitted) -> None:
        """Log a line meant for people at its own level."""
        self._log(_LEVELS[event.level], "log", event, "%s", event.message)

    async def session_ended(self, event: SessionEnded) -> None:
        """Log the end."""
        text = "session %s ended: %d episodes, %d steps"
        self._log(self._level, "session_ended", event, text, event.session_id, event.total_episodes, event.total_steps)

    async def session_failed(self, event: SessionFailed) -> None:
        """Log the failure."""
        self._log(logging.ERROR, "session_failed", event, "session %s failed: %s", event.session_id, event.reason)

    async def _step(self, event: StepCompleted) -> None:
        self._log(logging.DEBUG, "step_completed", event, "step %d of %s", event.step, event.episode_record_id)

    def _log(self, level: int, name: str, event: Event, text: str, *figures: object, **fields: Any) -> None:
        if not self._logger.isEnabledFor(level):
            return
        route = {"env_id": event.route.env_id, "lane": event.route.lane}
        own = {field: getattr(event, field) for field in _shown_fields(type(event))}
        self._logger.log(level, text, *figures, extra={"event": name} | route | own | fields)


@cache
def _shown_fields(kind: type[Event]) -> tuple[str, ...]:
    return tuple(field.name for field in attrs.fields(kind) if field.name not in _NO_FIELDS)
