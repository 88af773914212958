"""Real model servers of every kind, on real env servers: what they decide arrives, and they are told what they need."""

import pytest

from rlmesh_trio.errors import ModelRpcError
from tests.interop.conftest import StartPeer
from tests.interop.driving import Witness, assert_same, drive_remotely, play
from tests.interop.peers.policies import counter
from tests.interop.peers.toys import Counter, Fault
from tests.peers import start_model_peer

SERVERS: dict[str, tuple[str, ...]] = {
    "single": (),
    "lanes": ("--kind", "lanes"),
    "vector": ("--kind", "vector"),
}


def assert_counted(witness: Witness, episodes: int, stagger: int = 0) -> None:
    """The episodes are those that the counting policy plays."""
    assert len(witness.episodes) == episodes
    for episode in witness.episodes.values():
        env = Counter(episode.lane, 5 + stagger * episode.lane, 0.0, Fault(), None)
        assert_same(episode, play(env, counter, episode.seed))


@pytest.mark.parametrize(
    ("kind", "server"),
    [
        (kind, server)
        for kind in ("step", "batch", "chunk", "chunkbatch")
        for server in SERVERS
        if (kind, server) != ("chunk", "vector")  # a row-wise chunk model has no answer for a whole vector
    ],
)
async def test_one_action_at_a_time(shared_env: StartPeer, kind: str, server: str) -> None:
    witness = Witness()
    with start_model_peer("--kind", kind) as model:
        await drive_remotely(shared_env(*SERVERS[server]), model, hooks=witness, max_episodes=6)
        ended = [line["episode"] for line in model.events("episode_end")]
    assert_counted(witness, 6)
    assert sorted(ended) == sorted(set(ended))
    assert set(witness.episodes) <= set(ended)


async def test_waiting_lanes_share_a_forward_of_a_batched_model(shared_env: StartPeer) -> None:
    witness = Witness()
    with start_model_peer("--kind", "batch") as model:
        peer = shared_env("--kind", "lanes", "--num-envs", "8", "--length-stagger", "1")
        await drive_remotely(peer, model, hooks=witness, merge_rows=True, max_episodes=24)
        rows = [line.get("rows", 1) for line in model.events("forward")]
    assert_counted(witness, 24, stagger=1)
    assert max(rows) > 1
    assert len(rows) < sum(len(episode.actions) for episode in witness.episodes.values())


@pytest.mark.parametrize("kind", ["chunk", "chunkbatch"])
async def test_four_actions_at_a_time(shared_env: StartPeer, kind: str) -> None:
    witness = Witness()
    with start_model_peer("--kind", kind, "--declare-chunk") as model:
        await drive_remotely(shared_env(), model, horizon=4, hooks=witness, max_episodes=3)
        forwards = model.events("forward")
    assert_counted(witness, 3)
    assert [line["horizon"] for line in forwards] == [4] * 6


async def test_a_model_hears_the_episode_and_its_seed(shared_env: StartPeer) -> None:
    witness = Witness()
    with start_model_peer() as model:
        await drive_remotely(shared_env(), model, hooks=witness, max_episodes=2, episode_seeds=(21, 22))
        heard = [(line["episode"], line["seed"]) for line in model.events("forward")]
    first, second = witness.episodes
    assert heard == [(first, 21)] * 5 + [(second, 22)] * 5


async def test_a_model_that_raises(shared_env: StartPeer) -> None:
    with start_model_peer("--fault", "raise", "--fault-at", "7") as model:
        with pytest.raises(ModelRpcError, match="RuntimeError: the model failed on purpose") as caught:
            await drive_remotely(shared_env(), model, max_episodes=3)
        ended = model.events("episode_end")
    assert caught.value.code == "INTERNAL"
    assert caught.value.report is not None
    assert [episode.step_count for episode in caught.value.report.episodes] == [5]
    assert len(ended) == 2


async def test_a_model_that_exits(shared_env: StartPeer) -> None:
    with start_model_peer("--fault", "exit", "--fault-at", "7") as model, pytest.raises(ModelRpcError) as caught:
        await drive_remotely(shared_env(), model, max_episodes=3)
    assert caught.value.code == "CONNECTION"
    assert caught.value.report is not None
    assert [episode.step_count for episode in caught.value.report.episodes] == [5]


async def test_an_action_that_is_none(shared_env: StartPeer) -> None:
    with (
        start_model_peer("--fault", "badaction", "--fault-at", "2") as model,
        pytest.raises(ModelRpcError) as caught,
    ):
        await drive_remotely(shared_env(), model, max_episodes=3)
    assert caught.value.code == "INTERNAL"
