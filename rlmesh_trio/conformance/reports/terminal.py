"""The report for a terminal: a block for each failure that fits a screen, a table of families, what was not tested.

At a width of 80 a block takes at most 23 of the 24 rows. What must be copied, a command, is never folded: it is left
to the terminal, or replaced by a shorter one.
"""

import os
from collections.abc import Iterator, Sequence
from typing import TextIO

import click

from rlmesh_trio.conformance.outcome import TargetOutcome
from rlmesh_trio.conformance.registry import NO_RESET
from rlmesh_trio.conformance.reports.material import (
    Group,
    Material,
    Reproduction,
    Stale,
    Tally,
    cut_by_time,
    not_tested,
    tallies,
)
from rlmesh_trio.conformance.reports.shown import moot_text, ops_text, script_rows, target_words, words_of
from rlmesh_trio.conformance.reports.texts import count, elided, folded, harmless, seconds_text
from rlmesh_trio.conformance.verdicts import Finding, VerdictName

__all__ = ("SCREEN", "WIDTH", "failure_block", "terminal_text", "wants_color")

WIDTH = 80
SCREEN = 23
"""The rows of a block: those of a small terminal but one, which the prompt takes."""

_SCRIPT_ROWS = 6
_KNOWN_ROWS = 2
_LEAST_EVIDENCE = 6
_COMMAND_ROWS = 4
_NOTE_ROWS = 2
_INDENT = "  "
_HANG = "     "
_COLUMNS: tuple[VerdictName, ...] = ("pass", "fail", "warn", "note", "skip", "blocked", "known")
_COLORS = {"fail": "red", "error": "red", "warn": "yellow", "known": "magenta", "pass": "green", "note": "cyan"}


def wants_color(stream: TextIO) -> bool:
    """Whether to write colours to *stream*: a terminal that knows them, and no ``NO_COLOR`` in the environment."""
    return stream.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def terminal_text(material: Material, *, width: int = WIDTH, color: bool = False, verbose: bool = False) -> str:
    """The whole report, a line feed at its end. *verbose* cuts nothing short and gives notes all their lines."""
    lines = list(_report(material, width, verbose))
    text = "\n".join(lines).strip("\n") + "\n"
    return text if color else click.unstyle(text)


def _report(material: Material, width: int, verbose: bool) -> Iterator[str]:
    outcome = material.outcome
    for target in outcome.targets:
        yield click.style(harmless(target.name), bold=True) + f"  {target_words(target)}"
        yield ""
        for finding in material.shown(target):
            yield from failure_block(material, target, finding, width=width, verbose=verbose)
            yield ""
        notes = list(_notes(material, target, width, verbose))
        yield from [*notes, ""] if notes else ()
        if target.lost:
            yield from [*_lost(target, width), ""]
        yield from _table(tallies(target.findings), times=material.times)
        yield ""
        yield from _untested(not_tested(target.findings), width)
        yield from _cut(cut_by_time(target.findings), width)
    for stale in material.stale:
        yield from _stale(stale, width)
    seed = outcome.settings.seed
    yield f"seed {seed}  the same run again: --seed {seed}"
    yield _conclusion(material)


def failure_block(
    material: Material, target: TargetOutcome, finding: Finding, *, width: int = WIDTH, verbose: bool = False
) -> list[str]:
    """The lines on one failure, styled: at most :data:`SCREEN` rows of *width* characters, unless *verbose*.

    A fault that is known is nobody's to mend here, and takes half of that.
    """
    head = _head(finding, width, times=material.times)
    if finding.verdict == "known" and not verbose:
        return [*head, *_known(material, target, finding, width)]
    tail = [*_meaning(finding, width), *_rule(material, finding, width)]
    tail += _again(material.reproduction(finding), target, width)
    scripts = script_rows(finding, target.contract)
    said = list(_said(finding, width, times=material.times))
    if not verbose:
        left = SCREEN - len(head) - sum(_rows(line, width) for line in tail)
        rows = max(_SCRIPT_ROWS, left - max(_LEAST_EVIDENCE, len(said)))
        scripts = _short(scripts, min(rows, left - min(_LEAST_EVIDENCE, len(said))), width)
        said = elided(said, left - sum(len(folded(text, width, indent=_INDENT)) for text in scripts))
    shown = [line for text in scripts for line in folded(text, width, indent=_INDENT, hang=_HANG)]
    return [*head, *shown, *said, *tail]


