"""Findings in words, as every report has them: the case, the target, what broke, and how to see it again."""

import string
from collections.abc import Iterator
from typing import Any, cast

from rlmesh_trio.conformance.cases import ops_in
from rlmesh_trio.conformance.outcome import TargetOutcome
from rlmesh_trio.conformance.printing import place_text, script_text
from rlmesh_trio.conformance.reports.material import Material
from rlmesh_trio.conformance.reports.texts import count
from rlmesh_trio.conformance.scripts import Script
from rlmesh_trio.conformance.verdicts import Finding
from rlmesh_trio.contract import EnvContract, autoreset_name

__all__ = (
    "case_texts",
    "finding_lines",
    "letter",
    "moot_text",
    "ops_text",
    "script_rows",
    "target_facts",
    "target_words",
    "words_of",
)

_LETTERS = string.ascii_uppercase


def target_facts(target: TargetOutcome) -> Iterator[tuple[str, str]]:
    """What is known of a target, name and value. The address of a server that was started here is none of it."""
    yield "kind", target.kind
    if target.kind == "wire" and target.address != target.name:
        yield "address", target.address
    if target.contract is not None:
        yield "env_id", target.contract.env_id
        yield "num_envs", str(target.contract.num_envs)
        yield "autoreset_mode", autoreset_name(target.contract.autoreset_mode)
    if target.package:
        yield "server", f"{target.package} {target.version}".rstrip()


def target_words(target: TargetOutcome) -> str:
    """The same in one line."""
    contract = target.contract
    words: list[str] = [target.kind]
    if contract is not None:
        words += [] if contract.env_id == target.name else [contract.env_id]
        words += [count(contract.num_envs, "lane"), autoreset_name(contract.autoreset_mode)]
    words += [f"{target.package} {target.version}".rstrip()] if target.package else []
    return ", ".join(words)


def ops_text(finding: Finding) -> str:
    """The size of a finding's case: ``2 scripts, 5 ops``, or ``3 moves``; empty where there is none."""
    ops = sum(len(script.ops) for script in finding.scripts)
    match len(finding.scripts):
        case 0:
            return count(ops_in(finding.case), "move") if finding.case is not None else ""
        case 1:
            return count(ops, "op")
        case scripts:
            return f"{scripts} scripts, {count(ops, 'op')}"


def case_texts(finding: Finding, contract: EnvContract | None) -> list[str]:
    """The case of *finding* for people: one text a script, or what else it is made of."""
    if finding.scripts:
        return [words_of(script, contract) for script in finding.scripts]
    case: Any = finding.case
    if case is None:
        return []
    parts = cast("tuple[Any, ...] | list[Any]", case) if isinstance(case, tuple | list) else (case,)
    return [" · ".join(part if isinstance(part, str) else repr(part) for part in parts)]


def script_rows(finding: Finding, contract: EnvContract | None) -> list[str]:
    """The same, with a letter before each script where there are several."""
    texts = case_texts(finding, contract)
    return texts if len(texts) == 1 else [f"{letter(n)}  {text}" for n, text in enumerate(texts)]


def letter(number: int) -> str:
    """What the script of this number is called, where there are several."""
    return _LETTERS[number % len(_LETTERS)]


def words_of(script: Script, contract: EnvContract | None) -> str:
    """*script* in one line."""
    return script_text(script, contract.action_space if contract else None)


def moot_text(finding: Finding) -> str:
    """The ops whose seeds or actions do not matter for the failure; empty where all do, or nobody tried."""
    named: dict[int, list[str]] = {}
    for number, op in finding.moot:
        named.setdefault(number, []).append(place_text(finding.scripts[number], op))
    several = len(finding.scripts) > 1
    parts = [f"{letter(number)} {', '.join(ops)}" if several else ", ".join(ops) for number, ops in named.items()]
    return f"others do as well for: {'; '.join(parts)}" if parts else ""


def finding_lines(material: Material, target: TargetOutcome, finding: Finding) -> Iterator[str]:
    """Everything there is to say of one finding, a line each, uncut."""
    requirement, rule = material.requirement(finding.check), material.rule(finding.check)
    if requirement:
        yield f"requirement: {requirement}"
    if rule:
        yield f"rule: {rule}"
    yield from script_rows(finding, target.contract)
    if finding.moot:
        yield moot_text(finding)
    if finding.tries:
        yield f"{finding.runs}/{finding.tries} runs"
    evidence = finding.evidence
    if evidence is not None:
        yield from evidence.lines
        if evidence.meaning:
            yield f"meaning: {evidence.meaning}"
        if evidence.blame == "server":
            yield "blame: server"
    if finding.reason:
        yield f"reason: {finding.reason}"
    told = material.reproduction(finding)
    for label, value in (("again", told.again), ("file", told.file), ("plain gymnasium", told.plain)):
        if value:
            yield f"{label}: {value}"
    if told.no_plain:
        yield f"no plain script: {told.no_plain}"
