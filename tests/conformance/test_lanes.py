"""The family ``lanes``: each planted fault fails its check and no other, and what is merely odd passes."""

from collections.abc import Callable
from typing import Any

import gymnasium
import pytest
from gymnasium.vector import AutoresetMode, SyncVectorEnv

from rlmesh_trio.conformance.checks import lanes as lane_checks
from rlmesh_trio.conformance.checks import seed as seed_checks
from rlmesh_trio.conformance.printing import script_text
from rlmesh_trio.conformance.registry import CHECKS
from rlmesh_trio.conformance.targets import LocalTarget, Target
from rlmesh_trio.conformance.verdicts import Finding
from rlmesh_trio.spaces import space_from_gymnasium
from tests.conformance.family_runs import found
from tests.conformance.labs import lab_on
from tests.conformance.planted import lanes as planted
from tests.conformance.planted import seed as single

REGISTERED = lane_checks, seed_checks
ACTIONS = space_from_gymnasium(single.Walk.action_space)


async def faults(source: object, *, lanes: int = 3, **settings: Any) -> dict[str, Finding]:
    return await found(LocalTarget(source, lanes=lanes, where="inline"), "seed", "lanes", **settings)


@pytest.mark.parametrize(
    ("kind", "check", "verdict", "ops"),
    [
        (planted.Copy, "lanes.seed-distinct", "fail", 1),
        (planted.InTheWind, "lanes.solo-equal", "fail", 3),
        (planted.Numbered, "lanes.permute", "warn", 2),
        (planted.Crowded, "lanes.width-equal", "warn", 2),
        (planted.Contagious, "lanes.partial-reset-local", "fail", 4),
    ],
)
async def test_a_fault_fails_its_check_alone_by_a_short_script(
    kind: Callable[..., single.Walk], check: str, verdict: str, ops: int
) -> None:
    findings = await found(planted.Grouped(kind), "seed", "lanes")
    assert {id: finding.verdict for id, finding in findings.items()} == {check: verdict}
    for script in findings[check].scripts:
        assert len(script.ops) <= ops, script_text(script, ACTIONS)


@pytest.mark.parametrize(
    ("target", "check", "signature"),
    [
        (planted.Lax, "lanes.partial-reset-args", "bad list of lanes accepted"),
        (planted.Touchy, "lanes.partial-reset-args", "bad list of lanes ends the session"),
        (planted.Hasty, "lanes.partial-reset-args", "obs differs"),
        (planted.Narrow, "lanes.partial-reset-local", "partial reset refused as INTERNAL"),
    ],
)
async def test_what_an_endpoint_makes_of_a_list_of_lanes(target: type[Target], check: str, signature: str) -> None:
    findings = await found(target(), "seed", "lanes")
    assert set(findings) == {check}
    evidence = findings[check].evidence
    assert evidence is not None
    assert (evidence.signature, evidence.blame) == (signature, "server")


async def test_resets_by_name_may_be_unsupported() -> None:
    assert await found(planted.NotByName(), "lanes") == {}


@pytest.mark.parametrize("env", [single.OddButRight, single.Short])
async def test_what_is_odd_is_no_fault(env: type[single.Walk]) -> None:
    assert await faults(env) == {}


@pytest.mark.parametrize("mode", [AutoresetMode.NEXT_STEP, AutoresetMode.DISABLED])
async def test_lanes_of_a_vector_that_end_at_different_times_are_no_fault(mode: AutoresetMode) -> None:
    def vector() -> Any:
        return SyncVectorEnv([single.EndsByChance] * 3, autoreset_mode=mode)

    assert await faults(vector, lanes=1) == {}


async def test_restarts_that_do_not_repeat_are_told_once() -> None:
    def vector() -> Any:
        return SyncVectorEnv([single.ShortAndUnseeded] * 2)

    assert set(await faults(vector, lanes=1)) == {"seed.followup-repeatable"}


async def test_a_vector_whose_lanes_meet_when_one_restarts() -> None:
    assert set(await faults(planted.meeting_at_restarts, lanes=1, examples=10)) == {"lanes.solo-equal"}


@pytest.mark.parametrize("env_id", ["FrozenLake-v1", "Blackjack-v1"])
async def test_lanes_that_are_alike_by_chance_are_no_fault(env_id: str) -> None:
    assert await faults(lambda: gymnasium.make(env_id), lanes=2) == {}


async def test_infos_that_a_vector_joins_are_no_fault() -> None:
    """Here gymnasium cuts 0.5 to 0 for the lanes behind one that says 0."""

    def vector() -> Any:
        return SyncVectorEnv([single.MixedInfos] * 2)

    assert await faults(vector, lanes=1, examples=10) == {}


async def test_an_env_that_remembers_is_no_fault_of_lanes() -> None:
    assert set(await faults(single.Smoothing, lanes=2)) == {"seed.history-independent"}


async def test_without_chance_lanes_may_be_alike() -> None:
    findings = await faults(single.SeedIgnored)
    assert {id: finding.verdict for id, finding in findings.items()} == {"seed.sensitive": "note"}


async def test_more_lanes_than_are_drawn_one_by_one() -> None:
    assert await faults(single.Walk, lanes=18, examples=1) == {}


async def test_one_lane_is_not_enough() -> None:
    async with lab_on(single.Walk) as lab:
        reasons = {id: check.applies(lab.facts) for id, check in CHECKS.items() if check.family == "lanes"}
    assert set(reasons.values()) == {"needs num_envs >= 2"}


async def test_a_vector_has_the_width_it_has() -> None:
    async with lab_on(SyncVectorEnv([single.Walk] * 2)) as lab:
        reason = CHECKS["lanes.width-equal"].applies(lab.facts)
    assert reason is not None
    assert reason.startswith("needs a factory of single envs")
