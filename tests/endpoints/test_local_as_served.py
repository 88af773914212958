"""The same operations asked of a real server and of the same env in this process: the answers must be alike."""

from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

import attrs
import gymnasium
import numpy as np
import pytest
import trio
from gymnasium.vector import AutoresetMode, SyncVectorEnv

from rlmesh_trio.endpoints.env import Env
from rlmesh_trio.endpoints.local_env import open_local_env
from rlmesh_trio.endpoints.remote_env import connect_env
from rlmesh_trio.errors import EndpointError
from rlmesh_trio.messages import EnvReply, ResetRequest
from rlmesh_trio.spaces import codec_for, plain_metadata
from rlmesh_trio.spec import DescribedEnv, EnvContract
from rlmesh_trio.wire.timings import ENV_TIMINGS, read_timings
from tests.endpoints.asking import at, discrete
from tests.interop.peers.toys import TOYS, Fault, Toy
from tests.peers import start_env_peer

pytestmark = pytest.mark.interop

Ask = Callable[[Env], Any]


class Both(Env, DescribedEnv):
    """What a local and a remote env have in common."""


def toy(lane: int, *, env: str = "counter", fault: Fault | None = None) -> Toy:
    return TOYS[env](lane, 2 + lane, 0.0, fault or Fault(), None)


def single() -> Toy:
    return toy(0)


def kitchen() -> Toy:
    return toy(0, env="kitchen")


def out_of_range() -> Toy:
    return toy(0, fault=Fault("range", 1))


def lanes() -> list[Toy]:
    return [toy(lane) for lane in range(3)]


def vector(mode: AutoresetMode = AutoresetMode.NEXT_STEP) -> SyncVectorEnv:
    return SyncVectorEnv([lambda lane=lane: toy(lane) for lane in range(3)], autoreset_mode=mode)


LENGTHS = ("--length", "2", "--length-stagger", "1")


def reset(*indices: int, ids: Sequence[str] = (), seeds: Sequence[int] = (), options: Any = None) -> Ask:
    return lambda env: env.reset(ResetRequest(tuple(seeds), options, 0, indices, tuple(ids)))


def step(*actions: int, lanes: Sequence[int] = (), ids: Sequence[str] = ()) -> Ask:
    return lambda env: env.step(discrete(*actions), at(*lanes, ids=ids))


def raw(leaves: list[bytes]) -> Ask:
    return lambda env: env.step(leaves, at())


async def answer(env: Env, ask: Ask) -> Any:
    """The answer to *ask* in plain values, without what may differ: times and wording."""
    try:
        reply: EnvReply = await ask(env)
    except EndpointError as failure:
        return failure.code, failure.recoverable
    completed = [attrs.asdict(record) for record in reply.completed]
    for record in completed:
        assert 0 < record.pop("start_timestamp_ns") <= record.pop("end_timestamp_ns")
        record["final_info"] = told(record["final_info"])
    timed = {ENV_TIMINGS[tag] for tag in read_timings([reply.timings])[0].tolist()}
    return {
        "observation": [bytes(leaf) for leaf in reply.observation or ()],
        "infos": told(reply.infos),
        "rewards": list(reply.rewards),
        "terminated": bytes(reply.terminated_mask),
        "truncated": bytes(reply.truncated_mask),
        "completed": completed,
        "lanes": list(reply.env_indices),
        "timed": timed >= {"endpoint.total", "endpoint.user"}
        or (reply.endpoint_total_ns is not None and reply.phases is not None),
        "skewed": "lane.skew" in timed or (reply.phases is not None and reply.phases.lane_skew_ns is not None),
    }


def told(infos: Any) -> Any:
    plain: dict[str, Any] = dict(plain_metadata(infos or {}))
    for warning in plain.get("rlmesh.conformance.warning", ()):
        del warning["detail"]
    return plain


def declared(contract: EnvContract) -> Any:
    assert contract.observation_space is not None
    assert contract.action_space is not None
    return (
        contract.env_id,
        contract.num_envs,
        contract.autoreset_mode,
        contract.render_mode,
        contract.observation_space.encoded,
        contract.action_space.encoded,
        plain_metadata(contract.metadata),
    )


@asynccontextmanager
async def served(*options: str) -> AsyncGenerator[Any]:
    with start_env_peer(*options) as peer, trio.fail_after(30):
        async with connect_env(peer.address) as env:
            yield env


async def assert_alike(source: object, options: Sequence[str], asks: Sequence[Ask]) -> list[Any]:
    local: AbstractAsyncContextManager[Any] = open_local_env(source)
    async with served(*options) as there, local as here:
        assert declared(here.contract) == declared(there.contract)
        assert (here.subset_step, here.edition) == (there.subset_step, there.edition)
        answers: list[Any] = []
        for number, ask in enumerate(asks):
            answers.append(await answer(here, ask))
            assert answers[-1] == await answer(there, ask), f"operation {number}"
    return answers


