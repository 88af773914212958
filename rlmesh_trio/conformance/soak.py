"""Long random play: one script after the other, made up as it is played, and shown to every check that judges such.

A finished lane is reset where the env does not restart it itself, so that play goes from episode to episode.
"""

import copy
from typing import Any

import gymnasium
import numpy as np

from rlmesh_trio.conformance.coverage import Coverage
from rlmesh_trio.conformance.registry import Facts
from rlmesh_trio.conformance.scripts import Op, Reset, Step
from rlmesh_trio.conformance.traces import Answer
from rlmesh_trio.contract import AutoresetMode, ValueSpace
from rlmesh_trio.spaces import codec_for

__all__ = ("Wanderer", "soak_steps")

_OWN_RESTARTS = (AutoresetMode.NEXT_STEP, AutoresetMode.SAME_STEP)
_LENGTHS = ((0.02, 240), (0.2, 60), (float("inf"), 12))


def soak_steps(coverage: Coverage, seconds: float) -> int:
    """How many steps a script should have on a target that took *seconds* for everything in *coverage*."""
    pace = seconds / max(1, coverage.steps)
    return next(steps for most, steps in _LENGTHS if pace <= most)


class Wanderer:
    """Chooses the ops of one script of *steps* steps: sampled actions, each of them held for a few steps.

    What it chooses follows from *seed* and from the answers.
    """

    def __init__(self, facts: Facts, *, seed: int, steps: int) -> None:
        contract = facts.contract
        self._facts = facts
        self._left = steps
        self._random = np.random.default_rng(seed)
        self._space: ValueSpace | None = contract.action_space
        self._sampled: gymnasium.Space[Any] | None = None
        if self._space is not None:
            self._sampled = copy.deepcopy(self._space.space)
            self._sampled.seed(int(self._random.integers(2**31)))
        self._held: Step | None = None
        self._hold = 0

    def choose(self, answer: Answer | None) -> Op | None:
        """What comes after *answer*; ``None`` when it was enough."""
        if answer is None:
            return self._reset(())
        ended = self._ended(answer)
        if ended:
            whole = len(ended) == self._facts.contract.num_envs or not self._facts.subset_step
            return self._reset(() if whole else ended)
        if self._left == 0:
            return None
        self._left -= 1
        if self._hold == 0 or self._held is None:
            self._held, self._hold = self._step(), int(self._random.integers(1, 9))
        self._hold -= 1
        return self._held

    def _ended(self, answer: Answer) -> tuple[int, ...]:
        if self._facts.contract.autoreset_mode in _OWN_RESTARTS:
            return ()
        flags = zip(answer.lanes, answer.terminated, answer.truncated, strict=False)
        return tuple(lane for lane, terminated, truncated in flags if terminated or truncated)

    def _reset(self, lanes: tuple[int, ...]) -> Reset:
        count = len(lanes) or self._facts.contract.num_envs
        seeds = self._random.integers(2**31, size=count).tolist()
        return Reset(tuple(seeds), dict(self._facts.options) or None, lanes)

    def _step(self) -> Step:
        lanes = range(self._facts.contract.num_envs)
        if self._space is None or self._sampled is None:
            return Step(tuple(() for _ in lanes))
        codec = codec_for(self._space)
        rows = [codec.pack_rows([self._sampled.sample()]) for _ in lanes]
        return Step(tuple(tuple(bytes(leaf) for leaf in row) for row in rows))
