"""The verdict matrix: a row a check, a column a target, each cell leading to what was found.

Colours are Autobahn's four: green passed, yellow is not quite right, red failed, blue is told only. What was not tested
has none.
"""

from itertools import groupby

from rlmesh_trio.conformance.outcome import TargetOutcome
from rlmesh_trio.conformance.reports.markup import Markup, element
from rlmesh_trio.conformance.reports.material import Material, family_of
from rlmesh_trio.conformance.verdicts import Finding

__all__ = ("anchor", "chip", "matrix")

_MARKS = {
    "pass": "✓",
    "fail": "✗",
    "error": "✗",
    "warn": "!",
    "known": "!",
    "note": "i",
    "skip": "-",
    "blocked": "-",
}
_LEGEND = (
    ("pass", "passed"),
    ("warn", "a should failed, or a fault is known"),
    ("fail", "a must failed, or this tool did"),
    ("note", "told, never failed"),
    ("skip", "not tested: skipped, or blocked by another failure"),
)


def anchor(check: str, target: int | None = None) -> str:
    """The id of a check's section, or of what was found there on the target of this number."""
    return check if target is None else f"{check}--{target + 1}"


def chip(verdict: str) -> Markup:
    """A verdict as a coloured word with its mark."""
    mark = element("span", _MARKS[verdict], class_="mark", aria_hidden="true")
    return element("span", mark, verdict, class_=f"chip v-{verdict}")


def matrix(material: Material) -> Markup:
    """The matrix and its legend."""
    targets = material.outcome.targets
    found = {(finding.check, number): finding for number, one in enumerate(targets) for finding in one.findings}
    head = element(
        "tr", element("th", "check", scope="col"), element("th", "demand", scope="col"), *map(_head, targets)
    )
    bodies: list[Markup] = []
    for family, checks in groupby(material.check_ids, key=family_of):
        rows = [_row(check, [found.get((check, number)) for number in range(len(targets))]) for check in checks]
        title = element("th", family, scope="rowgroup", colspan=len(targets) + 2, class_="family")
        bodies.append(element("tbody", element("tr", title), *rows))
    table = element("table", element("thead", head), *bodies, class_="matrix")
    legend = [element("li", chip(verdict), f" {words}") for verdict, words in _LEGEND]
    return element("div", element("ul", *legend, class_="legend"), element("div", table, class_="scroll", tabindex=0))


def _head(target: TargetOutcome) -> Markup:
    return element("th", target.name, scope="col", class_="target")


def _row(check: str, found: list[Finding | None]) -> Markup:
    severity = next((one.severity for one in found if one is not None), "")
    name = element("th", element("a", check, href=f"#{anchor(check)}"), scope="row")
    cells = [_cell(check, number, one) for number, one in enumerate(found)]
    calm = all(one is None or one.verdict in ("pass", "skip", "blocked", "note") for one in found)
    return element("tr", name, element("td", severity, class_="muted"), *cells, class_="calm" if calm else None)


def _cell(check: str, number: int, finding: Finding | None) -> Markup:
    if finding is None:
        return element("td", "", class_="v-none")
    mark = element("span", _MARKS[finding.verdict], class_="mark", aria_hidden="true")
    flicker = f" {finding.runs}/{finding.tries}" if 0 < finding.runs < finding.tries else ""
    link = element("a", mark, finding.verdict + flicker, href=f"#{anchor(check, number)}", title=finding.reason or None)
    return element("td", link, class_=f"v-{finding.verdict}")
