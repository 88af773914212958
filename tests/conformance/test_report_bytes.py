"""Equal outcomes make equal reports, to the byte: what differs between equal runs is times alone."""

from collections.abc import Callable
from io import StringIO

import attrs
import pytest

from rlmesh_trio.conformance.outcome import Outcome
from rlmesh_trio.conformance.reports.events import EventLog
from rlmesh_trio.conformance.reports.html import html_text
from rlmesh_trio.conformance.reports.json import json_text
from rlmesh_trio.conformance.reports.junit import junit_text
from rlmesh_trio.conformance.reports.material import Material
from rlmesh_trio.conformance.reports.terminal import terminal_text
from rlmesh_trio.conformance.traces import Trace
from tests.conformance.outcomes import everything, history, material

REPORTS = [terminal_text, junit_text, json_text, html_text]


def later() -> Outcome:
    """The same run on another day, on a slower machine, another port, with another token."""
    told = everything()
    targets = [
        attrs.evolve(
            one,
            seconds=99.0,
            address="127.0.0.1:9" if one.kind == "factory" else one.address,
            coverage=attrs.evolve(one.coverage, slowest=7.0),
            findings=tuple(
                attrs.evolve(
                    found,
                    seconds=77.0,
                    shrink_seconds=66.0,
                    evidence=found.evidence
                    and attrs.evolve(found.evidence, traces=tuple(map(slower, found.evidence.traces))),
                )
                for found in one.findings
            ),
        )
        for one in told.targets
    ]
    settings = attrs.evolve(told.settings, token="other")
    return attrs.evolve(told, targets=tuple(targets), started=1.8e9, seconds=500.0, settings=settings)


def slower(trace: Trace) -> Trace:
    return attrs.evolve(trace, answers=tuple(attrs.evolve(answer, seconds=9.0) for answer in trace.answers))


@pytest.mark.parametrize("report", REPORTS)
def test_equal_outcomes_give_equal_bytes(report: Callable[[Material], str]) -> None:
    assert report(material()) == report(material())


@pytest.mark.parametrize("report", REPORTS)
def test_without_times_so_do_runs_of_other_speed(report: Callable[[Material], str]) -> None:
    assert report(material(times=False)) == report(material(later(), times=False))
    assert report(material()) != report(material(later())), "with times they differ"


@pytest.mark.parametrize("report", REPORTS)
def test_what_was_found_is_no_time(report: Callable[[Material], str]) -> None:
    other = everything()
    first = attrs.evolve(other.targets[0], findings=other.targets[0].findings[:-1])
    assert report(material(times=False)) != report(
        material(attrs.evolve(other, targets=(first, *other.targets[1:])), times=False)
    )


def test_events_without_times_are_equal_too() -> None:
    written: list[str] = []
    for told in (everything(), later()):
        stream = StringIO()
        log = EventLog(stream, times=False)
        log.run_started(told.settings, ("Pole-v1",))
        log.target_opened(told.targets[0])
        for found in told.findings:
            log.found(found)
        evidence = history().evidence
        assert evidence is not None
        log.played("Pole-v1", "seed.history-independent", evidence.traces[0])
        log.run_ended(told)
        written.append(stream.getvalue())
    assert written[0] == written[1]
