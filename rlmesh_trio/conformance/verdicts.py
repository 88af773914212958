"""What comes of a check: its severity, its verdict, and the evidence a reader gets to see."""

from typing import Any, Literal

import attrs

from rlmesh_trio.conformance.scripts import Script
from rlmesh_trio.conformance.traces import Trace

__all__ = ("Blame", "Evidence", "Finding", "Severity", "VerdictName")

Severity = Literal["must", "should", "note"]
VerdictName = Literal["pass", "fail", "warn", "note", "skip", "blocked", "known", "error"]
Blame = Literal["env", "server"]


@attrs.frozen
class Evidence:
    """How one case broke a requirement.

    ``lines`` are what a reader sees, at most about six; ``meaning`` is one sentence on what such a fault usually is.
    ``signature`` names the failing relation in a few words (leaf, kind), stable between runs, for baselines and lists
    of known faults. ``traces`` are those that were compared, side by side where there are two; ``first`` is the op and
    lane where they part, or where the fault shows. ``severity`` is set where this case breaks less than the check
    demands: two traces of a must that differ in infos alone are a should. ``measured`` are more lines, on what took how
    long: no two runs have the same, and reports leave them out with their times.
    """

    lines: tuple[str, ...]
    signature: str
    meaning: str = ""
    blame: Blame = "env"
    traces: tuple[Trace, ...] = ()
    first: tuple[int, int] | None = None
    severity: Severity | None = None
    measured: tuple[str, ...] = ()


@attrs.frozen
class Finding:
    """The outcome of one check on one target.

    ``reason`` says why for skip ("needs num_envs >= 2"), blocked (the id of what blocks it), known and error. A failing
    one has ``evidence``, the shrunk ``scripts`` that show it, how many ``runs`` of how many ``tries`` broke, and
    ``shrunk_from`` ops. ``case`` is the shrunk case itself, for the judge to be asked again: what ``cases`` drew, made
    of scripts, tuples, numbers, texts and bytes. ``moot`` names the ops (script, op) whose actions or seeds may be
    others without an effect on the failure. ``examples`` and ``steps`` are what the check cost. ``cut`` says that the
    time was over before all cases were tried, or before a failing one was as small as it gets: another run with the
    same seed may get less far, or farther.
    """

    check: str
    severity: Severity
    verdict: VerdictName
    target: str
    reason: str = ""
    evidence: Evidence | None = None
    scripts: tuple[Script, ...] = ()
    case: Any = attrs.field(default=None, hash=False)
    runs: int = 0
    tries: int = 0
    shrunk_from: int = 0
    shrink_seconds: float = 0.0
    moot: tuple[tuple[int, int], ...] = ()
    examples: int = 0
    steps: int = 0
    seconds: float = 0.0
    cut: bool = False
