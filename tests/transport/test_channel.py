"""Connecting: what is not there, not ours, or not willing becomes one typed error in time; and what a block raises."""

import socket
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path

import pytest
import trio
from h2.errors import ErrorCodes
from trio.testing import MockClock

from rlmesh_trio.errors import ConnectError, HandshakeError
from rlmesh_trio.transport.address import Address, parse_address
from rlmesh_trio.transport.asyncio_in_trio import trio_asyncio
from rlmesh_trio.transport.channel import Channel, open_channel
from tests.transport.chatting import ask, decode, joined, words
from tests.transport.fake_server import FakeStream, fake_server, raw_server

CALL = "/toy.v1.Chat/Call"


async def echo(stream: FakeStream) -> None:
    """Answer one message with itself, upside down."""
    message = await stream.receive()
    assert message is not None
    await stream.send(message[::-1])
    await stream.end()


async def chat(stream: FakeStream) -> None:
    await stream.answer()
    while message := await stream.receive():
        request_id, _, payload = message.partition(b" ")
        await stream.send(request_id + b" say " + payload.upper())
    await stream.end()


def opened(address: str, *, token: str | None = None, limit: float = 5.0) -> AbstractAsyncContextManager[Channel]:
    return open_channel(parse_address(address), token=token, limit=limit)


async def called(address: str, *, token: str | None = None, limit: float = 5.0) -> bytes:
    async with opened(address, token=token, limit=limit) as channel:
        with channel.deadline("answer"):
            return await channel.unary(CALL, b"hello")


def unused_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


async def test_a_call(loopback_clock: MockClock) -> None:
    heard: list[dict[str, str]] = []

    async def serve(stream: FakeStream) -> None:
        heard.append(stream.headers)
        await echo(stream)

    async with fake_server(serve) as address:
        assert await called(address) == b"olleh"
    (headers,) = heard
    assert headers[":path"] == CALL
    assert headers["content-type"] == "application/grpc"
    assert "authorization" not in headers


async def test_a_call_over_a_unix_socket(tmp_path: Path, loopback_clock: MockClock) -> None:
    heard: list[str] = []

    async def serve(stream: FakeStream) -> None:
        heard.append(stream.headers[":authority"])
        await echo(stream)

    async with fake_server(serve, unix=tmp_path / "socket") as address:
        assert await called(address) == b"olleh"
    assert "%" not in heard[0]
    assert "/" not in heard[0]


async def test_the_token_goes_as_it_is(loopback_clock: MockClock) -> None:
    heard: list[str | None] = []

    async def serve(stream: FakeStream) -> None:
        heard.append(stream.headers.get("authorization"))
        await echo(stream)

    async with fake_server(serve) as address:
        await called(address, token="s3cret !~")
        await called(address, token="")
    assert heard == ["s3cret !~", None]


@pytest.mark.parametrize("token", ["line\nbreak", "naïve", " lead", "trail ", "nul\0", "t" * 8193])
async def test_a_token_that_cannot_travel_is_refused_unseen(token: str, loopback_clock: MockClock) -> None:
    with pytest.raises(HandshakeError, match="the token") as caught:
        await called("127.0.0.1:1", token=token)
    assert token not in str(caught.value)
    assert token not in repr(caught.value)


async def test_a_refused_token_is_not_printed(loopback_clock: MockClock) -> None:
    async def serve(stream: FakeStream) -> None:
        await stream.refuse(16, "invalid env token", reset=True)

    async with fake_server(serve) as address:
        with pytest.raises(HandshakeError, match="refused the token: invalid env token") as caught:
            await called(address, token="s3cret")
        assert "s3cret" not in repr(caught.value) + repr(caught.value.__cause__)
        with pytest.raises(HandshakeError, match="asks for a token, and none was given"):
            await called(address)


async def test_nobody_there_until_the_limit(loopback_clock: MockClock) -> None:
    address = f"127.0.0.1:{unused_port()}"
    started = trio.current_time()
    with pytest.raises(ConnectError, match=f"no connection to tcp://{address} within 300ms: Connection refused"):
        await called(address, limit=0.3)
    assert trio.current_time() - started >= 0.3


async def test_a_server_may_come_late(tmp_path: Path, loopback_clock: MockClock) -> None:
    async with trio.open_nursery() as nursery:
        answered = trio.Event()

        async def call() -> None:
            assert await called(f"unix://{tmp_path}/late") == b"olleh"
            answered.set()

        nursery.start_soon(call)
        await trio.sleep(0.1)
        assert not answered.is_set()
        async with fake_server(echo, unix=tmp_path / "late"):
            with trio.fail_after(5):
                await answered.wait()


