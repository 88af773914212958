"""Envs with one fault each of the family ``seed``, and odd ones without a fault."""

import time
from collections.abc import Callable
from typing import Any

import gymnasium
import numpy as np
import numpy.typing as npt
import trio
from gymnasium import spaces

Vector = npt.NDArray[np.float32]
Infos = dict[str, Any]


class Walk(gymnasium.Env[Vector, np.int64]):
    """A walk from a random start, with a random push every step; the observation is position, last push and step."""

    observation_space: spaces.Space[Any] = spaces.Box(-np.inf, np.inf, (3,), np.float32)
    action_space: spaces.Space[Any] = spaces.Discrete(3)
    length = 1000

    def __init__(self) -> None:
        self.position = 0.0
        self.pushed = 0.0
        self.t = 0

    def observe(self) -> Vector:
        return np.array([self.position, self.pushed, self.t], np.float32)

    def reset(self, *, seed: int | None = None, options: Infos | None = None) -> tuple[Vector, Infos]:
        super().reset(seed=seed)
        self.t = 0
        self.pushed = 0.0
        self.position = self.start()
        return self.observe(), {}

    def start(self) -> float:
        return float(self.np_random.normal())

    def push(self) -> float:
        return float(self.np_random.normal())

    def step(self, action: np.int64) -> tuple[Vector, float, bool, bool, Infos]:
        self.t += 1
        self.pushed = self.push()
        self.position += float(action) - 1 + self.pushed
        return self.observe(), self.position, self.t >= self.length, False, {}


class UnseededStart(Walk):
    """Starts anywhere."""

    def start(self) -> float:
        return float(np.random.default_rng().normal())


class UnseededPush(Walk):
    """Is pushed by another generator."""

    def __init__(self) -> None:
        super().__init__()
        self.other = np.random.default_rng()

    def push(self) -> float:
        return float(self.other.normal())


class RarelyUnseeded(Walk):
    """Is pushed by another generator in one of six runs: a fault that flickers."""

    other = np.random.default_rng(7)

    def start(self) -> float:
        self.disturbed = self.other.random() < 1 / 6
        return super().start()

    def push(self) -> float:
        return super().push() + (float(self.other.normal()) if self.disturbed else 0.0)


class UnseededFollowup(Walk):
    """Takes a fresh generator where no seed is given."""

    def reset(self, *, seed: int | None = None, options: Infos | None = None) -> tuple[Vector, Infos]:
        return super().reset(seed=np.random.SeedSequence().entropy if seed is None else seed)  # pyright: ignore


class Smoothing(Walk):
    """Smooths its pushes with a filter that no reset clears."""

    smoothed = 0.0

    def push(self) -> float:
        self.smoothed = 0.9 * self.smoothed + 0.1 * super().push()
        return self.smoothed


class CountingEpisodes(Walk):
    """Starts farther away with every episode it has begun."""

    begun = 0

    def start(self) -> float:
        self.begun += 1
        return super().start() + self.begun


class Impatient(Walk):
    """Drifts when nobody asks for some time."""

    clock: Callable[[], float] = staticmethod(trio.current_time)

    def start(self) -> float:
        self.asked = self.clock()
        return super().start()

    def push(self) -> float:
        now = self.clock()
        late, self.asked = now - self.asked > 0.01, now
        return super().push() + late


class SeedIgnored(Walk):
    """Does not care for seeds."""

    def start(self) -> float:
        return 0.0

    def push(self) -> float:
        return 0.25


class RandomInfos(Walk):
    """Says something else each time, in its infos only."""

    def step(self, action: np.int64) -> tuple[Vector, float, bool, bool, Infos]:
        return (*super().step(action)[:4], {"luck": float(np.random.default_rng().random())})


class OddButRight(Walk):
    """Ends by both flags, observes -0.0 and infinity, tells the time and its address, and ends for good."""

    length = 4
    over = False

    def start(self) -> float:
        self.over = False
        return -0.0

    def step(self, action: np.int64) -> tuple[Vector, float, bool, bool, Infos]:
        assert not self.over
        observation, reward, self.over, _, _ = super().step(action)
        observation[1] = np.inf
        infos = {"episode": {"t": time.perf_counter(), "l": self.t}, "self": object()} if self.t % 2 else {}
        return observation, reward, self.over, self.over, infos


class Short(Walk):
    """Has episodes of three steps."""

    length = 3


class ShortAndUnseeded(UnseededFollowup):
    """Has episodes of three steps, and takes a fresh generator where no seed is given."""

    length = 3


class RandomLeaf(gymnasium.Env[dict[str, Any], np.int64]):
    """Shows a camera picture that no seed decides."""

    action_space: spaces.Space[Any] = Walk.action_space

    def __init__(self) -> None:
        self.walk = Walk()
        camera = spaces.Box(0, 255, (2, 2), np.uint8)
        self.observation_space = spaces.Dict({"walk": Walk.observation_space, "camera": camera})

    def shown(self, walk: Vector) -> dict[str, Any]:
        picture = np.random.default_rng().integers(0, 256, (2, 2), np.uint8) if walk[2] else np.zeros((2, 2), np.uint8)
        return {"walk": walk, "camera": picture}

    def reset(self, *, seed: int | None = None, options: Infos | None = None) -> tuple[dict[str, Any], Infos]:
        walk, infos = self.walk.reset(seed=seed, options=options)
        return self.shown(walk), infos

    def step(self, action: np.int64) -> tuple[dict[str, Any], float, bool, bool, Infos]:
        walk, reward, terminated, truncated, infos = self.walk.step(action)
        return self.shown(walk), reward, terminated, truncated, infos


class EndsByChance(Walk):
    """Ends when it is pushed hard."""

    def step(self, action: np.int64) -> tuple[Vector, float, bool, bool, Infos]:
        observation, reward, _, _, infos = super().step(action)
        return observation, reward, abs(self.pushed) > 1, False, infos


class MixedInfos(EndsByChance):
    """Tells a whole number now and a fraction then."""

    def step(self, action: np.int64) -> tuple[Vector, float, bool, bool, Infos]:
        return (*super().step(action)[:4], {"share": 0 if self.pushed > 0 else 0.5})


class Unwilling(Walk):
    """Cannot be reset."""

    def start(self) -> float:
        raise RuntimeError("no")
