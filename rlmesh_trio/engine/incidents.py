"""The book of what a session recovered from: every entry is a log line, an event, and a line of the report."""

import logging

from rlmesh_trio.engine.listeners import Listeners
from rlmesh_trio.events import IncidentHappened, Route
from rlmesh_trio.report import Incident

__all__ = ("Incidents",)

logger = logging.getLogger("rlmesh_trio")


class Incidents:
    """The incidents of one session, in order: ``entries``."""

    def __init__(self, session_id: str, listeners: Listeners) -> None:
        self.entries: list[Incident] = []
        self._session_id = session_id
        self._listeners = listeners

    async def add(self, route: Route, incident: Incident) -> None:
        """Note *incident* and log it, both at once; then await whoever listens."""
        self.entries.append(incident)
        if incident.kind == "reconnect":
            logger.warning("reconnected to the env at try %d: %s", incident.attempt, incident.message)
        else:
            logger.warning(
                "%s of lane %s, whose episode %s is started again (attempt %d): %s",
                incident.kind,
                incident.env_index,
                incident.episode_index,
                incident.attempt,
                incident.message,
            )
        notify = self._listeners.incident_happened
        if notify is not None:
            await notify(IncidentHappened(self._session_id, route, incident))