@pytest.mark.parametrize(
    ("address", "said"),
    [
        (Address("no-such-host.invalid", 1), "cannot resolve the host 'no-such-host.invalid'"),
        (Address("x" * 70 + ".example", 1), "cannot resolve"),
        (Address(path="/" + "x" * 200), "path too long"),
    ],
)
async def test_what_no_waiting_helps_fails_at_once(address: Address, said: str, loopback_clock: MockClock) -> None:
    with trio.fail_after(20), pytest.raises(ConnectError, match=said):
        async with open_channel(address, token=None, limit=60):
            pass


async def silent(stream: trio.SocketStream) -> None:
    await trio.sleep_forever()


async def http1(stream: trio.SocketStream) -> None:
    await stream.receive_some(1000)
    await stream.send_all(b"HTTP/1.1 400 Bad Request\r\nContent-Type: text/plain\r\nConnection: close\r\n\r\n400")


async def chatter(stream: trio.SocketStream) -> None:
    await stream.send_all(b"SSH-2.0-OpenSSH_9.6\r\n" * 10)
    await trio.sleep_forever()


async def hang_up(stream: trio.SocketStream) -> None:
    await stream.receive_some(10)


@pytest.mark.parametrize(
    ("handle", "error", "said"),
    [
        (silent, ConnectError, "sent no answer within 300ms. Is it an rlmesh server, and is it alive?"),
        (http1, HandshakeError, "does not speak HTTP/2 as gRPC does: protocol error: the peer answers in HTTP/1"),
        (chatter, HandshakeError, "does not speak HTTP/2"),
        (hang_up, ConnectError, ". Is it an rlmesh server, and one without TLS?"),
    ],
)
async def test_sockets_that_are_no_grpc_servers(
    handle: Callable[[trio.SocketStream], Awaitable[None]], error: type[Exception], said: str, loopback_clock: MockClock
) -> None:
    async with raw_server(handle) as address:
        with trio.fail_after(5), pytest.raises(error) as caught:
            await called(address, limit=0.3)
    assert said in str(caught.value)
    assert address in str(caught.value)


async def unimplemented(stream: FakeStream) -> None:
    await stream.refuse(12, reset=True)


async def not_grpc(stream: FakeStream) -> None:
    stream.connection.h2.send_headers(stream.id, [(":status", "404"), ("content-type", "text/html")], end_stream=True)
    await stream.connection.flush()


async def overloaded(stream: FakeStream) -> None:
    await stream.refuse(14, "try again")


async def broken(stream: FakeStream) -> None:
    await stream.refuse(13, "a bug")


async def empty(stream: FakeStream) -> None:
    await stream.end()


async def reset(stream: FakeStream) -> None:
    await stream.reset(ErrorCodes.REFUSED_STREAM)


async def unanswered(stream: FakeStream) -> None:
    await stream.answer()
    await trio.sleep_forever()


async def go_away(stream: FakeStream) -> None:
    await stream.connection.go_away(ErrorCodes.ENHANCE_YOUR_CALM, b"too_many_pings")


@pytest.mark.parametrize(
    ("serve", "error", "said"),
    [
        (unimplemented, HandshakeError, "speaks gRPC, but does not offer toy.v1.Chat"),
        (not_grpc, HandshakeError, "does not answer as a gRPC server does"),
        (overloaded, ConnectError, "is unavailable: try again"),
        (broken, HandshakeError, "with status INTERNAL: a bug"),
        (empty, HandshakeError, "without a message"),
        (reset, ConnectError, "REFUSED_STREAM"),
        (go_away, ConnectError, "ENHANCE_YOUR_CALM: too_many_pings"),
        (unanswered, ConnectError, "sent no answer within 300ms"),
    ],
)
async def test_servers_that_answer_otherwise(
    serve: Callable[[FakeStream], Awaitable[None]], error: type[Exception], said: str, loopback_clock: MockClock
) -> None:
    async with fake_server(serve) as address:
        with trio.fail_after(5), pytest.raises(error) as caught:
            await called(address, limit=0.3)
    assert said in str(caught.value)


async def test_a_reply_outlives_the_reset_behind_it(loopback_clock: MockClock) -> None:
    async def serve(stream: FakeStream) -> None:
        await stream.receive()
        await stream.send(b"last words")
        await stream.end()
        await stream.let_go()

    async with fake_server(serve) as address:
        for _ in range(10):
            assert await called(address) == b"last words"


