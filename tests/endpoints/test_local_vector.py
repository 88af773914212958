from collections.abc import Mapping
from typing import Any, cast

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, SyncVectorEnv, VectorEnv

from rlmesh_trio.endpoints.local_env import open_local_env
from rlmesh_trio.errors import ConnectError, EndpointError, HandshakeError
from rlmesh_trio.messages import ResetRequest
from rlmesh_trio.spaces import codec_for
from rlmesh_trio.spec import AutoresetMode as WireMode
from rlmesh_trio.spec import ValueSpace
from tests.endpoints.asking import at, discrete, observed, start
from tests.endpoints.toys import ALL_KINDS, Counter, Mirror, Script, vector


def plain(infos: object) -> dict[str, list[Any]]:
    return {key: np.asarray(value).tolist() for key, value in cast("Mapping[str, Any]", infos).items()}


async def test_a_vector_env_moves_in_lockstep_and_restarts_its_lanes() -> None:
    async with open_local_env(vector()) as env:
        contract = env.contract
        assert (contract.num_envs, contract.autoreset_mode, env.subset_step) == (3, WireMode.NEXT_STEP, False)
        assert cast("ValueSpace", contract.observation_space).space == Counter.observation_space
        reply = await start(env, ids=("a", "b", "c"), seeds=(5, 6, 7))
        assert plain(reply.infos)["lane"] == [0, 1, 2]
        await env.step(discrete(0, 0, 0), at(ids=("a", "b", "c")))

        reply = await env.step(discrete(0, 1, 2), at(ids=("a", "b", "c")))
        assert observed(env, reply, 3).tolist() == [[2, 0, 0], [2, 1, 1], [2, 2, 2]]
        assert (list(reply.rewards), reply.terminated_mask, reply.truncated_mask) == ([1, 2, 3], b"\1\0\0", b"\0" * 3)
        (record,) = reply.completed
        assert (record.episode_id, record.seed, record.env_index, record.step_count) == ("a", 5, 0, 2)
        assert cast("Mapping[str, Any]", record.final_info)["t"] == 2
        assert "_t" not in cast("Mapping[str, Any]", record.final_info)

        reply = await env.step(discrete(0, 0, 0), at(ids=("a2", "b", "c")))
        assert observed(env, reply, 3).tolist() == [[0, -1, 0], [3, 0, 1], [3, 0, 2]]
        assert (list(reply.rewards), reply.terminated_mask) == ([0, 2, 3], b"\0\1\0")
        assert [(r.episode_id, r.step_count, r.cumulative_reward) for r in reply.completed] == [("b", 3, 6)]
        assert plain(reply.infos)["_lane"] == [True, False, False]

        await env.step(discrete(0, 0, 0), at(ids=("a2", "b2", "c")))
        reply = await env.step(discrete(0, 0, 0), at(ids=("a2", "b2", "c2")))
        assert [(r.episode_id, r.seed, r.step_count, r.cumulative_reward) for r in reply.completed] == [
            ("a2", None, 2, 2)
        ]


async def test_one_seed_spreads_over_the_lanes_and_is_known_for_the_first() -> None:
    made = vector()
    async with open_local_env(made) as env:
        await start(env, ids=("a", "b", "c"), seeds=(40,))
        await env.step(discrete(0, 0, 0), at())
        (record,) = (await env.step(discrete(0, 0, 0), at())).completed
        assert record.seed == 40
        (record,) = (await env.step(discrete(0, 0, 0), at())).completed
        assert record.seed is None
    assert [cast("Counter", lane).resets[0] for lane in made.envs] == [(40, None), (41, None), (42, None)]


async def test_a_reset_forgets_pending_rolls_and_interrupts_the_rest() -> None:
    async with open_local_env(vector()) as env:
        await start(env, ids=("a", "b", "c"))
        await env.step(discrete(0, 0, 0), at())
        await env.step(discrete(0, 0, 0), at())
        await start(env, ids=("x", "y", "z"))
        reply = await env.step(discrete(0, 0, 0), at(ids=("x", "y", "z")))
        assert list(reply.rewards) == [1, 2, 3]
        assert [(r.episode_id, r.truncated) for r in reply.completed] == [("b", True), ("c", True)]


async def test_stepping_lanes_that_were_never_reset_is_an_error() -> None:
    async with open_local_env(vector()) as env:
        with pytest.raises(EndpointError, match="lane 0 was stepped before it was reset") as caught:
            await env.step(discrete(0, 0, 0), at())
        assert (caught.value.code, caught.value.recoverable) == ("INTERNAL", False)


@pytest.mark.parametrize("seeds", [(1, 2), (1, 2, 3, 4)])
async def test_seeds_must_fit_the_width(seeds: tuple[int, ...]) -> None:
    async with open_local_env(vector()) as env:
        with pytest.raises(EndpointError, match=rf"{len(seeds)} seeds for 3 lanes") as caught:
            await start(env, seeds=seeds)
        assert caught.value.code == "INVALID_ACTION"


