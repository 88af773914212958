"""The events of a run: a line each at once, what hypothesis observes among them, and a stream that breaks."""

import json
from io import StringIO
from typing import Any

import hypothesis
import pytest
from hypothesis import strategies as st
from hypothesis.internal import observability

from rlmesh_trio.conformance.reports.events import EventLog
from tests.conformance.outcomes import everything, history


def log_of(stream: Any, **options: Any) -> EventLog:
    ticks = iter(range(1000))
    return EventLog(stream, clock=lambda: float(next(ticks)), **options)


def tell_everything(log: EventLog) -> None:
    told, failure = everything(), history()
    assert failure.evidence is not None
    log.run_started(told.settings, ("Pole-v1", "vector"))
    log.target_opened(told.targets[0])
    log.phase_started("Pole-v1", "search", (failure.check,))
    log.check_started("Pole-v1", "search", failure.check)
    log.played("Pole-v1", failure.check, failure.evidence.traces[0])
    log.broke("Pole-v1", failure.check, failure.evidence, 5, shrinking=True)
    log.found(failure)
    log.target_closed(told.targets[1])
    log.run_ended(told)


def test_every_event_is_a_line_that_begins_with_its_name_and_ends_with_its_time() -> None:
    stream = StringIO()
    tell_everything(log_of(stream))
    lines = stream.getvalue().splitlines()
    assert all(line.startswith('{"event": "') for line in lines)
    events = [json.loads(line) for line in lines]
    assert [event["event"] for event in events] == [
        "run_started",
        "target_opened",
        "phase_started",
        "check_started",
        "played",
        "broke",
        "found",
        "target_closed",
        "run_ended",
    ]
    assert [event["time"] for event in events] == [float(n) for n in range(1, 10)]
    assert all(list(event)[-1] == "time" for event in events)


def test_events_say_what_happened() -> None:
    stream = StringIO()
    tell_everything(log_of(stream, times=False))
    told = {event["event"]: event for event in map(json.loads, stream.getvalue().splitlines())}
    assert told["run_started"] == {"event": "run_started", "seed": 42, "targets": ["Pole-v1", "vector"]}
    assert told["target_opened"]["num_envs"] == 1
    assert told["played"] == {
        "event": "played",
        "target": "Pole-v1",
        "check": "seed.history-independent",
        "ops": 3,
        "answers": 3,
        "lost": None,
    }
    assert (told["broke"]["ops"], told["broke"]["shrinking"]) == (5, True)
    assert (told["found"]["verdict"], told["found"]["signature"]) == ("fail", "obs.velocity: value")
    assert told["target_closed"]["lost"] == "the server no longer answers: connection refused"
    assert (told["run_ended"]["status"], told["run_ended"]["interrupted"]) == (4, False)
    assert "s3cret" not in stream.getvalue()


class Full(StringIO):
    """A disk with room for two lines."""

    def write(self, s: str) -> int:
        if self.getvalue().count("\n") >= 2:
            raise OSError(28, "No space left on device")
        return super().write(s)


def test_a_stream_that_breaks_ends_the_log_and_not_the_run() -> None:
    log = log_of(Full())
    tell_everything(log)
    assert log.failure is not None
    assert log.failure.strerror == "No space left on device"


def observe(log: EventLog) -> None:
    """Run a test of hypothesis while *log* listens."""

    @hypothesis.settings(max_examples=5, database=None)
    @hypothesis.given(case=st.integers(0, 9))
    def holds(case: int) -> None:
        pass

    with log.hypothesis_lines():
        log.check_started("Pole-v1", "search", "seed.trace-repeatable")
        holds()


def test_what_hypothesis_observes_is_passed_on_under_the_name_of_the_check(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.argv", ["rlmesh-trio", "--token", "s3cret"])
    collects = observability.OBSERVABILITY_COLLECT_COVERAGE
    stream = StringIO()
    observe(log_of(stream))
    lines = [line for line in stream.getvalue().splitlines() if line.startswith('{"type": ')]
    told = [json.loads(line) for line in lines]
    assert {one["type"] for one in told} == {"test_case", "info"}
    assert {one["property"] for one in told} == {"seed.trace-repeatable"}
    assert all(0 <= one["arguments"]["case"] <= 9 for one in told if one["type"] == "test_case")
    assert "s3cret" not in stream.getvalue()
    assert observability.OBSERVABILITY_COLLECT_COVERAGE is collects
    assert not observability.observability_enabled()


def test_without_times_hypothesis_is_not_listened_to() -> None:
    stream = StringIO()
    observe(log_of(stream, times=False))
    assert stream.getvalue().count("\n") == 1
