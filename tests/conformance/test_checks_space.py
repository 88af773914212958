"""The family ``space``: each planted fault fails its check and no other, and what is merely odd passes."""

from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, SyncVectorEnv

from rlmesh_trio.conformance.near_members import slipped_example
from rlmesh_trio.conformance.registry import CHECKS
from rlmesh_trio.conformance.rows import row_of
from rlmesh_trio.conformance.scripts import Reset, Script, Step
from rlmesh_trio.conformance.targets import LocalTarget
from rlmesh_trio.conformance.verdicts import Evidence
from rlmesh_trio.spaces import space_from_gymnasium
from tests.conformance.complaints import complaints, complaints_about, lab_of
from tests.conformance.family_runs import found
from tests.conformance.labs import broken_by, judged
from tests.conformance.making import facts_for
from tests.conformance.planted import space as planted
from tests.conformance.scripted_env import ScriptedTarget

PUSHES_OF_TWO = spaces.Box(-1, 1, (2,), np.float32)
PUSHES = space_from_gymnasium(planted.Slide.action_space)
UP, STILL = (row_of(PUSHES, np.array([push], np.float32)) for push in (1, 0))
UPWARDS = Script(1, (Reset((0,)), *[Step((UP,))] * 6))
A_BIT = Script(1, (Reset((0,)), *[Step((STILL,))] * 6))


def told(evidence: Evidence) -> str:
    """The signature, and the severity where it is not the check's own."""
    return evidence.signature + (f" ({evidence.severity})" if evidence.severity else "")


@pytest.mark.parametrize(
    ("env", "script", "check", "relation"),
    [
        (planted.WrongShape, A_BIT, "space.obs-structure", "obs structure"),
        (planted.KeyMissing, UPWARDS, "space.obs-structure", "obs structure"),
        (planted.Overshoots, UPWARDS, "space.obs-contained", "obs high"),
        (planted.CountsTooFar, A_BIT, "space.obs-contained", "obs.t outside"),
        (planted.TalksTooMuch, A_BIT, "space.obs-contained", "obs long"),
        (planted.NanAtTheEnd, UPWARDS, "space.obs-no-nan", "obs nan"),
        (planted.RaisesOnBound, UPWARDS, "space.member-accepted", "step raises ValueError"),
        (planted.RaisesInAState, UPWARDS, "space.member-accepted", "step raises KeyError"),
        (planted.RaisesOnLargeSeeds, Script(1, (Reset((2**40,)),)), "space.member-accepted", "reset raises ValueError"),
    ],
)
async def test_a_fault_fails_its_check_alone(
    env: type[gymnasium.Env[Any, Any]], script: Script, check: str, relation: str
) -> None:
    findings = await complaints_about(env, script)
    assert {id: told(evidence) for id, evidence in findings.items()} == {check: relation}
    assert findings[check].blame == "env"


@pytest.mark.parametrize(
    ("env", "check", "ops"),
    [
        (planted.KeyMissing, "space.obs-structure", 3),
        (planted.Overshoots, "space.obs-contained", 6),
        (planted.NanAtTheEnd, "space.obs-no-nan", 4),
        (planted.RaisesInAState, "space.member-accepted", 5),
        (planted.RaisesOnLargeSeeds, "space.member-accepted", 1),
    ],
)
async def test_what_is_found_by_searching_is_short(env: type[gymnasium.Env[Any, Any]], check: str, ops: int) -> None:
    broken = await broken_by(check, env, examples=20)
    assert broken is not None
    assert broken.ops <= ops


@pytest.mark.parametrize("lanes", [1, 2])
@pytest.mark.parametrize("env", [planted.Slide, planted.OddButRight, planted.OneStep, planted.Forbidding])
async def test_what_is_odd_is_no_fault(env: type[gymnasium.Env[Any, Any]], lanes: int) -> None:
    assert await complaints_about(env, lanes=lanes) == {}


async def test_nothing_odd_is_found_by_searching() -> None:
    target = LocalTarget(planted.OddButRight, lanes=2, where="inline")
    assert set(await found(target, "space", "value", "py", examples=2)) <= {"space.bounds-report"}


@pytest.mark.parametrize("mode", [AutoresetMode.NEXT_STEP, AutoresetMode.DISABLED])
async def test_a_vector_env_is_no_fault(mode: AutoresetMode) -> None:
    assert await complaints_about(lambda: SyncVectorEnv([planted.OddButRight] * 2, autoreset_mode=mode)) == {}


async def test_the_lane_that_left_its_bounds_is_told() -> None:
    case = Script(2, (Reset((0, 0)), *[Step((STILL, UP))] * 5))
    evidence = await judged("space.obs-contained", planted.Overshoots, case, lanes=2)
    assert evidence is not None
    assert evidence.lines == ("step 5 lane 1  obs[0] = 5.0   above the high bound 4.0, by 1",)
    assert evidence.first == (5, 1)