async def test_lanes_of_a_lockstep_vector_have_no_names() -> None:
    own = gymnasium.make_vec("CartPole-v1", 3, gymnasium.VectorizeMode.VECTOR_ENTRY_POINT)
    async with open_local_env(own) as env:
        for ask in (start(env, 1), env.step(discrete(0), at(1))):
            with pytest.raises(EndpointError, match="env_indices") as caught:
                await ask
            assert (caught.value.code, caught.value.recoverable) == ("UNSUPPORTED", True)


@pytest.mark.parametrize("mode", [AutoresetMode.NEXT_STEP, AutoresetMode.DISABLED])
async def test_a_vector_is_reset_whole_before_some_of_its_lanes_are(mode: AutoresetMode) -> None:
    async with open_local_env(vector(3, mode)) as env:
        with pytest.raises(EndpointError, match="has to be reset whole before some of its lanes are") as caught:
            await start(env, 1)
        assert (caught.value.code, caught.value.recoverable) == ("INVALID_ACTION", True)
        await start(env)
        assert observed(env, await start(env, 1), 1).tolist() == [[0, -1, 1]]


async def test_a_wrong_batch_is_refused() -> None:
    async with open_local_env(vector()) as env:
        await start(env)
        with pytest.raises(EndpointError, match="take 24 bytes, got 16") as caught:
            await env.step(discrete(0, 0), at())
        assert caught.value.code == "INVALID_ACTION"


async def test_a_fault_of_one_lane_is_told() -> None:
    made = SyncVectorEnv([Counter, lambda: Script({1: "nan"})])
    async with open_local_env(made) as env:
        await start(env)
        with pytest.raises(EndpointError, match=r"row 1, index .*NaN"):
            await env.step(discrete(0, 0), at())


async def test_disabled_autoreset_is_declared_and_nothing_rolls() -> None:
    async with open_local_env(vector(mode=AutoresetMode.DISABLED)) as env:
        assert env.contract.autoreset_mode == WireMode.DISABLED
        await start(env, ids=("a", "b", "c"))
        await env.step(discrete(0, 0, 0), at())
        assert [r.episode_id for r in (await env.step(discrete(0, 0, 0), at())).completed] == ["a"]
        with pytest.raises(EndpointError, match="step failed"):
            await env.step(discrete(0, 0, 0), at(ids=("x", "b", "c")))


async def test_same_step_autoreset_is_refused() -> None:
    made = vector(mode=AutoresetMode.SAME_STEP)
    with pytest.raises(HandshakeError, match="SAME_STEP"):
        async with open_local_env(made):
            pass


async def test_a_vector_of_one_passes_for_a_scalar_env() -> None:
    async with open_local_env(vector(1)) as env:
        assert (env.contract.num_envs, env.contract.autoreset_mode, env.subset_step) == (1, WireMode.DISABLED, True)
        assert "autoreset_mode" not in env.contract.metadata
        reply = await env.reset(ResetRequest((0, 9), episode_ids=("a",)))
        assert reply.infos == {"lane": 0}
        await env.step(discrete(2), at())
        reply = await env.step(discrete(2), at(0))
        assert observed(env, reply).tolist() == [[2, 2, 0]]
        assert cast("Mapping[str, Any]", reply.infos)["t"] == 2
        assert [(r.episode_id, r.seed) for r in reply.completed] == [("a", 0)]
        reply = await start(env, ids=("b",))
        assert observed(env, reply).tolist() == [[0, -1, 0]]


async def test_vectors_are_not_lanes_but_vectors_of_one_are() -> None:
    with pytest.raises(ConnectError, match="brings its own lanes"):
        async with open_local_env(vector, lanes=2):
            pass
    async with open_local_env(lambda: vector(1), lanes=2) as env:
        assert (env.contract.num_envs, env.subset_step) == (2, True)


async def test_every_kind_of_space_goes_through_unharmed() -> None:
    async with open_local_env(SyncVectorEnv([Mirror, Mirror])) as env:
        await start(env, seeds=(3,))
        codec = codec_for(cast("ValueSpace", env.contract.action_space))
        ALL_KINDS.seed(5)
        action = codec.pack_rows([ALL_KINDS.sample(), ALL_KINDS.sample()])
        before = list(action)
        reply = await env.step(action, at())
        assert list(cast("Any", reply.observation)) == before == list(action)


class Declared(VectorEnv[Any, Any, Any]):
    """A vector env that is nothing but a declaration."""

    num_envs = 2
    single_observation_space = observation_space = spaces.Box(-1, 1, (1,), np.float32)
    single_action_space = action_space = spaces.Discrete(2)

    def __init__(self, mode: object) -> None:
        self.metadata = {} if mode is None else {"autoreset_mode": mode}


@pytest.mark.parametrize(
    ("mode", "declared"),
    [(None, WireMode.NEXT_STEP), ("DISABLED", WireMode.DISABLED), ("next_step", WireMode.NEXT_STEP)],
)
async def test_how_a_vector_may_declare_its_mode(mode: object, declared: WireMode) -> None:
    async with open_local_env(Declared(mode)) as env:
        assert env.contract.autoreset_mode == declared


async def test_an_unknown_mode_is_refused() -> None:
    with pytest.raises(HandshakeError, match="SOMETIMES"):
        async with open_local_env(Declared("sometimes")):
            pass
