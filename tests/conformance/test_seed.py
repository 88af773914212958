"""The family ``seed``: each planted fault fails its check and no other, and what is merely odd passes."""

from typing import Any

import gymnasium
import numpy as np
import pytest
import trio
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from gymnasium.wrappers import RecordEpisodeStatistics

from rlmesh_trio.conformance.checks.seed import seed_sensitive, trace_repeatable
from rlmesh_trio.conformance.printing import script_text
from rlmesh_trio.conformance.registry import CHECKS
from rlmesh_trio.conformance.scripts import Reset, Script
from rlmesh_trio.conformance.targets import LocalTarget
from rlmesh_trio.conformance.verdicts import Finding
from rlmesh_trio.spaces import space_from_gymnasium
from tests.conformance.family_runs import found
from tests.conformance.labs import judged, lab_on
from tests.conformance.planted import seed as planted

ACTIONS = space_from_gymnasium(planted.Walk.action_space)


async def seed_faults(source: object, *, lanes: int = 1, **settings: Any) -> dict[str, Finding]:
    return await found(LocalTarget(source, lanes=lanes, where="inline"), "seed", **settings)


def told(script: Script) -> str:
    return script_text(script, ACTIONS)


@pytest.mark.parametrize(
    ("env", "check", "verdict", "scripts"),
    [
        (planted.UnseededStart, "seed.reset-repeatable", "fail", ["reset(seed=0)"]),
        (planted.UnseededPush, "seed.trace-repeatable", "fail", ["reset(seed=0) step(0)"]),
        (planted.UnseededFollowup, "seed.followup-repeatable", "fail", ["reset(seed=0) reset()"]),
        (planted.Smoothing, "seed.history-independent", "fail", ["reset(seed=0) step(0)", "reset(seed=0) step(0)"]),
        (planted.CountingEpisodes, "seed.history-independent", "fail", ["reset(seed=0)", "reset(seed=0)"]),
        (planted.RandomInfos, "seed.trace-repeatable", "warn", ["reset(seed=0) step(0)"]),
    ],
)
async def test_a_fault_fails_its_check_alone_by_the_shortest_script(
    env: type[planted.Walk], check: str, verdict: str, scripts: list[str]
) -> None:
    faults = await seed_faults(env)
    assert {id: finding.verdict for id, finding in faults.items()} == {check: verdict}
    assert list(map(told, faults[check].scripts)) == scripts


async def test_a_fault_that_flickers_is_found_and_shrunk(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(planted.RarelyUnseeded, "other", np.random.default_rng(7))
    faults = await seed_faults(planted.RarelyUnseeded, examples=40)
    assert set(faults) == {"seed.trace-repeatable"}
    finding = faults["seed.trace-repeatable"]
    assert finding.runs < finding.tries
    assert len(finding.scripts[0].ops) <= 3


@pytest.mark.parametrize("lanes", [1, 3])
async def test_what_is_odd_is_no_fault(lanes: int) -> None:
    assert await seed_faults(planted.OddButRight, lanes=lanes) == {}


@pytest.mark.parametrize("mode", [AutoresetMode.NEXT_STEP, AutoresetMode.DISABLED])
async def test_a_vector_env_that_goes_on_by_itself_is_no_fault(mode: AutoresetMode) -> None:
    def vector() -> Any:
        return SyncVectorEnv([planted.Short] * 3, autoreset_mode=mode)

    assert await seed_faults(vector) == {}


async def test_wall_clock_times_are_no_difference() -> None:
    def cart_pole() -> Any:
        return RecordEpisodeStatistics(gymnasium.make("CartPole-v1"))

    assert await seed_faults(cart_pole) == {}


async def test_an_env_without_chance_is_told_of() -> None:
    faults = await seed_faults(planted.SeedIgnored)
    assert {id: finding.verdict for id, finding in faults.items()} == {"seed.sensitive": "note"}


@pytest.mark.parametrize(("env", "deterministic"), [(planted.Walk, False), (planted.SeedIgnored, True)])
async def test_later_checks_learn_whether_seeds_matter(env: type[planted.Walk], deterministic: bool) -> None:
    example = CHECKS["seed.sensitive"].example
    assert example is not None
    async with lab_on(env) as lab:
        await seed_sensitive(lab, example(lab.facts))
        assert lab.facts.told["deterministic"] is deterministic


async def test_an_env_that_cannot_be_reset_is_not_called_deterministic() -> None:
    example = CHECKS["seed.sensitive"].example
    assert example is not None
    async with lab_on(planted.Unwilling) as lab:
        assert await seed_sensitive(lab, example(lab.facts)) is None
        assert "deterministic" not in lab.facts.told


async def test_an_env_that_minds_pauses(autojump_clock: trio.testing.MockClock) -> None:
    evidence = await judged("seed.timing-independent", planted.Impatient)
    assert evidence is not None
    assert evidence.lines[1].startswith("0.3 s later  step 1  obs[0] = ")
    assert evidence.lines[1].endswith("the reset is equal")


@pytest.mark.parametrize("env", [planted.Walk, planted.UnseededPush, planted.Smoothing])
async def test_who_does_not_mind_pauses(env: type[planted.Walk], autojump_clock: trio.testing.MockClock) -> None:
    assert await judged("seed.timing-independent", env) is None


async def test_an_env_that_minds_pauses_breaks_nothing_else(autojump_clock: trio.testing.MockClock) -> None:
    for check in ("reset-repeatable", "trace-repeatable", "followup-repeatable", "history-independent"):
        assert await judged(f"seed.{check}", planted.Impatient) is None


async def test_a_script_without_a_seed_need_not_repeat() -> None:
    async with lab_on(planted.Walk) as lab:
        assert await trace_repeatable(lab, Script(1, (Reset(),))) is None


async def test_nothing_is_asked_of_an_env_declared_nondeterministic() -> None:
    faults = await seed_faults(planted.UnseededPush, nondeterministic=True)
    assert faults == {}


async def test_what_the_user_leaves_out_is_not_compared() -> None:
    assert await seed_faults(planted.RandomInfos, ignored_infos=("luck",)) == {}
    assert await seed_faults(planted.RandomLeaf, ignored_leaves=("obs.camera",)) == {}
    assert set(await seed_faults(planted.RandomLeaf)) == {"seed.trace-repeatable"}
