"""A channel whose connection is replaced: one attempt each, with the same token and a limit of its own."""

import socket
from pathlib import Path
from typing import cast

import pytest
import trio
from trio.testing import MockClock

from rlmesh_trio.errors import ConnectError, EngineInternalError, HandshakeError
from rlmesh_trio.transport.address import Address, parse_address
from rlmesh_trio.transport.asyncio_in_trio import trio_asyncio
from rlmesh_trio.transport.channel import Channel, open_channel
from rlmesh_trio.transport.dial import dial
from tests.transport.fake_server import FakeStream, fake_server

CALL = "/toy.v1.Chat/Call"


async def call(channel: Channel) -> bytes:
    with channel.deadline("answer"):
        return await channel.unary(CALL, b"hello")


async def test_each_connection_is_a_new_one_with_the_same_token(loopback_clock: MockClock) -> None:
    connections: list[object] = []
    tokens: list[str] = []

    async def serve(stream: FakeStream) -> None:
        connections.append(stream.connection)
        tokens.append(stream.headers["authorization"])
        await stream.send(b"%d" % len(connections))
        await stream.end()

    async with (
        fake_server(serve) as address,
        open_channel(parse_address(address), token="s3cret", limit=5) as channel,
    ):
        assert await call(channel) == b"1"
        await channel.redial(5)
        assert await call(channel) == b"2"
        await channel.drop()
        await channel.drop()
        with pytest.raises((ConnectError, HandshakeError)):
            await call(channel)
        await channel.redial(5)
        assert await call(channel) == b"3"
    assert len(set(connections)) == 3
    assert tokens == ["s3cret"] * 3


async def test_each_connection_has_its_own_limit(loopback_clock: MockClock) -> None:
    heard = 0

    async def serve(stream: FakeStream) -> None:
        nonlocal heard
        heard += 1
        await trio.sleep(0.15 if heard == 1 else 0)
        await stream.send(b"late")
        await stream.end()

    async with fake_server(serve) as address, open_channel(parse_address(address), token=None, limit=0.1) as channel:
        with pytest.raises(ConnectError, match="sent no answer within 100ms"):
            await call(channel)
        await channel.redial(5)
        assert await call(channel) == b"late"


async def test_a_connection_that_cannot_be_served_ends_the_channel_and_hangs_nobody(
    monkeypatch: pytest.MonkeyPatch, loopback_clock: MockClock
) -> None:
    async def serve(stream: FakeStream) -> None:
        await stream.end()

    def open_loop() -> None:
        raise OSError("too many open files")

    async def redial(channel: Channel) -> None:
        with pytest.raises(ConnectError, match="has been left"):
            await channel.redial(5)

    with trio.fail_after(5):
        async with fake_server(serve) as address, trio.open_nursery() as outside:
            with pytest.raises(EngineInternalError, match=r"the connection to .* crashed"):  # noqa: PT012
                async with open_channel(parse_address(address), token=None, limit=5) as channel:
                    monkeypatch.setattr(trio_asyncio, "open_loop", open_loop)
                    outside.start_soon(redial, channel)
                    await trio.sleep_forever()


async def test_one_attempt_does_not_wait_for_a_server(tmp_path: Path, loopback_clock: MockClock) -> None:
    with trio.fail_after(5), pytest.raises(ConnectError, match=r"cannot connect to unix:///.*: No such file"):
        await dial(Address(path=str(tmp_path / "nobody")), 60, patient=False)


async def test_a_connection_to_oneself_is_none(monkeypatch: pytest.MonkeyPatch, loopback_clock: MockClock) -> None:
    """As it comes about when TCP lends out the very port at which nobody listens."""
    made: list[trio.socket.SocketType] = []

    async def open_tcp_stream(host: str, port: int) -> trio.SocketStream:
        sock = trio.socket.socket()
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        await sock.bind((host, port))
        await sock.connect((host, port))
        made.append(sock)
        return trio.SocketStream(sock)

    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = cast("int", probe.getsockname()[1])
    monkeypatch.setattr(trio, "open_tcp_stream", open_tcp_stream)
    with pytest.raises(ConnectError, match=f"cannot connect to tcp://127.0.0.1:{port}: Connection refused"):
        await dial(Address("127.0.0.1", port), 5, patient=False)
    assert len(made) == 1
