"""A raw stream on servers that do what they like: nothing that comes is lost, and no wait is endless."""

import pytest
import trio
from trio.testing import MockClock

from rlmesh_trio.conformance.raw_stream import Ended, RawStream, Received, Sent, open_raw_stream
from rlmesh_trio.errors import ConnectError, HandshakeError
from rlmesh_trio.wire.pb.rlmesh.env import v1 as pb
from rlmesh_trio.wire.strict import encode, present
from tests.conformance.broken_server import ScriptedServer, scripted_server
from tests.transport.fake_server import FakeStream, fake_server, raw_server

JOIN = "/rlmesh.env.v1.EnvService/Join"
RENDER = pb.JoinRequest(render=present(pb.RenderRequest()))


def kinds(stream: RawStream) -> list[str]:
    """The log in short: ``>what``, ``<arm``, ``.how``."""
    shown: list[str] = []
    for entry in stream.log:
        match entry:
            case Sent():
                shown.append(f">{entry.what}")
            case Received():
                shown.append(f"<{entry.arm}")
            case Ended():
                shown.append(f".{entry.how}")
    return shown


async def joined_only(stream: FakeStream) -> bool:
    """Whether this is the stream; a handshake is refused, which does not matter."""
    if stream.path != JOIN:
        await stream.refuse(12)
    return stream.path == JOIN


async def test_whatever_is_sent_and_whatever_comes_stands_in_the_log(loopback_clock: MockClock) -> None:
    async with scripted_server(ScriptedServer()) as address, open_raw_stream(address, token=None, limit=2.0) as stream:
        stream.send(RENDER, "first")
        stream.send(pb.JoinRequest(), "")
        answers = [await stream.receive(), await stream.receive()]
        stream.send_bytes(b"\x0a\xff", what="nonsense")
        ending = await stream.receive()
    render, error = answers
    assert isinstance(render, Received)
    assert (render.arm, render.request_id, render.error) == ("render", "first", None)
    assert isinstance(error, Received)
    assert error.error is not None
    assert (error.error.code, error.error.recoverable) == ("UNSUPPORTED", True)
    assert isinstance(ending, Ended)
    assert (ending.how, ending.status) == ("status", "INVALID_ARGUMENT")
    assert await stream.receive() is ending
    assert kinds(stream) == [">render", ">empty request", "<render", "<error", ">nonsense", ".status"]
    assert [entry.at for entry in stream.log] == sorted(entry.at for entry in stream.log)


async def test_nothing_in_time_is_none(loopback_clock: MockClock) -> None:
    slow = ScriptedServer(step_seconds=5.0)
    async with scripted_server(slow) as address, open_raw_stream(address, token=None, limit=0.05) as stream:
        assert await stream.receive() is None
        assert await stream.receive(within=0.01) is None
        assert stream.log == []


async def test_for_how_long_an_answer_has_been_owed_is_known(loopback_clock: MockClock) -> None:
    async def serve(stream: FakeStream) -> None:
        if await joined_only(stream):
            await stream.answer()
            await stream.receive()
            await stream.send(encode(pb.JoinResponse()))
            await stream.closed()

    async with fake_server(serve) as address, open_raw_stream(address, token=None, limit=2.0) as stream:
        assert (stream.answered, stream.silence) == (False, 0)
        stream.send(RENDER, "")
        await stream.receive()
        assert (stream.answered, stream.silence) == (True, 0)
        for _ in range(3):
            stream.send(RENDER, "")
        sent = stream.now
        await trio.sleep(0.05)
        assert 0.05 <= stream.silence <= stream.now - sent + 0.05
        await stream.leave("reset")
        assert stream.silence == 0


async def test_an_answer_that_cannot_be_read_is_kept(loopback_clock: MockClock) -> None:
    async def serve(stream: FakeStream) -> None:
        if await joined_only(stream):
            await stream.send(b"\x0a\xff")

    async with fake_server(serve) as address, open_raw_stream(address, token=None, limit=2.0) as stream:
        answer = await stream.receive()
    assert isinstance(answer, Received)
    assert (answer.arm, answer.data) == ("unreadable", b"\x0a\xff")


async def test_a_half_close_lets_the_server_answer_what_is_due(loopback_clock: MockClock) -> None:
    async with scripted_server(ScriptedServer()) as address, open_raw_stream(address, token=None, limit=2.0) as stream:
        for number in range(3):
            stream.send(RENDER, str(number))
        await stream.leave("half-close")
        stream.send(RENDER, "too late")
        heard = [await stream.receive() for _ in range(4)]
    assert [each.request_id for each in heard if isinstance(each, Received)] == ["0", "1", "2"]
    assert isinstance(heard[-1], Ended)
    assert heard[-1].status == "OK"


async def test_a_stream_is_reset_or_its_connection_cut(loopback_clock: MockClock) -> None:
    seen: list[tuple[int | None, bool]] = []
    gone = trio.Event()

    async def serve(stream: FakeStream) -> None:
        if await joined_only(stream):
            await stream.answer()
            await stream.closed()
            seen.append((stream.reset_code, stream.gone))
            gone.set()

    async with fake_server(serve) as address:
        async with open_raw_stream(address, token=None, limit=2.0) as stream:
            await stream.leave("reset")
            with trio.fail_after(2):
                await gone.wait()
            assert kinds(stream) == [".left"]
        async with open_raw_stream(address, token=None, limit=2.0) as stream:
            await stream.leave("cut")
            await stream.leave("reset")
            assert kinds(stream) == [".left"]
        while len(seen) < 2:
            await trio.lowlevel.checkpoint()
    assert seen == [(8, False), (None, True)]


