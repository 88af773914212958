"""Endpoints in the place of a server that do not say what the env says."""

from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from typing import Any, Literal

import attrs
import numpy as np

from rlmesh_trio.conformance.targets import LocalTarget
from rlmesh_trio.messages import EnvReply, Leaves, StepTarget
from tests.conformance.planted.seed import Walk

Spoil = Callable[[EnvReply], EnvReply]


class ServedTarget(LocalTarget):
    """An env and, in the place of its server, an endpoint that answers a step with what *spoil* makes of it."""

    kind: Literal["wire", "factory", "local"] = "factory"

    def __init__(self, spoil: Spoil, source: object = Walk, *, lanes: int = 2) -> None:
        super().__init__(source, lanes=lanes, where="inline")
        self._spoil = spoil

    @asynccontextmanager
    async def connect(self, limit: float) -> AsyncGenerator[Any]:
        async with super().connect(limit) as env:
            yield _Served(env, self._spoil)


class _Served:
    def __init__(self, env: Any, spoil: Spoil) -> None:
        self._env = env
        self._spoil = spoil

    def __getattr__(self, name: str) -> Any:
        return getattr(self._env, name)

    async def step(self, action: Leaves, target: StepTarget) -> EnvReply:
        return self._spoil(await self._env.step(action, target))


def faithful(reply: EnvReply) -> EnvReply:
    return reply


def rounded(reply: EnvReply) -> EnvReply:
    leaves = [np.frombuffer(leaf, np.float32).round(3).tobytes() for leaf in reply.observation or ()]
    return attrs.evolve(reply, observation=leaves)


def narrow_rewards(reply: EnvReply) -> EnvReply:
    return attrs.evolve(reply, rewards=[float(np.float16(reward)) for reward in reply.rewards])


def without_infos(reply: EnvReply) -> EnvReply:
    return attrs.evolve(reply, infos={})
