"""Several watchers of one run, told one after the other."""

from rlmesh_trio.conformance.outcome import Outcome, TargetOutcome
from rlmesh_trio.conformance.settings import Settings
from rlmesh_trio.conformance.traces import Trace
from rlmesh_trio.conformance.verdicts import Evidence, Finding
from rlmesh_trio.conformance.watching import Watcher

__all__ = ("WatcherGroup",)


class WatcherGroup(Watcher):
    """Passes everything on to each of *watchers*, in this order."""

    def __init__(self, *watchers: Watcher) -> None:
        self._watchers = watchers

    def run_started(self, settings: Settings, targets: tuple[str, ...]) -> None:
        """To each."""
        for watcher in self._watchers:
            watcher.run_started(settings, targets)

    def target_opened(self, target: TargetOutcome) -> None:
        """To each."""
        for watcher in self._watchers:
            watcher.target_opened(target)

    def phase_started(self, target: str, phase: str, checks: tuple[str, ...]) -> None:
        """To each."""
        for watcher in self._watchers:
            watcher.phase_started(target, phase, checks)

    def check_started(self, target: str, phase: str, check: str) -> None:
        """To each."""
        for watcher in self._watchers:
            watcher.check_started(target, phase, check)

    def played(self, target: str, check: str, trace: Trace) -> None:
        """To each."""
        for watcher in self._watchers:
            watcher.played(target, check, trace)

    def broke(self, target: str, check: str, evidence: Evidence, ops: int, *, shrinking: bool) -> None:
        """To each."""
        for watcher in self._watchers:
            watcher.broke(target, check, evidence, ops, shrinking=shrinking)

    def found(self, finding: Finding) -> None:
        """To each."""
        for watcher in self._watchers:
            watcher.found(finding)

    def target_closed(self, target: TargetOutcome) -> None:
        """To each."""
        for watcher in self._watchers:
            watcher.target_closed(target)

    def run_ended(self, outcome: Outcome) -> None:
        """To each."""
        for watcher in self._watchers:
            watcher.run_ended(outcome)
