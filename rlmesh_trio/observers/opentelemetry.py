"""A run as OpenTelemetry spans and metrics: a span for the session, one below it for each episode."""

from typing import TYPE_CHECKING, Any, Final

import attrs

from rlmesh_trio.events import (
    EpisodeCompleted,
    EpisodeStarted,
    IncidentHappened,
    SessionEnded,
    SessionFailed,
    SessionStarted,
    TelemetryTaken,
)
from rlmesh_trio.hooks import Hooks
from rlmesh_trio.observers.extras import load_extra

if TYPE_CHECKING:
    from opentelemetry.metrics import Histogram, Meter
    from opentelemetry.trace import Span, Tracer

__all__ = ("OpenTelemetryHooks",)

_SCOPE: Final = "rlmesh_trio"
_SECONDS_BOUNDARIES: Final = (0.00001, 0.0001, 0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 60)


class OpenTelemetryHooks(Hooks):
    """Traces and meters one session at a time; needs the extra ``opentelemetry``, or the API package from elsewhere.

    The span ``rlmesh.route`` has ``session_id``, ``env_id``, ``num_envs`` (lanes that played an episode) and ``lanes``
    (whether each is driven for itself); its children ``rlmesh.episode`` have ``index``, ``lane``, ``seed``, ``steps``,
    ``return``, ``success``, ``terminated`` and ``truncated``, where known. An episode that is begun again or never
    finished, and a session that fails, have the status error; incidents are events of the session's span.

    The counters ``rlmesh.steps`` (env round trips) and ``rlmesh.episodes``, and the histograms
    ``rlmesh.predict.duration`` and ``rlmesh.step.duration`` (seconds) carry the ``session_id``. Steps and durations
    come from the telemetry windows, a mean each: a step costs nothing more.

    *tracer* and *meter* default to the global providers' own, which do nothing until an SDK is set up. Exporting is the
    SDK's: let it batch, since a span that ends inside a hook must not wait for a network.
    Raises :exc:`MissingExtra` without the API package.
    """

    def __init__(self, tracer: "Tracer | None" = None, meter: "Meter | None" = None) -> None:
        self._api = load_extra("opentelemetry.trace", extra="opentelemetry", wanted_by="OpenTelemetryHooks")
        metrics = load_extra("opentelemetry.metrics", extra="opentelemetry", wanted_by="OpenTelemetryHooks")
        self._tracer: Tracer = self._api.get_tracer(_SCOPE) if tracer is None else tracer
        meters: Meter = metrics.get_meter(_SCOPE) if meter is None else meter
        self._steps = meters.create_counter("rlmesh.steps", "{step}", "Env round trips")
        self._episodes = meters.create_counter("rlmesh.episodes", "{episode}", "Finished episodes")
        self._durations = {
            "model.predict": _histogram(meters, "rlmesh.predict.duration", "Mean predict of each window"),
            "env.step": _histogram(meters, "rlmesh.step.duration", "Mean env step of each window"),
        }
        self._route: Span | None = None
        self._open: dict[int, Span] = {}
        self._lanes: set[int] = set()
        self._counted = 0

    async def session_started(self, event: SessionStarted) -> None:
        """Begin the session's span, below the one that is current."""
        fields = {"session_id": event.session_id, "env_id": event.env_id}
        self._route = self._tracer.start_span("rlmesh.route", attributes=fields)
        self._open.clear()
        self._lanes.clear()
        self._counted = 0

    async def episode_started(self, event: EpisodeStarted) -> None:
        """Begin an episode's span; an earlier one of the same index was given up."""
        if self._route is None:
            return
        if (given_up := self._open.pop(event.episode_index, None)) is not None:
            self._fail(given_up, "the episode was begun again")
        driven_alone = event.route.lane is not None
        lane = event.env_index if event.route.lane is None else event.route.lane
        self._lanes.add(lane)
        self._route.set_attributes({"num_envs": len(self._lanes), "lanes": driven_alone})
        self._open[event.episode_index] = self._tracer.start_span(
            "rlmesh.episode",
            context=self._api.set_span_in_context(self._route),
            attributes=_known(index=event.episode_index, lane=lane, seed=event.seed),
        )

    async def episode_completed(self, event: EpisodeCompleted) -> None:
        """End an episode's span with what it came to."""
        self._episodes.add(1, {"session_id": event.session_id})
        span = self._open.pop(event.episode_index, None)
        if span is None:
            return
        span.set_attributes(
            _known(
                steps=event.step_count,
                success=event.success,
                terminated=event.terminated,
                truncated=event.truncated,
            )
            | {"return": event.cumulative_reward}
        )
        span.end()

    async def incident_happened(self, event: IncidentHappened) -> None:
        """Note what the session recovered from on its span; the episode that was given up ends with it."""
        incident = event.incident
        if self._route is not None:
            self._route.add_event(f"rlmesh.{incident.kind}", _known(**attrs.asdict(incident)))
        given_up = None if incident.episode_index is None else self._open.pop(incident.episode_index, None)
        if given_up is not None:
            self._fail(given_up, f"{incident.error}: {incident.message}")

    async def on_telemetry(self, event: TelemetryTaken) -> None:
        """Count steps; take the mean durations of a window."""
        fields = {"session_id": event.session_id}
        for row in event.snapshot.rows:
            if row.metric != "rpc.total" or row.op not in self._durations:
                continue
            is_window = event.snapshot.horizon == "window"
            if is_window:
                self._durations[row.op].record(row.avg / 1000, fields)
            if row.op == "env.step":
                # The snapshot of the session counts everything, also what the last window did not see.
                fresh = row.count if is_window else row.count - self._counted
                self._counted += fresh
                self._steps.add(fresh, fields)

    async def session_ended(self, event: SessionEnded) -> None:  # noqa: ARG002
        """End the session's span."""
        self._finish(None)

    async def session_failed(self, event: SessionFailed) -> None:
        """End the session's span with the failure."""
        self._finish(event.reason)

    def _finish(self, failure: str | None) -> None:
        for span in self._open.values():
            self._fail(span, failure or "the episode was not finished")
        self._open.clear()
        route, self._route = self._route, None
        if route is None:
            return
        if failure is None:
            route.end()
        else:
            self._fail(route, failure)

    def _fail(self, span: "Span", why: str) -> None:
        span.set_status(self._api.Status(self._api.StatusCode.ERROR, why))
        span.end()


def _histogram(meter: "Meter", name: str, description: str) -> "Histogram":
    return meter.create_histogram(name, "s", description, explicit_bucket_boundaries_advisory=_SECONDS_BOUNDARIES)


def _known(**fields: Any) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if value is not None}
