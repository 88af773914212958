"""What every report is made of: the outcome, and what is known besides of its findings.

Two equal outcomes make reports of the same bytes, but for the times, which every form keeps together in one place and
leaves out when told so.
"""

from collections.abc import Mapping, Sequence

import attrs

from rlmesh_trio.conformance.outcome import FAILED, PASSED, Outcome, TargetOutcome
from rlmesh_trio.conformance.registry import CHECKS, Check
from rlmesh_trio.conformance.verdicts import Finding, VerdictName

__all__ = (
    "SHOWN",
    "Group",
    "Material",
    "Reproduction",
    "Stale",
    "Tally",
    "cut_by_time",
    "family_of",
    "not_tested",
    "tallies",
)

SHOWN: tuple[VerdictName, ...] = ("fail", "warn", "error", "known")
"""The verdicts that come with a case to show, the gravest first."""

_NOT_TESTED: tuple[VerdictName, ...] = ("skip", "blocked")


@attrs.frozen
class Reproduction:
    """The ways to see one failure again, each empty where there is none.

    ``again`` is a command to paste into a shell, ``blob`` the case itself as one word, ``file`` a recording, and
    ``plain`` a script of ``plain_lines`` lines that needs gymnasium only; where there is none, ``no_plain`` says why.
    """

    again: str = ""
    blob: str = ""
    file: str = ""
    plain: str = ""
    plain_lines: int = 0
    no_plain: str = ""


@attrs.frozen
class Stale:
    """A baseline entry that is out of date: the check, the target pattern it names, and why."""

    check: str
    target: str
    why: str


@attrs.frozen(eq=False)
class Material:
    """An outcome to be reported. ``reproductions`` are by check and target; ``checks`` those known, by id.

    ``times`` says whether a report tells how long things took and when they were.
    """

    outcome: Outcome
    reproductions: Mapping[tuple[str, str], Reproduction] = attrs.field(factory=dict[tuple[str, str], Reproduction])
    stale: tuple[Stale, ...] = ()
    times: bool = True
    checks: Mapping[str, Check] = attrs.field(factory=lambda: CHECKS)

    @property
    def status(self) -> int:
        """The exit status: the outcome's, or a failure where only the baseline is wrong."""
        return FAILED if self.stale and self.outcome.status == PASSED else self.outcome.status

    def requirement(self, check: str) -> str:
        """What *check* demands, empty for one that is not known here."""
        known = self.checks.get(check)
        return known.requirement if known else ""

    def rule(self, check: str) -> str:
        """Where that is demanded."""
        known = self.checks.get(check)
        return known.rule if known else ""

    def reproduction(self, finding: Finding) -> Reproduction:
        """How to see *finding* again."""
        return self.reproductions.get((finding.check, finding.target), Reproduction())

    def shown(self, target: TargetOutcome) -> list[Finding]:
        """The findings of *target* that have something to show: failures first, each kind in the catalogue's order."""
        return [finding for verdict in SHOWN for finding in target.findings if finding.verdict == verdict]

    @property
    def check_ids(self) -> list[str]:
        """Every check that any target has a finding of, once, in order."""
        return list(dict.fromkeys(finding.check for finding in self.outcome.findings))


@attrs.define
class Tally:
    """The figures of one family on one target."""

    family: str
    verdicts: dict[str, int] = attrs.field(factory=dict[str, int])
    examples: int = 0
    steps: int = 0
    seconds: float = 0.0

    def add(self, finding: Finding) -> None:
        """Count one finding."""
        self.verdicts[finding.verdict] = self.verdicts.get(finding.verdict, 0) + 1
        self.examples += finding.examples
        self.steps += finding.steps
        self.seconds += finding.seconds

    def count(self, verdict: VerdictName) -> int:
        """How many findings have this verdict."""
        return self.verdicts.get(verdict, 0)


def family_of(check: str) -> str:
    """The part of a check's id before the first dot."""
    return check.partition(".")[0]


def tallies(findings: Sequence[Finding]) -> list[Tally]:
    """The figures of each family, in the order in which they first appear."""
    found: dict[str, Tally] = {}
    for finding in findings:
        family = family_of(finding.check)
        found.setdefault(family, Tally(family)).add(finding)
    return list(found.values())


@attrs.frozen
class Group:
    """Checks that were not tested for one and the same reason; ``checks`` may name whole families as ``lanes.*``."""

    reason: str
    checks: tuple[str, ...]


def not_tested(findings: Sequence[Finding]) -> list[Group]:
    """What was skipped or blocked, by reason, in order. A family that has one reason throughout is named as one."""
    reasons: dict[str, list[str]] = {}
    for finding in findings:
        if finding.verdict in _NOT_TESTED:
            reason = f"blocked by {finding.reason}" if finding.verdict == "blocked" else finding.reason
            reasons.setdefault(reason, []).append(finding.check)
    sizes = {tally.family: sum(tally.verdicts.values()) for tally in tallies(findings)}
    return [Group(reason, _joined(checks, sizes)) for reason, checks in reasons.items()]


def cut_by_time(findings: Sequence[Finding]) -> tuple[str, ...]:
    """The checks that the time ended before all their cases were tried, or before a failure was small, in order."""
    sizes = {tally.family: sum(tally.verdicts.values()) for tally in tallies(findings)}
    return _joined([finding.check for finding in findings if finding.cut], sizes)


def _joined(checks: Sequence[str], sizes: Mapping[str, int]) -> tuple[str, ...]:
    families: dict[str, list[str]] = {}
    for check in checks:
        families.setdefault(family_of(check), []).append(check)
    named: list[str] = []
    for family, members in families.items():
        whole = 1 < len(members) == sizes[family]
        named += [f"{family}.*"] if whole else members
    return tuple(named)