def _known(material: Material, target: TargetOutcome, finding: Finding, width: int) -> Iterator[str]:
    """What is known of a fault, and the case in which it was seen."""
    yield from folded(f"known: {finding.reason}", width, indent=_INDENT, hang=_HANG)
    said = _short(script_rows(finding, target.contract), _KNOWN_ROWS, width)
    said += elided(list(finding.evidence.lines if finding.evidence else ()), _KNOWN_ROWS)
    for text in said:
        yield from folded(text, width, indent=_INDENT, hang=_HANG)
    reproduction = material.reproduction(finding)
    if reproduction.file:
        yield harmless(f"{_INDENT}again: rlmesh-trio conform replay {reproduction.file} {target.name}")
    elif reproduction.again:
        yield harmless(f"{_INDENT}again: {reproduction.again}")


def _rows(line: str, width: int) -> int:
    """The rows that a terminal makes of a line."""
    return max(1, -(-len(click.unstyle(line)) // width))


def _short(scripts: Sequence[str], rows: int, width: int) -> list[str]:
    """*scripts* cut so that together they take at most *rows* rows."""
    if not scripts:
        return []
    each = max(1, rows // len(scripts))
    room = each * (width - len(_HANG)) - 2
    shown = [text if len(text) <= room else f"{text[: max(20, room - 1)]}…" for text in scripts]
    return elided(shown, rows, "scripts")


def _head(finding: Finding, width: int, *, times: bool) -> list[str]:
    evidence = finding.evidence
    severity = (evidence.severity if evidence else None) or finding.severity
    facts = [severity, *([ops_text(finding)] if ops_text(finding) else [])]
    if finding.tries:
        facts[-1] += f", {finding.runs}/{finding.tries} runs"
    if finding.shrunk_from > sum(len(script.ops) for script in finding.scripts) > 0:
        spent = f" in {finding.shrink_seconds:.1f} s" if times else ""
        facts.append(f"shrunk from {count(finding.shrunk_from, 'op')}{spent}")
    if finding.cut:
        facts.append("cut by time")
    if evidence is not None and evidence.blame == "server":
        facts.append("blame: server")
    first, *more = folded(
        "   ".join([finding.check, *facts]), width, hang=_HANG, indent=" " * (len(finding.verdict) + 1)
    )
    mark = click.style(finding.verdict.upper(), fg=_COLORS[finding.verdict], bold=True)
    return [f"{mark} {first.lstrip()}", *more]


def _said(finding: Finding, width: int, *, times: bool) -> Iterator[str]:
    if finding.moot:
        yield from folded(moot_text(finding), width, indent=_INDENT, hang=_HANG)
    lines = finding.evidence.lines if finding.evidence else ()
    if finding.evidence and times and finding.evidence.measured:
        lines = (*lines[:1], *finding.evidence.measured)
    for line in lines:
        yield from folded(line, width, indent=_INDENT, hang=_HANG)
    if finding.reason:
        yield from folded(f"{finding.verdict}: {finding.reason}", width, indent=_INDENT, hang=_HANG)


def _meaning(finding: Finding, width: int) -> list[str]:
    meaning = finding.evidence.meaning if finding.evidence else ""
    return folded(f"meaning: {meaning}", width, indent=_INDENT, hang=_HANG) if meaning else []


def _rule(material: Material, finding: Finding, width: int) -> list[str]:
    rule = material.rule(finding.check) or material.requirement(finding.check)
    more = f"more: rlmesh-trio conform show {finding.check}"
    return _beside([f"rule: {rule}" if rule else "", more], width)


def _again(reproduction: Reproduction, target: TargetOutcome, width: int) -> list[str]:
    again = reproduction.again
    if reproduction.file and len(again) > _COMMAND_ROWS * width:
        again = f"rlmesh-trio conform replay {reproduction.file} {target.name}"
    parts = [f"again: {again}" if again else "", f"file: {reproduction.file}" if reproduction.file else ""]
    lines = _beside(parts, width)
    if reproduction.plain:
        line = f"{_INDENT}plain gymnasium: {reproduction.plain}  ({count(reproduction.plain_lines, 'line')}"
        needs = ", needs no rlmesh_trio"
        lines.append(f"{line}{needs if len(line) + len(needs) < width else ''})")
    elif reproduction.no_plain:
        lines += folded(f"no plain script: {reproduction.no_plain}", width, indent=_INDENT, hang=_HANG)
    return lines


def _beside(parts: Sequence[str], width: int) -> list[str]:
    """*parts* in one line if they fit, else in one each, never folded."""
    told = [part for part in map(harmless, parts) if part]
    line = _INDENT + "      ".join(told)
    return [] if not told else [line] if len(line) <= width else [_INDENT + part for part in told]


def _notes(material: Material, target: TargetOutcome, width: int, verbose: bool) -> Iterator[str]:
    for finding in target.findings:
        if finding.verdict != "note":
            continue
        mark = click.style("NOTE", fg=_COLORS["note"], bold=True)
        yield f"{mark} {finding.check}"
        known = material.checks.get(finding.check)
        if known is not None and known.compares:
            # Whoever names two targets wants to see where they part.
            for text in _short(script_rows(finding, target.contract), _SCRIPT_ROWS, width):
                yield from folded(text, width, indent=_INDENT, hang=_HANG)
            yield from _said_of_note(finding, width)
        else:
            said = list(_said_of_note(finding, width))
            yield from said if verbose else elided(said, _NOTE_ROWS)


def _said_of_note(finding: Finding, width: int) -> Iterator[str]:
    evidence = finding.evidence
    lines = (*evidence.lines, evidence.meaning) if evidence else (finding.reason,)
    for line in filter(None, lines):
        yield from folded(line, width, indent=_INDENT, hang=_HANG)


def _lost(target: TargetOutcome, width: int) -> Iterator[str]:
    mark = click.style("LOST", fg="red", bold=True)
    first, *more = folded(target.lost, width, indent=" " * 5, hang=_INDENT)
    yield f"{mark} {first.lstrip()}"
    yield from more
    if target.last_script is not None:
        yield from folded(
            f"last script: {words_of(target.last_script, target.contract)}", width, indent=_INDENT, hang=_HANG
        )
    for line in target.stderr:
        yield from folded(line, width, indent=f"{_INDENT}| ")


def _table(families: Sequence[Tally], *, times: bool) -> Iterator[str]:
    width = max([len("family"), *(len(tally.family) for tally in families)])
    heads = [str(verdict) for verdict in _COLUMNS] + ["examples", " steps"]
    heads += [" time"] if times else []
    yield click.style("  ".join([f"{'family':<{width}}", *heads]), bold=True)
    for tally in families:
        cells = [
            _cell(tally.count(verdict), verdict, len(head)) for verdict, head in zip(_COLUMNS, heads, strict=False)
        ]
        cells += [f"{tally.examples:>8,}", f"{tally.steps:>6,}"]
        cells += [f"{tally.seconds:>5.1f}"] if times else []
        yield "  ".join([f"{tally.family:<{width}}", *cells])
    faults = sum(tally.count("error") for tally in families)
    if faults:
        yield click.style(f"{count(faults, 'check')} could not be judged: a fault of this tool", fg="red")


def _cell(number: int, verdict: VerdictName, width: int) -> str:
    text = f"{number or '·':>{width}}"
    return click.style(text, fg=_COLORS[verdict]) if number and verdict in _COLORS else text


def _untested(groups: Sequence[Group], width: int) -> Iterator[str]:
    if not groups:
        return
    yield click.style("not tested", bold=True)
    for group in groups:
        yield from folded(f"{', '.join(group.checks)}: {group.reason}", width, indent=_INDENT, hang=_HANG)
    yield ""


def _cut(checks: Sequence[str], width: int) -> Iterator[str]:
    if checks:
        yield click.style("cut by time", bold=True) + ": --time gives more, and --examples N the same each time"
        yield from folded(", ".join(checks), width, indent=_INDENT, hang=_HANG)
        yield ""


def _stale(stale: Stale, width: int) -> Iterator[str]:
    mark = click.style("STALE", fg="red", bold=True)
    first, *more = folded(f"{stale.check} on {stale.target}: {stale.why}", width, indent=" " * 6, hang=_HANG)
    yield f"{mark} {first.lstrip()}"
    yield from more


def _conclusion(material: Material) -> str:
    outcome = material.outcome
    failed = list(dict.fromkeys(finding.check for finding in outcome.failed))
    parts: list[str] = []
    if outcome.interrupted:
        parts.append("interrupted: what was found so far")
    if failed:
        parts.append(f"{count(len(failed), 'check')} failed: {', '.join(failed)}")
    if material.stale:
        parts.append(f"{count(len(material.stale), 'stale entry', 'stale entries')} in the baseline")
    if any(target.lost for target in outcome.targets):
        parts.append("a target was lost")
    if material.status == 0:
        unplayed = any(finding.reason.startswith(NO_RESET) for finding in outcome.findings)
        parts.append("passed, but no reset succeeded and little was tested" if unplayed else "passed")
    elif not parts:
        parts.append("nothing was tested")
    spent = f"  ({seconds_text(outcome.seconds)})" if material.times else ""
    text = "; ".join(parts)
    return click.style(text, fg="green" if material.status == 0 else "red", bold=True) + spent
