"""Envs to serve, and servers of ours to ask message by message."""

import threading
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import gymnasium
import trio
from gymnasium.vector import AutoresetMode, SyncVectorEnv

from rlmesh_trio.serve import EnvServer, serve_env
from rlmesh_trio.wire.pb.rlmesh.env import v1 as pb
from tests.interop.peers.toys import TOYS, Fault, Toy
from tests.interop.wire import Wire, env_wire

__all__ = ("Gated", "asked", "failed", "toy", "vector")

LIMIT = 20.0
EnvWire = Wire[pb.JoinRequest, pb.JoinResponse]


def toy(lane: int = 0, *, env: str = "counter", length: int = 2, fault: Fault | None = None) -> Toy:
    """A toy env whose episodes have *length* steps, and one more per lane."""
    return TOYS[env](lane, length + lane, 0.0, fault or Fault(), None)


def vector(mode: AutoresetMode, lanes: int = 3) -> SyncVectorEnv:
    """So many counters in lockstep."""
    return SyncVectorEnv([lambda lane=lane: toy(lane) for lane in range(lanes)], autoreset_mode=mode)


class Gated(gymnasium.Wrapper[Any, Any, Any, Any]):
    """A counter whose steps with action 2 begin and then wait to be let go; *held* lanes only."""

    def __init__(self, lane: int = 0, *, held: int = 0, length: int = 5) -> None:
        super().__init__(toy(lane, length=length))
        self.held = lane == held
        self.begun = threading.Event()
        self.gate = threading.Event()

    def step(self, action: Any) -> Any:
        if self.held and action == 2:
            self.begun.set()
            assert self.gate.wait(30)
        return super().step(action)

    async def reached(self) -> None:
        """Wait until a step has begun."""
        assert await trio.to_thread.run_sync(self.begun.wait, LIMIT)
        self.begun.clear()


@asynccontextmanager
async def asked(source: object, **options: Any) -> AsyncGenerator[tuple[EnvWire, EnvServer]]:
    """Serve *source* and open a stream to it."""
    with trio.fail_after(LIMIT):
        async with serve_env(source, **options) as server, env_wire(server.address) as wire:
            yield wire, server


def failed(reply: pb.JoinResponse) -> tuple[str, bool]:
    """The code of an error reply, and whether it calls itself recoverable."""
    assert reply.is_set("error"), reply
    return pb.EnvErrorCode(reply.error.code).name or "", reply.error.is_recoverable
