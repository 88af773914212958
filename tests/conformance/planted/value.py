"""Envs with one fault each of the family ``value``, and odd ones without a fault."""

from typing import Any

import numpy as np
from gymnasium import spaces

from tests.conformance.planted.space import Infos, Slide, Stepped

WARNING = "rlmesh.conformance.warning"


class RewardsByDivision(Slide):
    """Is rewarded by what is left of the line, divided by it."""

    def step(self, action: Any) -> Stepped:
        observation, _, terminated, truncated, infos = super().step(action)
        left = 4 - abs(self.place)
        return observation, float("inf") if left < 2 else 1 / left, terminated, truncated, infos


class RewardsNan(Slide):
    """Has no reward at the bounds of its actions."""

    def step(self, action: Any) -> Stepped:
        observation, _, terminated, truncated, infos = super().step(action)
        return observation, float("nan") if action[0] == 1 else 0.0, terminated, truncated, infos


class WarnsAgain(Slide):
    """Says every third step that its observation is out of range."""

    def step(self, action: Any) -> Stepped:
        observation, reward, terminated, truncated, _ = super().step(action)
        told = [{"kind": "observation", "path": "$", "detail": "too far"}]
        return observation, reward, terminated, truncated, {WARNING: told} if self.t % 3 == 0 else {}


class WarnsOfMuch(Slide):
    """Says once of everything that it is out of range."""

    def step(self, action: Any) -> Stepped:
        observation, reward, terminated, truncated, _ = super().step(action)
        told = [{"kind": kind, "path": f"$.{self.t}", "detail": "too far"} for kind in ("observation", "action")]
        return observation, reward, terminated, truncated, {WARNING: told}


class Masked(Slide):
    """Takes two of three actions, or one in the middle of the line, and says in its infos which."""

    action_space: spaces.Space[Any] = spaces.Discrete(3, start=1)
    length = 20

    def reset(self, *, seed: int | None = None, options: Infos | None = None) -> tuple[Any, Infos]:
        return super().reset(seed=seed)[0], self.infos()

    def step(self, action: Any) -> Stepped:
        if not self.accepts(int(action)):
            raise ValueError(f"{action} is forbidden")
        observation, reward, terminated, truncated, _ = super().step(float(action) - 2)
        return observation, reward, terminated, truncated, self.infos()

    def accepts(self, action: int) -> bool:
        return bool(self.mask()[action - 1])

    def mask(self) -> Any:
        return np.array([self.place > -2, 1, self.place > 0], np.int8)

    def infos(self) -> Infos:
        return {"action_mask": self.mask()}


class AllowsNothing(Masked):
    """Allows nothing at the left end of the line, though its episode goes on."""

    def mask(self) -> Any:
        return super().mask() if self.place > -2 else np.zeros(3, np.int8)

    def accepts(self, action: int) -> bool:
        return True


class AllowsTooMuch(Masked):
    """Allows on the left what it does not take there."""

    def infos(self) -> Infos:
        return {"action_mask": np.array([1, 1, self.place > 0], np.int8)}


class EndsWithNothingAllowed(Masked):
    """Allows nothing when its episode is over, as it should."""

    length = 3

    def mask(self) -> Any:
        return super().mask() if self.t < self.length else np.zeros(3, np.int8)


class MaskGone(Masked):
    """Has no mask when its episode is over, and then an empty one, and no flags."""

    length = 3

    def step(self, action: Any) -> Stepped:
        observation, reward, _, truncated, infos = super().step(action)
        return observation, reward, self.t == self.length, truncated, infos

    def accepts(self, action: int) -> bool:
        return True

    def infos(self) -> Infos:
        return {} if self.t == self.length else {"action_mask": np.full(3, self.t < self.length, np.int8)}


class MaskObserved(Masked):
    """Shows its mask in the observation."""

    observation_space = spaces.Dict(
        {"action_mask": spaces.MultiBinary(3), "place": spaces.Box(-4, 4, (1,), np.float32)}
    )

    def observe(self) -> Any:
        return {"action_mask": self.mask(), "place": np.array([self.place], np.float32)}

    def infos(self) -> Infos:
        return {}


class NothingAllowedObserved(MaskObserved):
    """As :class:`AllowsNothing`, in the observation."""

    def mask(self) -> Any:
        return super().mask() if self.place > -2 else np.zeros(3, np.int8)

    def accepts(self, action: int) -> bool:
        return True


class OtherMask(Masked):
    """Has a mask that is no mask of actions."""

    def infos(self) -> Infos:
        return {"action_mask": [0, 0, 0, 0]}
