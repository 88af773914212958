"""Envs and policies that the tests name on the command line."""

import math
import os
import sys
import time
from typing import Any

import gymnasium
import numpy as np
import numpy.typing as npt
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, SyncVectorEnv

Vector = npt.NDArray[np.float32]


class Walk(gymnasium.Env[Vector, np.int64]):
    """``length`` steps of reward 1 an episode; lane-independent: episode by seed. Odd seeds succeed."""

    observation_space: spaces.Space[Any] = spaces.Box(-1e6, 1e6, (2,), np.float32)
    action_space: spaces.Space[Any] = spaces.Discrete(3)
    length = 4
    pause = 0.0

    def __init__(self) -> None:
        self.clock = 0
        self.odd = False

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Vector, dict[str, Any]]:
        super().reset(seed=seed)
        self.clock, self.odd = 0, bool((seed or 0) % 2)
        return np.zeros(2, np.float32), {}

    def step(self, action: np.int64) -> tuple[Vector, float, bool, bool, dict[str, Any]]:
        if self.pause:
            time.sleep(self.pause)
        self.clock += 1
        ended = self.clock >= self.length
        return np.full(2, self.clock, np.float32), self.reward(), ended, False, {"success": self.odd} if ended else {}

    def reward(self) -> float:
        return 1.0


class SlowWalk(Walk):
    length = 20
    pause = 0.01


class TiringWalk(Walk):
    """Takes half a second a step once it has ended as many episodes as ``TIRED_AFTER``, read from the environment."""

    length = 20

    def __init__(self) -> None:
        super().__init__()
        self.left = float(os.environ.get("TIRED_AFTER", "inf"))

    def step(self, action: np.int64) -> tuple[Vector, float, bool, bool, dict[str, Any]]:
        self.pause = 0.0 if self.left > 0 else 0.5
        observed = super().step(action)
        self.left -= observed[2]
        return observed


class StuckWalk(Walk):
    """Says so, and never returns from its second step."""

    def step(self, action: np.int64) -> tuple[Vector, float, bool, bool, dict[str, Any]]:
        if self.clock == 1:
            print("stuck", flush=True)
            time.sleep(3600)
        return super().step(action)


class UnresettableWalk(Walk):
    """Can be described, and not played."""

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Vector, dict[str, Any]]:
        raise RuntimeError("no way back")


def limping(lane: int) -> Walk:
    """Lanes of which the second gets stuck."""
    return StuckWalk() if lane == 1 else Walk()


class BrokenWalk(Walk):
    """Breaks in the second step of its second episode."""

    episodes = 0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Vector, dict[str, Any]]:
        self.episodes += 1
        return super().reset(seed=seed, options=options)

    def step(self, action: np.int64) -> tuple[Vector, float, bool, bool, dict[str, Any]]:
        if self.episodes == 2 and self.clock == 1:
            raise RuntimeError("a leg broke\nin two")
        return super().step(action)


class PricelessWalk(Walk):
    def reward(self) -> float:
        return math.nan


class TalkingWalk(Walk):
    def step(self, action: np.int64) -> tuple[Vector, float, bool, bool, dict[str, Any]]:
        print(f"step {self.clock}")
        return super().step(action)


class Furnished(Walk):
    observation_space = spaces.Dict(
        {
            "bits": spaces.MultiBinary(3),
            "counts": spaces.MultiDiscrete([2, 5]),
            "far": spaces.Box(np.full(2, -np.inf, np.float32), np.array([1, 2], np.float32)),
            "pair": spaces.Tuple((spaces.Discrete(3, start=-1), spaces.Text(9, min_length=2, charset="ab"))),
            "say": spaces.Text(5),
            "wide": spaces.Box(0, 255, (20,), np.uint8),
        }
    )


class Sequences(Walk):
    observation_space = spaces.Sequence(spaces.Discrete(2))


def vector(mode: AutoresetMode) -> SyncVectorEnv:
    return SyncVectorEnv([Walk, Walk], autoreset_mode=mode)


def next_step_vector() -> SyncVectorEnv:
    return vector(AutoresetMode.NEXT_STEP)


def same_step_vector() -> SyncVectorEnv:
    return vector(AutoresetMode.SAME_STEP)


def disabled_vector() -> SyncVectorEnv:
    return vector(AutoresetMode.DISABLED)


def raising_factory() -> Walk:
    raise FileNotFoundError("no floor to walk on")


def stuck_factory() -> Walk:
    print("stuck", flush=True)
    time.sleep(3600)
    return Walk()


def leaving_factory() -> Walk:
    sys.exit("see you")


class LeavingWalk(Walk):
    def step(self, action: np.int64) -> tuple[Vector, float, bool, bool, dict[str, Any]]:
        if self.clock == 2:
            sys.exit(0)
        return super().step(action)


def numberless_factory() -> int:
    return 7


def needy_factory(floor: str) -> Walk:
    raise AssertionError(floor)


number = 7


def ahead(observations: Vector) -> npt.NDArray[np.int64]:
    """A policy over batches: the first action for every row."""
    return np.zeros(len(observations), np.int64)


def astray(observations: Vector) -> npt.NDArray[np.int64]:
    """A policy whose actions are outside the action space."""
    return np.full(len(observations), 9, np.int64)


class Stopping:
    """A policy over rows that raises when the clock shows 3."""

    def predict(self, observation: Vector) -> int:
        if observation[0] == 3:
            raise ValueError("lost the way")
        return 0


class Telling:
    """A policy for CartPole that tells of each episode's end."""

    def predict(self, observation: Vector) -> int:
        return int(observation[2] > 0)

    def on_episode_end(self, episode_id: str) -> None:
        print("ended", episode_id, flush=True)


class Chunks:
    """A policy over rows that plans three steps ahead."""

    def predict_chunk(self, observation: Vector) -> npt.NDArray[np.int64]:
        return np.arange(3)


class Unloadable:
    """A policy that cannot be loaded."""

    def load(self) -> None:
        raise OSError("no weights")

    def predict(self, observation: Vector) -> int:
        return 0


class LongerWalk(Walk):
    """Takes a step more."""

    length = 5
