"""An env that answers as a test says, and a target whose sessions a test makes."""

from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import gymnasium
import numpy as np
import trio
from gymnasium import spaces

from rlmesh_trio.conformance.targets import LocalTarget, OpenEnv
from rlmesh_trio.contract import AutoresetMode, EnvContract, PeerCeiling
from rlmesh_trio.errors import ConnectError
from rlmesh_trio.messages import EnvReply, Leaves, ResetRequest, StepTarget
from rlmesh_trio.spaces import contract_from_gymnasium

__all__ = ("Counting", "Reply", "ScriptedEnv", "ScriptedTarget", "contract_of", "ok")

Reply = Callable[[ResetRequest | StepTarget], Awaitable[EnvReply]]


class Counting(gymnasium.Env[Any, Any]):
    """Observes how many steps it took, capped at 9, and the seed's remainder by 10; ``length`` steps an episode."""

    observation_space = spaces.Box(0, 9, (2,), np.float32)
    action_space = spaces.Discrete(3)
    length = 5

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.steps, self.mark = 0, (seed or 0) % 10
        return self.observed(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.steps += 1
        return self.observed(), float(action), self.steps >= self.length, False, {}

    def observed(self) -> Any:
        return np.array([min(self.steps, 9), self.mark], np.float32)


def contract_of(lanes: int = 1, mode: AutoresetMode = AutoresetMode.DISABLED) -> EnvContract:
    """What a :class:`Counting` of so many lanes declares."""
    return contract_from_gymnasium(
        Counting.observation_space,
        Counting.action_space,
        env_id="Counting-v0",
        metadata={},
        num_envs=lanes,
        autoreset_mode=mode,
        render_mode="",
    )


def ok(lanes: int = 1, *, ended: bool = False, steps: bool = True) -> EnvReply:
    """A plain reply for *lanes* lanes."""
    observation = [np.zeros((lanes, 2), np.float32).tobytes()]
    if not steps:
        return EnvReply(observation, {})
    return EnvReply(observation, {}, (1.0,) * lanes, bytes([ended]) * lanes, bytes(lanes))


class ScriptedEnv:
    """An ``OpenEnv`` that answers every request by *reply*, and keeps them in ``asked``."""

    edition = "2026.06"
    ceiling: PeerCeiling | None = None

    def __init__(self, reply: Reply, contract: EnvContract | None = None, *, subset_step: bool = False) -> None:
        self.contract = contract or contract_of()
        self.subset_step = subset_step
        self.asked: list[ResetRequest | StepTarget] = []
        self._reply = reply

    async def reset(self, request: ResetRequest) -> EnvReply:
        self.asked.append(request)
        await trio.lowlevel.checkpoint()
        return await self._reply(request)

    async def step(self, action: Leaves, target: StepTarget) -> EnvReply:
        self.asked.append(target)
        await trio.lowlevel.checkpoint()
        return await self._reply(target)

    async def close(self) -> None:
        await trio.lowlevel.checkpoint()


class ScriptedTarget(LocalTarget):
    """A target whose ``sessions`` are taken one after the other; an exception is what connecting raises.

    The last one is used again. ``restarts`` counts them; ``closed`` the sessions that were closed.
    """

    def __init__(self, *sessions: OpenEnv | Exception, restartable: bool = False) -> None:
        super().__init__(Counting, where="inline")
        self.name = "scripted"
        self.restartable = restartable
        self.restarts = self.closed = self.opened = 0
        self._sessions = list(sessions)

    @asynccontextmanager
    async def connect(self, limit: float) -> AsyncGenerator[OpenEnv]:
        await trio.lowlevel.checkpoint()
        session = self._sessions.pop(0) if len(self._sessions) > 1 else self._sessions[0]
        if isinstance(session, Exception):
            raise session
        self.opened += 1
        try:
            yield session
        finally:
            self.closed += 1

    async def restart(self) -> None:
        await trio.lowlevel.checkpoint()
        if not self.restartable:
            raise ConnectError("not started here")
        self.restarts += 1
