"""The family ``autoreset``: each planted fault fails its check and no other, and what is merely odd passes."""

from typing import Any

import gymnasium
import pytest
from gymnasium.vector import AutoresetMode, SyncVectorEnv

from rlmesh_trio.conformance.checks import acct, autoreset, autoreset_same, life, twin
from rlmesh_trio.conformance.registry import CHECKS
from rlmesh_trio.conformance.targets import LocalTarget, Target
from tests.conformance.family_runs import found
from tests.conformance.labs import lab_on
from tests.conformance.planted import acct as accounts
from tests.conformance.planted import autoreset as planted
from tests.conformance.planted.seed import EndsByChance, MixedInfos, OddButRight, Short, Walk

REGISTERED = acct, autoreset, autoreset_same, life, twin
FAMILIES = "autoreset", "life", "acct", "twin"


async def verdicts(target: Target, **settings: Any) -> dict[str, str]:
    """What was found, but for the notes."""
    findings = await found(target, *FAMILIES, examples=1, shrink=False, **settings)
    return {id: finding.verdict for id, finding in findings.items() if finding.verdict != "note"}


def local(source: object, lanes: int = 1) -> LocalTarget:
    return LocalTarget(source, lanes=lanes, where="inline")


@pytest.mark.parametrize(
    ("vector", "check"),
    [
        (planted.Obedient, "autoreset.next.action-ignored"),
        (planted.Paying, "autoreset.next.quiet"),
        (planted.StillOver, "autoreset.next.quiet"),
        (planted.Ahead, "autoreset.next.terminal-kept"),
        (planted.Stuck, "autoreset.next.not-stuck"),
    ],
)
async def test_a_fault_of_next_step_fails_its_check_alone(vector: type[planted.Restarting], check: str) -> None:
    assert await verdicts(local(vector)) == {check: "fail"}


@pytest.mark.parametrize(
    ("vector", "check", "verdict"),
    [
        (planted.NoMask, "autoreset.same.final-obs", "fail"),
        (planted.OnlyMask, "autoreset.same.final-obs", "fail"),
        (planted.NoFinal, "autoreset.same.final-obs", "fail"),
        (planted.AllFinal, "autoreset.same.final-obs", "fail"),
        (planted.ShortFinal, "autoreset.same.final-obs", "fail"),
        (planted.Mixed, "autoreset.same.final-lane", "fail"),
        (planted.InfoOfAll, "autoreset.same.info", "warn"),
    ],
)
async def test_a_fault_of_same_step_fails_its_check_alone(
    vector: type[planted.Restarting], check: str, verdict: str
) -> None:
    assert await verdicts(planted.SameStepTarget(vector)) == {check: verdict}


async def test_a_record_without_a_reset() -> None:
    assert await verdicts(accounts.BadAccounts(accounts.OpenedAnew())) == {"autoreset.disabled.waits": "warn"}


@pytest.mark.parametrize("env", [EndsByChance, Walk, Short, MixedInfos])
@pytest.mark.parametrize("mode", [AutoresetMode.NEXT_STEP, AutoresetMode.DISABLED, AutoresetMode.SAME_STEP])
async def test_what_gymnasium_makes_is_no_fault(env: type[Walk], mode: AutoresetMode) -> None:
    def vector() -> Any:
        return SyncVectorEnv([env] * 3, autoreset_mode=mode)

    assert await verdicts(planted.SameStepTarget(vector)) == {}


async def test_episodes_of_one_step_and_ends_by_both_flags_are_no_fault() -> None:
    class OneStep(OddButRight):
        length = 1

    for env in (OneStep, OddButRight):
        assert await verdicts(local(lambda env=env: SyncVectorEnv([env] * 2))) == {}


async def test_structured_last_observations() -> None:
    def vector() -> Any:
        return gymnasium.make_vec(
            "Blackjack-v1", 3, vectorization_mode="sync", vector_kwargs={"autoreset_mode": AutoresetMode.SAME_STEP}
        )

    assert await verdicts(planted.SameStepTarget(vector)) == {}


async def test_each_needs_its_mode() -> None:
    async with lab_on(Walk) as lab:
        reasons = {id: check.applies(lab.facts) for id, check in CHECKS.items() if check.family == "autoreset"}
    assert reasons.pop("autoreset.disabled.waits") is None
    assert {str(reason).rpartition(" ")[0] for reason in reasons.values()} == {"needs autoreset mode"}


async def test_a_fault_is_shown_by_a_short_script() -> None:
    finding = (await found(local(planted.Paying), "autoreset"))["autoreset.next.quiet"]
    assert len(finding.scripts[0].ops) <= 6
