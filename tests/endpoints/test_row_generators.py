"""What a row may draw hangs on its episode's seed, its step and a name, and on nothing else."""

from itertools import combinations
from typing import Any

import numpy as np
import pytest
from gymnasium.utils import seeding

from rlmesh_trio.endpoints.policy_forms import EpisodeContext


def drawn(seed: int | None, step: int | None, name: str = "", *, episode_id: str = "e") -> tuple[int, ...]:
    generator = EpisodeContext(episode_id, seed, step).generator(name)
    return tuple(generator.integers(2**63, size=4).tolist())


@pytest.mark.parametrize("seed", [0, 7, 2**63 - 1, -1])
def test_the_same_row_draws_the_same_whenever_it_is_asked(seed: int) -> None:
    assert drawn(seed, 3, "noise") == drawn(seed, 3, "noise", episode_id="another id")


def test_seeds_steps_and_names_have_streams_of_their_own() -> None:
    streams = [
        *[drawn(seed, 0) for seed in (-1, 0, 1, 2**63 - 1)],
        *[drawn(0, step) for step in (1, 2, 100_000)],
        *[drawn(0, 0, name) for name in ("noise", "dropout", "ü")],
    ]
    assert all(set(one).isdisjoint(other) for one, other in combinations(streams, 2))


def test_a_policy_does_not_draw_what_the_env_draws() -> None:
    env: Any = seeding.np_random(7)[0]
    assert set(env.integers(2**63, size=100).tolist()).isdisjoint(drawn(7, 0))


def test_the_numbers_are_those_of_every_version() -> None:
    raw = EpisodeContext("e", 7, 3).generator("noise").bit_generator.random_raw(2)
    assert raw.tolist() == [4313384949320068490, 8911083019461749297]


@pytest.mark.parametrize(("seed", "step"), [(None, 3), (7, None)])
def test_without_a_seed_or_a_step_nothing_repeats(seed: int | None, step: int | None) -> None:
    assert drawn(seed, step) != drawn(seed, step)


def test_draws_look_independent_from_step_to_step() -> None:
    first = np.array([EpisodeContext("e", 7, step).generator().random() for step in range(2000)])
    assert abs(first.mean() - 0.5) < 0.03
    assert abs(np.corrcoef(first[:-1], first[1:])[0, 1]) < 0.08
