"""A vector env with ``DISABLED`` autoreset resets the lanes it is named, and can be driven by partial resets."""

from typing import Any, cast

import gymnasium
import numpy as np
import pytest
from gymnasium import VectorizeMode
from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv, VectorEnv
from gymnasium.wrappers.vector import RecordEpisodeStatistics

from rlmesh_trio.endpoints.env_hosts import only_lanes
from rlmesh_trio.endpoints.local_env import LocalEnv, Where, open_local_env
from rlmesh_trio.endpoints.local_model import open_local_model
from rlmesh_trio.engine.session import run_session
from rlmesh_trio.errors import EndpointError, InvalidSpec
from rlmesh_trio.messages import ResetRequest
from rlmesh_trio.report import Report
from rlmesh_trio.spaces import codec_for
from rlmesh_trio.spec import SessionSpec, ValueSpace
from tests.endpoints.asking import at, discrete, observed, start
from tests.endpoints.test_local_sessions import played
from tests.endpoints.toys import Counter, Mirror, vector


def disabled(count: int = 3) -> SyncVectorEnv:
    return vector(count, AutoresetMode.DISABLED)


def cartpoles() -> SyncVectorEnv:
    return SyncVectorEnv([lambda: gymnasium.make("CartPole-v1")] * 3, autoreset_mode=AutoresetMode.DISABLED)


def own_class() -> VectorEnv[Any, Any, Any]:
    return gymnasium.make_vec("CartPole-v1", 3, vectorization_mode=VectorizeMode.VECTOR_ENTRY_POINT)


def resets(made: SyncVectorEnv) -> list[list[tuple[int | None, Any]]]:
    return [cast("Counter", lane).resets for lane in made.envs]


async def test_the_named_lanes_start_over_and_the_others_go_on() -> None:
    made = disabled()
    async with open_local_env(made) as env:
        assert env.resets_named_lanes
        await start(env, ids=("a", "b", "c"), seeds=(1, 2, 3))
        await env.step(discrete(0, 0, 0), at(ids=("a", "b", "c")))
        ended = await env.step(discrete(0, 0, 0), at(ids=("a", "b", "c")))
        assert [record.episode_id for record in ended.completed] == ["a"]

        reply = await env.reset(ResetRequest((30, 10), {"trial_index": [7, 8]}, 0, (2, 0), ("c2", "a2")))
        assert observed(env, reply, 2).tolist() == [[0, -1, 2], [0, -1, 0]]
        assert reply.infos == {"final_info": [{"lane": 2}, {"lane": 0}], "_final_info": [True, True]}
        assert resets(made) == [
            [(1, None), (10, {"trial_index": [7, 8]})],
            [(2, None)],
            [(3, None), (30, {"trial_index": [7, 8]})],
        ]

        reply = await env.step(discrete(0, 0, 0), at(ids=("a2", "b", "c2")))
        assert observed(env, reply, 3).tolist() == [[1, 0, 0], [3, 0, 1], [1, 0, 2]]
        told = [(r.episode_id, r.seed, r.env_index, r.step_count, r.truncated) for r in reply.completed]
        assert told == [("c", 3, 2, 2, True), ("b", 2, 1, 3, False)]


def test_the_other_lanes_of_the_vector_are_given_no_seed() -> None:
    seeds, options = only_lanes((2, 0), 4, (30, 10), {"trial_index": 7})
    assert seeds == [10, None, 30, None]
    assert options["trial_index"] == 7
    assert np.asarray(options["reset_mask"]).tolist() == [True, False, True, False]


async def test_a_single_seed_is_that_of_the_one_lane_and_none_is_none() -> None:
    made = disabled()
    async with open_local_env(made) as env:
        await start(env, ids=("a", "b", "c"))
        await start(env, 1, ids=("b2",), seeds=(40,))
        await start(env, 1, ids=("b3",))
        assert [[seed for seed, _ in lane] for lane in resets(made)] == [[None], [None, 40, None], [None]]


@pytest.mark.parametrize(
    ("lanes", "ids", "seeds", "complaint"),
    [
        ((0, 1), ("x", "y"), (5,), "1 seeds for 2 lanes"),
        ((0, 0), ("x", "y"), (), "name a lane twice"),
        ((3,), ("x",), (), "there are 3 lanes"),
        ((0, 1), ("x",), (), "1 episode ids for 2 lanes"),
    ],
)
async def test_a_reset_that_does_not_fit_is_refused(
    lanes: tuple[int, ...], ids: tuple[str, ...], seeds: tuple[int, ...], complaint: str
) -> None:
    async with open_local_env(disabled()) as env:
        with pytest.raises(EndpointError, match=complaint) as caught:
            await start(env, *lanes, ids=ids, seeds=seeds)
        assert (caught.value.code, caught.value.recoverable) == ("INVALID_ACTION", True)


async def test_steps_still_move_all_lanes() -> None:
    async with open_local_env(disabled()) as env:
        await start(env, ids=("a", "b", "c"))
        with pytest.raises(EndpointError, match="takes no env_indices") as caught:
            await env.step(discrete(0), at(1))
        assert caught.value.code == "UNSUPPORTED"


