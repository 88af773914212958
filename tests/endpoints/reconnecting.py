"""An env server whose connection can be lost at will, and a client's view of it."""

import numpy as np
import pytest
import trio

from rlmesh_trio.endpoints.env import Env
from rlmesh_trio.errors import EndpointError
from rlmesh_trio.messages import ResetRequest, StepTarget
from rlmesh_trio.wire.pb.rlmesh.env import v1 as pb
from rlmesh_trio.wire.strict import present
from tests.endpoints.fake_peers import pair, value
from tests.transport.fake_server import FakeStream

__all__ = ("HANGING", "TARGET", "lose", "play", "use")

ACTION = [np.int64(1).tobytes()]
TARGET = StepTarget(1000, (), ("one",))
DEADLY = StepTarget(1000, (), ("deadly",))
HANGING = StepTarget(1000, (), ("hanging",))


async def play(request: pb.JoinRequest, stream: FakeStream) -> pb.JoinResponse | None:
    """Answer plausibly, unless a step names the episode that kills the connection or the one that hangs."""
    if request.is_set("reset"):
        return pb.JoinResponse(reset=pb.ResetResponse(observation=value(pair(0, 0))))
    if request.is_set("close"):
        return pb.JoinResponse(close=present(pb.CloseEnvsResponse()))
    if request.step.episode_ids == list(DEADLY.episode_ids):
        await stream.connection.socket.aclose()
    if request.step.episode_ids == list(HANGING.episode_ids):
        return None
    return pb.JoinResponse(
        step=pb.StepResponse(
            observation=value(pair(0.5, 1)), rewards=[1.5], terminated_mask=b"\1", truncated_mask=b"\0"
        )
    )


async def lose(env: Env, target: StepTarget = DEADLY) -> None:
    """Step, and see the connection lost."""
    with trio.fail_after(5), pytest.raises(EndpointError) as caught:
        await env.step(ACTION, target)
    assert caught.value.code == "CONNECTION"


async def use(env: Env) -> None:
    """Reset and step."""
    with trio.fail_after(5):
        await env.reset(ResetRequest())
        assert (await env.step(ACTION, TARGET)).rewards == (1.5,)
