"""The scripted endpoints stand where served ones stand: behind a spec made for them, and the one-request call."""

import numpy as np
import pytest
import trio
import trio.testing
from numpy.typing import NDArray

from rlmesh_trio import SessionSpec, open_local_model, run_session
from rlmesh_trio.errors import EndpointError
from rlmesh_trio.messages import EpisodeInfo, PredictRequest
from rlmesh_trio.spec import AutoresetMode
from rlmesh_trio.testing import EchoEnv, Fail, Fault, LaneScript, ScriptedEnv, ScriptedModel

REQUEST = PredictRequest("s", "e", "r", [b"\1\1"], (EpisodeInfo("a", None), EpisodeInfo("b", None)))


@pytest.mark.parametrize(
    ("env", "mode", "width", "drives_lanes", "resets"),
    [
        (ScriptedEnv(2), AutoresetMode.DISABLED, 1, False, 4),
        (ScriptedEnv(2, 3), AutoresetMode.DISABLED, 2, True, 4),
        (ScriptedEnv(2, 3, next_step=True), AutoresetMode.NEXT_STEP, 2, False, 1),
    ],
    ids=["one lane", "lanes", "vector"],
)
async def test_a_spec_can_be_made_for_one(
    env: ScriptedEnv,
    mode: AutoresetMode,
    width: int,
    drives_lanes: bool,
    resets: int,
    autojump_clock: trio.testing.MockClock,
) -> None:
    spec = SessionSpec.for_env(env, max_episodes=4)
    assert (spec.env_contract.autoreset_mode, spec.num_envs, spec.drives_lanes) == (mode, width, drives_lanes)
    report = await run_session(spec, env, ScriptedModel())
    assert (report.total_episodes, len(env.resets)) == (4, resets)


def one_more(observations: NDArray[np.uint8]) -> NDArray[np.uint8]:
    return observations + 1


async def test_a_policy_of_one_s_own_plays_in_one(autojump_clock: trio.testing.MockClock) -> None:
    env = ScriptedEnv(3, 2)
    spec = SessionSpec.for_env(env, max_episodes=4)
    async with open_local_model(one_more, where="inline") as model:
        await model.resolve(spec)
        report = await run_session(spec, env, model)
    assert report.total_episodes == 4
    assert {action for _, [action] in env.actions} == {bytes([step]) for step in (2, 3)}


async def test_a_slow_lane_takes_its_time(autojump_clock: trio.testing.MockClock) -> None:
    env, start = ScriptedEnv(LaneScript(4, delay=0.5)), trio.current_time()
    await run_session(SessionSpec.for_env(env, max_episodes=1), env, ScriptedModel(delay=2.0))
    assert trio.current_time() - start == 4 * (0.5 + 2.0)


async def test_an_interrupted_episode_is_told_under_its_old_id(autojump_clock: trio.testing.MockClock) -> None:
    env = EchoEnv()
    report = await run_session(SessionSpec.for_env(env, max_episodes=2, max_episode_steps=3), env, ScriptedModel())
    assert [(s.step_count, s.truncated) for s in report.episodes] == [(3, True), (3, True)]


async def test_one_request_gets_one_reply() -> None:
    reply = await ScriptedModel(extra=1).predict(REQUEST)
    assert (reply.request_id, reply.actions) == ("r", [[b"\0\0"], [b"dd"]])


async def test_one_request_that_fails_raises() -> None:
    model = ScriptedModel(faults=[Fault("predict", Fail("NOT_FOUND", "no such route"))])
    with pytest.raises(EndpointError, match="no such route"):
        await model.predict(REQUEST)
