"""The report as one HTML file that needs nothing from outside: no server, no script of others, no font, no network.

A matrix of verdicts, a section for every check, the spaces, what was covered; the times are together in one section.
"""

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from importlib.resources import files
from itertools import groupby

from rlmesh_trio import __version__
from rlmesh_trio.conformance.coverage import Coverage
from rlmesh_trio.conformance.outcome import TargetOutcome
from rlmesh_trio.conformance.reports.markup import Markup, element
from rlmesh_trio.conformance.reports.material import Material, cut_by_time, family_of, not_tested
from rlmesh_trio.conformance.reports.matrix import anchor, chip, matrix
from rlmesh_trio.conformance.reports.sections import section
from rlmesh_trio.conformance.reports.shown import target_words, words_of
from rlmesh_trio.conformance.reports.spaces_shown import action_coverage, space_table
from rlmesh_trio.conformance.reports.texts import count, seconds_text

__all__ = ("html_text",)

_BARS = 24


def html_text(material: Material) -> str:
    """The document, a line feed at its end."""
    title = f"Conformance: {', '.join(target.name for target in material.outcome.targets)}"
    head = element(
        "head",
        element("meta", charset="utf-8"),
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        element("meta", name="color-scheme", content="light dark"),
        element("title", title),
        element("style", Markup(_asset("page.css"))),
    )
    skip = element("a", "skip to the verdicts", href="#matrix", class_="skip")
    body = element("body", skip, _navigation(material), element("main", *_main(material, title)), _script())
    return f"<!DOCTYPE html>\n{element('html', head, body, lang='en')}\n"


def _asset(name: str) -> str:
    return (files("rlmesh_trio.conformance.reports") / name).read_text(encoding="utf-8")


def _script() -> Markup:
    return element("script", Markup(_asset("page.js")))


def _navigation(material: Material) -> Markup:
    places = [("summary", "Summary"), ("matrix", "Verdicts"), ("checks", "Checks")]
    places += [("spaces", "Spaces"), ("coverage", "Coverage")]
    places += [("times", "Times")] if material.times else []
    links = [element("li", element("a", name, href=f"#{place}")) for place, name in places]
    families = list(dict.fromkeys(map(family_of, material.check_ids)))
    own = [element("li", element("a", family, href=f"#family-{family}")) for family in families]
    links.insert(3, element("li", element("ul", *own)))
    return element("nav", element("ul", *links), aria_label="contents")


def _main(material: Material, title: str) -> Iterator[Markup]:
    outcome = material.outcome
    yield element("h1", title)
    yield _part("summary", "Summary", *_summary(material))
    yield _part("matrix", "Verdicts", matrix(material))
    filter_ = element("input", type="checkbox", id="only")
    label = element("label", filter_, " only what needs a look", for_="only")
    keys = element("p", label, " · keys: ", element("kbd", "n"), " next, ", element("kbd", "p"), " previous finding")
    yield _part("checks", "Checks", keys, *_families(material))
    yield _part("spaces", "Spaces", *[part for target in outcome.targets for part in _spaces(target)])
    yield _part("coverage", "Coverage", *[part for target in outcome.targets for part in _coverage(target)])
    if material.times:
        yield _part("times", "Times", *_times(material))


def _part(name: str, title: str, *children: str) -> Markup:
    return element("section", element("h2", title), *children, id=name, class_="part")


def _summary(material: Material) -> Iterator[Markup]:
    outcome = material.outcome
    failed = list(dict.fromkeys(finding.check for finding in outcome.failed))
    words = f"{count(len(failed), 'check')} failed" if failed else "nothing failed"
    words += ", interrupted" if outcome.interrupted else ""
    words += f", {count(len(material.stale), 'stale entry', 'stale entries')} in the baseline" if material.stale else ""
    verdict = "pass" if material.status == 0 else "fail"
    yield element("p", chip(verdict), f" {words} · exit status {material.status}", class_="verdict")
    for target in outcome.targets:
        yield from _target(target)
    shown = [
        element(
            "li",
            chip(finding.verdict),
            " ",
            element("a", finding.check, href=f"#{anchor(finding.check, number)}"),
            f" on {target.name}" if len(outcome.targets) > 1 else "",
            f": {finding.evidence.signature}" if finding.evidence else f": {finding.reason.partition(chr(10))[0]}",
        )
        for number, target in enumerate(outcome.targets)
        for finding in material.shown(target)
    ]
    if shown:
        yield element("ul", *shown, class_="found")
    for stale in material.stale:
        yield element("p", chip("fail"), f" stale baseline entry {stale.check} on {stale.target}: {stale.why}")
    seed = outcome.settings.seed
    again = element("code", f"--seed {seed}", class_="copy")
    yield element("p", "The same run again: ", again, f" · rlmesh_trio {__version__}", class_="muted")


