"""The family ``py``: each planted fault fails its check and no other, and what is merely odd passes."""

from collections.abc import Callable
from typing import Any

import gymnasium
import numpy as np
import pytest
import trio
from gymnasium.vector import SyncVectorEnv

from rlmesh_trio.conformance.python_env import returned_values
from rlmesh_trio.conformance.registry import CHECKS
from tests.conformance.complaints import complaints_about
from tests.conformance.labs import broken_by, judged, lab_on
from tests.conformance.making import facts_for
from tests.conformance.planted import py as planted
from tests.conformance.planted.space import OddButRight, OneStep, Slide, Stepped
from tests.conformance.test_checks_space import UPWARDS

Made = Callable[[], gymnasium.Env[Any, Any]]


@pytest.mark.parametrize(
    ("env", "check", "line"),
    [
        (
            planted.ObservationAlone,
            "py.reset-pair",
            "reset() returned array of float32, shape (3,)",
        ),
        (
            planted.InfosAsList,
            "py.reset-pair",
            "reset() returned (array of float32, shape (3,), list)",
        ),
        (
            planted.OneFlag,
            "py.step-five",
            "step() returned (array of float32, shape (3,), float, bool, dict)",
        ),
        (planted.FlagAsInt, "py.flag-types", "step 1  terminated = 0, int"),
        (planted.FlagAsArray, "py.flag-types", "step 1  truncated = [False], array of bool, shape (1,)"),
        (planted.RewardAsArray, "py.reward-type", "step 1  reward = 0.0, array of float64, shape ()"),
        (planted.ObservationInDoubles, "py.obs-dtype", "step 1  obs is array of float64, shape (3,)"),
        (planted.ObservationAsList, "py.obs-dtype", "step 1  obs is list"),
        (planted.OneBuffer, "py.no-alias", "obs as reset returned it: [0.0, 0.0, 0.0]"),
        (planted.OneDict, "py.no-alias", "obs.place as reset returned it: [0.0]"),
        (planted.OneInfos, "py.no-alias", "info.t as step 1 returned it: 1"),
        (planted.ObjectInInfos, "py.info-plain", "step 1  info.deep[0].er is Opaque"),
        (planted.SetInInfos, "py.info-plain", "step 1  info.seen is set"),
        (planted.HugeInt, "py.info-plain", "step 1  info.n is an int beyond 64 bits"),
        (planted.OddKey, "py.info-plain", "step 1  info has the key 1, int"),
        (planted.Complex, "py.info-plain", "step 1  info.z is array of complex128, shape (1,)"),
        (planted.ClosesOnce, "py.close-twice", "close() again raised RuntimeError: closed already"),
    ],
)
async def test_a_fault_fails_its_check_alone(env: Made, check: str, line: str) -> None:
    findings = await complaints_about(env, UPWARDS)
    assert set(findings) == {check}
    assert findings[check].severity == ("should" if env is planted.OneInfos else None)
    assert findings[check].lines[0] == line


async def test_a_reward_that_stops_the_server_is_told_once() -> None:
    findings = await complaints_about(planted.RewardAsNothing, UPWARDS)
    assert set(findings) == {"space.member-accepted"}


@pytest.mark.parametrize(
    "env",
    [
        Slide,
        OddButRight,
        planted.NumpyScalars,
        planted.RewardAsFloat16,
        planted.NamedStep,
        planted.SameEveryTime,
        planted.PlainInfos,
        lambda: planted.Wrapped(Slide()),
        lambda: SyncVectorEnv([Slide] * 2),
    ],
)
async def test_what_is_odd_is_no_fault(env: Made) -> None:
    assert await complaints_about(env) == {}


async def test_a_fault_is_seen_through_the_wrapper_that_stumbles_over_it() -> None:
    findings = await complaints_about(lambda: planted.Wrapped(planted.ObservationAlone()))
    assert set(findings) == {"py.reset-pair"}
    findings = await complaints_about(lambda: planted.Wrapped(planted.OneFlag()))
    assert set(findings) == {"py.step-five"}


async def test_an_alias_is_shrunk_to_the_steps_between() -> None:
    broken = await broken_by("py.no-alias", planted.OneBuffer, examples=10)
    assert broken is not None
    assert broken.ops <= 2


async def test_an_alias_of_a_vector_env_is_found() -> None:
    evidence = await judged("py.no-alias", lambda: SyncVectorEnv([Slide] * 2, copy=False))
    assert evidence is not None
    assert evidence.signature == "obs changes later"


async def test_flags_of_a_vector_env_are_arrays_and_need_a_reason_to_be_skipped() -> None:
    async with lab_on(lambda: SyncVectorEnv([Slide] * 2)) as lab:
        skip = CHECKS["py.flag-types"].applies(lab.facts)
    assert skip == "needs a scalar env: the flags and rewards of a vector env are arrays"


async def test_a_running_server_is_not_opened() -> None:
    async with lab_on(Slide, local=False, factory=False) as lab:
        skips = {check.applies(lab.facts) for check in CHECKS.values() if check.family == "py"}
    assert skips == {"needs a factory or a gymnasium id: the env of a running server is not opened here"}


def test_an_env_is_not_stepped_past_its_end() -> None:
    asked = [returned.op for returned in returned_values(OneStep(), UPWARDS, facts_for(actions=OneStep.action_space))]
    assert asked == [0, 1]


async def test_an_env_that_exists_already_is_asked_itself() -> None:
    env = planted.FlagAsInt()
    assert set(await complaints_about(env, UPWARDS)) == {"py.flag-types"}


class Stuck(Slide):
    """Never comes back from a step."""

    def step(self, action: Any) -> Stepped:
        trio.from_thread.run(trio.sleep_forever)
        return super().step(action)


async def test_a_step_that_hangs_is_for_others_to_tell(autojump_clock: trio.testing.MockClock) -> None:
    assert await judged("py.no-alias", Stuck) is None


async def test_actions_are_the_envs_own_to_write_into() -> None:
    class Clipping(Slide):
        def step(self, action: Any) -> Stepped:
            np.clip(action, -0.5, 0.5, out=action)
            return super().step(action)

    assert await complaints_about(Clipping) == {}
