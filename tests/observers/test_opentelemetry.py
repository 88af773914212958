from typing import Any

import attrs
import pytest
from opentelemetry import trace
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import StatusCode

from rlmesh_trio.engine.listeners import Listeners
from rlmesh_trio.errors import EnvRpcError
from rlmesh_trio.observers import OpenTelemetryHooks
from tests.endpoints.toys import Script
from tests.observers.telling import ENDED, FAILED, RETRIED, STARTED, completed, play, started, telemetry


class Seen:
    """Hooks, and what they gave to an SDK that keeps everything."""

    def __init__(self) -> None:
        self._exporter = InMemorySpanExporter()
        provider = TracerProvider()
        provider.add_span_processor(SimpleSpanProcessor(self._exporter))
        self._reader = InMemoryMetricReader()
        self.tracer = provider.get_tracer("test")
        meter = MeterProvider([self._reader]).get_meter("test")
        self.hooks = OpenTelemetryHooks(self.tracer, meter)

    @property
    def spans(self) -> list[ReadableSpan]:
        """In the order they ended."""
        return list(self._exporter.get_finished_spans())

    def points(self) -> dict[str, Any]:
        """The one data point of each metric."""
        data = self._reader.get_metrics_data()
        assert data is not None
        metrics = data.resource_metrics[0].scope_metrics[0].metrics
        return {metric.name: metric.data.data_points[0] for metric in metrics}


@pytest.fixture
def seen() -> Seen:
    return Seen()


def attributes(span: ReadableSpan) -> dict[str, Any]:
    return dict(span.attributes or {})


async def test_a_session_is_a_span_with_a_child_for_each_episode(seen: Seen) -> None:
    await seen.hooks.session_started(STARTED)
    await seen.hooks.episode_started(started(1, lane=0))
    await seen.hooks.episode_started(started(2, lane=3, seed=None))
    await seen.hooks.episode_completed(completed(2, success=True, cumulative_reward=2.5))
    await seen.hooks.episode_completed(completed(1, terminated=False, truncated=True))
    await seen.hooks.session_ended(ENDED)
    second, first, route = seen.spans
    assert (route.name, first.name, second.name) == ("rlmesh.route", "rlmesh.episode", "rlmesh.episode")
    assert attributes(route) == {"session_id": "local", "env_id": "route-1", "num_envs": 2, "lanes": True}
    assert attributes(first) == {
        "index": 1,
        "lane": 0,
        "seed": 7,
        "steps": 10,
        "return": 1.0,
        "terminated": False,
        "truncated": True,
    }
    assert attributes(second).items() >= {"index": 2, "lane": 3, "return": 2.5, "success": True}.items()
    assert "seed" not in attributes(second)
    assert route.context is not None
    span_id = route.context.span_id
    for child in (first, second):
        assert child.parent is not None
        assert child.parent.span_id == span_id
    assert {span.status.status_code for span in seen.spans} == {StatusCode.UNSET}


async def test_a_lockstep_vector_is_one_route_of_many_envs(seen: Seen) -> None:
    await seen.hooks.session_started(STARTED)
    await seen.hooks.episode_started(started(1))
    await seen.hooks.episode_started(attrs.evolve(started(2), env_index=1))
    await seen.hooks.session_ended(ENDED)
    assert attributes(seen.spans[-1]).items() >= {"num_envs": 2, "lanes": False}.items()


async def test_a_failure_is_an_error_of_the_session_and_of_what_was_in_flight(seen: Seen) -> None:
    await seen.hooks.session_started(STARTED)
    await seen.hooks.episode_started(started(1))
    await seen.hooks.session_failed(FAILED)
    assert [span.name for span in seen.spans] == ["rlmesh.episode", "rlmesh.route"]
    for span in seen.spans:
        assert (span.status.status_code, span.status.description) == (StatusCode.ERROR, "env.step timed out")


