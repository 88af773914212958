"""The envs a benchmark steps: they do no work, so that what is measured is everything else.

Each reuses one observation array, earns 1 per step and ends by truncation; a pause stands for the simulator.
"""

# ruff: noqa: ARG002 - the signatures are the library's

import time
from typing import Any, Literal

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.vector import AutoresetMode
from gymnasium.vector.utils import batch_space
from numpy.typing import NDArray

__all__ = ("OBSERVATIONS", "IdleEnv", "IdleVectorEnv", "Jitter", "Pause")

Jitter = Literal["const", "exp"]

OBSERVATIONS: dict[str, spaces.Box] = {
    "box4": spaces.Box(-np.inf, np.inf, (4,), np.float32),
    "img84": spaces.Box(0, 255, (84, 84, 3), np.uint8),
    "img224": spaces.Box(0, 255, (224, 224, 3), np.uint8),
}
ACTIONS = spaces.Box(-1.0, 1.0, (2,), np.float32)


class Pause:
    """Sleeps *mean* seconds per step, exactly or exponentially spread, and keeps count of what it really took."""

    def __init__(self, mean: float, jitter: Jitter, seed: int) -> None:
        self.mean = mean
        self.jitter = jitter
        self.random = np.random.default_rng(seed)
        self.slept = 0.0
        self.count = 0

    def take(self, lanes: int = 1) -> None:
        """Sleep for the slowest of *lanes* drawn pauses."""
        if not self.mean:
            return
        pause = float(self.random.exponential(self.mean, lanes).max()) if self.jitter == "exp" else self.mean
        before = time.perf_counter()
        time.sleep(pause)
        self.slept += time.perf_counter() - before
        self.count += 1


class IdleEnv(gymnasium.Env[Any, Any]):
    """One lane."""

    action_space = ACTIONS

    def __init__(self, observation: str, length: int, pause: Pause) -> None:
        self.observation_space = OBSERVATIONS[observation]
        self.shown = np.zeros(self.observation_space.shape, self.observation_space.dtype)
        self.length = length
        self.pause = pause
        self.clock = 0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        self.clock = 0
        return self.shown, {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.pause.take()
        self.clock += 1
        return self.shown, 1.0, False, self.clock >= self.length, {}


class IdleVectorEnv:
    """Lanes in lockstep, all ending together, restarted by the env on the step after."""

    metadata: dict[str, Any] = {"autoreset_mode": AutoresetMode.NEXT_STEP}  # noqa: RUF012 - gymnasium's own name
    render_mode = None

    def __init__(self, lanes: int, observation: str, length: int, pause: Pause) -> None:
        self.num_envs = lanes
        self.single_observation_space = OBSERVATIONS[observation]
        self.single_action_space = ACTIONS
        self.observation_space = batch_space(self.single_observation_space, lanes)
        self.action_space = batch_space(ACTIONS, lanes)
        self.shown = np.zeros((lanes, *self.single_observation_space.shape), self.single_observation_space.dtype)
        self.length = length
        self.pause = pause
        self.clock = 0
        self.earned = np.ones(lanes)
        self.nothing = np.zeros(lanes)
        self.going = np.zeros(lanes, np.bool_)
        self.over = np.ones(lanes, np.bool_)

    def reset(self, *, seed: Any = None, options: dict[str, Any] | None = None) -> tuple[NDArray[Any], dict[str, Any]]:
        self.clock = 0
        return self.shown, {}

    def step(self, actions: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        self.pause.take(self.num_envs)
        if self.clock >= self.length:
            self.clock = 0
            return self.shown, self.nothing, self.going, self.going, {}
        self.clock += 1
        return self.shown, self.earned, self.going, self.over if self.clock >= self.length else self.going, {}

    def close(self) -> None:
        """Nothing to let go."""
