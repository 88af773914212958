"""A seeded run gives the same episodes by index, however many lanes play them."""

from typing import Any

import attrs
import pytest

from rlmesh_trio.report import EpisodeSummary
from tests.interop.conftest import StartPeer
from tests.interop.driving import Witness, drive
from tests.interop.peers.policies import cartpole

EPISODES = 16
SEEDS: dict[str, dict[str, Any]] = {
    "base seed": {"base_seed": 2026},
    "explicit seeds": {"episode_seeds": tuple(range(500, 500 + EPISODES))},
}


def outcome(summary: EpisodeSummary) -> tuple[Any, ...]:
    """What a summary says of the episode itself, not of where and how fast it was played."""
    told = attrs.asdict(summary)
    return tuple(told[key] for key in ("episode_index", "seed", "step_count", "cumulative_reward", "terminated"))


def actions_by_seed(witness: Witness) -> dict[int | None, list[int]]:
    return {episode.seed: [int(action) for action in episode.actions] for episode in witness.episodes.values()}


@pytest.mark.parametrize("seeding", SEEDS)
async def test_one_lane_and_eight_play_the_same(shared_env: StartPeer, seeding: str) -> None:
    outcomes: list[list[tuple[Any, ...]]] = []
    actions: list[dict[int | None, list[int]]] = []
    for peer in (
        shared_env("--env", "CartPole-v1", "--length", "60"),
        shared_env("--env", "CartPole-v1", "--length", "60", "--kind", "lanes", "--num-envs", "8"),
    ):
        witness = Witness()
        report = await drive(peer.address, cartpole, hooks=witness, max_episodes=EPISODES, **SEEDS[seeding])
        outcomes.append(sorted(map(outcome, report.episodes)))
        actions.append(actions_by_seed(witness))
    assert len(outcomes[0]) == EPISODES
    assert len({told[1] for told in outcomes[0]}) == EPISODES
    assert outcomes[0] == outcomes[1]
    assert actions[0] == actions[1]