async def test_bounds_can_be_declared_a_matter_of_warning() -> None:
    findings = await complaints_about(planted.Overshoots, UPWARDS, bounds="warn")
    assert {id: told(evidence) for id, evidence in findings.items()} == {"space.obs-contained": "obs high (should)"}
    findings = await complaints_about(planted.CountsTooFar, A_BIT, bounds="warn")
    assert told(findings["space.obs-contained"]) == "obs.t outside"


async def test_nan_is_told_with_the_action_before_it() -> None:
    evidence = await judged("space.obs-no-nan", planted.NanAtTheEnd, UPWARDS)
    assert evidence is not None
    assert evidence.lines[0].startswith("step 3  obs: ")
    assert evidence.lines[-1] == "after the action [1.0]"


async def test_what_was_asked_of_an_env_that_raised_is_told() -> None:
    evidence = await judged("space.member-accepted", planted.RaisesOnBound, UPWARDS)
    assert evidence is not None
    assert evidence.lines == ("step 1  with the action [1.0]", "INTERNAL: step failed: ValueError: not so hard")


@pytest.mark.parametrize(
    ("fault", "relation"),
    [
        ("takes", "discrete structural taken"),
        ("internal", "discrete structural INTERNAL, not recoverable"),
        ("fatal", "discrete structural INVALID_ACTION, not recoverable"),
    ],
)
async def test_a_server_that_does_not_refuse(fault: str, relation: str) -> None:
    findings = await complaints(ScriptedTarget(planted.Served(fault)))
    assert {id: told(evidence) for id, evidence in findings.items()} == {"space.nonmember-refused": relation}
    assert findings["space.nonmember-refused"].blame == "server"


async def test_a_server_that_acts_before_it_refuses() -> None:
    findings = await complaints(ScriptedTarget(planted.Served("steps first")))
    assert set(findings) == {"space.refusal-harmless"}
    evidence = findings["space.refusal-harmless"]
    assert evidence.blame == "server"
    assert [line.partition("  ")[0] for line in evidence.lines] == ["without refusals", "with refusals"]


async def test_a_server_that_refuses_as_it_should() -> None:
    assert await complaints(ScriptedTarget(planted.Served())) == {}


async def test_a_server_that_passes_on_what_is_out_of_range_is_warned_of() -> None:
    findings = await complaints(ScriptedTarget(planted.Silent()))
    assert {id: told(evidence) for id, evidence in findings.items()} == {
        "space.nonmember-refused": "box range passed on without a warning (should)"
    }


@pytest.mark.parametrize(
    ("fault", "relation"),
    [
        ("short", "obs structure"),
        ("two leaves", "obs structure"),
        ("two rewards", "rewards width"),
        ("three flags", "truncated width"),
    ],
)
async def test_answers_of_another_size(fault: str, relation: str) -> None:
    findings = await complaints(ScriptedTarget(planted.Garbled(fault)))
    assert {id: told(evidence) for id, evidence in findings.items()} == {"space.obs-structure": relation}
    assert findings["space.obs-structure"].blame == "server"


async def test_a_range_is_for_the_env_to_refuse_as_well() -> None:
    assert await complaints(ScriptedTarget(planted.Silent(raises=True))) == {}


async def test_a_server_warns_in_every_session() -> None:
    once, again = planted.Silent(warns=True), planted.Silent(warns=True)
    case = slipped_example(facts_for(actions=PUSHES_OF_TWO))
    async with lab_of(ScriptedTarget(once, again, planted.Silent())) as lab:
        evidence = await CHECKS["space.nonmember-refused"].judge(lab, case)
    assert evidence is not None
    assert told(evidence) == "box range passed on without a warning (should)"
    async with lab_of(ScriptedTarget(planted.Silent(warns=True))) as lab:
        assert await CHECKS["space.nonmember-refused"].judge(lab, case) is None


async def test_a_late_answer_is_for_others_to_tell() -> None:
    assert await complaints(ScriptedTarget(planted.Served("late"))) == {}


async def test_what_is_not_refused_does_no_harm_by_a_refusal() -> None:
    async with lab_of(ScriptedTarget(planted.Served("takes"))) as lab:
        check = CHECKS["space.refusal-harmless"]
        assert check.example is not None
        assert await check.judge(lab, check.example(lab.facts)) is None


@pytest.mark.parametrize(
    ("space", "leaf", "check", "relation"),
    [
        (spaces.Discrete(3), np.int64(7), "space.obs-contained", "obs high"),
        (spaces.MultiBinary(2), np.array([0, 2], np.int8), "space.obs-contained", "obs high"),
        (spaces.Box(-1, 1, (2,)), np.array([0, np.nan], np.float32), "space.obs-no-nan", "obs nan"),
        (spaces.Box(-1, 1, (2,)), np.array([-2, np.nan], np.float32), "space.obs-contained", "obs low (should)"),
    ],
)
async def test_what_a_server_does_not_check_is_judged_here(
    space: spaces.Space[Any], leaf: Any, check: str, relation: str
) -> None:
    """Bounds are declared a matter of warning, which only those of a Box and a Text can be."""
    findings = await complaints(ScriptedTarget(planted.Sends(space, leaf.tobytes())), bounds="warn")
    assert told(findings.pop(check)) == relation
    assert set(findings) <= {"space.obs-no-nan"}
