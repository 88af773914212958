"""What ``-v`` and ``-vv`` show while targets are tested: what breaks a check, and every request with its answer."""

import click

from rlmesh_trio.conformance.outcome import TargetOutcome
from rlmesh_trio.conformance.printing import op_text, script_text
from rlmesh_trio.conformance.scripts import Wait
from rlmesh_trio.conformance.traces import Answer, Trace
from rlmesh_trio.conformance.verdicts import Evidence, Finding
from rlmesh_trio.conformance.watching import Watcher
from rlmesh_trio.contract import ValueSpace

__all__ = ("Narrator",)


class Narrator(Watcher):
    """Tells on standard error what happens: nothing at *verbosity* 0, scripts at 1, requests too at 2."""

    def __init__(self, verbosity: int) -> None:
        self._verbosity = verbosity
        self._actions: ValueSpace | None = None

    def target_opened(self, target: TargetOutcome) -> None:
        """Remember how its actions are read."""
        self._actions = None if target.contract is None else target.contract.action_space

    def phase_started(self, target: str, phase: str, checks: tuple[str, ...]) -> None:
        """Name the phase."""
        self._tell(1, f"{target}: {phase}, {len(checks)} checks")

    def broke(self, target: str, check: str, evidence: Evidence, ops: int, *, shrinking: bool) -> None:
        """Show each case that breaks a check."""
        word = "still broken" if shrinking else "broken"
        self._tell(1, f"{target}: {check} {word} by {ops} ops: {evidence.lines[0] if evidence.lines else ''}")

    def found(self, finding: Finding) -> None:
        """Show the verdict, and the scripts of a failure."""
        self._tell(1, f"{finding.target}: {finding.check} {finding.verdict} {finding.reason}".rstrip())
        for script in finding.scripts:
            self._tell(1, f"  {script_text(script, self._actions)}")

    def played(self, target: str, check: str, trace: Trace) -> None:
        """Show each request and its answer."""
        del target, check
        if self._verbosity < 2:
            return
        answers = {answer.op: answer for answer in trace.answers}
        for place, op in enumerate(trace.script.ops):
            answer = answers.get(place)
            if answer is not None or isinstance(op, Wait):
                self._tell(2, f"  {op_text(op, trace.script, self._actions)}{'' if answer is None else _told(answer)}")

    def _tell(self, verbosity: int, line: str) -> None:
        if self._verbosity >= verbosity:
            click.echo(line, err=True)


def _told(answer: Answer) -> str:
    if answer.refusal is not None:
        return f" -> {answer.refusal.code}: {answer.refusal.message}"
    ends = [
        f"lane {lane} {'terminated' if terminated else 'truncated'}"
        for lane, terminated, truncated in zip(answer.lanes, answer.terminated, answer.truncated, strict=False)
        if terminated or truncated
    ]
    rewards = " ".join(f"{reward:g}" for reward in answer.rewards)
    parts = [f"{answer.seconds * 1000:.1f} ms", f"reward {rewards}" if rewards else "", *ends]
    return " -> " + ", ".join(part for part in parts if part)
