"""Envs with one fault each that a few lines of gymnasium show as well."""

import time
from typing import Any

import numpy as np
from gymnasium import spaces
from gymnasium.vector import SyncVectorEnv

from tests.conformance.planted import lanes
from tests.conformance.planted.seed import Infos, Vector, Walk


class _Bounded(Walk):
    observation_space: spaces.Space[Any] = spaces.Box(-1.0, 1.0, (3,), np.float32)

    def observe(self) -> Vector:
        return np.array([0.0, 0.0, min(self.t, 1)], np.float32)


class Outside(_Bounded):
    """Leaves its bounds at the third step."""

    def observe(self) -> Vector:
        return np.array([0.0, 0.0, 1.5 if self.t > 2 else 0.0], np.float32)


class Nowhere(Walk):
    """Is nowhere after an action 2."""

    def step(self, action: np.int64) -> tuple[Vector, float, bool, bool, Infos]:
        observation, reward, terminated, truncated, infos = super().step(action)
        return (observation * np.float32(np.nan) if action == 2 else observation), reward, terminated, truncated, infos


class Priceless(Walk):
    """Has no price for an action 1."""

    def step(self, action: np.int64) -> tuple[Vector, float, bool, bool, Infos]:
        observation, reward, *rest = super().step(action)
        return observation, float("inf") if action == 1 else reward, bool(rest[0]), bool(rest[1]), {}


class Refusing(Walk):
    """Takes no action 2."""

    def step(self, action: np.int64) -> tuple[Vector, float, bool, bool, Infos]:
        if action == 2:
            raise IndexError("there is no such lever")
        return super().step(action)


class Flagged(Walk):
    """Has numbers for flags."""

    def step(self, action: np.int64) -> tuple[Vector, float, bool, bool, Infos]:
        observation, reward, *_ = super().step(action)
        nothing: Any = 0
        return observation, reward, nothing, nothing, {}


class Aliased(Walk):
    """Hands out one array for ever."""

    def __init__(self) -> None:
        super().__init__()
        self.kept = np.zeros(3, np.float32)

    def observe(self) -> Vector:
        self.kept[:] = super().observe()
        return self.kept


class Windy(Walk):
    """Feels what all of its kind did since one was reset."""

    wind = 0.0

    def start(self) -> float:
        Windy.wind = 0.0
        return super().start()

    def push(self) -> float:
        return super().push() + Windy.wind

    def step(self, action: np.int64) -> tuple[Vector, float, bool, bool, Infos]:
        Windy.wind += float(action)
        return super().step(action)


numbered = lanes.numbered()
copied = lanes.copies()
_crowded = lanes.crowded()
contagious = lanes.contagious()


def crowded(lane: int) -> Walk:
    """Lanes that know how many they are, the first of which is made first, though each is made in a thread."""
    time.sleep(0.01 * lane)
    return _crowded(lane)


class Shared(Walk):
    """Feels what all of one vector did before."""

    def __init__(self, group: list[float]) -> None:
        super().__init__()
        self.group = group

    def start(self) -> float:
        self.group.clear()
        return super().start()

    def push(self) -> float:
        return super().push() + sum(self.group)

    def step(self, action: np.int64) -> tuple[Vector, float, bool, bool, Infos]:
        self.group.append(float(action))
        return super().step(action)


def windy_vector() -> SyncVectorEnv:
    """Lanes that share the wind."""
    group: list[float] = []
    return SyncVectorEnv([lambda: Shared(group)] * 2)


def copied_vector() -> SyncVectorEnv:
    """Lanes that share a seed."""
    factory = lanes.copies()
    return SyncVectorEnv([lambda lane=lane: factory(lane) for lane in range(2)])


def numbered_vector() -> SyncVectorEnv:
    """Lanes that know their number."""
    factory = lanes.numbered()
    return SyncVectorEnv([lambda lane=lane: factory(lane) for lane in range(2)])
