"""Who waits alone reads the answer himself; whatever happens meanwhile, everybody gets his own."""

import random

import pytest
import trio

from rlmesh_trio.errors import EndpointError
from rlmesh_trio.transport import expecting, link
from tests.transport.chatting import Chat, ask, joined, words
from tests.transport.fake_server import FakeStream, fake_server

pytestmark = pytest.mark.parametrize("plain", [False, True], ids=["fast", "plain"])


async def echo(stream: FakeStream) -> None:
    await stream.answer()
    while message := await stream.receive():
        request_id, _, payload = message.partition(b" ")
        await stream.send(request_id + b" say " + payload)
    await stream.end()


class Controlled:
    """A server whose replies the test releases, by payload and in any order."""

    def __init__(self) -> None:
        self.asked: dict[bytes, bytes] = {}
        self.stream: FakeStream | None = None

    async def serve(self, stream: FakeStream) -> None:
        self.stream = stream
        await stream.answer()
        while message := await stream.receive():
            request_id, _, payload = message.partition(b" ")
            if payload == b"at once":
                await stream.send(request_id + b" say " + payload)
            else:
                self.asked[payload] = request_id
        await stream.end()

    async def release(self, payload: bytes) -> None:
        assert self.stream is not None
        while payload not in self.asked:
            await self.stream.connection.change()
        await self.stream.send(self.asked.pop(payload) + b" say " + payload)


async def settle(chat: Chat) -> None:
    """Ask one by one until the resident reader has stepped aside."""
    for _ in range(8):
        assert await ask(chat, b"at once") == b"at once"
    resident = chat._link  # pyright: ignore[reportPrivateUsage]
    assert resident.borrow()
    resident.give_back()


async def test_one_by_one(plain: bool) -> None:
    async with fake_server(echo) as address, joined(address, plain=plain) as chat:
        for number in range(100):
            assert await ask(chat, b"%d" % number) == b"%d" % number


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 1, 0), (1, 0, 2), (1, 2, 0)])
async def test_others_may_ask_while_one_reads(plain: bool, order: tuple[int, ...]) -> None:
    server = Controlled()
    async with fake_server(server.serve) as address, joined(address, plain=plain) as chat:
        await settle(chat)
        with trio.fail_after(5):
            async with trio.open_nursery() as nursery:

                async def one(payload: bytes) -> None:
                    assert await ask(chat, payload) == payload

                for name in (b"a", b"b", b"c"):
                    nursery.start_soon(one, name)
                    await trio.testing.wait_all_tasks_blocked()
                for index in order:
                    await server.release((b"a", b"b", b"c")[index])
            await settle(chat)


async def test_the_reader_may_be_cancelled(plain: bool) -> None:
    server = Controlled()
    async with fake_server(server.serve) as address, joined(address, plain=plain) as chat:
        await settle(chat)
        with trio.move_on_after(0.05) as scope:
            await ask(chat, b"late")
        assert scope.cancelled_caught
        async with trio.open_nursery() as nursery:
            nursery.start_soon(server.release, b"late")
            assert await ask(chat, b"at once") == b"at once"
        with trio.fail_after(5):
            while not chat.dropped_replies:
                assert await ask(chat, b"at once") == b"at once"


async def test_the_reader_may_be_cancelled_while_another_waits(plain: bool) -> None:
    server = Controlled()
    async with fake_server(server.serve) as address, joined(address, plain=plain) as chat:
        await settle(chat)
        with trio.fail_after(5):
            async with trio.open_nursery() as nursery:
                reading = trio.CancelScope()

                async def read() -> None:
                    with reading:
                        await ask(chat, b"never")

                async def wait() -> None:
                    assert await ask(chat, b"patient") == b"patient"

                nursery.start_soon(read)
                await trio.testing.wait_all_tasks_blocked()
                nursery.start_soon(wait)
                await trio.testing.wait_all_tasks_blocked()
                reading.cancel()
                await trio.testing.wait_all_tasks_blocked()
                await server.release(b"patient")


async def test_the_reader_learns_of_an_error_and_of_the_end(plain: bool) -> None:
    async def serve(stream: FakeStream) -> None:
        await stream.answer()
        for number in range(10):
            request_id, payload = await words(stream)
            await stream.send(request_id + (b" error no" if number == 8 else b" say " + payload))
        await words(stream)
        await stream.connection.socket.aclose()

    async with fake_server(serve) as address, joined(address, plain=plain) as chat:
        await settle(chat)
        with pytest.raises(EndpointError, match="no"):
            await ask(chat, b"?")
        assert await ask(chat, b"well") == b"well"
        with trio.fail_after(5), pytest.raises(EndpointError, match="transport error: connection closed"):
            await ask(chat, b"?")


