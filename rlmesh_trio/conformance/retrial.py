"""One case played again: a blob on a target, judged by its check."""

from collections.abc import Mapping

import attrs

from rlmesh_trio.conformance.action_masks import MASKS_SEEN
from rlmesh_trio.conformance.blob import Blob
from rlmesh_trio.conformance.cases import scripts_in
from rlmesh_trio.conformance.facts import facts_of, package_of
from rlmesh_trio.conformance.first_look import OPENING
from rlmesh_trio.conformance.lab import TargetLab, open_lab
from rlmesh_trio.conformance.outcome import TargetOutcome
from rlmesh_trio.conformance.registry import Check
from rlmesh_trio.conformance.settings import Settings
from rlmesh_trio.conformance.targets import Target
from rlmesh_trio.conformance.traces import Trace
from rlmesh_trio.conformance.verdicts import Finding, VerdictName
from rlmesh_trio.errors import InvalidSpec

__all__ = ("check_of", "replayed", "retried")


def check_of(blob: Blob, checks: Mapping[str, Check]) -> Check:
    """The check that *blob* is a case of. Raises :exc:`InvalidSpec` when it is not known."""
    try:
        return checks[blob.check]
    except KeyError:
        raise InvalidSpec(
            f"the blob is a case of {blob.check}, a check that is not known here: --checks names its module"
        ) from None


async def retried(
    blob: Blob, target: Target, settings: Settings, checks: Mapping[str, Check], *, runs: int = 1
) -> TargetOutcome:
    """Judge the case of *blob* on *target*, which runs, at most *runs* times, until it breaks its check.

    The outcome has one finding: ``fail`` or ``warn`` with its evidence, or ``pass``; ``skip`` where the check does not
    apply. Raises :exc:`~rlmesh_trio.conformance.blob.BlobError` for the blob of another contract, what connecting
    raises, and :exc:`~rlmesh_trio.conformance.lab.TargetLost`.
    """
    check = check_of(blob, checks)
    async with target.connect(OPENING) as env:
        facts = facts_of(target, env, settings)
        package, version = package_of(env)
    blob.expect(facts.contract)
    found = Finding(check.id, check.severity, "skip", target.name)
    # There is a case of a check of masks only where masks were seen.
    facts.told[MASKS_SEEN] = True
    reason = check.applies(facts)
    if reason is not None:
        found = attrs.evolve(found, reason=reason)
    else:
        async with open_lab(target, facts, step_timeout=settings.step_timeout) as lab:
            found = await _judged(check, blob, lab, found, runs)
    return TargetOutcome(
        target.name,
        target.kind,
        address=target.address,
        contract=facts.contract,
        contract_digest=blob.digest,
        package=package,
        version=version,
        findings=(found,),
    )


async def _judged(check: Check, blob: Blob, lab: TargetLab, found: Finding, runs: int) -> Finding:
    for run in range(1, runs + 1):
        evidence = await check.judge(lab, blob.case)
        if evidence is not None:
            severity = evidence.severity or check.severity
            verdicts: dict[str, VerdictName] = {"must": "fail", "should": "warn", "note": "note"}
            return attrs.evolve(
                found,
                verdict=verdicts[severity],
                evidence=evidence,
                scripts=scripts_in(blob.case),
                case=blob.case,
                runs=1,
                tries=run,
            )
    return attrs.evolve(found, verdict="pass", tries=runs)


async def replayed(blob: Blob, target: Target, settings: Settings) -> tuple[Trace, ...]:
    """What *target*, which runs, answers to the scripts of *blob*, played one after the other in one session.

    Raises as :func:`retried` does.
    """
    async with target.connect(OPENING) as env:
        facts = facts_of(target, env, settings)
    blob.expect(facts.contract)
    async with open_lab(target, facts, step_timeout=settings.step_timeout) as lab:
        scripts = [script for script in scripts_in(blob.case) if script.lanes == facts.contract.num_envs]
        return tuple([await lab.play(script) for script in scripts])
