"""Endpoints that keep bad accounts of a good env: one fault each of the family ``acct``, and one that restarts."""

from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any

import attrs
import numpy as np

from rlmesh_trio.conformance.targets import LocalTarget
from rlmesh_trio.endpoints.local_env import LocalEnv
from rlmesh_trio.messages import EnvReply, EpisodeRecord, Leaves, StepTarget
from tests.conformance.planted.seed import EndsByChance, Infos, Vector

Records = Sequence[EpisodeRecord]


class Telling(EndsByChance):
    """Says what it was pushed by."""

    def step(self, action: np.int64) -> tuple[Vector, float, bool, bool, Infos]:
        return (*super().step(action)[:4], {"push": self.pushed})


class BadAccounts(LocalTarget):
    """Lanes, the records of which *alter* makes of those that ended and those that were cut short."""

    def __init__(
        self, alter: Callable[[EnvReply, Records, Records], Records], source: object = Telling, *, lanes: int = 2
    ) -> None:
        super().__init__(source, lanes=lanes, where="inline")
        self._alter = alter

    @asynccontextmanager
    async def connect(self, limit: float) -> AsyncGenerator[Any]:
        async with super().connect(limit) as env:
            yield _Accountant(env, self._alter)


class _Accountant:
    def __init__(self, env: Any, alter: Callable[[EnvReply, Records, Records], Records]) -> None:
        self._env: LocalEnv = env
        self._alter = alter

    def __getattr__(self, name: str) -> Any:
        return getattr(self._env, name)

    async def step(self, action: Leaves, target: StepTarget) -> EnvReply:
        reply = await self._env.step(action, target)
        ended = [record for record in reply.completed if record.episode_id in target.episode_ids]
        cut = [record for record in reply.completed if record not in ended]
        return attrs.evolve(reply, completed=self._alter(reply, ended, cut))


def _each(**changes: Callable[[EpisodeRecord], Any]) -> Callable[[EnvReply, Records, Records], Records]:
    def alter(_: EnvReply, ended: Records, cut: Records) -> Records:
        return [
            *cut,
            *[attrs.evolve(each, **{name: change(each) for name, change in changes.items()}) for each in ended],
        ]

    return alter


def none_of_ends(_: EnvReply, ended: Records, cut: Records) -> Records:
    return cut


def twice(_: EnvReply, ended: Records, cut: Records) -> Records:
    return [*cut, *ended, *ended]


class Late:
    """Tells of an end with the next step."""

    def __init__(self) -> None:
        self.due: Records = ()

    def __call__(self, _: EnvReply, ended: Records, cut: Records) -> Records:
        told, self.due = [*cut, *self.due], ended
        return told


class Again:
    """Tells of an end once more, much later."""

    def __init__(self) -> None:
        self.told: list[EpisodeRecord] = []

    def __call__(self, reply: EnvReply, ended: Records, cut: Records) -> Records:
        repeated = self.told[:1] if not (any(reply.terminated_mask) or cut) else []
        self.told = [*ended, *self.told]
        del self.told[1:]
        return [*cut, *ended, *repeated]


def rest_of_cut(_: EnvReply, ended: Records, cut: Records) -> Records:
    return ended


def last_hundred(_: EnvReply, ended: Records, cut: Records) -> Records:
    return [*cut[-100:], *ended]


def cut_is_done(_: EnvReply, ended: Records, cut: Records) -> Records:
    return [*[attrs.evolve(each, terminated=True, truncated=False) for each in cut], *ended]


class OpenedAnew:
    """Tells of an end whenever there are flags, be the episode over or not."""

    def __init__(self) -> None:
        self.ids: dict[int, str] = {}

    def __call__(self, reply: EnvReply, ended: Records, cut: Records) -> Records:
        lanes = {each.env_index: each.episode_id for each in ended}
        self.ids.update(lanes)
        again = [lane for lane, flag in enumerate(reply.terminated_mask) if flag and lane not in lanes]
        return [*cut, *ended, *[EpisodeRecord(self.ids[lane], None, lane, 1, 0.0, True) for lane in again]]


def _narrow(record: EpisodeRecord) -> float:
    return float(np.float32(record.cumulative_reward)) + 1e-6


other_lane = _each(env_index=lambda record: 1 - record.env_index)
one_more_step = _each(step_count=lambda record: record.step_count + 1)
narrow_sum = _each(cumulative_reward=_narrow)
other_cause = _each(terminated=lambda record: record.truncated, truncated=lambda record: record.terminated)
no_id = _each(episode_id=lambda _: "")
some_seed = _each(seed=lambda record: record.seed or 0)
no_infos = _each(final_info=lambda _: None)
