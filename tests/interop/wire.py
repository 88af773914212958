"""Talking to a real server message by message, past every rule of our own, to see what it does by itself.

Each message goes to stdout in hex, ``>`` to the server and ``<`` from it: ``pytest -s`` shows them.
"""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Generic, TypeVar

import betterproto
import trio

from rlmesh_trio.transport.address import parse_address
from rlmesh_trio.transport.channel import open_channel
from rlmesh_trio.transport.join import JoinStream
from rlmesh_trio.wire.pb.rlmesh.env import v1 as env_pb
from rlmesh_trio.wire.pb.rlmesh.model import v1 as model_pb
from rlmesh_trio.wire.strict import decode, encode

__all__ = ("Wire", "env_wire", "model_wire")

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
