"""Factories of lanes with one fault each of the family ``lanes``, and endpoints that take bad lists of lanes."""

from collections.abc import AsyncGenerator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

import attrs
import numpy as np
from gymnasium.vector import SyncVectorEnv

from rlmesh_trio.conformance.targets import LocalTarget, OpenEnv
from rlmesh_trio.endpoints.local_env import LocalEnv
from rlmesh_trio.errors import EndpointError
from rlmesh_trio.messages import EnvReply, ResetRequest
from tests.conformance.planted.seed import EndsByChance, Infos, Vector, Walk

Factory = Callable[[int], Walk]


class _Group:
    """What the lanes that were made together share: they are, from the lane 0 to the next."""

    def __init__(self) -> None:
        self.members: list[Walk] = []
        self.seed: int | None = None
        self.wind = 0.0
        self.moving = False


def _grouped(kind: Callable[[int, _Group], Walk]) -> Factory:
    groups: list[_Group] = []

    def factory(lane: int) -> Walk:
        if lane == 0:
            groups.append(_Group())
        return _members_of(groups[-1], kind)(lane)

    return factory


def _members_of(group: _Group, kind: Callable[[int, _Group], Walk]) -> Factory:
    def factory(lane: int) -> Walk:
        env = kind(lane, group)
        group.members.append(env)
        return env

    return factory


class _Member(Walk):
    def __init__(self, lane: int, group: _Group) -> None:
        super().__init__()
        self.lane = lane
        self.group = group


class Copy(_Member):
    """Takes the seed of lane 0."""

    def reset(self, *, seed: int | None = None, options: Infos | None = None) -> tuple[Vector, Infos]:
        if self.lane == 0:
            self.group.seed = seed
        return super().reset(seed=self.group.seed)


class InTheWind(_Member):
    """Feels what all lanes did before."""

    def start(self) -> float:
        self.group.wind = 0.0
        return super().start()

    def step(self, action: np.int64) -> tuple[Vector, float, bool, bool, Infos]:
        self.group.wind += float(action)
        return super().step(action)

    def push(self) -> float:
        return super().push() + self.group.wind


class Numbered(_Member):
    """Is the lane it is."""

    def push(self) -> float:
        return super().push() + self.lane


class Crowded(_Member):
    """Knows how many there are."""

    def push(self) -> float:
        return super().push() + len(self.group.members)


class Contagious(_Member):
    """Resets its neighbours, once they have moved."""

    def reset(self, *, seed: int | None = None, options: Infos | None = None) -> tuple[Vector, Infos]:
        if self.group.moving:
            self.group.moving = False
            for other in self.group.members:
                other.position = 0.0
        return super().reset(seed=seed)

    def push(self) -> float:
        self.group.moving = True
        return super().push()


class _Meeting(EndsByChance):
    """Takes its starts without a seed from one generator for all lanes."""

    shared = np.random.default_rng()

    def __init__(self, lane: int) -> None:
        super().__init__()
        self.lane = lane

    def reset(self, *, seed: int | None = None, options: Infos | None = None) -> tuple[Vector, Infos]:
        if seed is not None and self.lane == 0:
            type(self).shared = np.random.default_rng(seed)
        self.seeded = seed is not None
        return super().reset(seed=seed)

    def start(self) -> float:
        return super().start() if self.seeded else float(self.shared.normal())


def meeting_at_restarts() -> SyncVectorEnv:
    return SyncVectorEnv([lambda lane=lane: _Meeting(lane) for lane in range(2)])


def copies() -> Factory:
    return _grouped(Copy)


def numbered() -> Factory:
    return _grouped(Numbered)


def crowded() -> Factory:
    return _grouped(Crowded)


def contagious() -> Factory:
    return _grouped(Contagious)


class Grouped(LocalTarget):
    """Lanes of one kind. Those opened together are a group, in whatever order their threads make them."""

    def __init__(self, kind: Callable[[int, _Group], Walk]) -> None:
        super().__init__(kind, lanes=3, where="inline")
        self._kind = kind

    def connect(self, limit: float) -> AbstractAsyncContextManager[OpenEnv]:
        self.source = _members_of(_Group(), self._kind)
        return super().connect(limit)


class Lax(LocalTarget):
    """An endpoint that makes the best of a bad list of lanes."""

    def __init__(self) -> None:
        super().__init__(Walk, lanes=2, where="inline")

    @asynccontextmanager
    async def connect(self, limit: float) -> AsyncGenerator[Any]:
        async with super().connect(limit) as env:
            yield self.handle(env)

    def handle(self, env: Any) -> Any:
        return _LaxEnv(env)


class Hasty(Lax):
    """An endpoint that resets first, and looks at the list then."""

    def handle(self, env: Any) -> Any:
        return _HastyEnv(env)


class Touchy(Lax):
    """An endpoint that ends the session over a bad list."""

    def handle(self, env: Any) -> Any:
        return _TouchyEnv(env)


class NotByName(Lax):
    """An endpoint that resets no lanes by name: this is allowed."""

    def handle(self, env: Any) -> Any:
        return _NotByNameEnv(env)


class Narrow(Lax):
    """An endpoint that fails where it should say that it does not reset lanes by name."""

    def handle(self, env: Any) -> Any:
        return _NarrowEnv(env)


class _LaxEnv:
    def __init__(self, env: LocalEnv) -> None:
        self._env = env

    def __getattr__(self, name: str) -> Any:
        return getattr(self._env, name)

    def _good(self, request: ResetRequest) -> ResetRequest:
        lanes = tuple(dict.fromkeys(lane for lane in request.env_indices if lane < 2)) or (0,)
        seeds = (*request.seeds, *request.seeds, *request.seeds)[: len(lanes)]
        return attrs.evolve(request, env_indices=lanes, seeds=seeds, episode_ids=request.episode_ids[: len(lanes)])

    async def reset(self, request: ResetRequest) -> EnvReply:
        return await self._env.reset(self._good(request) if request.env_indices else request)


class _HastyEnv(_LaxEnv):
    async def reset(self, request: ResetRequest) -> EnvReply:
        good = self._good(request) if request.env_indices else request
        reply = await self._env.reset(good)
        if good.env_indices != request.env_indices or good.seeds != request.seeds:
            raise EndpointError("INVALID_ACTION", "what a list", True)
        return reply


class _TouchyEnv(_LaxEnv):
    async def reset(self, request: ResetRequest) -> EnvReply:
        try:
            return await self._env.reset(request)
        except EndpointError as failure:
            raise EndpointError(failure.code, failure.message) from failure


class _NotByNameEnv(_LaxEnv):
    code = "UNSUPPORTED"

    async def reset(self, request: ResetRequest) -> EnvReply:
        if request.env_indices:
            raise EndpointError(self.code, "not by name", True)
        return await self._env.reset(request)


class _NarrowEnv(_NotByNameEnv):
    code = "INTERNAL"
