"""What a move means after the answers before it, and how a conversation is drawn."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import pytest

from rlmesh_trio.conformance.conversation import Conversation, hold
from rlmesh_trio.conformance.raw_stream import Ended, Received, Sent
from rlmesh_trio.conformance.sequence import draw, told
from rlmesh_trio.conformance.traces import Refusal
from rlmesh_trio.errors import ConnectError
from tests.conformance.broken_server import ScriptedServer, scripted_server
from tests.conformance.wire_labs import lab_at


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rlmesh_trio.conformance.conversation._LONG", 0.05)
    monkeypatch.setattr("rlmesh_trio.conformance.conversation._LOST", 0.05)


@asynccontextmanager
async def held(server: ScriptedServer, *moves: str, probing: bool = True) -> AsyncGenerator[Conversation]:
    async with scripted_server(server) as address, lab_at(address) as lab, lab.raw_stream() as stream:
        yield await hold(stream, lab.facts, moves, probing=probing)


def said(conversation: Conversation) -> list[str]:
    return [each.move.what for each in conversation.exchanges]


def got(conversation: Conversation) -> list[str | None]:
    return [each.answer.arm if each.answer is not None else None for each in conversation.exchanges]


async def test_the_edition_comes_first_and_a_step_is_preceded_by_a_reset() -> None:
    async with held(ScriptedServer(), "render", "step", "step") as conversation:
        assert said(conversation) == got(conversation) == ["configure", "render", "reset", "step", "step"]
        assert [each.asked for each in conversation.exchanges] == [False, True, False, True, True]


async def test_lanes_that_are_over_are_reset_before_they_are_stepped() -> None:
    async with held(ScriptedServer(lanes=True), *["step @0"] * 7, "step @1") as conversation:
        assert said(conversation) == ["configure", "reset", *["step"] * 6, "reset", "step", "step"]
    async with held(ScriptedServer(), *["step"] * 8) as conversation:
        assert said(conversation) == ["configure", "reset", *["step"] * 8]


async def test_what_is_made_ahead_does_not_wait_eight_deep_at_most() -> None:
    async with held(ScriptedServer(step_seconds=0.01), *["step ahead"] * 9) as conversation:
        sent = [each.sent.at for each in conversation.exchanges[2:]]
        first = conversation.exchanges[2].answer
        assert first is not None
        assert sum(at < first.at for at in sent) == 8
        await conversation.conclude()
        assert got(conversation)[2:] == ["step"] * 9


async def test_the_same_id_may_be_given_twice() -> None:
    async with held(ScriptedServer(), "render ahead", "reset same-id") as conversation:
        await conversation.finish()
        assert [each.sent.request_id for each in conversation.exchanges] == ["r1", "r2", "r2"]
        assert got(conversation) == ["configure", "render", "reset"]
        assert conversation.stream.ending is not None


async def test_a_lost_answer_is_noticed_by_the_one_behind_it() -> None:
    async with held(ScriptedServer("loses an answer"), "step", "render") as conversation:
        assert said(conversation) == ["configure", "reset", "step", "empty", "render"]
        assert got(conversation) == ["configure", "reset", None, "error", "render"]


async def test_a_long_answer_is_waited_for() -> None:
    async with held(ScriptedServer(step_seconds=0.2), "step", "render") as conversation:
        assert got(conversation) == ["configure", "reset", "step", "error", "render"]
        assert conversation.overtaken == []
    async with held(ScriptedServer(step_seconds=0.2), "step", "render", probing=False) as conversation:
        assert said(conversation) == ["configure", "reset", "step", "render"]


async def test_after_an_error_without_recovery_it_is_only_asked_whether_the_server_is_there() -> None:
    moves = ("configure edition=2099.01", "render")
    async with held(ScriptedServer(), *moves) as conversation:
        await conversation.conclude()
        assert said(conversation)[:2] == ["configure", "configure"]
        assert "render" not in said(conversation)
        assert conversation.fatal is conversation.exchanges[1]
    async with held(ScriptedServer("fatal and goes on"), *moves) as conversation:
        await conversation.conclude()
        assert said(conversation) == ["configure", "configure", "empty"]
        assert got(conversation) == ["configure", "error", "error"]


async def test_strays_and_those_that_overtake_are_told() -> None:
    async with held(ScriptedServer("answers twice"), "step", "render") as conversation:
        assert [stray.arm for stray in conversation.strays] == ["step"]
    async with held(ScriptedServer("out of order"), "step ahead", "render") as conversation:
        ((first, second),) = conversation.overtaken
        assert (first.move.what, second.move.what) == ("render", "step")


async def test_of_two_with_one_id_the_one_of_its_kind_is_answered() -> None:
    moves = ("step @0 ahead", "reset @1 same-id")
    async with held(ScriptedServer("lanes overtake", lanes=True), *moves) as conversation:
        assert got(conversation) == ["configure", "reset", "step", "reset"]
        assert len(conversation.overtaken) == 1


async def test_a_stream_that_was_refused_is_no_conversation() -> None:
    async with (
        scripted_server(ScriptedServer()) as address,
        lab_at(address) as lab,
        lab.raw_stream(),
        lab.raw_stream(patience=0.0) as second,
    ):
        with pytest.raises(ConnectError, match="there is a client already"):
            await hold(second, lab.facts, ())


LOG = [
    Sent(0.001, "reset", "r2", b""),
    Received(0.0024, "reset", "r2", b""),
    Sent(0.003, "step 50ms", "r3", b""),
    Received(0.2534, "error", "r3", b"", error=Refusal("TIMEOUT", "late", recoverable=True)),
    Received(0.3, "unreadable", "the message is cut short", b""),
    Ended(0.31, "status", "OK", ""),
]


def test_a_conversation_is_drawn_as_a_sequence() -> None:
    assert draw(LOG) == (
        "client                            server",
        "r2   reset                     ->",
        "                               <- r2   reset",
        "r3   step 50ms                 ->",
        "                               <- r3   TIMEOUT, recoverable",
        "                               <- ?    unreadable: the message is cut short",
        "                               <- the stream ends, OK",
    )


def test_with_times_each_line_begins_with_its_moment_and_of_a_long_log_the_end_is_shown() -> None:
    lines = draw(LOG * 2, times=True)
    assert lines[1].strip() == "... 4 more before"
    assert lines[2] == "    300 ms                                <- ?    unreadable: the message is cut short"
    assert lines[4] == "      1 ms r2   reset                     ->"
    assert len(lines) == 10


def test_the_end_is_told_in_a_few_words() -> None:
    assert told(Ended(0, "status", "INTERNAL", "it broke")) == "the stream ends, INTERNAL: it broke"
    assert told(Ended(0, "refused", "UNAVAILABLE", "…")) == "the stream is refused, UNAVAILABLE"
    assert told(Ended(0, "refused", "", "nobody spoke")) == "no stream: nobody spoke"
    assert told(Ended(0, "broken", "", "the peer hung up")) == "the peer hung up"
    assert told(None) == "nothing"
