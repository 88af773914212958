"""The report as JSON, described by ``docs/conformance.schema.json``.

All times stand in ``times``, which is ``null`` where they are left out: the rest is the same for equal outcomes. JSON
has no NaN and no infinities: such a number is the text ``"NaN"``, ``"Infinity"`` or ``"-Infinity"``.
"""

from datetime import UTC, datetime
from typing import Any

import attrs

from rlmesh_trio import __version__
from rlmesh_trio.conformance.coverage import Coverage
from rlmesh_trio.conformance.outcome import TargetOutcome
from rlmesh_trio.conformance.reports.material import Material
from rlmesh_trio.conformance.reports.shown import case_texts
from rlmesh_trio.conformance.scripts import Script
from rlmesh_trio.conformance.scripts_json import script_to_json
from rlmesh_trio.conformance.settings import Settings
from rlmesh_trio.conformance.verdicts import Evidence, Finding
from rlmesh_trio.contract import autoreset_name
from rlmesh_trio.observers.records import strict_json

__all__ = ("SCHEMA_VERSION", "json_text", "report_document")

SCHEMA_VERSION = 1
_NOT_SETTINGS = ("token", "seed", "seed_drawn")
_COUNTS = ("pass", "fail", "warn", "note", "skip", "blocked", "known", "error")


def json_text(material: Material) -> str:
    """The document as strict JSON, a line feed at its end."""
    return strict_json(report_document(material), indent=2, ensure_ascii=False) + "\n"


def report_document(material: Material) -> dict[str, Any]:
    """The document: one entry of ``checks`` for each check and target, those of one target together, in order."""
    outcome = material.outcome
    return {
        "schema_version": SCHEMA_VERSION,
        "tool": {"name": "rlmesh_trio", "version": __version__},
        "status": material.status,
        "interrupted": outcome.interrupted,
        "seed": outcome.settings.seed,
        "settings": _settings(outcome.settings),
        "targets": [_target(target) for target in outcome.targets],
        "checks": [_check(material, target, finding) for target in outcome.targets for finding in target.findings],
        "stale": [attrs.asdict(stale) for stale in material.stale],
        "times": _times(material) if material.times else None,
    }


def _settings(settings: Settings) -> dict[str, Any]:
    return {name: value for name, value in attrs.asdict(settings).items() if name not in _NOT_SETTINGS}


def _target(target: TargetOutcome) -> dict[str, Any]:
    contract = target.contract
    return {
        "name": target.name,
        "kind": target.kind,
        "package": target.package,
        "version": target.version,
        "contract_digest": target.contract_digest,
        "env_id": contract.env_id if contract else None,
        "num_envs": contract.num_envs if contract else None,
        "autoreset_mode": autoreset_name(contract.autoreset_mode) if contract else None,
        "lost": target.lost,
        "last_script": _script(target.last_script) if target.last_script else None,
        "stderr": target.stderr,
        "verdicts": {name: sum(finding.verdict == name for finding in target.findings) for name in _COUNTS},
        "coverage": _coverage(target.coverage),
    }


def _coverage(coverage: Coverage) -> dict[str, Any]:
    counted = attrs.asdict(coverage)
    del counted["slowest"]
    return counted | {
        "actions": len(coverage.actions),
        "refusals": dict(sorted(coverage.refusals.items())),
        "lengths": {str(length): number for length, number in sorted(coverage.lengths.items())},
    }


def _check(material: Material, target: TargetOutcome, finding: Finding) -> dict[str, Any]:
    evidence = finding.evidence
    return {
        "id": finding.check,
        "target": finding.target,
        "severity": finding.severity,
        "verdict": finding.verdict,
        "blame": evidence.blame if evidence else None,
        "reason": finding.reason,
        "requirement": material.requirement(finding.check),
        "rule": material.rule(finding.check),
        "examples": finding.examples,
        "steps": finding.steps,
        "cut_by_time": finding.cut,
        "evidence": _evidence(evidence) if evidence else None,
        "reproduction": _reproduction(material, target, finding) if evidence else None,
    }


def _evidence(evidence: Evidence) -> dict[str, Any]:
    return {
        "lines": evidence.lines,
        "signature": evidence.signature,
        "meaning": evidence.meaning,
        "severity": evidence.severity,
        "first": {"op": evidence.first[0], "lane": evidence.first[1]} if evidence.first else None,
    }


def _reproduction(material: Material, target: TargetOutcome, finding: Finding) -> dict[str, Any]:
    told = material.reproduction(finding)
    return {
        "seed": material.outcome.settings.seed,
        "case": case_texts(finding, target.contract),
        "scripts": [_script(script) for script in finding.scripts],
        "moot": [{"script": script, "op": op} for script, op in finding.moot],
        "runs": finding.runs,
        "tries": finding.tries,
        "shrunk_from": finding.shrunk_from,
        "command": told.again,
        "blob": told.blob,
        "file": told.file,
        "plain": told.plain,
        "no_plain": told.no_plain,
    }


def _script(script: Script) -> Any:
    return script_to_json(script)


def _times(material: Material) -> dict[str, Any]:
    outcome = material.outcome
    return {
        "started": datetime.fromtimestamp(outcome.started, UTC).isoformat(timespec="seconds"),
        "seconds": round(outcome.seconds, 3),
        "targets": [
            {"name": target.name, "seconds": round(target.seconds, 3), "slowest": round(target.coverage.slowest, 6)}
            for target in outcome.targets
        ],
        "checks": [
            {
                "id": finding.check,
                "target": finding.target,
                "seconds": round(finding.seconds, 3),
                "shrinking": round(finding.shrink_seconds, 3),
                "measured": finding.evidence.measured if finding.evidence else (),
            }
            for finding in outcome.findings
        ],
    }