async def test_a_single_env() -> None:
    await assert_alike(
        single(),
        LENGTHS,
        [
            reset(ids=("a",), seeds=(4,)),
            step(1, ids=("a",)),
            step(2, ids=("a",)),
            step(0, ids=("a",)),
            reset(ids=("b", "extra"), seeds=(5, 6)),
            step(1, ids=("b",)),
            reset(0, ids=("c",), seeds=(7,), options={"hint": 3}),
            step(2, lanes=(0,), ids=("c",)),
            reset(),
            step(1),
            step(1),
            step(9),
            step(1, lanes=(1,)),
            step(1, lanes=(0, 0)),
            reset(0, seeds=(1, 2)),
            raw([]),
            raw([b"123"]),
            raw([*discrete(0), *discrete(0)]),
            raw(discrete(0, 1)),
            step(0),
        ],
    )


async def test_lanes() -> None:
    await assert_alike(
        lanes(),
        ("--kind", "lanes", *LENGTHS),
        [
            reset(ids=("a", "b", "c"), seeds=(1, 2, 3)),
            step(0, 1, 2, ids=("a", "b", "c")),
            step(1, lanes=(1,), ids=("b",)),
            reset(1, ids=("b2",)),
            reset(2, ids=("c2",)),
            step(2, lanes=(0,), ids=("a",)),
            step(2, 0, lanes=(2, 1), ids=("c2", "b2")),
            step(2, 1, 0, ids=("a", "b2", "c2")),
            step(0, lanes=(1,), ids=("b2",)),
            reset(2, 0, ids=("c3", "a3"), seeds=(8, 9)),
            step(1, 1, lanes=(0, 2), ids=("a3", "c3")),
            reset(0, 1, seeds=(1,)),
            reset(0, 1, ids=("x",)),
            reset(3),
            step(0, 0, lanes=(1, 1)),
            step(1, lanes=(0,)),
        ],
    )


async def test_a_lockstep_vector() -> None:
    ids = [("a0", "b0", "c0"), ("a1", "b1", "c1"), ("a2", "b2", "c2")]
    await assert_alike(
        vector(),
        ("--kind", "vector", *LENGTHS),
        [
            reset(ids=ids[0], seeds=(1, 2, 3)),
            *[step(k % 3, 1, 2, ids=ids[0] if k < 2 else ids[1]) for k in range(7)],
            reset(ids=ids[2], seeds=(40,)),
            *[step(0, k % 3, 2, ids=ids[2]) for k in range(5)],
            step(1, lanes=(1,)),
            step(0, 0, 7),
            raw(discrete(0, 0)),
            step(0, 0, 0),
        ],
    )


async def test_a_disabled_vector() -> None:
    await assert_alike(
        vector(AutoresetMode.DISABLED),
        ("--kind", "vector", "--autoreset", "disabled", *LENGTHS),
        [reset(ids=("a", "b", "c")), step(0, 1, 2), step(0, 1, 2), step(0, 1, 2)],
    )


async def test_a_vector_stepped_before_its_reset() -> None:
    assert await assert_alike(vector(), ("--kind", "vector", *LENGTHS), [step(0, 0, 0)]) == [("INTERNAL", False)]


@pytest.mark.parametrize("fault", ["range", "nan", "shape", "raise"])
async def test_faults(fault: Any) -> None:
    source = toy(0, fault=Fault(fault, 1))
    answers = await assert_alike(source, (*LENGTHS, "--fault", fault, "--fault-at", "1"), [reset(ids=("a",)), step(0)])
    assert (answers[1] == ("INTERNAL", False)) is (fault != "range")


async def test_every_kind_of_space() -> None:
    async def act(env: Any) -> EnvReply:
        space = env.contract.action_space
        space.space.seed(3)
        return await env.step(codec_for(space).pack_rows([space.space.sample()]), at())

    await assert_alike(kitchen(), ("--env", "kitchen", *LENGTHS), [reset(seeds=(1,)), act, act])


async def test_nan_in_an_action() -> None:
    def torque(value: float) -> Ask:
        return raw([np.array([value], np.float32).tobytes()])

    source = gymnasium.make("Pendulum-v1", max_episode_steps=2)
    asks = [reset(seeds=(1,)), torque(np.nan), torque(np.inf), torque(1e6), torque(1e6)]
    await assert_alike(source, ("--env", "Pendulum-v1", "--length", "2"), asks)
