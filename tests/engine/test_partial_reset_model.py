"""Whole runs of a partly reset vector beside what must come out: a naive run in numpy, and the same env as lanes."""

from typing import Any

import attrs
import numpy as np
import trio
import trio.testing
from hypothesis import given, settings
from hypothesis import strategies as st

from rlmesh_trio.engine.seeds import episode_seed
from rlmesh_trio.report import Report
from rlmesh_trio.spec import SessionSpec
from rlmesh_trio.testing.scripted import lane_spec
from tests.engine.seeded import UNSEEDED, SeededVector, by_slot, partial_spec, played

SEED = st.integers(0, 2**31)


def run(spec: SessionSpec) -> tuple[Report, SeededVector]:
    return trio.run(played, spec, clock=trio.testing.MockClock(autojump_threshold=0))


@attrs.define(slots=False)
class NaiveVector:
    """The whole run with one array entry per lane. A slot of -1 is a surplus episode's."""

    width: int
    budget: int
    seeds: tuple[int, ...] = ()
    base_seed: int | None = None
    cap: int = 100
    next_slot: int = 0
    generation: int = 0
    ticks: int = 0
    resets: list[tuple[tuple[int, ...], tuple[int, ...]]] = attrs.field(factory=list[Any])
    episodes: dict[int, tuple[int, int | None, int, float, bool]] = attrs.field(factory=dict[int, Any])

    def reset(self, lanes: Any) -> None:
        granted = np.arange(self.next_slot, min(self.next_slot + len(lanes), self.budget))
        self.next_slot += len(granted)
        self.slot[lanes] = -1
        self.slot[lanes[: len(granted)]] = granted
        sent: list[int] = []
        if self.base_seed is not None:
            sent = [episode_seed(self.base_seed, "session-vec", self.generation, lane) for lane in lanes.tolist()]
        elif len(granted) and granted[-1] < len(self.seeds):
            sent = [self.seeds[slot] for slot in granted] + [self.seeds[granted[0]]] * (len(lanes) - len(granted))
        self.seeded[lanes] = bool(sent)
        self.seed[lanes] = sent or UNSEEDED
        self.state[lanes] = self.seed[lanes] % 251
        self.steps[lanes] = self.total[lanes] = 0
        self.resets.append((tuple(lanes.tolist()) if len(lanes) < self.width else (), tuple(sent)))
        self.generation += 1

    def run(self) -> None:
        self.slot, self.seeded = np.zeros(self.width, int), np.zeros(self.width, bool)
        self.seed, self.state, self.steps, self.total = np.zeros((4, self.width), np.uint64)
        self.reset(np.arange(self.width))
        while True:
            action = self.state * 5 % 256
            self.state = (self.state * 7 + action + self.seed) % 251
            self.steps += 1
            self.total += self.state
            self.ticks += 1
            over = self.steps >= 1 + self.seed % 6
            ended = np.flatnonzero(over | (self.steps >= self.cap))
            for lane in ended[self.slot[ended] >= 0].tolist():
                seed = int(self.seed[lane]) if self.seeded[lane] else None
                facts = (lane, seed, int(self.steps[lane]), float(self.total[lane]), bool(over[lane]))
                self.episodes[int(self.slot[lane])] = facts
            if len(self.episodes) >= self.budget:
                return
            if len(ended):
                self.reset(ended)


@settings(max_examples=60)
@given(
    width=st.integers(2, 5),
    budget=st.integers(1, 12),
    listed=st.lists(SEED, max_size=12),
    base_seed=st.none() | SEED,
    cap=st.sampled_from([1, 3, 100]),
)
def test_a_run_is_what_numpy_makes_of_it(
    width: int, budget: int, listed: list[int], base_seed: int | None, cap: int
) -> None:
    seeds = () if base_seed is not None else tuple(listed)
    naive = NaiveVector(width, budget, seeds, base_seed, cap)
    naive.run()
    report, env = run(partial_spec(width, budget, seeds, base_seed=base_seed, max_episode_steps=cap))
    assert {
        e.episode_index - 1: (e.env_index, e.seed, e.step_count, e.cumulative_reward, e.terminated)
        for e in report.episodes
    } == naive.episodes
    assert [(reset.env_indices, reset.seeds) for reset in env.resets] == naive.resets
    assert report.total_steps == naive.ticks
    assert [e.trial_index == e.episode_index - 1 for e in report.episodes] == [True] * budget


@settings(max_examples=40)
@given(width=st.integers(2, 5), seeds=st.lists(SEED, min_size=1, max_size=12))
def test_partial_resets_and_lanes_play_the_same_episodes_by_slot(width: int, seeds: list[int]) -> None:
    whole, _ = run(partial_spec(width, len(seeds), seeds))
    alone, _ = run(lane_spec(width, len(seeds), seeds))
    assert by_slot(whole.episodes) == by_slot(alone.episodes)
    assert [e.seed for e in sorted(whole.episodes, key=lambda e: e.episode_index)] == seeds