async def test_the_resident_reader_comes_back_when_nobody_reads(plain: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(link, "_IDLE", 0.02)
    acknowledged = trio.Event()

    async def serve(stream: FakeStream) -> None:
        await stream.answer()
        for _ in range(8):
            request_id, payload = await words(stream)
            await stream.send(request_id + b" say " + payload)
        await trio.sleep(0.1)
        stream.connection.h2.ping(b"somebody")
        await stream.connection.flush()
        await stream.connection.pinged.wait()
        acknowledged.set()
        await stream.closed()

    async with fake_server(serve) as address, joined(address, plain=plain) as chat:
        await settle(chat)
        with trio.fail_after(5):
            await acknowledged.wait()


async def test_leaving_brings_the_resident_reader_back(plain: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(link, "_IDLE", 1000)
    async with fake_server(echo) as address:
        with trio.fail_after(5):
            async with joined(address, plain=plain, grace=60) as chat:
                await settle(chat)


class Sleeps(trio.abc.Instrument):
    """Counts how often the whole program went to sleep."""

    def __init__(self) -> None:
        self.count = 0

    def before_io_wait(self, timeout: float) -> None:
        self.count += timeout > 0

    def __enter__(self) -> "Sleeps":
        trio.lowlevel.add_instrument(self)
        return self

    def __exit__(self, *_: object) -> None:
        trio.lowlevel.remove_instrument(self)


async def test_an_answer_that_comes_at_once_is_watched_for(plain: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(expecting, "_SOON", 60_000_000_000)
    async with fake_server(echo) as address, joined(address, plain=plain) as chat:
        await settle(chat)
        with Sleeps() as watching:
            for _ in range(20):
                assert await ask(chat, b"again") == b"again"
        monkeypatch.setattr(link, "_give_way", None)
        with Sleeps() as not_watching:
            for _ in range(20):
                assert await ask(chat, b"again") == b"again"
    assert not watching.count
    assert not_watching.count


async def test_an_answer_that_takes_its_time_is_slept_for(plain: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(expecting, "_SOON", 10_000_000)
    server = Controlled()
    async with fake_server(server.serve) as address, joined(address, plain=plain) as chat:
        await settle(chat)
        for _ in range(2):
            with trio.fail_after(5):
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(ask, chat, b"late")
                    await trio.testing.wait_all_tasks_blocked(0.02)
                    await server.release(b"late")
        with Sleeps() as sleeps:
            assert await ask(chat, b"at once") == b"at once"
    assert sleeps.count


async def test_others_go_on_while_one_watches(plain: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(expecting, "_SOON", 60_000_000_000)
    server = Controlled()
    async with fake_server(server.serve) as address, joined(address, plain=plain) as chat:
        await settle(chat)
        with trio.fail_after(5):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(ask, chat, b"a")
                await trio.sleep(0.01)
                nursery.start_soon(ask, chat, b"b")
                await trio.sleep(0.01)
                await server.release(b"b")
                await server.release(b"a")


@pytest.mark.parametrize("how", ["cancelled", "lost"])
async def test_watching_ends(plain: bool, how: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(expecting, "_SOON", 60_000_000_000)
    server = Controlled()
    async with fake_server(server.serve) as address, joined(address, plain=plain) as chat:
        await settle(chat)
        with trio.fail_after(5):
            if how == "cancelled":
                with trio.move_on_after(0.02) as scope:
                    await ask(chat, b"never")
                assert scope.cancelled_caught
                return
            async with trio.open_nursery() as nursery:

                async def ask_in_vain() -> None:
                    with pytest.raises(EndpointError, match="connection closed"):
                        await ask(chat, b"never")

                nursery.start_soon(ask_in_vain)
                await trio.sleep(0.02)
                assert server.stream is not None
                await server.stream.connection.socket.aclose()


async def test_any_mixture_of_asking_and_giving_up(plain: bool) -> None:
    dice = random.Random(7)

    async def serve(stream: FakeStream) -> None:
        await stream.answer()

        async def reply(request_id: bytes, payload: bytes) -> None:
            if dice.random() < 0.5:
                await trio.sleep(dice.random() * 0.004)
            await stream.send(request_id + b" say " + payload * dice.choice((1, 1, 1, 3000)))

        async with trio.open_nursery() as replies:
            while message := await stream.receive():
                request_id, _, payload = message.partition(b" ")
                replies.start_soon(reply, request_id, payload)
        await stream.end()

    async with fake_server(serve) as address, joined(address, plain=plain) as chat:

        async def talk(name: int) -> None:
            for number in range(60):
                said = b"%d.%d;" % (name, number)
                with trio.move_on_after(0.002 if dice.random() < 0.3 else 5):
                    answer = await ask(chat, said)
                    assert isinstance(answer, bytes)
                    assert answer == said * (len(answer) // len(said))
                if dice.random() < 0.2:
                    await trio.sleep(dice.random() * 0.003)

        with trio.fail_after(20):
            async with trio.open_nursery() as nursery:
                for name in range(4):
                    nursery.start_soon(talk, name)
            await talk(99)
