"""Envs with one fault each of the family ``py``, and odd ones without a fault."""

import enum
from collections.abc import Callable
from typing import Any, NamedTuple, cast

import gymnasium
import numpy as np
from gymnasium import spaces

from tests.conformance.planted.space import Infos, Slide, Stepped


class ObservationAlone(Slide):
    """Is reset as gym was before 0.26."""

    def reset(self, *, seed: int | None = None, options: Infos | None = None) -> Any:
        return super().reset(seed=seed)[0]


class InfosAsList(Slide):
    """Gives a list for infos with a reset."""

    def reset(self, *, seed: int | None = None, options: Infos | None = None) -> Any:
        return super().reset(seed=seed)[0], []


class OneFlag(Slide):
    """Steps as gym did before 0.26."""

    def step(self, action: Any) -> Any:
        observation, reward, terminated, _, infos = super().step(action)
        return observation, reward, terminated, infos


class Returning(Slide):
    """Changes what a step returns by *change*, which gets the five values and the env."""

    change: Callable[[list[Any], Slide], None]

    def step(self, action: Any) -> Stepped:
        values: list[Any] = list(super().step(action))
        type(self).change(values, self)
        return cast("Stepped", tuple(values))


def returning(index: int, make: Callable[[Any], Any]) -> type[Returning]:
    """An env with another value at *index* of what a step returns."""

    def change(values: list[Any], env: Slide) -> None:
        values[index] = make(values[index])

    return type("Returning", (Returning,), {"change": staticmethod(change)})


FlagAsInt = returning(2, int)
FlagAsArray = returning(3, lambda flag: np.array([flag]))
RewardAsArray = returning(1, np.array)
RewardAsNothing = returning(1, lambda _: None)
NumpyScalars = returning(2, np.bool_)
RewardAsFloat16 = returning(1, np.float16)
ObservationInDoubles = returning(0, lambda seen: seen.astype(np.float64))
ObservationAsList = returning(0, lambda seen: seen.tolist())


class Named(NamedTuple):
    """The five values by their names."""

    observation: Any
    reward: float
    terminated: bool
    truncated: bool
    infos: Infos


class NamedStep(Slide):
    """Returns a named tuple, which is a tuple."""

    def step(self, action: Any) -> Any:
        return Named(*super().step(action))


class OneBuffer(Slide):
    """Observes through one buffer."""

    def __init__(self) -> None:
        super().__init__()
        self.buffer = np.zeros(3, np.float32)

    def observe(self) -> Any:
        self.buffer[:] = super().observe()
        return self.buffer


class OneDict(Slide):
    """Observes through one dict, with a fresh array in it each time."""

    observation_space = spaces.Dict({"place": spaces.Box(-4, 4, (1,), np.float32), "t": spaces.Discrete(2000)})

    def __init__(self) -> None:
        super().__init__()
        self.seen: dict[str, Any] = {}

    def observe(self) -> Any:
        self.seen.update(place=np.array([self.place], np.float32), t=self.t)
        return self.seen


class OneInfos(Slide):
    """Keeps one dict for its infos."""

    def __init__(self) -> None:
        super().__init__()
        self.infos: Infos = {}

    def step(self, action: Any) -> Stepped:
        observation, reward, terminated, truncated, _ = super().step(action)
        self.infos["t"] = self.t
        return observation, reward, terminated, truncated, self.infos


class SameEveryTime(OneBuffer):
    """Observes through one buffer that never changes."""

    def observe(self) -> Any:
        return self.buffer


class Color(enum.Enum):
    RED = 1


class Opaque:
    """Nothing that a client could use."""


def infos(**told: Any) -> type[Returning]:
    """An env with these infos."""
    return returning(4, lambda _: told)


ObjectInInfos = infos(deep=[{"er": Opaque()}])
SetInInfos = infos(seen={1, 2})
HugeInt = infos(n=2**63)
OddKey = returning(4, lambda _: {1: "one"})
Complex = infos(z=np.array([1j]))
PlainInfos = infos(
    a=None,
    b=True,
    c=np.int8(3),
    d=np.float32(0.5),
    e=float("nan"),
    f="text",
    g=b"bytes",
    h=np.zeros((2, 2), np.bool_),
    i=(1, [2.0, {"k": "v"}]),
    j=Color.RED,
    k=-(2**63),
    m=np.array([None, "x"], object),
)


class ClosesOnce(Slide):
    """Cannot be closed again."""

    closed = False

    def close(self) -> None:
        if self.closed:
            raise RuntimeError("closed already")
        self.closed = True


class Wrapped(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Looks into what an env returns, as gymnasium's own wrappers do."""

    def reset(self, *, seed: int | None = None, options: Infos | None = None) -> tuple[Any, Infos]:
        observation, told = self.env.reset(seed=seed)
        return observation, told

    def step(self, action: Any) -> Any:
        observation, reward, terminated, truncated, told = self.env.step(action)
        return observation, reward, terminated, truncated, told
