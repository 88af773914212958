"""A run over the wire, by a real rlmesh server or one of ours, has the root of the same run in this process."""

from typing import Any

import gymnasium
import pytest
import trio
from gymnasium.vector import AutoresetMode, SyncVectorEnv

from rlmesh_trio import connect_env, open_local_env
from rlmesh_trio.serve import serve_env
from tests.interop.conftest import StartPeer
from tests.interop.driving import LIMIT
from tests.recording.same_runs import lean, noisy, recorded_run

POLICIES: dict[str, object] = {"pure": lean, "random": "random", "drawing from its generator": noisy}

policies = pytest.mark.parametrize("policy", POLICIES)


async def served(address: str, policy: object, **given: Any) -> bytes:
    async with connect_env(address) as env:
        return (await recorded_run(env, policy, **given)).root


async def here(policy: object) -> bytes:
    async with open_local_env("CartPole-v1") as env:
        return (await recorded_run(env, policy)).root


@policies
async def test_a_real_server(shared_env: StartPeer, policy: str) -> None:
    kinds = [["--kind", "single"], ["--kind", "lanes", "--num-envs", "1"], ["--kind", "lanes", "--num-envs", "8"]]
    with trio.fail_after(LIMIT):
        wanted = await here(POLICIES[policy])
        for kind in kinds:
            peer = shared_env("--env", "CartPole-v1", *kind)
            assert await served(peer.address, POLICIES[policy]) == wanted, kind


@policies
async def test_a_server_of_ours(policy: str) -> None:
    with trio.fail_after(LIMIT):
        wanted = await here(POLICIES[policy])
        for lanes in (1, 5):
            async with serve_env("CartPole-v1", lanes=lanes) as server:
                assert await served(server.address, POLICIES[policy]) == wanted, lanes


@pytest.mark.parametrize("mode", [AutoresetMode.NEXT_STEP, AutoresetMode.DISABLED], ids=["restarts", "waits"])
async def test_a_vector_of_ours_whose_every_episode_is_seeded(mode: AutoresetMode) -> None:
    made = SyncVectorEnv([lambda: gymnasium.make("CartPole-v1")] * 3, autoreset_mode=mode)
    with trio.fail_after(LIMIT):
        async with serve_env(made) as server:
            assert await served(server.address, noisy, seed_every_episode=True) == await here(noisy)
