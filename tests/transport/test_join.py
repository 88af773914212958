"""One Join stream against servers that behave in every possible way, each on the fast path and on the plain."""

from collections.abc import Awaitable, Callable

import pytest
import trio
from h2.errors import ErrorCodes

from rlmesh_trio.errors import EndpointError, ProtocolError
from rlmesh_trio.transport import frames, join, protocol
from rlmesh_trio.transport.address import parse_address
from rlmesh_trio.transport.channel import open_channel
from rlmesh_trio.transport.pipe import FastPipe, PlainPipe
from tests.transport.chatting import METHOD, Chat, ask, decode, joined, words
from tests.transport.fake_server import FakeStream, fake_server

pytestmark = pytest.mark.parametrize("plain", [False, True], ids=["fast", "plain"])

LIMIT = 10.0


async def echo(stream: FakeStream) -> None:
    """Answer every message with its payload, then end."""
    await stream.answer()
    while message := await stream.receive():
        request_id, _, payload = message.partition(b" ")
        await stream.send(request_id + b" say " + payload)
    await stream.end()


async def failing(chat: Chat, payload: bytes = b"?") -> EndpointError:
    """Ask, and give the error with code CONNECTION that comes of it."""
    with trio.fail_after(LIMIT), pytest.raises(EndpointError) as caught:
        await ask(chat, payload)
    assert caught.value.code == "CONNECTION"
    assert not caught.value.recoverable
    return caught.value


async def test_the_path_is_the_one_asked_for(plain: bool) -> None:
    async with fake_server(echo) as address, joined(address, plain=plain) as chat:
        assert type(chat._pipe) is (PlainPipe if plain else FastPipe)  # pyright: ignore[reportPrivateUsage]
        assert await ask(chat, b"hello") == b"hello"


async def test_replies_find_their_requests_in_any_order(plain: bool) -> None:
    async def serve(stream: FakeStream) -> None:
        await stream.answer()
        asked = [await words(stream) for _ in range(20)]
        for request_id, payload in reversed(asked):
            await stream.send(request_id + b" say " + payload)
        await stream.closed()

    async with fake_server(serve) as address, joined(address, plain=plain) as chat, trio.open_nursery() as nursery:

        async def one(payload: bytes) -> None:
            assert await ask(chat, payload) == payload

        for number in range(20):
            nursery.start_soon(one, b"payload %d" % number)


async def test_an_error_is_raised_where_it_was_asked_for(plain: bool) -> None:
    async def serve(stream: FakeStream) -> None:
        await stream.answer()
        request_id, _ = await words(stream)
        await stream.send(request_id + b" error no such lane")
        await echo(stream)

    async with fake_server(serve) as address, joined(address, plain=plain) as chat:
        with pytest.raises(EndpointError, match="no such lane") as caught:
            await ask(chat, b"step")
        assert (caught.value.code, caught.value.recoverable) == ("INTERNAL", True)
        assert await ask(chat, b"again") == b"again"


async def test_a_cancelled_request_leaves_the_stream_usable(plain: bool) -> None:
    async def serve(stream: FakeStream) -> None:
        await stream.answer()
        first, _ = await words(stream)
        second, _ = await words(stream)
        await stream.send(first + b" say late")
        await stream.send(second + b" say in time")
        await stream.closed()

    async with fake_server(serve) as address, joined(address, plain=plain) as chat:
        with trio.move_on_after(0.05) as scope:
            await ask(chat, b"slow")
        assert scope.cancelled_caught
        assert await ask(chat, b"quick") == b"in time"
        assert chat.dropped_replies == 1


async def test_who_is_cancelled_already_sends_nothing(plain: bool) -> None:
    async with fake_server(echo) as address, joined(address, plain=plain) as chat:
        with trio.CancelScope() as scope:
            scope.cancel()
            await ask(chat, b"never")
        assert await ask(chat, b"first") == b"first"
        assert chat.dropped_replies == 0


async def test_a_reply_to_nobody_is_dropped(plain: bool) -> None:
    async def serve(stream: FakeStream) -> None:
        await stream.answer()
        request_id, _ = await words(stream)
        await stream.send(b"nobody say hello")
        await stream.send(b" say hello")
        await stream.send(request_id + b" say yes")
        await stream.closed()

    async with fake_server(serve) as address, joined(address, plain=plain) as chat:
        assert await ask(chat, b"?") == b"yes"
        assert chat.dropped_replies == 2


