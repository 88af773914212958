"""Long random play: one script after the other, made up as it is played, and shown to every check that judges such.

A finished lane is reset where the env does not restart it itself, so that play goes from episode to episode.
"""

import copy
from typing import Any

import gymnasium
import numpy as np

from rlmesh_trio.conformance.registry import Facts
from rlmesh_trio.conformance.scripts import Op, Reset, Row, Step
from rlmesh_trio.conformance.traces import Answer
from rlmesh_trio.contract import AutoresetMode
from rlmesh_trio.spaces import codec_for

__all__ = ("ActionSampler", "Wanderer", "soak_steps")

_OWN_RESTARTS = (AutoresetMode.NEXT_STEP, AutoresetMode.SAME_STEP)
_USUAL = 240
_SLOWER = ((0.02, _USUAL), (0.2, 60), (float("inf"), 12))


def soak_steps(pace: float | None) -> int:
    """How many steps a script should have on a target that answers in *pace* seconds; ``None``: whatever that is."""
    return _USUAL if pace is None else next(steps for most, steps in _SLOWER if pace <= most)


class ActionSampler:
    """Members of the target's action space as gymnasium samples them, one row after the other."""

    def __init__(self, facts: Facts, *, seed: int) -> None:
        space = facts.contract.action_space
        self._codec = None if space is None else codec_for(space)
        self._space: gymnasium.Space[Any] | None = None if space is None else copy.deepcopy(space.space)
        if self._space is not None:
            self._space.seed(seed % 2**31)

    def row(self) -> Row:
        """The next one."""
        if self._space is None or self._codec is None:
            return ()
        return tuple(bytes(leaf) for leaf in self._codec.pack_rows([self._space.sample()]))


class Wanderer:
    """Chooses the ops of one script of *steps* steps: sampled actions, each of them held for a few steps.

    What it chooses follows from *seed* and from the answers.
    """

    def __init__(self, facts: Facts, *, seed: int, steps: int) -> None:
        self._facts = facts
        self._left = steps
        self._random = np.random.default_rng(seed)
        self._actions = ActionSampler(facts, seed=seed)
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
        return Step(tuple(self._actions.row() for _ in range(self._facts.contract.num_envs)))
