"""Sessions with real servers cancelled out of the blue, amid steps: the next client finds all as it should be."""

import random

import pytest
import trio

from rlmesh_trio import SessionSpec, connect_env, connect_model, open_session, run_session
from rlmesh_trio.errors import RouteCancelled
from tests.interop.conftest import StartPeer
from tests.interop.driving import LIMIT, Witness, assert_same, drive_remotely, play
from tests.interop.leaks import held
from tests.interop.peers.policies import counter
from tests.interop.peers.toys import Counter, Fault
from tests.peers import Peer

LENGTH, STAGGER = 4, 2
SERVERS = {"single": (), "lanes": ("--kind", "lanes", "--num-envs", "4")}
LONGEST = 0.08


def moments(server: str, count: int) -> list[float]:
    """So many moments, in seconds after the start, the same in every run."""
    draw = random.Random(f"cancelled on {server}")
    return [draw.uniform(0.0, LONGEST) for _ in range(count)]


async def play_on_cancelled(env_peer: Peer, model_peer: Peer, after: float, *, from_outside: bool) -> None:
    """Play without end, and be cancelled: by the caller's scope around it all, or by the session's own call."""
    with trio.move_on_after(after if from_outside else LIMIT) as scope:
        async with connect_env(env_peer.address) as env, connect_model(model_peer.address) as model:
            spec = SessionSpec.for_env(env)
            await model.resolve(spec)
            if from_outside:
                await run_session(spec, env, model)
            async with open_session(spec, env, model) as session:
                await trio.sleep(after)
                session.cancel("out of the blue")
                with pytest.raises(RouteCancelled, match="out of the blue"):
                    await session.wait()
    assert scope.cancelled_caught == from_outside


@pytest.mark.parametrize(("server", "count"), [("single", 6), ("lanes", 20)])
async def test_the_next_client_can_play(
    shared_env: StartPeer, shared_model: StartPeer, server: str, count: int
) -> None:
    env = shared_env(*SERVERS[server], "--length", str(LENGTH), "--length-stagger", str(STAGGER), "--sleep", "0.002")
    model = shared_model()
    before = held()
    for number, moment in enumerate(moments(server, count)):
        heard = len(model.events("forward")), len(model.events("episode_end"))
        with trio.fail_after(LIMIT):
            await play_on_cancelled(env, model, moment, from_outside=number % 2 == 0)
        assert held() == before
        witness = Witness()
        report = await drive_remotely(env, model, hooks=witness, max_episodes=4)
        assert report.total_episodes == len(witness.episodes) == 4
        for episode in witness.episodes.values():
            toy = Counter(episode.lane, LENGTH + STAGGER * episode.lane, 0.0, Fault(), None)
            assert_same(episode, play(toy, counter, episode.seed))
        assert held() == before
        known = {line["episode"] for line in model.events("forward")[heard[0] :]}
        assert sorted(line["episode"] for line in model.events("episode_end")[heard[1] :]) == sorted(known)
