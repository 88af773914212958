"""Listeners that write down what they are told."""

from typing import TypeVar

from rlmesh_trio.events import (
    ActionReceived,
    EpisodeCompleted,
    EpisodeStarted,
    Event,
    LogEmitted,
    ObservationEmitted,
    RelayAdvised,
    SessionEnded,
    SessionFailed,
    SessionStarted,
    StepCompleted,
    TelemetryTaken,
)
from rlmesh_trio.hooks import Hooks
from rlmesh_trio.report import TelemetryRow, TelemetrySnapshot

E = TypeVar("E")


def of(kind: type[E], events: list[Event]) -> list[E]:
    return [event for event in events if isinstance(event, kind)]


class Recorder(Hooks):
    """Writes every notice down; the transforms are left alone."""

    def __init__(self) -> None:
        self.events: list[Event] = []

    def of(self, kind: type[E]) -> list[E]:
        return of(kind, self.events)

    @property
    def kinds(self) -> list[str]:
        return [type(event).__name__ for event in self.events]

    def under(self, episode_id: str) -> list[str]:
        """The kinds of the events that name *episode_id*, in order."""
        return [kind for kind, ids in map(episode_event, self.events) if episode_id in ids]

    async def session_started(self, event: SessionStarted) -> None:
        self.events.append(event)

    async def episode_started(self, event: EpisodeStarted) -> None:
        self.events.append(event)

    async def observation_emitted(self, event: ObservationEmitted) -> None:
        self.events.append(event)

    async def action_received(self, event: ActionReceived) -> None:
        self.events.append(event)

    async def step_completed(self, event: StepCompleted) -> None:
        self.events.append(event)

    async def episode_completed(self, event: EpisodeCompleted) -> None:
        self.events.append(event)

    async def relay_advisory(self, event: RelayAdvised) -> None:
        self.events.append(event)

    async def log(self, event: LogEmitted) -> None:
        self.events.append(event)

    async def on_telemetry(self, event: TelemetryTaken) -> None:
        self.events.append(event)

    async def session_ended(self, event: SessionEnded) -> None:
        self.events.append(event)

    async def session_failed(self, event: SessionFailed) -> None:
        self.events.append(event)


def episode_event(event: Event) -> tuple[str, tuple[str, ...]]:
    """An event's kind in one word and the episode ids it names: an observation names all lanes, a step its first."""
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


class Numbers:
    """Numbers episode ids by first mention, from 1."""

    def __init__(self) -> None:
        self._known: dict[str, int] = {}

    def __call__(self, ids: tuple[str, ...]) -> list[int]:
        return [self._known.setdefault(id_, len(self._known) + 1) for id_ in ids]


def numbered(events: list[Event]) -> list[str]:
    """The episode events as ``kind ids``, with numbered ids."""
    number = Numbers()
    return [f"{kind} {' '.join(map(str, number(ids)))}" for kind, ids in map(episode_event, events) if ids]


def row(snapshot: TelemetrySnapshot | None, op: str, metric: str) -> TelemetryRow | None:
    """The row of one series, if it has any sample."""
    assert snapshot is not None
    return next((row for row in snapshot.rows if (row.op, row.metric) == (op, metric)), None)
