"""A toy protocol for Join streams: a message is ``id arm payload``, and a server that answers by script."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from rlmesh_trio.errors import EndpointError, ProtocolError
from rlmesh_trio.transport.address import parse_address
from rlmesh_trio.transport.channel import open_channel
from rlmesh_trio.transport.join import JoinStream
from tests.transport.fake_server import FakeStream

__all__ = ("METHOD", "Chat", "ask", "decode", "joined", "words")

METHOD = "/toy.v1.Chat/Join"

Chat = JoinStream[str, bytes | EndpointError]


def decode(data: bytes) -> tuple[str, str, bytes | EndpointError]:
    """``id arm payload``; the arms ``error`` and ``fatal`` hold an error's text."""
    request_id, _, rest = bytes(data).partition(b" ")
    arm, _, payload = rest.partition(b" ")
    if arm == b"error" or arm == b"fatal":
        return request_id.decode(), "error", EndpointError("INTERNAL", payload.decode(), arm == b"error")
    if arm != b"say":
        raise ProtocolError("that is no reply")
    return request_id.decode(), "say", payload


async def ask(chat: Chat, payload: bytes) -> bytes | EndpointError:
    """One exchange; gives the reply's payload."""
    request_id = chat.new_id()
    answered, arm, reply = await chat.exchange(request_id, request_id.encode() + b" " + payload)
    assert (answered, arm) == (request_id, "say")
    return reply


async def words(stream: FakeStream) -> tuple[bytes, bytes]:
    """The next request at the server: its id and payload. Cancels the handler when there is none."""
    message = await stream.receive()
    assert message is not None, "the client has no more to say"
    request_id, _, payload = message.partition(b" ")
    return request_id, payload


@asynccontextmanager
async def joined(address: str, *, plain: bool = False, limit: float = 5.0, grace: float = 0.5) -> AsyncGenerator[Chat]:
    """A Join stream with the server at *address*, closed politely at the end, within *grace* seconds."""
    async with open_channel(parse_address(address), token=None, limit=limit) as channel:
        with channel.deadline("stream"):
            chat: Chat = await channel.join(METHOD, "the server", decode, plain=plain)
        try:
            yield chat
        finally:
            await chat.close(grace)
