"""A section a check: what it demands, and for each target what was found, the script, the traces, and how to go on."""

from collections.abc import Iterator, Sequence

from rlmesh_trio.conformance.outcome import TargetOutcome
from rlmesh_trio.conformance.reports.markup import Markup, element
from rlmesh_trio.conformance.reports.material import SHOWN, Material
from rlmesh_trio.conformance.reports.matrix import anchor, chip
from rlmesh_trio.conformance.reports.shown import case_texts, letter, ops_text
from rlmesh_trio.conformance.reports.side_by_side import side_by_side
from rlmesh_trio.conformance.reports.texts import count
from rlmesh_trio.conformance.reports.timeline import timeline
from rlmesh_trio.conformance.scripts import Script, Wait
from rlmesh_trio.conformance.traces import Trace
from rlmesh_trio.conformance.verdicts import Evidence, Finding
from rlmesh_trio.contract import ValueSpace

__all__ = ("section",)


def section(material: Material, check: str) -> Markup:
    """The section of *check*."""
    found = [
        (number, target, finding)
        for number, target in enumerate(material.outcome.targets)
        for finding in target.findings
        if finding.check == check
    ]
    severity = found[0][2].severity
    title = element("h3", element("a", check, href=f"#{anchor(check)}"), element("span", severity, class_="severity"))
    requirement = material.requirement(check)
    demands = [element("p", requirement, class_="requirement")] if requirement else []
    rule = material.rule(check)
    more = element("code", f"rlmesh-trio conform show {check}", class_="copy")
    demands.append(element("p", f"rule: {rule} · " if rule else "", "more: ", more, class_="muted"))
    articles = [_article(material, number, target, finding) for number, target, finding in found]
    calm = not any(finding.verdict in SHOWN for _, _, finding in found)
    return element("section", title, *demands, *articles, id=anchor(check), class_=f"check{' calm' if calm else ''}")


def _article(material: Material, number: int, target: TargetOutcome, finding: Finding) -> Markup:
    head = [chip(finding.verdict), element("strong", target.name), element("span", _facts(finding), class_="muted")]
    parts = [element("p", *_spaced(head), class_="verdict")]
    if finding.verdict == "blocked" and finding.reason in material.check_ids:
        parts.append(element("p", "blocked by ", element("a", finding.reason, href=f"#{anchor(finding.reason)}")))
    elif finding.reason:
        parts.append(element("p", f"blocked by {finding.reason}" if finding.verdict == "blocked" else finding.reason))
    evidence = finding.evidence
    if evidence is not None:
        parts += _told(evidence)
        parts += _case(finding, target, evidence)
        parts += _traces(finding, target, evidence)
        parts += _again(material, finding)
    return element(
        "article", *parts, id=anchor(finding.check, number), class_=f"b-{finding.verdict}", data_verdict=finding.verdict
    )


def _spaced(parts: Sequence[str]) -> Iterator[str]:
    for part in parts:
        yield part
        yield " "


def _facts(finding: Finding) -> str:
    facts = [ops_text(finding)] if finding.evidence else []
    if finding.evidence is not None and finding.tries:
        facts.append(f"{finding.runs}/{finding.tries} runs")
    if finding.shrunk_from > sum(len(script.ops) for script in finding.scripts) > 0:
        facts.append(f"shrunk from {count(finding.shrunk_from, 'op')}")
    if finding.cut:
        facts.append("cut by time")
    if finding.evidence is not None and finding.evidence.blame == "server":
        facts.append("blame: server")
    if finding.examples:
        facts.append(f"{count(finding.examples, 'example')}, {count(finding.steps, 'step')}")
    return " · ".join(filter(None, facts))


def _told(evidence: Evidence) -> list[Markup]:
    parts = [element("pre", "\n".join(evidence.lines), class_="evidence", tabindex=0)] if evidence.lines else []
    if evidence.meaning:
        parts.append(element("p", element("b", "meaning: "), evidence.meaning))
    return parts


def _case(finding: Finding, target: TargetOutcome, evidence: Evidence) -> Iterator[Markup]:
    actions = target.contract.action_space if target.contract else None
    if not finding.scripts:
        for text in case_texts(finding, target.contract):
            yield element("h4", "case")
            yield element("pre", text.replace(" · ", "\n"), tabindex=0)
        return
    texts = case_texts(finding, target.contract)
    for number, (script, text) in enumerate(zip(finding.scripts, texts, strict=True)):
        trace, first = _played(script, evidence)
        moot = [op for which, op in finding.moot if which == number]
        several = len(finding.scripts) > 1
        yield element("h4", f"script {letter(number)}" if several else "script")
        yield timeline(script, actions, trace=trace, first=first, moot=moot)
        yield element("p", element("code", text, class_="copy"))


def _played(script: Script, evidence: Evidence) -> tuple[Trace | None, tuple[int, int] | None]:
    """The trace of *script* in the evidence, and the place to mark in it: that request which is marked in the first."""
    trace = next((trace for trace in evidence.traces if trace.script == script), None)
    if trace is None or evidence.first is None:
        return trace, None
    op, lane = evidence.first
    request = _requests(evidence.traces[0].script)
    own = _requests(script)
    number = request.index(op) if op in request else len(own)
    return trace, (own[number], lane) if number < len(own) else None


def _requests(script: Script) -> list[int]:
    return [place for place, op in enumerate(script.ops) if not isinstance(op, Wait)]


def _traces(finding: Finding, target: TargetOutcome, evidence: Evidence) -> Iterator[Markup]:
    observations: ValueSpace | None = target.contract.observation_space if target.contract else None
    traces = evidence.traces
    if not traces:
        return
    labels = [_label(finding, traces, number) for number in range(len(traces))]
    yield element("h4", "traces side by side" if len(traces) > 1 else "trace")
    yield side_by_side(traces[:2], labels[:2], observations, evidence.first)
    for trace, label in zip(traces[2:], labels[2:], strict=True):
        yield element("details", element("summary", label), side_by_side([trace], [label], observations, None))


def _label(finding: Finding, traces: Sequence[Trace], number: int) -> str:
    """What a trace is called: by its script, where no other trace or script is the same."""
    script = traces[number].script
    named = [place for place, other in enumerate(finding.scripts) if other == script]
    alone = sum(trace.script == script for trace in traces) == 1
    own = f" (script {letter(named[0])})" if len(named) == 1 and alone and len(finding.scripts) > 1 else ""
    return f"trace {number + 1}{own}"


def _again(material: Material, finding: Finding) -> Iterator[Markup]:
    told = material.reproduction(finding)
    plain = f"{told.plain} ({count(told.plain_lines, 'line')}, needs no rlmesh_trio)" if told.plain else ""
    ways = (("again", told.again), ("file", told.file), ("plain gymnasium", plain))
    if told.no_plain:
        yield element("p", f"no plain script: {told.no_plain}", class_="muted")
    items = [
        part
        for name, text in ways
        if text
        for part in (element("dt", name), element("dd", element("code", text, class_="copy")))
    ]
    if items:
        yield element("dl", *items, class_="again")
