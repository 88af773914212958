"""The base class a listener subclasses: async methods that do nothing.

An event whose method nobody overrides is never built. Apart from the two transforms a hook is best effort: an
ordinary exception is logged and the run goes on. A transform that raises fails the route with ``HookError``.
"""

from rlmesh_trio.events import (
    ActionReceived,
    EnvConnected,
    EpisodeCompleted,
    EpisodeStarted,
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
from rlmesh_trio.messages import Leaves

__all__ = ("Hooks", "overrides")


class Hooks:
    """Subclass and override what you want to see. Hooks of one group run in its order; groups may interleave."""

    async def env_connected(self, event: EnvConnected) -> None:
        """After the env's handshake, before the session starts; called by whoever connects."""

    async def model_connected(self, event: ModelConnected) -> None:
        """After the model's handshake, before the session starts; called by whoever connects."""

    async def session_started(self, event: SessionStarted) -> None:
        """Once, first."""

    async def episode_started(self, event: EpisodeStarted) -> None:
        """For each episode within the budget."""

    async def transform_observation(self, event: ObservationEmitted) -> Leaves | None:
        """Return the observation the model shall see; raising fails the route."""
        return event.observation

    async def observation_emitted(self, event: ObservationEmitted) -> None:
        """For each observation, after transform and relay."""

    async def transform_action(self, event: ActionReceived) -> Leaves:
        """Return the action the env shall get; raising fails the route."""
        return event.action

    async def action_received(self, event: ActionReceived) -> None:
        """For each step, after transform and relay."""

    async def step_completed(self, event: StepCompleted) -> None:
        """For each group step."""

    async def episode_completed(self, event: EpisodeCompleted) -> None:
        """For each episode within the budget; the last event under its id."""

    async def relay_advisory(self, event: RelayAdvised) -> None:
        """For each distinct advisory."""

    async def incident_happened(self, event: IncidentHappened) -> None:
        """For each episode that is started again after a failure, and each reconnect."""

    async def log(self, event: LogEmitted) -> None:
        """For lines meant for people."""

    async def on_telemetry(self, event: TelemetryTaken) -> None:
        """For each window snapshot (may overlap any other hook), and once for the session."""

    async def session_ended(self, event: SessionEnded) -> None:
        """Success, last."""

    async def session_failed(self, event: SessionFailed) -> None:
        """Failure, last."""


def overrides(hooks: Hooks, name: str) -> bool:
    """Whether *hooks* has a method *name* of its own: an event whose method nobody overrides is never built."""
    return getattr(getattr(hooks, name), "__func__", None) is not getattr(Hooks, name)
