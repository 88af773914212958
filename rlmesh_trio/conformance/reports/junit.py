"""The report as JUnit XML: a suite a target, a case a check, and the script and the evidence in its body.

A failed must is a failure, and so is a failed should of a strict run; a warning passes and says so in its output. What
was skipped, blocked or is known is skipped, with the reason. A lost target and a stale baseline entry are cases
of their own, so that no run fails without one.
"""

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from xml.etree import ElementTree as ET

from rlmesh_trio.conformance.outcome import TargetOutcome
from rlmesh_trio.conformance.reports.material import Material, Stale, cut_by_time, family_of
from rlmesh_trio.conformance.reports.shown import finding_lines, target_facts
from rlmesh_trio.conformance.reports.texts import harmless
from rlmesh_trio.conformance.verdicts import Finding

__all__ = ("junit_text",)

_NAME = "rlmesh-trio conform"


def junit_text(material: Material) -> str:
    """The XML document, a line feed at its end."""
    suites = [_suite(material, target) for target in material.outcome.targets]
    if material.stale:
        suites.append(_stale_suite(material.stale))
    root = ET.Element("testsuites", {"name": _NAME, **_totals(suites)})
    if material.times:
        root.set("time", f"{material.outcome.seconds:.3f}")
    root.extend(suites)
    ET.indent(root)
    return f"<?xml version='1.0' encoding='utf-8'?>\n{ET.tostring(root, encoding='unicode')}\n"


def _totals(suites: Sequence[ET.Element]) -> dict[str, str]:
    names = ("tests", "failures", "errors", "skipped")
    return {name: str(sum(int(suite.get(name, "0")) for suite in suites)) for name in names}


def _suite(material: Material, target: TargetOutcome) -> ET.Element:
    counted = {id(finding) for finding in material.outcome.failed}
    suite = ET.Element("testsuite", {"name": harmless(target.name)})
    properties = ET.SubElement(suite, "properties")
    for name, value in _properties(material, target):
        ET.SubElement(properties, "property", {"name": name, "value": harmless(value)})
    for finding in target.findings:
        suite.append(_case(material, target, finding, counts=id(finding) in counted))
    if target.lost:
        case = ET.SubElement(suite, "testcase", {"classname": "conform", "name": "target"})
        _tell(case, "error", target.lost.partition("\n")[0], "lost", [target.lost])
    _count(suite)
    if target.stderr:
        ET.SubElement(suite, "system-err").text = _body(target.stderr)
    if material.times:
        suite.set("time", f"{target.seconds:.3f}")
        started = datetime.fromtimestamp(material.outcome.started, UTC)
        suite.set("timestamp", started.strftime("%Y-%m-%dT%H:%M:%S"))
    return suite


def _properties(material: Material, target: TargetOutcome) -> Iterator[tuple[str, str]]:
    yield "seed", str(material.outcome.settings.seed)
    yield "contract_digest", target.contract_digest
    yield from target_facts(target)
    if cut := cut_by_time(target.findings):
        yield "cut_by_time", ", ".join(cut)


def _count(suite: ET.Element) -> None:
    kinds = {"tests": "testcase", "failures": "testcase/failure", "errors": "testcase/error"}
    for name, path in (kinds | {"skipped": "testcase/skipped"}).items():
        suite.set(name, str(len(suite.findall(path))))


def _case(material: Material, target: TargetOutcome, finding: Finding, *, counts: bool) -> ET.Element:
    names = {"classname": f"conform.{family_of(finding.check)}", "name": finding.check}
    case = ET.Element("testcase", names)
    if material.times:
        case.set("time", f"{finding.seconds:.3f}")
    lines = list(finding_lines(material, target, finding))
    evidence = finding.evidence
    first = evidence.lines[0] if evidence is not None and evidence.lines else finding.reason
    if counts:
        _tell(case, "failure", evidence.signature if evidence else finding.reason, finding.severity, lines)
    elif finding.verdict == "error":
        _tell(case, "error", finding.reason.partition("\n")[0], "kit", lines)
    elif finding.verdict in ("skip", "blocked", "known"):
        named = {"skip": "", "blocked": "blocked by ", "known": "known: "}[finding.verdict]
        ET.SubElement(case, "skipped", {"message": harmless(named + finding.reason)})
        if finding.verdict == "known":
            ET.SubElement(case, "system-out").text = _body(lines)
    elif finding.verdict in ("warn", "note") and first:
        ET.SubElement(case, "system-out").text = _body([f"{finding.verdict}: {finding.check}", *lines])
    return case


def _tell(case: ET.Element, kind: str, message: str, type_: str, lines: Sequence[str]) -> None:
    told = ET.SubElement(case, kind, {"message": harmless(message), "type": type_})
    told.text = _body(lines)


def _body(lines: Sequence[str]) -> str:
    return "\n" + "\n".join(map(harmless, lines)) + "\n"


def _stale_suite(entries: Sequence[Stale]) -> ET.Element:
    suite = ET.Element("testsuite", {"name": "baseline"})
    for entry in entries:
        case = ET.SubElement(suite, "testcase", {"classname": "conform.baseline", "name": entry.check})
        _tell(case, "failure", f"stale entry: {entry.why}", "stale", [f"{entry.check} on {entry.target}: {entry.why}"])
    _count(suite)
    return suite
