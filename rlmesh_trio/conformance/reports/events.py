"""The events of a run as NDJSON, written while it goes on: one object a line, each beginning with ``{"event":``.

Every line is whole when it is written, so that the file can be followed, and read after a crash. The time of an event,
in seconds since the run began, is its last member. Hypothesis' own observability lines are passed on as they are: they
begin with ``{"type":`` and can be given to Tyche.
"""

import dataclasses
import threading
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Any, TextIO

from hypothesis.internal import observability

from rlmesh_trio.conformance.outcome import Outcome, TargetOutcome
from rlmesh_trio.conformance.settings import Settings
from rlmesh_trio.conformance.traces import Trace
from rlmesh_trio.conformance.verdicts import Evidence, Finding
from rlmesh_trio.conformance.watching import Watcher
from rlmesh_trio.contract import autoreset_name
from rlmesh_trio.observers.records import strict_json

__all__ = ("EventLog",)

_SECRETS = ("sys.argv",)


class EventLog(Watcher):
    """Writes to *stream*, which is open for text. Once that fails nothing more is written: see ``failure``.

    Without *times* events have none, and hypothesis' lines, full of them, are left out. *clock* gives seconds.
    """

    def __init__(self, stream: TextIO, *, times: bool = True, clock: Callable[[], float] = time.monotonic) -> None:
        self.failure: OSError | None = None
        self._stream = stream
        self._times = times
        self._clock = clock
        self._started = clock()
        self._check = ""
        # Hypothesis speaks from its own thread.
        self._lock = threading.Lock()

    @contextmanager
    def hypothesis_lines(self) -> Generator[None]:
        """While the block runs, pass on what hypothesis observes, each line under the name of its check."""
        if not self._times:
            yield
            return
        collects = observability.OBSERVABILITY_COLLECT_COVERAGE
        observability.OBSERVABILITY_COLLECT_COVERAGE = False
        observability.add_observability_callback(self._observe, all_threads=True)
        try:
            yield
        finally:
            observability.remove_observability_callback(self._observe)
            observability.OBSERVABILITY_COLLECT_COVERAGE = collects

    def run_started(self, settings: Settings, targets: tuple[str, ...]) -> None:
        """The seed, and the targets by name."""
        self._started = self._clock()
        self._tell("run_started", seed=settings.seed, targets=targets)

    def target_opened(self, target: TargetOutcome) -> None:
        """What a target says of itself."""
        contract = target.contract
        self._tell(
            "target_opened",
            target=target.name,
            kind=target.kind,
            package=target.package,
            version=target.version,
            contract_digest=target.contract_digest,
            env_id=contract.env_id if contract else None,
            num_envs=contract.num_envs if contract else None,
            autoreset_mode=autoreset_name(contract.autoreset_mode) if contract else None,
        )

    def phase_started(self, target: str, phase: str, checks: tuple[str, ...]) -> None:
        """The checks of a phase."""
        self._tell("phase_started", target=target, phase=phase, checks=checks)

    def check_started(self, target: str, phase: str, check: str) -> None:
        """A check is up."""
        self._check = check
        self._tell("check_started", target=target, phase=phase, check=check)

    def played(self, target: str, check: str, trace: Trace) -> None:
        """The size of a script, how many of its ops were answered, and how the session was lost if it was."""
        lost = trace.lost.code if trace.lost else None
        sizes = {"ops": len(trace.script.ops), "answers": len(trace.answers)}
        self._tell("played", target=target, check=check, **sizes, lost=lost)

    def broke(self, target: str, check: str, evidence: Evidence, ops: int, *, shrinking: bool) -> None:
        """What broke, and in how many ops."""
        told = {"signature": evidence.signature, "lines": evidence.lines}
        self._tell("broke", target=target, check=check, ops=ops, shrinking=shrinking, **told)

    def found(self, finding: Finding) -> None:
        """A verdict; the last one of a check counts."""
        evidence = finding.evidence
        self._tell(
            "found",
            target=finding.target,
            check=finding.check,
            severity=finding.severity,
            verdict=finding.verdict,
            blame=evidence.blame if evidence else None,
            reason=finding.reason,
            signature=evidence.signature if evidence else None,
            runs=finding.runs,
            tries=finding.tries,
            examples=finding.examples,
            steps=finding.steps,
            cut_by_time=finding.cut,
        )

    def target_closed(self, target: TargetOutcome) -> None:
        """A target is done with, or lost."""
        self._tell("target_closed", target=target.name, lost=target.lost)

    def run_ended(self, outcome: Outcome) -> None:
        """The end, before a baseline was looked at."""
        self._tell("run_ended", status=outcome.status, interrupted=outcome.interrupted)

    def _tell(self, event: str, **facts: Any) -> None:
        if self._times:
            facts["time"] = round(self._clock() - self._started, 6)
        self._write({"event": event, **facts})

    def _observe(self, observation: observability.Observation, _thread: int) -> None:
        self._write(_observed(observation, self._check))

    def _write(self, document: dict[str, Any]) -> None:
        line = strict_json(document, ensure_ascii=False, default=_plain) + "\n"
        with self._lock:
            if self.failure is not None:
                return
            try:
                self._stream.write(line)
                self._stream.flush()
            except OSError as failure:
                self.failure = failure


def _observed(observation: observability.Observation, check: str) -> dict[str, Any]:
    """*observation* as hypothesis writes it, its property named after the check, and nothing of the command line."""
    told = {field.name: getattr(observation, field.name) for field in dataclasses.fields(observation)}
    if check:
        told["property"] = check
    if isinstance(observation, observability.TestCaseObservation):
        told["metadata"] = {key: value for key, value in observation.metadata.to_json().items() if key not in _SECRETS}
    return told


def _plain(value: Any) -> Any:
    """What JSON does not know, as it can be read."""
    return dataclasses.asdict(value) if dataclasses.is_dataclass(value) and not isinstance(value, type) else repr(value)
