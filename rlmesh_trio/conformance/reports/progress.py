"""What a person sees while targets are tested: a line for each family as soon as all its checks are done with.

On a terminal the last line says what is going on; elsewhere nothing is ever redrawn.
"""

# ruff: noqa: ARG002 - a watcher takes what it is told, whether it needs it or not

import shutil
import time
from collections.abc import Callable
from typing import TextIO

import click

from rlmesh_trio.conformance.outcome import Outcome, TargetOutcome
from rlmesh_trio.conformance.reports.material import Tally, family_of, tallies
from rlmesh_trio.conformance.reports.terminal import wants_color
from rlmesh_trio.conformance.reports.texts import count, harmless
from rlmesh_trio.conformance.settings import Settings
from rlmesh_trio.conformance.traces import Trace
from rlmesh_trio.conformance.verdicts import Evidence, Finding, VerdictName
from rlmesh_trio.conformance.watching import Watcher

__all__ = ("Progress",)

_REDRAW_SECONDS = 0.1
_CLEAR = "\r\x1b[K"
_WORDS: tuple[tuple[VerdictName, str, str | None], ...] = (
    ("pass", "passed", "green"),
    ("fail", "failed", "red"),
    ("error", "not judged", "red"),
    ("warn", "warned", "yellow"),
    ("known", "known", "magenta"),
    ("note", "noted", "cyan"),
    ("blocked", "blocked", None),
    ("skip", "skipped", None),
)


class Progress(Watcher):
    """Tells on *stream*. *clock* gives seconds.

    A check whose finding is told again after its family's line, because another one blocks it, is in the report only.
    """

    def __init__(self, stream: TextIO, clock: Callable[[], float] = time.monotonic) -> None:
        self._stream = stream
        self._clock = clock
        self._live = stream.isatty()
        self._color = wants_color(stream)
        self._several = False
        self._expected: dict[str, set[str]] = {}
        self._found: dict[str, Finding] = {}
        self._told: set[str] = set()
        self._now = ""
        self._plays = 0
        self._drawn = 0.0

    def run_started(self, settings: Settings, targets: tuple[str, ...]) -> None:
        """Name the seed: a run that is killed can be repeated too."""
        self._several = len(targets) > 1
        self._say(f"seed {settings.seed}")

    def target_opened(self, target: TargetOutcome) -> None:
        """Begin anew."""
        self._expected, self._found, self._told = {}, {}, set()
        self._plays = 0
        if self._several:
            self._say(harmless(target.name))

    def phase_started(self, target: str, phase: str, checks: tuple[str, ...]) -> None:
        """Learn which checks there are."""
        for check in checks:
            self._expected.setdefault(family_of(check), set()).add(check)
        self._draw(phase)

    def check_started(self, target: str, phase: str, check: str) -> None:
        """Show what is up."""
        self._draw(f"{phase}: {check}")

    def played(self, target: str, check: str, trace: Trace) -> None:
        """Show that something is going on."""
        self._plays += 1
        if self._clock() - self._drawn >= _REDRAW_SECONDS:
            self._draw(self._now)

    def broke(self, target: str, check: str, evidence: Evidence, ops: int, *, shrinking: bool) -> None:
        """Show how small a failure has become."""
        self._draw(f"shrinking: {check}, {count(ops, 'op')}")

    def found(self, finding: Finding) -> None:
        """Tell of a family whose last check this is."""
        self._found[finding.check] = finding
        family = family_of(finding.check)
        if self._expected.get(family, set()) <= self._found.keys():
            self._tell(family)

    def target_closed(self, target: TargetOutcome) -> None:
        """Tell of the families that were not completed."""
        for finding in target.findings:
            self._found[finding.check] = finding
        for tally in tallies(target.findings):
            self._tell(tally.family)
        self._draw("")

    def run_ended(self, outcome: Outcome) -> None:
        """Leave the line clean."""
        self._draw("")

    def _tell(self, family: str) -> None:
        if family in self._told:
            return
        self._told.add(family)
        (tally,) = tallies([finding for finding in self._found.values() if family_of(finding.check) == family])
        self._say(_line(tally) if self._color else click.unstyle(_line(tally)))

    def _say(self, line: str) -> None:
        self._stream.write(f"{_CLEAR if self._live else ''}{line}\n")
        self._stream.flush()
        self._drawn = 0.0

    def _draw(self, now: str) -> None:
        self._now = now
        if not self._live:
            return
        plays = f"  {count(self._plays, 'script')} played" if self._plays else ""
        width = shutil.get_terminal_size().columns - 1
        self._stream.write(_CLEAR + (f"{now} …{plays}"[:width] if now else ""))
        self._stream.flush()
        self._drawn = self._clock()


def _line(tally: Tally) -> str:
    counted = [(tally.count(verdict), word, color) for verdict, word, color in _WORDS]
    parts = [click.style(f"{number} {word}", fg=color) for number, word, color in counted if number]
    checks = count(sum(tally.verdicts.values()), "check")
    return f"  {tally.family:<10} {checks}, {count(tally.steps, 'step')} in {tally.seconds:.1f} s: {', '.join(parts)}"
