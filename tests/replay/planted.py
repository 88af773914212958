"""An env and a policy that repeat, and the same with one thing planted in them, as it happens to others.

The episode of ordinal ``n`` is seeded with 100 + ``n``. Servers are told what to plant by the variable ``PLANT``.
"""

import os
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

from tests.replay.playing import Drift, record, vector

TIRED_AFTER = 15
SEED_OF_TWO = 102
LEAF = spaces.Box(-np.inf, np.inf, (3,), np.float32)


class Walker(gymnasium.Env[Any, Any]):
    """Walks as far as its seed says. What is planted is so by the methods below."""

    observation_space = spaces.Dict({"qpos": LEAF, "qvel": LEAF})
    action_space = spaces.Discrete(3)

    def __init__(self) -> None:
        self.ordinal = self.steps = self.length = 0
        self.qpos = self.qvel = np.zeros(3, np.float32)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        self.ordinal, self.steps = (seed or 100) - 100, 0
        super().reset(seed=self.heard(seed))
        self.length = int(self.np_random.integers(4, 9))
        self.qpos, self.qvel = self.np_random.normal(size=(2, 3)).astype(np.float32)
        return {"qpos": self.qpos, "qvel": self.qvel}, {}

    def step(self, action: Any) -> Any:
        self.steps += 1
        self.before()
        push = 0.1 * (int(action) - 1) + 0.01 * self.np_random.normal(size=3)
        self.qvel = (0.9 * self.qvel + push).astype(np.float32)
        self.qpos = self.placed(self.qpos + self.qvel)
        told = {"qpos": self.qpos, "qvel": self.qvel}
        return told, self.reward(), self.steps >= self.length, False, {"height": self.height()}

    def at(self, ordinal: int, step: int) -> bool:
        return (self.ordinal, self.steps) == (ordinal, step)

    def heard(self, seed: int | None) -> int | None:
        return seed

    def before(self) -> None:
        """What else happens in a step."""

    def placed(self, qpos: Any) -> Any:
        return qpos

    def reward(self) -> float:
        return float(self.qpos[0])

    def height(self) -> float:
        return float(self.qpos[2])


class Noise(Walker):
    def placed(self, qpos: Any) -> Any:
        return qpos + np.array([0, np.random.default_rng().uniform(1, 2), 0], np.float32) if self.at(4, 2) else qpos


class Deaf(Walker):
    def heard(self, seed: int | None) -> int | None:
        return None if self.ordinal == 5 else seed


class Greedy(Walker):
    """Draws once too often."""

    def before(self) -> None:
        if self.at(6, 3):
            self.np_random.normal()


class Worn(Walker):
    """What it went through in its second episode shows in its seventh, and is over then."""

    is_worn = False

    def before(self) -> None:
        self.is_worn |= self.ordinal == 2
        if self.is_worn and self.at(7, 1):
            self.is_worn, self.qvel = False, self.qvel + np.float32(0.5)


class Rounding(Walker):
    def placed(self, qpos: Any) -> Any:
        if self.at(3, 2):
            qpos[1] = np.nextafter(qpos[1], np.float32(np.inf))
        return qpos


class Flipped(Walker):
    def reward(self) -> float:
        return -super().reward() if self.at(8, 3) else super().reward()


class Gossip(Walker):
    def height(self) -> float:
        return super().height() + self.at(3, 2)


class Renewed(Walker):
    metadata = {"render_modes": [], "version": 2}  # noqa: RUF012 - gymnasium's own


class Frail(Walker):
    def before(self) -> None:
        if self.at(4, 2):
            raise RuntimeError("a leg broke")


class Whispering(Walker):
    """Does what it should, and tells a policy that listens something behind everybody's back."""

    is_open = False

    def __init__(self) -> None:
        super().__init__()
        Whispering.is_open = True

    def close(self) -> None:
        Whispering.is_open = False


PLANTS: dict[str, type[Walker]] = {
    kind.__name__: kind for kind in (Walker, Noise, Deaf, Greedy, Worn, Rounding, Flipped, Gossip, Renewed, Frail)
}


def from_environment(**_: object) -> Walker:
    """What a server makes."""
    return PLANTS[os.environ.get("PLANT", "Walker")]()


gymnasium.register("Planted-v0", from_environment)  # pyright: ignore[reportUnknownMemberType]


def noisy_vector() -> Any:
    """Lanes that restart themselves, of which those that did move a little in their second step."""

    def plant(env: Drift) -> None:
        if env.steps == 2 and env.seed is None:
            env.place[1] += 1e-3

    return vector(plant)


def steady(observations: Any) -> Any:
    """Against where it is."""
    return (1 - np.sign(observations["qpos"][:, 0])).astype(np.int64)


def contrary(observations: Any) -> Any:
    return 2 - steady(observations)


def listening(observations: Any) -> Any:
    return contrary(observations) if Whispering.is_open else steady(observations)


def crowded(observations: Any) -> Any:
    """The last row of a batch is moved by how many there are, as sums of floats may be."""
    return (steady(observations) + len(observations["qpos"])) % 3


def whimsical(observations: Any) -> Any:
    return np.random.default_rng().integers(0, 3, len(observations["qpos"]))


async def record_walk(path: Path, policy: object = steady, *, env: object = Walker, **fields: Any) -> None:
    """Record nine episodes of a run in which nothing is planted, unless *env* or *policy* say so."""
    await record(path, env, policy, **fields)


class Tired:
    """A policy over rows that fails in its sixteenth."""

    def __init__(self) -> None:
        self.asked = 0

    def predict(self, observation: Any) -> int:
        self.asked += 1
        if self.asked > TIRED_AFTER:
            raise RuntimeError("too tired")
        return int(1 - np.sign(observation["qpos"][0]))


class Grudge:
    """A policy over rows that does not forget the second episode, and shows it in the seventh."""

    def __init__(self) -> None:
        self.is_sore = False

    def predict(self, observation: Any, context: Any) -> int:
        self.is_sore |= context.seed == SEED_OF_TWO
        side = np.sign(observation["qpos"][0])
        return int(1 + side if self.is_sore and context.seed == SEED_OF_TWO + 5 else 1 - side)