def _target(target: TargetOutcome) -> Iterator[Markup]:
    words = [element("strong", target.name), f"  {target_words(target)}"]
    if target.contract_digest:
        words.append(element("span", " · contract ", element("code", target.contract_digest), class_="muted"))
    yield element("p", *words)
    if target.lost:
        script = words_of(target.last_script, target.contract) if target.last_script else ""
        lines = [target.lost, *([f"last script: {script}"] if script else []), *target.stderr]
        yield element("div", chip("fail"), " the target was lost", element("pre", "\n".join(lines), tabindex=0))


def _families(material: Material) -> Iterator[Markup]:
    for family, checks in groupby(material.check_ids, key=family_of):
        yield element("h2", family, id=f"family-{family}", class_="family")
        for check in checks:
            yield section(material, check)


def _spaces(target: TargetOutcome) -> Iterator[Markup]:
    yield element("h3", target.name)
    if target.contract is None:
        yield element("p", "its contract could not be read")
        return
    yield element("div", space_table(target.contract), class_="scroll", tabindex=0)
    for finding in target.findings:
        if finding.check == "space.bounds-report" and finding.evidence is not None:
            yield element("h4", "seen")
            yield element("pre", "\n".join(finding.evidence.lines), tabindex=0)


def _coverage(target: TargetOutcome) -> Iterator[Markup]:
    seen = target.coverage
    yield element("h3", target.name)
    yield element("div", *_blocks(target, seen), class_="blocks")
    untested = not_tested(target.findings)
    if untested:
        yield element("h4", "not tested")
        yield element("ul", *[element("li", f"{', '.join(group.checks)}: {group.reason}") for group in untested])
    cut = cut_by_time(target.findings)
    if cut:
        yield element("h4", "cut by time")
        yield element("p", f"{', '.join(cut)}: a run with more time, or with a number of examples, tries all cases")


def _blocks(target: TargetOutcome, seen: Coverage) -> Iterator[Markup]:
    ops = {
        "sessions": seen.sessions,
        "restarts": seen.restarts,
        "scripts": seen.scripts,
        "resets": seen.resets,
        "resets without seed": seen.unseeded_resets,
        "resets of some lanes": seen.partial_resets,
        "steps": seen.steps,
        "steps of some lanes": seen.partial_steps,
        "lanes stepped": seen.lane_steps,
        "waits": seen.waits,
    }
    ends = {"terminated": seen.terminated, "truncated": seen.truncated, "both": seen.both}
    yield _figures("operations", ops)
    if target.contract is not None and target.contract.action_space is not None and seen.actions:
        actions = action_coverage(target.contract.action_space, seen.actions)
        yield element("div", element("h4", "actions"), actions)
    yield _figures("ends", ends, bars=True)
    if seen.lengths:
        yield _figures("episodes by their steps", _binned(seen.lengths), bars=True)
    if seen.refusals:
        yield _figures("refusals", dict(sorted(seen.refusals.items())), bars=True)


def _figures(title: str, figures: Mapping[str, int], *, bars: bool = False) -> Markup:
    most = max([1, *figures.values()])
    rows: list[Markup] = []
    for name, number in figures.items():
        cells = [element("th", name, scope="row"), element("td", f"{number:,}", class_="number")]
        if bars:
            bar = element("span", class_="bar", style=f"width:{100 * number / most:.1f}%")
            cells.append(element("td", bar, class_="bars"))
        rows.append(element("tr", *cells))
    return element("div", element("h4", title), element("table", *rows))


def _binned(lengths: Mapping[int, int]) -> dict[str, int]:
    """How many episodes there are of each length, or of lengths from one to another where there are many."""
    if len(lengths) <= _BARS:
        return {str(length): lengths[length] for length in sorted(lengths)}
    low, high = min(lengths), max(lengths)
    size = -(-(high - low + 1) // _BARS)
    found: dict[str, int] = {}
    for start in range(low, high + 1, size):
        number = sum(times for length, times in lengths.items() if start <= length < start + size)
        found[f"{start} to {start + size - 1}" if size > 1 else str(start)] = number
    return found


def _times(material: Material) -> Iterator[Markup]:
    outcome = material.outcome
    started = datetime.fromtimestamp(outcome.started, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
    yield element("p", f"started {started}, took {seconds_text(outcome.seconds)}")
    for target in outcome.targets:
        yield element("h3", target.name)
        told = f"{seconds_text(target.seconds)}, the slowest operation {target.coverage.slowest * 1000:.1f} ms"
        yield element("p", told)
        heads = [element("th", head, scope="col") for head in ("check", "seconds", "of it shrinking")]
        rows = [
            element(
                "tr",
                element("th", finding.check, scope="row"),
                element("td", f"{finding.seconds:.2f}", class_="number"),
                element("td", f"{finding.shrink_seconds:.2f}" if finding.shrink_seconds else "", class_="number"),
            )
            for finding in target.findings
        ]
        table = element("table", element("tr", *heads), *rows)
        yield element("details", element("summary", "check by check"), table)
        for finding in target.findings:
            if finding.evidence is not None and finding.evidence.measured:
                measured = element("pre", "\n".join(finding.evidence.measured), tabindex=0)
                yield element("details", element("summary", f"{finding.check}, measured"), measured)
