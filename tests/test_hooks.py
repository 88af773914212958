import inspect
from typing import Any, get_args

import pytest

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

HOOKS: dict[str, type] = {
    "env_connected": EnvConnected,
    "model_connected": ModelConnected,
    "session_started": SessionStarted,
    "episode_started": EpisodeStarted,
    "transform_observation": ObservationEmitted,
    "observation_emitted": ObservationEmitted,
    "transform_action": ActionReceived,
    "action_received": ActionReceived,
    "step_completed": StepCompleted,
    "episode_completed": EpisodeCompleted,
    "relay_advisory": RelayAdvised,
    "incident_happened": IncidentHappened,
    "log": LogEmitted,
    "on_telemetry": TelemetryTaken,
    "session_ended": SessionEnded,
    "session_failed": SessionFailed,
}


class Anything:
    """Stands for an event: has every attribute."""

    def __getattr__(self, name: str) -> str:
        return f"the event's {name}"


def test_there_are_exactly_these_hooks() -> None:
    assert {name for name in vars(Hooks) if not name.startswith("_")} == HOOKS.keys()


def test_every_event_has_its_hook() -> None:
    assert set(HOOKS.values()) == set(get_args(Event))


@pytest.mark.parametrize(("name", "event"), HOOKS.items())
def test_a_hook_takes_its_event(name: str, event: type) -> None:
    (_, parameter) = inspect.signature(getattr(Hooks, name)).parameters.values()
    assert (parameter.name, parameter.annotation) == ("event", event)


@pytest.mark.parametrize("name", HOOKS)
async def test_a_hook_does_nothing_unless_overridden(name: str) -> None:
    returned: Any = await getattr(Hooks(), name)(Anything())
    expected = {"transform_observation": "the event's observation", "transform_action": "the event's action"}
    assert returned == expected.get(name)
