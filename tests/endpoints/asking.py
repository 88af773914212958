"""Short ways to ask an env and to read its answers."""

from collections.abc import Sequence
from typing import Any, cast

import numpy as np

from rlmesh_trio.endpoints.local_env import LocalEnv
from rlmesh_trio.messages import EnvReply, Leaves, ResetRequest, StepTarget
from rlmesh_trio.spaces import codec_for
from rlmesh_trio.spec import ValueSpace


def discrete(*values: int) -> list[bytes]:
    """A batched Discrete action."""
    return [np.array(values, "<i8").tobytes()]


def at(*lanes: int, ids: Sequence[str] = ()) -> StepTarget:
    return StepTarget(0, lanes, tuple(ids))


async def start(env: LocalEnv, *lanes: int, ids: Sequence[str] = ("first",), seeds: Sequence[int] = ()) -> EnvReply:
    return await env.reset(ResetRequest(tuple(seeds), env_indices=lanes, episode_ids=tuple(ids)))


def observed(env: LocalEnv, reply: EnvReply, rows: int = 1) -> Any:
    """The batched observation of a reply."""
    space = cast("ValueSpace", env.contract.observation_space)
    return codec_for(space).unpack_batch(cast("Leaves", reply.observation), rows)
