"""The family ``value``: each planted fault fails its check and no other, and what is merely odd passes."""

from typing import Any

import gymnasium
import numpy as np
import pytest

from rlmesh_trio.conformance.registry import CHECKS
from rlmesh_trio.conformance.rows import row_of
from rlmesh_trio.conformance.scripts import Reset, Script, Step
from rlmesh_trio.conformance.targets import LocalTarget
from rlmesh_trio.spaces import space_from_gymnasium
from tests.conformance.complaints import complaints_about
from tests.conformance.family_runs import found
from tests.conformance.labs import broken_by, judged, lab_on
from tests.conformance.planted import value as planted
from tests.conformance.test_checks_space import UPWARDS, told

MOVES = space_from_gymnasium(planted.Masked.action_space)
LEFT, STAY, RIGHT = (row_of(MOVES, np.int64(move)) for move in (1, 2, 3))


def moving(*rows: Any, lanes: int = 1) -> Script:
    return Script(lanes, (Reset(tuple(range(lanes))), *[Step((row,) * lanes) for row in rows]))


LEFTWARDS = moving(LEFT, LEFT, LEFT)


@pytest.mark.parametrize(
    ("env", "script", "check", "relation"),
    [
        (planted.RewardsByDivision, UPWARDS, "value.reward-finite", "reward infinite"),
        (planted.RewardsNan, UPWARDS, "value.reward-finite", "reward nan"),
        (planted.AllowsNothing, LEFTWARDS, "value.mask-honest", "no action is allowed"),
        (planted.NothingAllowedObserved, LEFTWARDS, "value.mask-honest", "no action is allowed"),
        (planted.AllowsTooMuch, LEFTWARDS, "space.member-accepted", "step raises ValueError"),
    ],
)
async def test_a_fault_fails_its_check_alone(
    env: type[gymnasium.Env[Any, Any]], script: Script, check: str, relation: str
) -> None:
    findings = await complaints_about(env, script)
    assert {id: told(evidence) for id, evidence in findings.items()} == {check: relation}


@pytest.mark.parametrize("lanes", [1, 2])
@pytest.mark.parametrize(
    "env",
    [planted.Masked, planted.EndsWithNothingAllowed, planted.MaskGone, planted.MaskObserved, planted.OtherMask],
)
async def test_what_is_odd_is_no_fault(env: type[gymnasium.Env[Any, Any]], lanes: int) -> None:
    script = moving(STAY, LEFT, RIGHT, LEFT, STAY, LEFT, lanes=lanes)
    # One whose mask is no mask raises with good reason: it is asked as if it took everything.
    asked = moving(STAY, lanes=lanes) if env is planted.OtherMask else script
    assert await complaints_about(env, asked, lanes=lanes) == {}


async def test_masks_are_followed_behind_what_they_forbid() -> None:
    """The forbidden right would end the session; it is left out, and the empty mask behind it found."""
    case = moving(RIGHT, LEFT, RIGHT, LEFT)
    evidence = await judged("value.mask-honest", planted.AllowsNothing, case, told={"action_mask": True})
    assert evidence is not None
    assert evidence.lines[0] == "step 2  action_mask = 000"
    assert [len(trace.script.ops) for trace in evidence.traces] == [3]


async def test_lanes_follow_their_own_masks() -> None:
    case = Script(2, (Reset((0, 1)), *[Step((LEFT, STAY))] * 2, Step((STAY, RIGHT))))
    evidence = await judged("value.mask-honest", planted.AllowsNothing, case, lanes=2, told={"action_mask": True})
    assert evidence is not None
    assert evidence.lines[0] == "step 2 lane 0  action_mask = 000"
    assert evidence.first == (2, 0)


async def test_a_lane_goes_on_where_another_may_not() -> None:
    case = Script(2, (Reset((0, 1)), *[Step((LEFT, RIGHT))] * 2))
    evidence = await judged("value.mask-honest", planted.AllowsNothing, case, lanes=2, told={"action_mask": True})
    assert evidence is not None
    assert evidence.lines[0] == "step 2 lane 0  action_mask = 000"
    assert evidence.traces[0].script.ops[1:] == (Step((LEFT,), (0,)),) * 2


async def test_an_allowed_action_that_is_refused_is_the_masks_fault_too() -> None:
    evidence = await judged("value.mask-honest", planted.AllowsTooMuch, LEFTWARDS, told={"action_mask": True})
    assert evidence is not None
    assert evidence.lines[0] == "step 3  action 1, which action_mask = 110 allows"


async def test_an_empty_mask_is_found_by_searching_and_shrunk_to_allowed_steps() -> None:
    broken = await broken_by("value.mask-honest", planted.AllowsNothing, examples=20, told={"action_mask": True})
    assert broken is not None
    assert [op.actions for op in broken.case.ops[1:]] == [(LEFT,), (LEFT,)]


@pytest.mark.parametrize(
    ("env", "reason"),
    [
        (planted.RewardsNan, "needs an action space that masks are for"),
        (planted.OtherMask, "needs an action_mask in infos or observations: none was seen"),
    ],
)
async def test_masks_are_looked_for_where_they_can_be(env: type[gymnasium.Env[Any, Any]], reason: str) -> None:
    async with lab_on(env) as lab:
        await CHECKS["space.member-accepted"].judge(lab, Script(1, (Reset((0,)),)))
        skip = CHECKS["value.mask-honest"].applies(lab.facts)
    assert skip is not None
    assert skip.startswith(reason)


async def test_masks_that_were_seen_are_judged() -> None:
    findings = await found(LocalTarget(planted.AllowsNothing, where="inline"), "space", "value", examples=4)
    assert findings["value.mask-honest"].verdict == "warn"
    assert set(findings) == {"value.mask-honest", "space.bounds-report"}


async def test_a_reward_is_told_with_its_bits_and_its_action() -> None:
    evidence = await judged("value.reward-finite", planted.RewardsNan, UPWARDS)
    assert evidence is not None
    assert evidence.lines == ("step 1  reward = nan   (0x7ff8000000000000)   for the action [1.0]",)


async def test_both_places_of_a_warning_are_told() -> None:
    """The infos that warn are the server's part, which the env plays here."""
    assert await complaints_about(planted.WarnsAgain, UPWARDS) == {}
    evidence = await judged("value.warning-once", planted.WarnsAgain, UPWARDS, factory=True)
    assert evidence is not None
    assert evidence.lines == ("step 3  warns of the observation at $", "step 6  warns of it again")
    assert evidence.blame == "server"


async def test_different_warnings_are_no_fault() -> None:
    assert await judged("value.warning-once", planted.WarnsOfMuch, UPWARDS, factory=True) is None


async def test_actions_out_of_range_are_warned_of_once() -> None:
    """By the server that the env in this process is to its lab."""
    assert await judged("value.warning-once", planted.RewardsByDivision, factory=True) is None


async def test_what_was_seen_stands_beside_what_is_declared() -> None:
    evidence = await judged("space.bounds-report", planted.RewardsByDivision, UPWARDS)
    assert evidence is not None
    assert evidence.lines == (
        "obs[0]   declared -4 to 4    seen 0 to 4",
        "obs[1]   declared -2 to 2    seen 0 to 2",
        "obs[2]   declared 0 to inf   seen 0 to 6",
    )
