"""Every kind of real env server, value for value against the same env played without a server."""

from pathlib import Path
from typing import Any

import gymnasium
import pytest

from tests.interop.conftest import StartPeer
from tests.interop.driving import Episode, Witness, assert_same, drive, play
from tests.interop.peers.policies import cartpole, counter, kitchen
from tests.interop.peers.toys import Counter, Fault, Image, Kitchen, Toy
from tests.peers import start_env_peer

LENGTH, STAGGER = 5, 2


def toy(kind: type[Toy], lane: int, stagger: int = 0) -> Toy:
    return kind(lane, LENGTH + lane * stagger, 0.0, Fault(), None)


def by_start(witness: Witness) -> list[Episode]:
    return list(witness.episodes.values())


async def test_a_single_env(shared_env: StartPeer) -> None:
    witness = Witness()
    report = await drive(
        shared_env("--env", "counter").address, counter, hooks=witness, max_episodes=3, episode_seeds=(11, 12, 13)
    )
    assert (report.total_episodes, report.total_steps) == (3, 3 * LENGTH)
    assert [(e.episode_index, e.seed, e.step_count) for e in report.episodes] == [(1, 11, 5), (2, 12, 5), (3, 13, 5)]
    assert [e.cumulative_reward for e in report.episodes] == pytest.approx([5.6] * 3)
    for episode in by_start(witness):
        assert_same(episode, play(toy(Counter, 0), counter, episode.seed))


async def test_lanes_of_different_length(shared_env: StartPeer) -> None:
    peer = shared_env("--kind", "lanes", "--num-envs", "3", "--length-stagger", str(STAGGER))
    witness = Witness()
    seeds = tuple(range(100, 108))
    report = await drive(peer.address, counter, hooks=witness, max_episodes=8, episode_seeds=seeds)
    assert [e.seed for e in sorted(report.episodes, key=lambda e: e.episode_index)] == list(seeds)
    assert {e.env_index for e in report.episodes} == {0, 1, 2}
    for episode in by_start(witness):
        assert_same(episode, play(toy(Counter, episode.lane, STAGGER), counter, episode.seed))
    for summary in report.episodes:
        assert summary.step_count == LENGTH + summary.env_index * STAGGER
        assert summary.terminated == (summary.env_index % 2 == 0)
        assert summary.truncated != summary.terminated


async def test_a_vector_that_restarts_its_own_lanes(shared_env: StartPeer) -> None:
    peer = shared_env("--kind", "vector", "--num-envs", "3", "--length-stagger", str(STAGGER))
    witness = Witness()
    report = await drive(peer.address, counter, hooks=witness, max_episodes=7)
    assert sorted(e.episode_index for e in report.episodes) == list(range(1, 8))
    assert len(set(witness.episodes)) == 7
    for episode in by_start(witness):
        assert_same(episode, play(toy(Counter, episode.lane, STAGGER), counter, episode.seed))


async def test_a_vector_gets_its_first_seeds(shared_env: StartPeer) -> None:
    peer = shared_env("--kind", "vector", "--env", "CartPole-v1", "--num-envs", "3")
    witness = Witness()
    report = await drive(peer.address, cartpole, hooks=witness, max_episodes=5, base_seed=7)
    seeded = [episode for episode in by_start(witness) if episode.seed is not None]
    assert sorted(episode.lane for episode in seeded) == [0, 1, 2]
    for episode in seeded:
        assert_same(episode, play(gymnasium.make("CartPole-v1"), cartpole, episode.seed))
    for summary in report.episodes:
        assert summary.cumulative_reward == summary.step_count


@pytest.mark.parametrize("kind", ["single", "lanes"])
async def test_cartpole(shared_env: StartPeer, kind: str) -> None:
    peer = shared_env("--kind", kind, "--env", "CartPole-v1")
    witness = Witness()
    await drive(peer.address, cartpole, hooks=witness, max_episodes=4, base_seed=3)
    for episode in by_start(witness):
        assert_same(episode, play(gymnasium.make("CartPole-v1"), cartpole, episode.seed))
    assert len({episode.seed for episode in by_start(witness)}) == 4


@pytest.mark.parametrize("kind", ["single", "lanes", "vector"])
async def test_nested_spaces(shared_env: StartPeer, kind: str) -> None:
    witness = Witness()
    report = await drive(shared_env("--kind", kind, "--env", "kitchen").address, kitchen, hooks=witness, max_episodes=4)
    assert report.total_episodes == 4
    for episode in by_start(witness):
        assert_same(episode, play(toy(Kitchen, episode.lane), kitchen, episode.seed))


async def test_every_kind_of_info(shared_env: StartPeer) -> None:
    witness = Witness()
    await drive(shared_env("--env", "kitchen").address, kitchen, hooks=witness, max_episodes=1)
    assert dict(witness.reset_infos[0]) == {
        "arr": [0, 1, 2],
        "list": [1, "two", 3.0],
        "n": 7,
        "name": "kitchen",
        "nested": {"a": {"b": 1}},
        "none": None,
        "ok": True,
        "raw": b"\x00\x01",
        "x": 0.5,
    }


async def test_64_lanes(shared_env: StartPeer) -> None:
    peer = shared_env("--kind", "lanes", "--num-envs", "64")
    witness = Witness()
    seeds = tuple(range(128))
    report = await drive(peer.address, counter, hooks=witness, max_episodes=128, episode_seeds=seeds)
    assert sorted(e.seed for e in report.episodes if e.seed is not None) == list(seeds)
    assert {e.env_index for e in report.episodes} == set(range(64))
    for episode in by_start(witness):
        assert_same(episode, play(toy(Counter, episode.lane), counter, episode.seed))


@pytest.mark.parametrize("kind", ["single", "lanes"])
async def test_pictures_over_tcp(shared_env: StartPeer, kind: str) -> None:
    def red_corner(observation: Any, ahead: int) -> int:
        return int(observation[0, 0, 0]) % 3

    witness = Witness()
    await drive(shared_env("--kind", kind, "--env", "image").address, red_corner, hooks=witness, max_episodes=4)
    for episode in by_start(witness):
        assert_same(episode, play(toy(Image, episode.lane), red_corner, episode.seed))


async def test_a_unix_socket(tmp_path: Path) -> None:
    witness = Witness()
    with start_env_peer("--kind", "lanes", "--unix", str(tmp_path / "env.sock")) as peer:
        report = await drive(peer.address, counter, hooks=witness, max_episodes=6, episode_seeds=tuple(range(6)))
    assert report.total_episodes == 6
    for episode in by_start(witness):
        assert_same(episode, play(toy(Counter, episode.lane), counter, episode.seed))
