"""The baseline: failures that are known and accepted for now, each of which must go on to fail.

A failure that an entry covers becomes ``known`` and does not count. An entry whose check passes, or whose date is over,
is stale and fails the run: a baseline only ever shrinks unnoticed. An entry is bound to the failing relation (its
``signature``), so that another failure of the same check is not swallowed.

The file, ``conform-baseline.toml``::

    [[entry]]
    id = "seed.history-independent"
    target = "127.0.0.1:*"             # a pattern; by default every target
    signature = "obs.velocity: value"  # by default any failure of the check
    reason = "the physics cache, see #41"
    until = 2027-01-31                 # the last day; by default for good
    flaky = true                       # may pass as well; by default it may not
"""

import fnmatch
import glob
import json
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from datetime import date, datetime
from pathlib import Path
from typing import Any, cast

import attrs

from rlmesh_trio.conformance.outcome import Outcome, TargetOutcome
from rlmesh_trio.conformance.registry import CHECKS
from rlmesh_trio.conformance.reports.material import Stale
from rlmesh_trio.conformance.verdicts import Finding
from rlmesh_trio.errors import InvalidSpec

__all__ = ("Baseline", "Entry", "baseline_text", "read_baseline", "updated")

_HEADER = """\
# Failures that are known and accepted for now. Each must go on to fail: one that passes, or whose date is over, is a
# stale entry and fails the run. Written by `rlmesh-trio conform --update-baseline`, which keeps reason and flaky.
"""
_JUDGED = ("pass", "fail", "warn", "note", "known")
_PASSED = ("pass", "note")
_COVERED = ("fail", "warn")
_TYPES: dict[str, tuple[type, str]] = {
    "id": (str, "a text"),
    "target": (str, "a text"),
    "signature": (str, "a text"),
    "reason": (str, "a text"),
    "until": (date, "a date, as in 2027-01-31"),
    "flaky": (bool, "true or false"),
}


@attrs.frozen
class Entry:
    """One accepted failure: of the check ``id`` on the targets that the pattern ``target`` matches.

    An empty ``signature`` takes any failure of the check. ``until`` is the last day on which it is accepted.
    """

    id: str
    target: str = "*"
    signature: str = ""
    reason: str = ""
    until: date | None = None
    flaky: bool = False

    def is_about(self, finding: Finding) -> bool:
        """Whether *finding* is of this entry's check and target."""
        return finding.check == self.id and fnmatch.fnmatchcase(finding.target, self.target)

    def covers(self, finding: Finding) -> bool:
        """Whether *finding* is the failure that is accepted."""
        told = finding.evidence.signature if finding.evidence else ""
        return self.is_about(finding) and finding.verdict in _COVERED and self.signature in ("", told)

    def is_over(self, today: date) -> bool:
        """Whether the entry's last day is past."""
        return self.until is not None and today > self.until


@attrs.frozen
class Baseline:
    """The entries of a file, in its order."""

    entries: tuple[Entry, ...] = ()

    def entry_for(self, finding: Finding, today: date) -> Entry | None:
        """The entry that accepts *finding* on this day, if there is one."""
        return next((entry for entry in self.entries if entry.covers(finding) and not entry.is_over(today)), None)

    def applied(self, outcome: Outcome, today: date) -> Outcome:
        """*outcome* with the accepted failures made ``known``, and those of another signature marked as such."""
        targets = [self._applied(target, today) for target in outcome.targets]
        return attrs.evolve(outcome, targets=tuple(targets))

    def _applied(self, target: TargetOutcome, today: date) -> TargetOutcome:
        findings = [self._judged(finding, today) for finding in target.findings]
        return attrs.evolve(target, findings=tuple(findings))

    def _judged(self, finding: Finding, today: date) -> Finding:
        entry = self.entry_for(finding, today)
        if entry is not None:
            why = f"in the baseline: {entry.reason or 'no reason given'}"
            return attrs.evolve(finding, verdict="known", reason=why)
        listed = [one for one in self.entries if one.is_about(finding) and not one.is_over(today)]
        if finding.verdict in _COVERED and listed:
            accepted = ", ".join(repr(one.signature) for one in listed)
            told = finding.evidence.signature if finding.evidence else ""
            return attrs.evolve(finding, reason=f"not the failure of the baseline: {told!r}, accepted is {accepted}")
        return finding

    def stale(self, outcome: Outcome, today: date) -> tuple[Stale, ...]:
        """The entries that *outcome*, as it was found, shows to be out of date. What was not judged shows nothing."""
        return tuple(
            Stale(entry.id, entry.target, why)
            for entry in self.entries
            for why in _reasons_it_is_stale(entry, outcome, today)
        )


