"""What a peer cannot take is refused in time, by name, and costs nobody more than this session.

A real server of today takes every dtype, so its ceiling is lowered by hand.
"""

from typing import Any

import attrs
import pytest
import trio

from rlmesh_trio import SessionSpec, connect_env, connect_model, run_session
from rlmesh_trio.errors import ProtocolError
from rlmesh_trio.spec import WIRE_DTYPES, PeerCeiling
from tests.interop.conftest import StartPeer
from tests.interop.driving import LIMIT, Witness, assert_same, drive_remotely, play
from tests.interop.peers.policies import counter
from tests.interop.peers.toys import Counter, Fault
from tests.interop.spies import SpyEnv, SpyModel
from tests.peers import Peer

servers = pytest.mark.parametrize("server", [(), ("--kind", "lanes")], ids=["single", "lanes"])


def without(dtype: str) -> PeerCeiling:
    return PeerCeiling("2026.06", dtypes=frozenset(WIRE_DTYPES) - {dtype})


async def refusal(env_peer: Peer, model_peer: Peer, **ceilings: Any) -> tuple[ProtocolError, SpyEnv, SpyModel]:
    """What a session with these ceilings fails with, and what env and model were asked before."""
    with trio.fail_after(LIMIT):
        async with connect_env(env_peer.address) as env, connect_model(model_peer.address) as model:
            spec = attrs.evolve(SessionSpec.for_env(env, max_episodes=4), **ceilings)
            await model.resolve(spec)
            asked, told = SpyEnv(env), SpyModel().on(model)
            with pytest.raises(ProtocolError) as caught:
                await run_session(spec, asked, told)
    return caught.value, asked, told


async def check_usable(env_peer: Peer, model_peer: Peer) -> None:
    """The next client plays as if nobody had been there."""
    witness = Witness()
    report = await drive_remotely(env_peer, model_peer, hooks=witness, max_episodes=4)
    assert report.total_episodes == len(witness.episodes) == 4
    for episode in witness.episodes.values():
        assert_same(episode, play(Counter(episode.lane, 5, 0.0, Fault(), None), counter, episode.seed))


@servers
@pytest.mark.parametrize("dtype", ["float32", "int64"], ids=["observation", "action"])
async def test_a_contract_the_model_cannot_take(
    shared_env: StartPeer, shared_model: StartPeer, dtype: str, server: tuple[str, ...]
) -> None:
    env, model = shared_env(*server), shared_model()
    error, asked, told = await refusal(env, model, model_ceiling=without(dtype))
    assert error.why == f"the runtime cannot relay this contract to the model: dtype {dtype} is outside its ceiling"
    assert asked.operations == []
    assert told.predicts == []
    assert told.ended == []
    assert [release.reason for release in told.releases] == [str(error)]
    assert error.report is not None
    assert (error.report.total_steps, error.report.total_episodes) == (0, 0)
    await check_usable(env, model)


@servers
async def test_an_action_the_env_cannot_take(
    shared_env: StartPeer, shared_model: StartPeer, server: tuple[str, ...]
) -> None:
    env, model = shared_env(*server), shared_model()
    error, asked, told = await refusal(env, model, env_ceiling=without("int64"))
    assert error.why == "the runtime cannot relay this payload to the env: dtype int64 is outside its ceiling"
    assert set(asked.operations) == {"reset"}
    assert sorted(told.ended) == sorted({request.episode_info[0].episode_id for request in told.predicts})
    assert [release.reason for release in told.releases] == [str(error)]
    await check_usable(env, model)
