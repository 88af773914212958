"""Who watches a run: a class of callbacks that do nothing, to be overridden by progress displays and event logs."""

from rlmesh_trio.conformance.outcome import Outcome, TargetOutcome
from rlmesh_trio.conformance.settings import Settings
from rlmesh_trio.conformance.traces import Trace
from rlmesh_trio.conformance.verdicts import Evidence, Finding

__all__ = ("Watcher",)


class Watcher:
    """Called in the order of events, from the run's own task; whatever one raises ends the run as a fault of the kit.

    *target* is always the target's name. A finding may be told again, when a later one blocks it: the last counts.
    """

    def run_started(self, settings: Settings, targets: tuple[str, ...]) -> None:
        """The run begins; ``settings.seed`` is set."""

    def target_opened(self, target: TargetOutcome) -> None:
        """A target answered: everything is known of it but what will be found."""

    def phase_started(self, target: str, phase: str, checks: tuple[str, ...]) -> None:
        """*phase* is ``contract``, ``examples``, ``search`` or ``soak``."""

    def check_started(self, target: str, phase: str, check: str) -> None:
        """A check is up in this phase."""

    def played(self, target: str, check: str, trace: Trace) -> None:
        """A script was played to its end, or to the session's."""

    def broke(self, target: str, check: str, evidence: Evidence, ops: int, *, shrinking: bool) -> None:
        """A case of *ops* ops broke the check's requirement."""

    def found(self, finding: Finding) -> None:
        """A check is done with."""

    def target_closed(self, target: TargetOutcome) -> None:
        """Nothing more will be found of a target."""

    def run_ended(self, outcome: Outcome) -> None:
        """The run is over."""
