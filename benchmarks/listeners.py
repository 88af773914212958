"""A listener that hears everything and does next to nothing, for runs with every hook on."""

# ruff: noqa: ARG002 - the hooks' signatures

from rlmesh_trio import Hooks
from rlmesh_trio.events import ActionReceived, Event, ObservationEmitted
from rlmesh_trio.messages import Leaves

__all__ = ("EveryHook",)


class EveryHook(Hooks):
    """Overrides each hook there is, so that every event is built; ``seen`` counts them."""

    def __init__(self) -> None:
        self.seen = 0

    async def count(self, event: Event) -> None:
        self.seen += 1

    session_started = episode_started = observation_emitted = action_received = step_completed = count
    episode_completed = relay_advisory = log = on_telemetry = count
    incident_happened = session_ended = session_failed = count

    async def transform_observation(self, event: ObservationEmitted) -> Leaves | None:
        self.seen += 1
        return event.observation

    async def transform_action(self, event: ActionReceived) -> Leaves:
        self.seen += 1
        return event.action