def _reasons_it_is_stale(entry: Entry, outcome: Outcome, today: date) -> Iterator[str]:
    if entry.id not in CHECKS:
        yield "there is no such check: take it out"
    judged = [finding for finding in outcome.findings if entry.is_about(finding) and finding.verdict in _JUDGED]
    if judged and entry.is_over(today):
        yield f"its date {entry.until} is over: mend the env, or agree on a new date"
    elif not entry.flaky:
        for target in [finding.target for finding in judged if finding.verdict in _PASSED]:
            where = "" if glob.escape(target) == entry.target else f" on {target}"
            yield f"the check passes{where}: take it out{', or narrow its target' if where else ''}"


def updated(baseline: Baseline, outcome: Outcome, today: date) -> Baseline:
    """*baseline* made to fit *outcome*, as it was found: stale entries go, failures that count and are new come.

    An entry that covers a failure keeps its reason; it loses a date that is over, and targets where its check passes.
    What was not judged stays.
    """
    kept = [one for entry in baseline.entries for one in _renewed(entry, outcome, today)]
    new = [_entry(finding) for finding in outcome.failed if not any(entry.covers(finding) for entry in kept)]
    return Baseline((*kept, *new))


def _renewed(entry: Entry, outcome: Outcome, today: date) -> list[Entry]:
    if not any(_reasons_it_is_stale(entry, outcome, today)):
        return [entry]
    until = None if entry.is_over(today) else entry.until
    covered = [finding.target for finding in outcome.findings if entry.covers(finding)]
    return [attrs.evolve(entry, target=glob.escape(target), until=until) for target in covered]


def _entry(finding: Finding) -> Entry:
    signature = finding.evidence.signature if finding.evidence else ""
    flaky = 0 < finding.runs < finding.tries
    return Entry(finding.check, glob.escape(finding.target), signature, flaky=flaky)


def read_baseline(path: str) -> Baseline:
    """The baseline in the file *path*. Raises :exc:`InvalidSpec` for a file that is not there or no baseline."""
    try:
        document = tomllib.loads(Path(path).read_text(encoding="utf-8"))
    except OSError as failure:
        raise InvalidSpec(f"baseline {path}: {failure.strerror or failure}") from failure
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as failure:
        raise InvalidSpec(f"baseline {path} is no TOML: {failure}") from failure
    entries: Any = document.pop("entry", [])
    if document or not isinstance(entries, list):
        raise InvalidSpec(f"baseline {path} holds [[entry]] tables only, not {', '.join(document) or 'entry = …'}")
    numbered = enumerate(cast("list[Any]", entries), 1)
    return Baseline(tuple(_read(entry, f"baseline {path}, entry {number}") for number, entry in numbered))


def _read(values: Any, where: str) -> Entry:
    if not isinstance(values, Mapping):
        raise InvalidSpec(f"{where} is no table: write [[entry]] above it")
    fields = cast("Mapping[str, Any]", values)
    for key, value in fields.items():
        kind, words = _TYPES.get(key, (None, ""))
        if kind is None:
            raise InvalidSpec(f"{where} has an unknown key {key!r}; the keys are {', '.join(_TYPES)}")
        if not isinstance(value, kind) or isinstance(value, datetime):
            raise InvalidSpec(f"{where}: {key} must be {words}, not {value!r}")
    if not fields.get("id"):
        raise InvalidSpec(f"{where} has no id: name the check")
    return Entry(**fields)


def baseline_text(baseline: Baseline) -> str:
    """*baseline* as a file."""
    return "\n".join([_HEADER, *map(_entry_text, baseline.entries)])


def _entry_text(entry: Entry) -> str:
    lines = ["[[entry]]", *_pairs(entry)]
    return "\n".join(lines) + "\n"


def _pairs(entry: Entry) -> Iterable[str]:
    for key, value in attrs.asdict(entry).items():
        if isinstance(value, str):
            if value or key in ("id", "reason"):
                yield f"{key} = {_quoted(value)}"
        elif value:
            yield f"{key} = {value.isoformat() if isinstance(value, date) else 'true'}"


def _quoted(text: str) -> str:
    """A basic string of TOML, which differs from JSON's in one character."""
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")