async def test_how_the_server_ends_a_stream_is_told_apart(loopback_clock: MockClock) -> None:
    async def serve(stream: FakeStream) -> None:
        if await joined_only(stream):
            await stream.answer()
            match (await stream.receive() or b"")[-1:]:
                case b"1":
                    await stream.end(13, "it%20broke")
                case b"2":
                    await stream.reset()
                case _:
                    await stream.connection.socket.aclose()

    endings: list[Ended] = []
    async with fake_server(serve) as address:
        for number in range(1, 4):
            async with open_raw_stream(address, token=None, limit=2.0) as stream:
                stream.send_bytes(b"way %d" % number)
                ending = await stream.receive()
                assert isinstance(ending, Ended)
                endings.append(ending)
    assert [(each.how, each.status) for each in endings] == [("status", "INTERNAL"), ("reset", ""), ("broken", "")]
    assert endings[0].message == "it broke"


async def test_a_refusal_is_an_ending_and_patience_outlasts_it(loopback_clock: MockClock) -> None:
    async with scripted_server(ScriptedServer()) as address, open_raw_stream(address, token=None, limit=2.0) as first:
        async with open_raw_stream(address, token=None, limit=2.0) as second:
            assert second.ending is not None
            assert (second.ending.how, second.ending.status) == ("refused", "FAILED_PRECONDITION")
            assert "there is a client already" in second.ending.message
            second.send(RENDER, "nobody hears this")
            assert await second.receive() is second.ending

        async def leave_soon() -> None:
            await trio.sleep(0.1)
            await first.leave("half-close")

        async with trio.open_nursery() as nursery:
            nursery.start_soon(leave_soon)
            async with open_raw_stream(address, token=None, limit=2.0, patience=2.0) as third:
                assert third.ending is None


async def test_a_server_that_opens_no_stream_is_told_after_the_limit(loopback_clock: MockClock) -> None:
    async def serve(stream: FakeStream) -> None:
        if await joined_only(stream):
            await stream.closed()

    async with fake_server(serve) as address, open_raw_stream(address, token=None, limit=0.1) as stream:
        assert stream.ending is not None
        assert (stream.ending.how, stream.ending.status) == ("refused", "")
        assert "opened no stream in 100ms" in stream.ending.message


async def test_nobody_there_is_an_error(loopback_clock: MockClock) -> None:
    async def hang_up(socket: trio.SocketStream) -> None:
        await socket.aclose()

    async with raw_server(hang_up) as address:
        pass
    with pytest.raises(ConnectError):
        async with open_raw_stream(address, token=None, limit=0.1):
            pass


async def test_a_large_message_goes_through_a_narrow_window(loopback_clock: MockClock) -> None:
    sizes: list[int] = []

    async def serve(stream: FakeStream) -> None:
        if await joined_only(stream):
            await stream.answer()
            sizes.append(len(await stream.receive() or b""))
            await stream.send(encode(pb.JoinResponse(request_id="large")))

    async with fake_server(serve, window=1 << 14) as address, open_raw_stream(address, token=None, limit=5.0) as stream:
        stream.send_bytes(bytes(1 << 20))
        await stream.leave("half-close")
        answer = await stream.receive()
    assert sizes == [1 << 20]
    assert isinstance(answer, Received)
    assert answer.request_id == "large"


async def test_handshake_and_shutdown_beside_the_stream(loopback_clock: MockClock) -> None:
    server = ScriptedServer(may_end=True)
    async with scripted_server(server) as address, open_raw_stream(address, token=None, limit=2.0) as stream:
        assert (await stream.handshake()).base.compatible
        assert not (await stream.handshake("rlmesh-wire-v0")).base.compatible
        assert (await stream.shutdown("over")).accepted
        ending = await stream.receive()
    assert isinstance(ending, Ended)
    assert ending.how == "broken"


async def test_a_call_the_server_does_not_know_or_answer(loopback_clock: MockClock) -> None:
    async def serve(stream: FakeStream) -> None:
        if stream.path.endswith("Shutdown"):
            await trio.sleep_forever()
        elif await joined_only(stream):
            await stream.answer()
            await stream.closed()

    async with fake_server(serve) as address, open_raw_stream(address, token=None, limit=0.2) as stream:
        with pytest.raises(HandshakeError):
            await stream.handshake()
        with pytest.raises(ConnectError, match="did not answer Shutdown"):
            await stream.shutdown("over")


async def test_the_handshake_comes_first_and_the_token_goes_with_every_call(loopback_clock: MockClock) -> None:
    tokens: list[tuple[str, str | None]] = []

    async def serve(stream: FakeStream) -> None:
        tokens.append((stream.path.rpartition("/")[2], stream.headers.get("authorization")))
        await joined_only(stream)

    async with fake_server(serve) as address, open_raw_stream(address, token="secret", limit=0.2) as stream:
        assert "secret" not in repr(stream.log)
    assert tokens == [("Handshake", "secret"), ("Join", "secret")]