async def test_rows_of_every_kind_of_space() -> None:
    async with open_local_env(SyncVectorEnv([Mirror] * 3, autoreset_mode=AutoresetMode.DISABLED)) as env:
        codec = codec_for(cast("ValueSpace", env.contract.observation_space))
        first = await start(env, ids=("a", "b", "c"), seeds=(1, 2, 3))
        rows = codec.split(cast("Any", first.observation), [1, 1, 1])
        again = await start(env, 2, 1, ids=("c2", "b2"), seeds=(3, 2))
        assert again.observation == codec.concatenate([rows[2], rows[1]], [1, 1])


async def run(env: LocalEnv, **fields: Any) -> Report:
    async with open_local_model("random") as model:
        spec = SessionSpec.for_env(env, **fields)
        await model.resolve(spec)
        return await run_session(spec, env, model)


@pytest.mark.parametrize("where", ["inline", "process"])
async def test_a_session_plays_what_lanes_play(where: Where) -> None:
    seeds = tuple(range(50, 57))
    async with open_local_env("tests.endpoints.test_named_resets:cartpoles", where=where) as env:
        whole = await run(env, max_episodes=7, episode_seeds=seeds, partial_reset=True)
    async with open_local_env("CartPole-v1", lanes=2) as env:
        alone = await run(env, max_episodes=7, episode_seeds=seeds)
    assert played(whole) == played(alone)


MODES = pytest.mark.parametrize("mode", [AutoresetMode.NEXT_STEP, AutoresetMode.DISABLED], ids=["restarts", "waits"])


@MODES
@pytest.mark.parametrize("kind", [SyncVectorEnv, AsyncVectorEnv])
async def test_every_episode_seeded_plays_what_lanes_play(kind: Any, mode: AutoresetMode) -> None:
    fields: dict[str, Any] = {"max_episodes": 7, "base_seed": 5, "max_episode_steps": 30}
    async with open_local_env(lambda: kind([lambda: gymnasium.make("CartPole-v1")] * 3, autoreset_mode=mode)) as env:
        whole = await run(env, seed_every_episode=True, **fields)
    async with open_local_env("CartPole-v1", lanes=2) as env:
        alone = await run(env, **fields)
        assert played(alone) == played(await run(env, seed_every_episode=True, **fields))
    assert played(whole) == played(alone)
    assert len({episode.seed for episode in whole.episodes}) == 7


async def test_a_lane_that_is_reset_after_its_end_does_not_restart_again() -> None:
    made = vector(3, AutoresetMode.NEXT_STEP)
    async with open_local_env(made) as env:
        await start(env, ids=("a", "b", "c"))
        await env.step(discrete(0, 0, 0), at(ids=("a", "b", "c")))
        ended = await env.step(discrete(0, 0, 0), at(ids=("a", "b", "c")))
        assert [record.episode_id for record in ended.completed] == ["a"]
        await start(env, 0, ids=("a2",), seeds=(40,))
        reply = await env.step(discrete(0, 0, 0), at(ids=("a2", "b", "c")))
        assert observed(env, reply, 3).tolist() == [[1, 0, 0], [3, 0, 1], [3, 0, 2]]
        assert [record.episode_id for record in reply.completed] == ["b"]
        assert [seed for seed, _ in resets(made)[0]] == [None, 40]
        reply = await env.step(discrete(0, 0, 0), at(ids=("a2", "b2", "c")))
        assert [(r.episode_id, r.seed, r.step_count) for r in reply.completed] == [("a2", 40, 2), ("c", None, 4)]


async def test_which_vectors_reset_named_lanes_and_restart_the_others_is_known() -> None:
    for made, able in (
        (vector(3, AutoresetMode.NEXT_STEP), True),
        (RecordEpisodeStatistics(vector(3, AutoresetMode.NEXT_STEP)), True),
        (vector(1, AutoresetMode.NEXT_STEP), False),
        (own_class(), False),
    ):
        async with open_local_env(made) as env:
            assert env.resets_named_lanes == able
    async with open_local_env("tests.endpoints.test_named_resets:own_class", where="process") as env:
        with pytest.raises(InvalidSpec, match="seed_every_episode needs an env that resets lanes by name"):
            await run(env, max_episodes=1, base_seed=5, seed_every_episode=True)


async def test_only_envs_that_reset_named_lanes_are_asked_to() -> None:
    async with open_local_env(own_class()) as env:
        assert not env.resets_named_lanes
        with pytest.raises(InvalidSpec, match=r"partial_reset needs an env that resets lanes by name.*DISABLED"):
            SessionSpec.for_env(env, partial_reset=True)
    async with open_local_env(Counter, lanes=2) as env:
        assert not env.resets_named_lanes
        with pytest.raises(InvalidSpec, match="these lanes are reset one by one anyway"):
            await run(env, partial_reset=True)