async def test_an_episode_begun_again_ends_its_first_span_with_an_error(seen: Seen) -> None:
    await seen.hooks.session_started(STARTED)
    await seen.hooks.episode_started(started(1, lane=0))
    await seen.hooks.episode_started(started(1, lane=2, attempt=2))
    await seen.hooks.episode_completed(completed(1, lane=2))
    first, second = seen.spans
    assert (attributes(first)["lane"], first.status.status_code) == (0, StatusCode.ERROR)
    assert (attributes(second)["lane"], second.status.status_code) == (2, StatusCode.UNSET)


async def test_an_incident_is_an_event_of_the_session_and_ends_the_attempt(seen: Seen) -> None:
    await seen.hooks.session_started(STARTED)
    await seen.hooks.episode_started(started(1))
    await seen.hooks.incident_happened(RETRIED)
    await seen.hooks.episode_started(started(1, attempt=2))
    await seen.hooks.episode_completed(completed(1))
    await seen.hooks.session_ended(ENDED)
    first, second, route = seen.spans
    assert (first.status.status_code, first.status.description) == (
        StatusCode.ERROR,
        "OperationTimeout: env.step is late",
    )
    assert second.status.status_code == route.status.status_code == StatusCode.UNSET
    (noted,) = route.events
    assert noted.name == "rlmesh.retry"
    assert (noted.attributes or {})["episode_index"] == 1


async def test_a_session_stands_below_the_callers_span(seen: Seen) -> None:
    with seen.tracer.start_as_current_span("caller") as caller:
        await play(seen.hooks, max_episodes=1, lanes=1)
    (route,) = (span for span in seen.spans if span.name == "rlmesh.route")
    assert route.parent is not None
    assert route.parent.span_id == caller.get_span_context().span_id


async def test_windows_are_counted_and_timed_and_the_rest_comes_with_the_session(seen: Seen) -> None:
    await seen.hooks.session_started(STARTED)
    await seen.hooks.on_telemetry(telemetry("window", env_step=30, model_predict=10))
    await seen.hooks.on_telemetry(telemetry("window", env_step=20))
    await seen.hooks.on_telemetry(telemetry("session", env_step=57, model_predict=12))
    points = seen.points()
    assert points["rlmesh.steps"].value == 57
    assert dict(points["rlmesh.steps"].attributes) == {"session_id": "local"}
    assert (points["rlmesh.step.duration"].count, points["rlmesh.step.duration"].sum) == (2, 0.004)
    assert points["rlmesh.predict.duration"].count == 1


async def test_a_real_run_is_counted_in_full(seen: Seen) -> None:
    report = await play(seen.hooks, max_episodes=5)
    points = seen.points()
    assert points["rlmesh.episodes"].value == 5
    assert points["rlmesh.steps"].value == report.total_steps
    assert sum(span.name == "rlmesh.episode" for span in seen.spans) == 5


async def test_a_run_that_fails_is_a_failed_span(seen: Seen) -> None:
    with pytest.raises(EnvRpcError):
        await play(seen.hooks, Script({2: "raise"}), lanes=1)
    assert [(span.name, span.status.status_code) for span in seen.spans] == [
        ("rlmesh.episode", StatusCode.ERROR),
        ("rlmesh.route", StatusCode.ERROR),
    ]


async def test_outside_a_session_nothing_is_traced(seen: Seen) -> None:
    await seen.hooks.episode_started(started(1))
    await seen.hooks.episode_completed(completed(1))
    await seen.hooks.session_failed(FAILED)
    assert seen.spans == []


def test_a_step_costs_nothing(seen: Seen) -> None:
    listeners = Listeners(seen.hooks)
    assert listeners.step_completed is None
    assert not listeners.hear_observations
    assert not listeners.hear_actions


async def test_without_an_sdk_the_global_providers_do_nothing() -> None:
    assert isinstance(trace.get_tracer_provider(), trace.ProxyTracerProvider)
    assert (await play(OpenTelemetryHooks(), max_episodes=1)).total_episodes == 1
