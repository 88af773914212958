"""Whole sessions over local endpoints: an episode depends on its seed, not on where or beside whom it ran."""

from typing import Any

import pytest
import trio

from rlmesh_trio.endpoints.local_env import Where, open_local_env
from rlmesh_trio.endpoints.local_model import open_local_model
from rlmesh_trio.engine.session import run_session
from rlmesh_trio.errors import EnvRpcError, ModelRpcError, OperationTimeout
from rlmesh_trio.report import Report
from rlmesh_trio.spec import Limits, SessionSpec
from tests.endpoints.toys import Script, counter, vector


async def run(source: object, policy: object, *, lanes: int = 1, where: Where = "inline", **fields: Any) -> Report:
    async with open_local_env(source, lanes=lanes, where=where) as env, open_local_model(policy) as model:
        spec = SessionSpec.for_env(env, **({"max_episodes": 6, "base_seed": 3} | fields))
        await model.resolve(spec)
        return await run_session(spec, env, model)


def played(report: Report) -> list[tuple[int, int | None, int, float]]:
    episodes = sorted(report.episodes, key=lambda episode: episode.episode_index)
    return [(e.episode_index, e.seed, e.step_count, e.cumulative_reward) for e in episodes]


async def test_lanes_and_places_do_not_change_what_is_played() -> None:
    alone = await run("CartPole-v1", "random")
    assert len(alone.episodes) == 6
    assert len({episode.seed for episode in alone.episodes}) == 6
    assert played(await run("CartPole-v1", "random", lanes=4)) == played(alone)
    assert played(await run("CartPole-v1", "random", lanes=3, where="thread")) == played(alone)


async def test_a_process_changes_nothing_either() -> None:
    assert played(await run("CartPole-v1", "random", where="process")) == played(await run("CartPole-v1", "random"))


async def test_a_lockstep_vector_restarts_its_own_lanes() -> None:
    report = await run(vector(), "zero", max_episodes=7)
    assert report.total_episodes == 7
    assert {(e.env_index, e.step_count, e.cumulative_reward) for e in report.episodes} == {
        (0, 2, 2.0),
        (1, 3, 6.0),
        (2, 4, 12.0),
    }


async def test_an_abandoned_step_fails_the_run_at_its_limit() -> None:
    hung = Script({2: "hang"})
    with pytest.raises(OperationTimeout, match=r"env\.step timed out") as caught, trio.fail_after(5):
        await run(hung, "zero", where="thread", limits=Limits(env_step_timeout=0.05))
    assert caught.value.step == 2
    hung.released.set()


async def test_failures_of_env_and_policy_say_whose_they_are() -> None:
    with pytest.raises(EnvRpcError, match="step failed: RuntimeError: toy fault"):
        await run(Script({2: "raise"}), "zero")

    def policy(observation: Any) -> Any:
        raise LookupError("no weights")

    with pytest.raises(ModelRpcError, match="predict failed: LookupError: no weights"):
        await run(counter, policy, lanes=2)
