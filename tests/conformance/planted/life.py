"""Envs with one fault each of the family ``life``, and odd ones without a fault."""

from typing import Any, Literal

import gymnasium
import numpy as np

from rlmesh_trio.conformance.targets import LocalTarget
from tests.conformance.planted.seed import EndsByChance, Infos, Vector, Walk

LIMIT = "max_episode_steps"
OPTIONS = "rlmesh.env.v1.reset_options"


class UnreadyTarget(LocalTarget):
    """An endpoint in the place of a server, which steps what was not reset."""

    kind: Literal["wire", "factory", "local"] = "factory"


class Timed(Walk):
    """Is truncated after 5 steps, as it declares."""

    metadata = {LIMIT: 5}  # noqa: RUF012 - gymnasium's
    length = 5

    def step(self, action: np.int64) -> tuple[Vector, float, bool, bool, Infos]:
        observation, reward, over, _, infos = super().step(action)
        return observation, reward, False, over, infos


class TooLong(Timed):
    length = 6


class TooShort(Timed):
    length = 3


class Untimed(Timed):
    length = 1000


class EndOfTimeIsDone(Walk):
    """Takes the limit for an end."""

    metadata = Timed.metadata
    length = 5


class FixedLength(Walk):
    """Its task has 5 steps."""

    length = 5


class OneStep(Walk):
    """A bandit."""

    length = 1


class TimedOrDone(EndsByChance):
    """Ends by chance, and after 5 steps, then by both flags where both hold."""

    metadata = Timed.metadata

    def step(self, action: np.int64) -> tuple[Vector, float, bool, bool, Infos]:
        observation, reward, over, _, infos = super().step(action)
        return observation, reward, over, self.t >= 5, infos


class Leveled(Walk):
    """Starts farther away on a higher level."""

    metadata = {OPTIONS: ["level"]}  # noqa: RUF012 - gymnasium's

    def reset(self, *, seed: int | None = None, options: Infos | None = None) -> tuple[Vector, Infos]:
        observation, infos = super().reset(seed=seed)
        self.position += self.distance(options or {})
        observation[0] = self.position
        return observation, infos

    def distance(self, options: Infos) -> float:
        return 10.0 * float(np.sum(options.get("level", 0)))


class LevelIgnored(Leveled):
    def distance(self, options: Infos) -> float:
        return 0.0


class LevelByChance(Leveled):
    def distance(self, options: Infos) -> float:
        return float(np.random.default_rng().normal()) if "level" in options else 0.0


class Strict(Walk):
    """Knows no options."""

    def reset(self, *, seed: int | None = None, options: Infos | None = None) -> tuple[Vector, Infos]:
        if options:
            raise ValueError(f"unknown options {sorted(options)}")
        return super().reset(seed=seed)


class GoesOn(EndsByChance):
    """Goes on after its end, as if there was none."""


class Repeats(EndsByChance):
    """Says its last word again and again."""

    last: Any = None

    def reset(self, *, seed: int | None = None, options: Infos | None = None) -> tuple[Vector, Infos]:
        self.last = None
        return super().reset(seed=seed)

    def step(self, action: np.int64) -> tuple[Vector, float, bool, bool, Infos]:
        if self.last is None:
            answer = super().step(action)
            self.last = answer if answer[2] else None
            return answer
        return self.last


class Refuses(EndsByChance):
    """Wants to be reset."""

    over = False

    def reset(self, *, seed: int | None = None, options: Infos | None = None) -> tuple[Vector, Infos]:
        self.over = False
        return super().reset(seed=seed)

    def step(self, action: np.int64) -> tuple[Vector, float, bool, bool, Infos]:
        if self.over:
            raise gymnasium.error.ResetNeeded("it is over")
        answer = super().step(action)
        self.over = answer[2]
        return answer