async def end_ok(stream: FakeStream) -> None:
    await stream.end()


async def end_with_status(stream: FakeStream) -> None:
    await stream.end(8, "out of memory")


async def end_unavailable(stream: FakeStream) -> None:
    await stream.end(14, "going down")


async def reset(stream: FakeStream) -> None:
    await stream.reset(ErrorCodes.INTERNAL_ERROR)


async def hang_up(stream: FakeStream) -> None:
    await stream.connection.socket.aclose()


async def hang_up_in_the_middle(stream: FakeStream) -> None:
    await stream.send_raw(b"\0\0\0\0\x64 only the beginning")
    await hang_up(stream)


async def slam(stream: FakeStream) -> None:
    stream.connection.socket.setsockopt(trio.socket.SOL_SOCKET, trio.socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
    await hang_up_in_the_middle(stream)


async def go_away_angry(stream: FakeStream) -> None:
    await stream.connection.go_away(ErrorCodes.ENHANCE_YOUR_CALM, b"too_many_pings")


@pytest.mark.parametrize(
    ("end", "said"),
    [
        (end_ok, "the server ended the stream without an error while 3 request(s) awaited an answer"),
        (end_with_status, "the server ended the stream with status RESOURCE_EXHAUSTED: out of memory"),
        (end_unavailable, "transport error: connection closed (the server is unavailable: going down)"),
        (reset, "transport error: connection closed (the peer reset the stream with HTTP/2 error INTERNAL_ERROR)"),
        (hang_up, "transport error: connection closed (the peer hung up)"),
        (hang_up_in_the_middle, "transport error: connection closed (the peer hung up)"),
        (slam, "transport error: connection closed ([Errno 104] Connection reset by peer)"),
        (go_away_angry, "transport error: connection closed (the peer closed the connection with HTTP/2 error "),
    ],
)
async def test_everybody_who_waits_learns_of_the_end(
    plain: bool, end: Callable[[FakeStream], Awaitable[None]], said: str
) -> None:
    async def serve(stream: FakeStream) -> None:
        await stream.answer()
        for _ in range(3):
            await words(stream)
        await end(stream)

    async with fake_server(serve) as address, joined(address, plain=plain) as chat:
        errors: list[EndpointError] = []

        async def one() -> None:
            errors.append(await failing(chat))

        async with trio.open_nursery() as nursery:
            for _ in range(3):
                nursery.start_soon(one)
        errors.append(await failing(chat, b"and who comes later"))
        assert [said in str(error) for error in errors] == [True] * 4
        assert len({id(error) for error in errors}) == 4


async def test_a_peer_that_breaks_the_rules_of_http2(plain: bool) -> None:
    async def serve(stream: FakeStream) -> None:
        await stream.answer()
        await words(stream)
        await stream.connection.write(b"\0\0\0\x08\0" + stream.id.to_bytes(4, "big"))
        await stream.closed()

    async with fake_server(serve) as address, joined(address, plain=plain) as chat:
        with trio.fail_after(LIMIT), pytest.raises(ProtocolError):
            await ask(chat, b"?")


async def test_the_end_after_a_fatal_error_is_explained_by_it(plain: bool) -> None:
    async def serve(stream: FakeStream) -> None:
        await stream.answer()
        request_id, _ = await words(stream)
        await words(stream)
        await stream.send(request_id + b" fatal the env is on fire")
        await stream.end()
        await stream.let_go()

    async with fake_server(serve) as address, joined(address, plain=plain) as chat, trio.open_nursery() as nursery:

        async def unlucky() -> None:
            with pytest.raises(EndpointError, match=r"^the env is on fire$"):
                await ask(chat, b"step")

        nursery.start_soon(unlucky)
        await trio.testing.wait_all_tasks_blocked()
        assert "after an error without recovery: the env is on fire" in str(await failing(chat))


async def test_replies_outlive_a_goaway(plain: bool) -> None:
    async def serve(stream: FakeStream) -> None:
        await stream.answer()
        request_id, _ = await words(stream)
        await stream.connection.go_away()
        await stream.send(request_id + b" say done")
        await echo(stream)

    async with fake_server(serve) as address, joined(address, plain=plain) as chat:
        assert await ask(chat, b"step") == b"done"
        assert await ask(chat, b"still there?") == b"still there?"


async def test_a_goaway_that_leaves_the_stream_out_ends_it(plain: bool) -> None:
    async def serve(stream: FakeStream) -> None:
        await stream.answer()
        await words(stream)
        await stream.connection.go_away(last_stream_id=0)
        await stream.closed()

    async with fake_server(serve) as address, joined(address, plain=plain) as chat:
        assert "the peer is shutting down and will not answer" in str(await failing(chat))


async def test_a_reply_that_makes_no_sense_fails_who_waits_and_ends_the_stream(plain: bool) -> None:
    async def serve(stream: FakeStream) -> None:
        await stream.answer()
        await words(stream)
        await stream.send(b"gibberish")
        await stream.closed()

    async with fake_server(serve) as address, joined(address, plain=plain) as chat:
        with trio.fail_after(LIMIT), pytest.raises(ProtocolError, match="that is no reply"):
            await ask(chat, b"?")
        with trio.fail_after(LIMIT), pytest.raises(EndpointError, match=r"sent nonsense: .* no reply") as later:
            await ask(chat, b"?")
        assert later.value.code == "CONNECTION"


@pytest.mark.parametrize("head", [b"\1\0\0\0\1x", b"\0\x7f\xff\xff\xffx"], ids=["compressed", "endless"])
async def test_a_message_that_is_refused_fails_everybody(plain: bool, head: bytes) -> None:
    async def serve(stream: FakeStream) -> None:
        await stream.answer()
        await words(stream)
        await stream.send_raw(head)
        await stream.closed()

    async with fake_server(serve) as address, joined(address, plain=plain) as chat:
        with trio.fail_after(LIMIT), pytest.raises(ProtocolError, match=r"compressed|2147483647 bytes"):
            await ask(chat, b"?")


async def test_padded_data_is_read(plain: bool) -> None:
    async def serve(stream: FakeStream) -> None:
        await stream.answer()
        request_id, _ = await words(stream)
        reply = request_id + b" say " + b"x" * 100
        payload = b"\0" + len(reply).to_bytes(4, "big") + reply
        await stream.send_raw(payload[:50])
        await stream.send_raw(payload[50:80], padding=17)
        await stream.send_raw(payload[80:])
        await stream.closed()

    async with fake_server(serve) as address, joined(address, plain=plain) as chat:
        assert await ask(chat, b"?") == b"x" * 100


async def test_large_messages_through_small_windows(plain: bool) -> None:
    sizes = (3_000_000, 70_000, 1)
    async with fake_server(echo, window=10_000, frame_size=16_384) as address, joined(address, plain=plain) as chat:
        with trio.fail_after(4 * LIMIT):
            async with trio.open_nursery() as nursery:

                async def one(number: int, size: int) -> None:
                    payload = bytes((number,)) * size
                    assert await ask(chat, payload) == payload

                for number, size in enumerate(sizes * 2):
                    nursery.start_soon(one, number, size)


async def test_cancelling_a_request_that_is_half_sent_does_not_cut_it(plain: bool) -> None:
    large = b"x" * 200_000

    async def serve(stream: FakeStream) -> None:
        stream.connection.reads = False
        await stream.answer()
        while len(stream.buffer) < 60_000:
            await stream.connection.change()
        stream.connection.reads = True
        for target in (None, stream.id):
            stream.connection.h2.increment_flow_control_window(1 << 20, target)
        await stream.connection.flush()
        first, payload = await words(stream)
        assert payload == large
        await stream.send(first + b" say too late")
        await echo(stream)

    async with fake_server(serve) as address, joined(address, plain=plain) as chat:
        with trio.move_on_after(0.1):
            await ask(chat, large)
        with trio.fail_after(LIMIT):
            assert await ask(chat, b"next") == b"next"


async def test_bytes_that_trickle(plain: bool) -> None:
    async def serve(stream: FakeStream) -> None:
        await stream.answer()
        connection = stream.connection
        while message := await stream.receive():
            request_id, _, payload = message.partition(b" ")
            reply = request_id + b" say " + payload
            connection.h2.send_data(stream.id, b"\0" + len(reply).to_bytes(4, "big") + reply)
            for byte in connection.h2.data_to_send():
                await connection.write(bytes((byte,)))
        await stream.end()

    async with fake_server(serve) as address, joined(address, plain=plain) as chat:
        for size in (0, 1, 40):
            assert await ask(chat, b"x" * size) == b"x" * size


async def test_a_request_above_the_limit_is_not_sent(plain: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(join, "MAX_MESSAGE_BYTES", 1000)
    async with fake_server(echo) as address, joined(address, plain=plain) as chat:
        with pytest.raises(EndpointError, match="a request of 1003 bytes was not sent: at most 1000") as caught:
            await ask(chat, b"x" * 1001)
        assert caught.value.code == "UNSUPPORTED"
        assert await ask(chat, b"x" * 998) == b"x" * 998


async def test_the_peers_window_is_replenished(plain: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(frames, "_CREDIT", 100_000)
    monkeypatch.setattr(protocol, "_WINDOW", 300_000)
    async with fake_server(echo) as address, joined(address, plain=plain) as chat:
        with trio.fail_after(LIMIT):
            for _ in range(10):
                assert await ask(chat, b"x" * 90_000) == b"x" * 90_000


async def test_leaving_with_nothing_due_ends_the_stream_politely(plain: bool) -> None:
    ended: list[tuple[bool, int | None]] = []

    async def serve(stream: FakeStream) -> None:
        await echo(stream)
        ended.append((stream.half_closed, stream.reset_code))

    async with fake_server(serve) as address:
        async with joined(address, plain=plain) as chat:
            await ask(chat, b"hello")
        assert ended == [(True, None)]
        assert "closed on this side" in str(await failing(chat))


async def test_leaving_with_an_answer_due_resets_the_stream(plain: bool) -> None:
    noticed = trio.Event()

    async def serve(stream: FakeStream) -> None:
        await stream.answer()
        await words(stream)
        await stream.closed()
        assert stream.reset_code == ErrorCodes.CANCEL or stream.gone
        noticed.set()
        await trio.sleep_forever()

    async with fake_server(serve) as address:
        with trio.fail_after(LIMIT):
            async with joined(address, plain=plain, grace=60) as chat:
                with trio.move_on_after(0.05):
                    await ask(chat, b"never answered")
            await noticed.wait()


async def test_leaving_a_server_that_does_not_end_the_stream_takes_the_grace_and_no_more(plain: bool) -> None:
    async def serve(stream: FakeStream) -> None:
        await stream.answer()
        await trio.sleep_forever()

    async with fake_server(serve) as address, open_channel(parse_address(address), token=None, limit=LIMIT) as channel:
        chat: Chat = await channel.join(METHOD, "the server", decode, plain=plain)
        left = trio.current_time()
        with trio.fail_after(LIMIT):
            await chat.close(0.2)
        assert trio.current_time() - left >= 0.2


async def test_a_half_open_server_is_found_out_by_pings(plain: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    quick = protocol.keepalive(0.1, 0.1)
    monkeypatch.setattr(protocol, "_CONFIGURATION", quick)

    async def serve(stream: FakeStream) -> None:
        await stream.answer()
        await words(stream)
        with trio.CancelScope(shield=True):
            # Holding the lock keeps ping acknowledgements from being sent.
            async with stream.connection._sending:  # pyright: ignore[reportPrivateUsage]
                await trio.sleep(1)

    async with fake_server(serve) as address, joined(address, plain=plain) as chat:
        assert "no answer to a keepalive ping" in str(await failing(chat))


async def test_a_live_server_is_not(plain: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(protocol, "_CONFIGURATION", protocol.keepalive(0.05, 0.2))

    async def serve(stream: FakeStream) -> None:
        await stream.answer()
        request_id, _ = await words(stream)
        await trio.sleep(0.5)
        await stream.send(request_id + b" say still here")
        await stream.closed()

    async with fake_server(serve) as address, joined(address, plain=plain) as chat:
        assert await ask(chat, b"?") == b"still here"
