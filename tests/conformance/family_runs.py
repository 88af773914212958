"""Runs of one family or more on one target: what was found, errors of the kit apart."""

from typing import Any

from rlmesh_trio.conformance.registry import CHECKS
from rlmesh_trio.conformance.runner import run_checks
from rlmesh_trio.conformance.settings import Settings
from rlmesh_trio.conformance.targets import Target
from rlmesh_trio.conformance.verdicts import Finding

__all__ = ("found",)

# It sleeps in earnest; its own tests do so in virtual time.
_SLOW = "seed.timing-independent"


async def found(target: Target, *families: str, examples: int = 3, **settings: Any) -> dict[str, Finding]:
    """The findings that are no pass, skip or blocked, by id, on *target* of the checks of *families*."""
    checks = {id: check for id, check in CHECKS.items() if check.family in families and id != _SLOW}
    # Examples end a search, and hypothesis the shrinking, long before the time does: a busy machine finds the same.
    chosen = Settings(time=300.0, examples=examples, seed=3, shrink_time=60.0, **settings)
    outcome = await run_checks([target], chosen, checks=checks)
    verdicts = {finding.verdict for finding in outcome.findings}
    assert "error" not in verdicts, outcome.findings
    assert "pass" in verdicts or settings.get("nondeterministic"), outcome.findings
    return {finding.check: finding for finding in outcome.findings if finding.verdict in ("fail", "warn", "note")}
