"""What is seen while targets are tested: a line a family, and on a terminal one line more that is redrawn."""

from io import StringIO

import pytest

from rlmesh_trio.conformance.reports.progress import Progress
from rlmesh_trio.conformance.verdicts import Finding
from tests.conformance.outcomes import everything, finding, history, outcome, target

CHECKS = ("seed.reset-repeatable", "seed.history-independent", "lanes.solo-equal")
FOUND = (
    finding("seed.reset-repeatable", "pass"),
    history(),
    finding("lanes.solo-equal", "skip", reason="needs num_envs >= 2", steps=0, seconds=0.0),
)


class Terminal(StringIO):
    def isatty(self) -> bool:
        return True


def watched(stream: StringIO, *found: Finding) -> Progress:
    """A run of one target, up to these findings."""
    moments = iter(range(10_000))
    progress = Progress(stream, clock=lambda: float(next(moments)))
    told = outcome(target())
    progress.run_started(told.settings, ("Pole-v1",))
    progress.target_opened(told.targets[0])
    progress.phase_started("Pole-v1", "search", CHECKS)
    for one in found:
        progress.check_started("Pole-v1", "search", one.check)
        if one.evidence is not None:
            progress.played("Pole-v1", one.check, one.evidence.traces[0])
            progress.broke("Pole-v1", one.check, one.evidence, 5, shrinking=True)
        progress.found(one)
    return progress


def test_a_family_is_told_of_once_its_last_check_is_done_with() -> None:
    stream = StringIO()
    watched(stream, *FOUND[:1])
    assert stream.getvalue() == "seed 42\n"
    stream = StringIO()
    progress = watched(stream, *FOUND)
    progress.found(FOUND[0])
    progress.target_closed(target(*FOUND))
    assert stream.getvalue() == (
        "seed 42\n"
        "  seed       2 checks, 2,468 steps in 3.0 s: 1 passed, 1 failed\n"
        "  lanes      1 check, 0 steps in 0.0 s: 1 skipped\n"
    )


def test_what_was_cut_short_is_told_at_the_end() -> None:
    stream = StringIO()
    watched(stream).target_closed(target(*FOUND))
    assert stream.getvalue().count("\n") == 3


def test_several_targets_are_named() -> None:
    stream = StringIO()
    progress = Progress(stream)
    told = everything()
    progress.run_started(told.settings, ("Pole-v1", "vector"))
    for one in told.targets:
        progress.target_opened(one)
        progress.target_closed(one)
    progress.run_ended(told)
    lines = stream.getvalue().splitlines()
    assert [line for line in lines if not line.startswith("  ")] == ["seed 42", "Pole-v1", "vector"]


def test_a_terminal_shows_what_is_going_on_and_is_left_clean(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    stream = Terminal()
    progress = watched(stream, *FOUND)
    progress.target_closed(target(*FOUND))
    progress.run_ended(outcome(target(*FOUND)))
    drawn = stream.getvalue().split("\r\x1b[K")
    assert "search: seed.reset-repeatable …" in drawn
    assert "shrinking: seed.history-independent, 5 ops …  1 script played" in drawn
    assert any("\x1b[31m1 failed" in line for line in drawn)
    assert drawn[-1] == ""


def test_elsewhere_nothing_is_redrawn() -> None:
    stream = StringIO()
    watched(stream, *FOUND)
    assert "\r" not in stream.getvalue()
    assert "\x1b" not in stream.getvalue()