async def test_a_reply_outlives_a_goaway(loopback_clock: MockClock) -> None:
    async def serve(stream: FakeStream) -> None:
        await stream.receive()
        await stream.connection.go_away()
        await stream.send(b"last words")
        await stream.end()

    async with fake_server(serve) as address:
        assert await called(address) == b"last words"


async def test_unknown_frames_are_ignored(loopback_clock: MockClock) -> None:
    async def serve(stream: FakeStream) -> None:
        await stream.connection.write(b"\0\0\x03\xfa\0\0\0\0\0abc")
        await echo(stream)

    async with fake_server(serve) as address:
        assert await called(address) == b"olleh"


async def test_a_server_busy_with_the_one_before_gets_a_moment(loopback_clock: MockClock) -> None:
    attempts: list[None] = []

    async def serve(stream: FakeStream) -> None:
        attempts.append(None)
        if len(attempts) < 3:
            await stream.refuse(9, "another client", reset=True)
        else:
            await chat(stream)

    async with fake_server(serve) as address, joined(address) as client:
        assert await ask(client, b"now?") == b"NOW?"
    assert len(attempts) == 3


async def test_a_second_client_is_told(loopback_clock: MockClock) -> None:
    async def serve(stream: FakeStream) -> None:
        await stream.refuse(9, "only one client", reset=True)

    async with fake_server(serve) as address:
        with pytest.raises(HandshakeError, match="does not take this client now: only one client"):
            async with joined(address):
                pass


async def test_a_stream_nobody_answers(loopback_clock: MockClock) -> None:
    async def serve(stream: FakeStream) -> None:
        await trio.sleep_forever()

    async with fake_server(serve) as address:
        with pytest.raises(ConnectError, match="sent no stream within 300ms"):
            async with joined(address, limit=0.3):
                pass


@pytest.mark.parametrize("error", [ValueError("mine"), ExceptionGroup("mine", [ValueError()]), HandshakeError("mine")])
async def test_what_the_block_raises_comes_out_bare(error: Exception, loopback_clock: MockClock) -> None:
    async with fake_server(chat) as address:
        with pytest.raises(type(error)) as caught:
            async with joined(address):
                raise error
    assert caught.value is error
    assert error.__cause__ is None
    assert error.__context__ is None


async def test_the_callers_cancellation_passes(loopback_clock: MockClock) -> None:
    async with fake_server(chat) as address:
        with trio.move_on_after(0.05) as scope:
            async with joined(address):
                await trio.sleep_forever()
        assert scope.cancelled_caught


async def test_what_must_be_said_while_cancelled_can_be_said(loopback_clock: MockClock) -> None:
    async with fake_server(chat) as address:
        with trio.CancelScope() as scope:
            async with joined(address) as client:
                scope.cancel()
                with trio.CancelScope(shield=True):
                    assert await ask(client, b"last words") == b"LAST WORDS"
        assert await called_after(address) == b"AGAIN"


async def called_after(address: str) -> object:
    async with joined(address) as client:
        return await ask(client, b"again")


async def test_beside_a_loop_of_the_programs_own(loopback_clock: MockClock) -> None:
    async with trio_asyncio.open_loop() as loop, fake_server(chat) as address, joined(address) as client:
        assert await ask(client, b"inside") == b"INSIDE"
        assert trio_asyncio.current_loop.get() is loop


async def test_many_connections_side_by_side_and_inside_each_other(loopback_clock: MockClock) -> None:
    async def converse(address: str, text: bytes) -> None:
        async with joined(address) as outer, joined(address) as inner:
            for _ in range(20):
                assert await ask(outer, text) == text.upper()
                assert await ask(inner, text) == text.upper()

    async with fake_server(chat) as address, trio.open_nursery() as nursery:
        for number in range(4):
            nursery.start_soon(converse, address, b"client %d" % number)


async def test_one_failing_connection_leaves_the_others_alone(loopback_clock: MockClock) -> None:
    async def serve(stream: FakeStream) -> None:
        await stream.answer()
        request_id, payload = await words(stream)
        if payload == b"die":
            await stream.connection.socket.aclose()
        else:
            await stream.send(request_id + b" say fine")

    async with fake_server(serve) as address, joined(address) as healthy:
        with pytest.raises(Exception, match="transport error: connection closed"):
            async with joined(address) as doomed:
                await ask(doomed, b"die")
        assert await ask(healthy, b"?") == b"fine"


def test_the_protocol_of_the_decoder_is_the_toy_one() -> None:
    assert decode(b"7 say hello there") == ("7", "say", b"hello there")
