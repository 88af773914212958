"""Hooks that write down what they are told, and a short form of it to compare with."""

from collections.abc import Iterable
from typing import TypeVar

from rlmesh_trio.events import (
    ActionReceived,
    EnvConnected,
    EpisodeCompleted,
    EpisodeStarted,
    Event,
    IncidentHappened,
    LogEmitted,
    ModelConnected,
    ObservationEmitted,
    RelayAdvised,
    SessionEnded,
    SessionFailed,
    SessionStarted,
    StepCompleted,
    TelemetryTaken,
)
from rlmesh_trio.hooks import Hooks

__all__ = ("EpisodeNumbers", "RecordingHooks", "events_of", "numbered")

E = TypeVar("E")


def events_of(kind: type[E], events: Iterable[Event]) -> list[E]:
    """The *events* of one kind, in order."""
    return [event for event in events if isinstance(event, kind)]


class RecordingHooks(Hooks):
    """Appends every notice to ``events``; the two transforms are left alone."""

    def __init__(self) -> None:
        self.events: list[Event] = []

    def of(self, kind: type[E]) -> list[E]:
        """The recorded events of one kind, in order."""
        return events_of(kind, self.events)

    @property
    def kinds(self) -> list[str]:
        """The class name of each recorded event."""
        return [type(event).__name__ for event in self.events]

    def under(self, episode_id: str) -> list[str]:
        """The kinds of the episode events that name *episode_id*, in order, as in :func:`numbered`."""
        return [kind for kind, ids in map(_episode_event, self.events) if episode_id in ids]

    async def env_connected(self, event: EnvConnected) -> None:
        """Record it."""
        self.events.append(event)

    async def model_connected(self, event: ModelConnected) -> None:
        """Record it."""
        self.events.append(event)

    async def session_started(self, event: SessionStarted) -> None:
        """Record it."""
        self.events.append(event)

    async def episode_started(self, event: EpisodeStarted) -> None:
        """Record it."""
        self.events.append(event)

    async def observation_emitted(self, event: ObservationEmitted) -> None:
        """Record it."""
        self.events.append(event)

    async def action_received(self, event: ActionReceived) -> None:
        """Record it."""
        self.events.append(event)

    async def step_completed(self, event: StepCompleted) -> None:
        """Record it."""
        self.events.append(event)

    async def episode_completed(self, event: EpisodeCompleted) -> None:
        """Record it."""
        self.events.append(event)

    async def relay_advisory(self, event: RelayAdvised) -> None:
        """Record it."""
        self.events.append(event)

    async def incident_happened(self, event: IncidentHappened) -> None:
        """Record it."""
        self.events.append(event)

    async def log(self, event: LogEmitted) -> None:
        """Record it."""
        self.events.append(event)

    async def on_telemetry(self, event: TelemetryTaken) -> None:
        """Record it."""
        self.events.append(event)

    async def session_ended(self, event: SessionEnded) -> None:
        """Record it."""
        self.events.append(event)

    async def session_failed(self, event: SessionFailed) -> None:
        """Record it."""
        self.events.append(event)


class EpisodeNumbers:
    """Numbers episode ids by first mention, from 1, since the ids themselves differ from run to run."""

    def __init__(self) -> None:
        self._known: dict[str, int] = {}

    def __call__(self, ids: Iterable[str]) -> list[int]:
        """The numbers of *ids*, in their order."""
        return [self._known.setdefault(id_, len(self._known) + 1) for id_ in ids]


def numbered(events: Iterable[Event]) -> list[str]:
    """The episode events as ``<kind> <numbers>``: ``started 1``, ``observation 1 2``, ``step 1``, ``completed 1``.

    An observation names the episodes of all lanes of its group, a step that of the first.
    """
    number = EpisodeNumbers()
    return [f"{kind} {' '.join(map(str, number(ids)))}" for kind, ids in map(_episode_event, events) if ids]


def _episode_event(event: Event) -> tuple[str, tuple[str, ...]]:
    match event:
        case EpisodeStarted():
            return "started", (event.episode_id,)
        case ObservationEmitted():
            return "observation", event.episode_ids
        case StepCompleted():
            return "step", (event.episode_id,)
        case EpisodeCompleted():
            return "completed", (event.episode_id,)
        case _:
            return "", ()
