"""Vector envs with one fault each of the family ``autoreset``, and targets for those that restart in the same step."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import numpy as np
from gymnasium.vector import AutoresetMode, SyncVectorEnv

from rlmesh_trio.conformance.targets import LocalTarget
from rlmesh_trio.serve.served_lanes import open_served_lanes
from tests.conformance.planted.seed import EndsByChance, Infos, Vector

LANES = 3


class Restarting(SyncVectorEnv):
    """As gymnasium has it; ``rolling`` are the lanes that the step under way restarts."""

    env: type[EndsByChance] = EndsByChance
    mode = AutoresetMode.NEXT_STEP

    def __init__(self) -> None:
        super().__init__([self.env] * LANES, autoreset_mode=self.mode)  # pyright: ignore[reportUnknownMemberType]
        self.rolling: list[int] = []

    def step(self, actions: Any) -> Any:
        self.rolling = np.flatnonzero(self._autoreset_envs).tolist()
        observations, rewards, terminated, truncated, infos = super().step(actions)
        answer = [observations, rewards, terminated, truncated, infos]
        self.spoil(answer, actions)
        return tuple(answer)

    def spoil(self, answer: list[Any], actions: Any) -> None:
        """Do what the fault is."""


class Obedient(Restarting):
    """Steps a lane that it has just restarted."""

    def spoil(self, answer: list[Any], actions: Any) -> None:
        for lane in self.rolling:
            answer[0][lane] = self.envs[lane].step(actions[lane])[0]


class Paying(Restarting):
    """Gives something for a restart."""

    def spoil(self, answer: list[Any], actions: Any) -> None:
        answer[1][self.rolling] = 1.0


class StillOver(Restarting):
    """Tells the end again with the restart."""

    def spoil(self, answer: list[Any], actions: Any) -> None:
        answer[2][self.rolling] = True


class Ahead(Restarting):
    """Shows with the end what comes next."""

    def spoil(self, answer: list[Any], actions: Any) -> None:
        for lane in np.flatnonzero(answer[2]):
            answer[0][lane] = self.envs[lane].reset()[0]


class _Tired(EndsByChance):
    """Is over for good once it was, until it is seeded."""

    over = False

    def reset(self, *, seed: int | None = None, options: Infos | None = None) -> tuple[Vector, Infos]:
        self.over = self.over and seed is None
        return super().reset(seed=seed)

    def step(self, action: np.int64) -> tuple[Vector, float, bool, bool, Infos]:
        observation, reward, terminated, truncated, infos = super().step(action)
        self.over = self.over or terminated
        return observation, reward, self.over, truncated, infos


class Stuck(Restarting):
    """Restarts what cannot start."""

    env = _Tired


class SameStep(Restarting):
    """As gymnasium has it."""

    mode = AutoresetMode.SAME_STEP


class NoMask(SameStep):
    """Does not say of whom there are last observations."""

    def spoil(self, answer: list[Any], actions: Any) -> None:
        answer[4].pop("_final_obs", None)


class NoFinal(SameStep):
    """Keeps no last observation."""

    def spoil(self, answer: list[Any], actions: Any) -> None:
        answer[4].pop("_final_obs", None)
        answer[4].pop("final_obs", None)


class OnlyMask(SameStep):
    """Says that there are last observations, and has none."""

    def spoil(self, answer: list[Any], actions: Any) -> None:
        answer[4].pop("final_obs", None)


class AllFinal(SameStep):
    """Has last observations of those that did not end."""

    def spoil(self, answer: list[Any], actions: Any) -> None:
        answer[4]["final_obs"] = list(answer[0])
        answer[4]["_final_obs"] = [True] * LANES


class ShortFinal(SameStep):
    """Leaves a part out of last observations."""

    def spoil(self, answer: list[Any], actions: Any) -> None:
        for lane in np.flatnonzero(answer[2]):
            answer[4]["final_obs"][lane] = answer[4]["final_obs"][lane][:2]


class Mixed(SameStep):
    """Gives each lane that ended the last observation of the one before it, where several ended."""

    def spoil(self, answer: list[Any], actions: Any) -> None:
        ended = np.flatnonzero(answer[2])
        if len(ended) > 1:
            answer[4]["final_obs"][ended] = answer[4]["final_obs"][np.roll(ended, 1)]


class InfoOfAll(SameStep):
    """Says of all lanes that they have last infos."""

    def spoil(self, answer: list[Any], actions: Any) -> None:
        if "_final_info" in answer[4]:
            answer[4]["_final_info"] = [True] * LANES


class SameStepTarget(LocalTarget):
    """An env as it is served, in this process: it may restart in the same step."""

    @asynccontextmanager
    async def connect(self, limit: float) -> AsyncGenerator[Any]:
        served = await open_served_lanes(self.source, 1, "inline")
        env = await served.new_session()
        try:
            yield env
        finally:
            await env.close()
