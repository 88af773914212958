"""Talking to a real server message by message, past every rule of our own, to see what it does by itself.

Each message goes to stdout in hex, ``>`` to the server and ``<`` from it: ``pytest -s`` shows them.
"""

from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from typing import Generic, TypeVar

import betterproto
import numpy as np
import trio

from rlmesh_trio.transport.address import parse_address
from rlmesh_trio.transport.channel import open_channel
from rlmesh_trio.transport.join import JoinStream
from rlmesh_trio.wire.pb.rlmesh.env import v1 as env_pb
from rlmesh_trio.wire.pb.rlmesh.model import v1 as model_pb
from rlmesh_trio.wire.pb.rlmesh.spaces import v1 as spaces_pb
from rlmesh_trio.wire.strict import decode, encode, present, relay_field

__all__ = (
    "Wire",
    "configure",
    "end_episodes",
    "env_wire",
    "model_wire",
    "predict",
    "release",
    "reset",
    "resolve",
    "step",
)

LIMIT = 10.0

Request = TypeVar("Request", bound=betterproto.Message)
Response = TypeVar("Response", bound=betterproto.Message)


class Wire(Generic[Request, Response]):
    """One Join stream on which whole messages are exchanged, each for the one answer under its ``request_id``."""

    def __init__(self, stream: JoinStream[str, Response]) -> None:
        self._stream = stream
        self._asked = 0

    async def ask(self, request: Request) -> Response:
        """The answer to *request*, which gets an id; an in-band error is an answer too.

        Raises :exc:`~rlmesh_trio.errors.EndpointError` when the stream ends instead.
        """
        self._asked += 1
        request_id = f"r{self._asked}"
        request.request_id = request_id  # pyright: ignore[reportAttributeAccessIssue]
        return await self.say(request_id, encode(request))

    async def say(self, request_id: str, data: bytes) -> Response:
        """The answer to these bytes, whatever they are."""
        print(">", data.hex(" ") if len(data) < 1024 else f"{len(data)} bytes")
        with trio.fail_after(LIMIT):
            return (await self._stream.exchange(request_id, data))[2]


def _env_reply(data: bytes) -> tuple[str, str, env_pb.JoinResponse]:
    print("<", data.hex(" "))
    reply = decode(env_pb.JoinResponse, data, what="answer")
    return reply.request_id, "answer", reply


def _model_reply(data: bytes) -> tuple[str, str, model_pb.JoinResponse]:
    print("<", data.hex(" "))
    reply = decode(model_pb.JoinResponse, data, what="answer")
    return reply.request_id, "answer", reply


@asynccontextmanager
async def env_wire(address: str) -> AsyncGenerator[Wire[env_pb.JoinRequest, env_pb.JoinResponse]]:
    """Open a stream to the env server at *address*, without handshake or configure: it does not insist on them."""
    async with open_channel(parse_address(address), token=None, limit=LIMIT) as channel:
        with channel.deadline("stream"):
            stream = await channel.join("/rlmesh.env.v1.EnvService/Join", "the env server", _env_reply)
        try:
            yield Wire(stream)
        finally:
            with trio.CancelScope(shield=True):
                await stream.close(LIMIT)


@asynccontextmanager
async def model_wire(address: str) -> AsyncGenerator[Wire[model_pb.JoinRequest, model_pb.JoinResponse]]:
    """Open a stream to the model server at *address*, without handshake."""
    async with open_channel(parse_address(address), token=None, limit=LIMIT) as channel:
        with channel.deadline("stream"):
            stream = await channel.join("/rlmesh.model.v1.ModelService/Join", "the model server", _model_reply)
        try:
            yield Wire(stream)
        finally:
            with trio.CancelScope(shield=True):
                await stream.close(LIMIT)


def reset(*episode_ids: str, seeds: Sequence[int] = (), lanes: Sequence[int] = ()) -> env_pb.JoinRequest:
    """Start these episodes."""
    message = env_pb.ResetRequest(seeds=list(seeds), env_indices=list(lanes), episode_ids=list(episode_ids))
    return env_pb.JoinRequest(reset=present(message))


def step(*actions: int, lanes: Sequence[int] = (), timeout_ms: int = 0) -> env_pb.JoinRequest:
    """Take these actions of a discrete space, one per lane."""
    action = _value(np.array(actions, np.int64))
    return env_pb.JoinRequest(
        step=present(env_pb.StepRequest(action=action, timeout_ms=timeout_ms, env_indices=list(lanes)))
    )


def configure(edition: str) -> env_pb.JoinRequest:
    """Pin the env to *edition*."""
    return env_pb.JoinRequest(configure=present(env_pb.ConfigureEnvRequest(edition)))


def resolve(env_spec: bytes, *, env_id: str = "e", horizon: int = 1, edition: str = "2026.06") -> model_pb.JoinRequest:
    """Tell the model its route."""
    message = model_pb.ResolveAdapterRequest(
        context=_context(env_id), selected_workflow_edition=edition, execution_horizon=horizon, delivers_history=True
    )
    return model_pb.JoinRequest(resolve_adapter=relay_field(message, "env_spec", env_spec))


def predict(
    *episode_ids: str, leaves: Sequence[np.ndarray], env_id: str = "e", at: int | None = None
) -> model_pb.JoinRequest:
    """Ask about one row per episode; *leaves* are the slabs of the observation, *at* is the route's step."""
    infos = [present(model_pb.EpisodeInfo(episode_id)) for episode_id in episode_ids]
    message = model_pb.PredictRequest(
        context=_context(env_id), observation=_value(*leaves), episode_info=infos, step=at
    )
    return model_pb.JoinRequest(predict=present(message))


def end_episodes(*episode_ids: str, env_id: str = "e") -> model_pb.JoinRequest:
    """Tell the model that these are over."""
    message = model_pb.ResetAdapterRequest(context=_context(env_id), episode_ids=list(episode_ids))
    return model_pb.JoinRequest(reset_adapter=present(message))


def release(env_id: str = "e") -> model_pb.JoinRequest:
    """End the route."""
    message = model_pb.ReleaseAdapterRequest(context=_context(env_id), reason="over")
    return model_pb.JoinRequest(release_adapter=present(message))


def _context(env_id: str) -> model_pb.AdapterContext:
    return model_pb.AdapterContext("s", env_id, "q")


def _value(*leaves: np.ndarray) -> spaces_pb.SpaceValue:
    return present(spaces_pb.SpaceValue(leaves=[leaf.tobytes() for leaf in leaves]))
