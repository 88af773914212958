"""Who listens to a session: the hooks that are overridden, and the readers of its event stream.

An attribute named after a hook is ``None`` when nobody listens, so the step path asks before it builds an event.
"""

import logging
from collections.abc import Awaitable, Callable
from typing import Any, Final

from rlmesh_trio.engine.streams import EventQueue
from rlmesh_trio.events import ActionReceived, Event, ObservationEmitted
from rlmesh_trio.hooks import Hooks, overrides
from rlmesh_trio.messages import Leaves

__all__ = ("Listeners",)

logger = logging.getLogger("rlmesh_trio")

_NOTICES: Final = (
    "session_started",
    "episode_started",
    "observation_emitted",
    "action_received",
    "step_completed",
    "episode_completed",
    "relay_advisory",
    "incident_happened",
    "log",
    "on_telemetry",
    "session_ended",
    "session_failed",
)
_TRANSFORMS: Final = ("transform_observation", "transform_action")

_Notice = Callable[[Any], Awaitable[None]]


class Listeners:
    """The session's listeners, one optional callable per hook."""

    def __init__(self, hooks: Hooks | None) -> None:
        self._queues: list[EventQueue] = []
        self._over = False
        self._hooks: dict[str, Callable[[Any], Awaitable[Any]]] = {
            name: getattr(hooks, name)
            for name in (*_NOTICES, *_TRANSFORMS)
            if hooks is not None and overrides(hooks, name)
        }
        self.session_started: _Notice | None = None
        self.episode_started: _Notice | None = None
        self.observation_emitted: _Notice | None = None
        self.action_received: _Notice | None = None
        self.step_completed: _Notice | None = None
        self.episode_completed: _Notice | None = None
        self.relay_advisory: _Notice | None = None
        self.incident_happened: _Notice | None = None
        self.log: _Notice | None = None
        self.on_telemetry: _Notice | None = None
        self.session_ended: _Notice | None = None
        self.session_failed: _Notice | None = None
        self.transform_observation: Callable[[ObservationEmitted], Awaitable[Leaves | None]] | None = self._hooks.get(
            "transform_observation"
        )
        self.transform_action: Callable[[ActionReceived], Awaitable[Leaves]] | None = self._hooks.get(
            "transform_action"
        )
        self.hear_observations = self.hear_actions = False
        self._bind()

    def open_queue(self) -> EventQueue:
        """A queue of every event from now on; after the end of the session, one that is over."""
        queue = EventQueue()
        self._queues[:] = [*(known for known in self._queues if not known.abandoned), queue]
        if self._over:
            queue.finish()
        else:
            self._bind()
        return queue

    def hurry(self) -> None:
        """From now on nobody waits for a reader, however slow."""
        for queue in self._queues:
            queue.hurry()

    def finish(self) -> None:
        """No further event will come."""
        self._over = True
        for queue in self._queues:
            queue.finish()

    def _bind(self) -> None:
        for name in _NOTICES:
            hook = self._hooks.get(name)
            if self._queues:
                setattr(self, name, self._publisher(name, hook))
            elif hook is not None:
                setattr(self, name, self._guarded(name, hook))
        self.hear_observations = self.transform_observation is not None or self.observation_emitted is not None
        self.hear_actions = self.transform_action is not None or self.action_received is not None

    def _guarded(self, name: str, hook: _Notice) -> _Notice:
        async def notify(event: Event) -> None:
            try:
                await hook(event)
            except Exception as error:
                label = f"{name} (window)" if name == "on_telemetry" and _is_window(event) else name
                logger.warning("runtime hook %s failed: %s", label, error)

        return notify

    def _publisher(self, name: str, hook: _Notice | None) -> _Notice:
        notify = None if hook is None else self._guarded(name, hook)
        queues = self._queues

        async def publish(event: Event) -> None:
            for queue in queues:
                queue.put(event)
            if notify is not None:
                await notify(event)
            for queue in queues:
                if queue.is_behind:
                    await queue.caught_up()

        return publish


def _is_window(event: Event) -> bool:
    return getattr(getattr(event, "snapshot", None), "horizon", None) == "window"
