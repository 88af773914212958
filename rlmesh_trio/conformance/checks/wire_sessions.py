"""The ``wire`` family, second half: sessions that come after one another or at once, and the end of the server."""

import math
from collections.abc import Sequence

import trio
from hypothesis import strategies as st

from rlmesh_trio.conformance.conversation import Conversation, hold, needs_server
from rlmesh_trio.conformance.moves import Move, good_moves, leavings, move_lists, wrong_moves
from rlmesh_trio.conformance.next_session import SHUT_DOWN, next_session, port_is_closed
from rlmesh_trio.conformance.registry import Facts, Lab, check
from rlmesh_trio.conformance.sequence import draw, told
from rlmesh_trio.conformance.verdicts import Evidence
from rlmesh_trio.errors import ConnectError, HandshakeError, ProtocolError
from rlmesh_trio.spaces.slabs import array_dtype

__all__ = ("close", "large", "second_client", "shutdown", "survives")

_AT_ONCE = 2.0
_DRAINED = 10.0
_PAUSE = 0.1
_LARGEST = 16
_USUAL_LIMIT = 4 << 20
_FEW = 8
_AFTER_CLOSE = st.lists(st.sampled_from(("close ahead", "step ahead", "reset ahead")), max_size=2)


@check(
    "wire.survives",
    severity="must",
    requirement="After any error, disconnect or deadline the next session works within 5 s.",
    rule='edition 2026.06, "Session Establishment" and "Timeouts and Errors"',
    cases=lambda facts: move_lists(_mishaps(facts), last=leavings(), most=_FEW),
    example=lambda _: ("step 1ms", "empty", "step ahead", "leave cut"),
    applies=needs_server,
    after=("wire.one-answer",),
)
async def survives(lab: Lab, case: tuple[str, ...]) -> Evidence | None:
    """Let a session go wrong and end in whatever way, and open the next one."""
    async with lab.raw_stream() as stream:
        conversation = await hold(stream, lab.facts, case)
        if stream.half_closed:
            await conversation.hear_out()
    trouble = await next_session(lab)
    if trouble is None or (trouble.gone and conversation.fatal is not None):
        return None
    lines = (f"the next session {trouble.what}", *draw(conversation.log))
    meaning = "What one client does, or suffers, is felt by the next."
    return Evidence(lines, trouble.signature, meaning, "server", measured=draw(conversation.log, times=True))


def _mishaps(facts: Facts) -> st.SearchStrategy[Move]:
    return st.one_of(wrong_moves(facts), good_moves(facts, timeouts=True), good_moves(facts, ahead=True))


@check(
    "wire.second-client",
    severity="should",
    requirement="A second client is served or refused at once; when the first vanishes, its place is free within 5 s.",
    rule='edition 2026.06, "Session Establishment"',
    cases=lambda facts: move_lists(good_moves(facts, ahead=True), last=leavings(), most=_FEW),
    example=lambda _: ("step ahead", "leave cut"),
    applies=needs_server,
    after=("wire.one-answer", "wire.survives"),
)
async def second_client(lab: Lab, case: tuple[str, ...]) -> Evidence | None:
    """Come a second time while the first client is there, and a third time when it has vanished as *case* says."""
    async with lab.raw_stream() as first:
        conversation = await hold(first, lab.facts, ("reset",))
        if conversation.over:
            return None
        if (evidence := await _beside(lab, conversation)) is not None:
            return evidence
        for text in case:
            await conversation.make(Move.parse(text))
        trouble = await next_session(lab)
    if trouble is None:
        return None
    lines = (f"when the first client has vanished, the next session {trouble.what}", *draw(conversation.log))
    return Evidence(lines, trouble.signature, "The server keeps the place of a client that has gone.", blame="server")


async def _beside(lab: Lab, conversation: Conversation) -> Evidence | None:
    """What is wrong with how a second client is received, or with how the first, which was well, fares beside it."""
    first = conversation.stream
    with trio.move_on_after(_AT_ONCE) as opening:
        async with lab.raw_stream(patience=0.0) as second:
            opening.deadline = math.inf
            other = Conversation(second, lab.facts)
            if second.ending is None:
                await other.open()
            if second.ending is None and other.exchanges[0].answer is None:
                lines = ("the second client was accepted, and never answered", *draw(second.log))
                meaning = "A second client does not learn that there is no place for it."
                return Evidence(lines, "accepted and not served", meaning, blame="server")
    if opening.cancelled_caught:
        lines = (f"the second client was neither accepted nor refused within {_AT_ONCE:g} s", *draw(first.log))
        return Evidence(lines, "left waiting", "A second client has to find out by its own deadline.", blame="server")
    if not conversation.over:
        await conversation.make(Move("reset"))
    if first.ending is not None or conversation.exchanges[-1].answer is None:
        lines = ("the first client gets no answer any more", *draw(first.log))
        meaning = "A second client takes the session away from the first."
        return Evidence(lines, "the first client is harmed", meaning, blame="server")
    return None


@check(
    "wire.close",
    severity="must",
    requirement="Close gets one answer, then the stream ends; closing again, or closing unopened, does no harm.",
    rule='edition 2026.06, "Render and Close"',
    cases=lambda facts: st.tuples(st.lists(good_moves(facts).map(str), max_size=_FEW), _AFTER_CLOSE).map(_closed),
    example=lambda _: ("step", "close ahead", "close ahead", "reset"),
    applies=needs_server,
    after=("wire.one-answer", "wire.survives"),
)
async def close(lab: Lab, case: tuple[str, ...]) -> Evidence | None:
    """Close in the middle of things, and ask for more at once."""
    async with lab.raw_stream() as stream:
        conversation = await hold(stream, lab.facts, case)
        await conversation.hear_out()
    if conversation.fatal is not None:
        return None
    broken = _badly_closed(conversation)
    if broken is None:
        trouble = await next_session(lab)
        broken = None if trouble is None else (trouble.signature, f"after a close the next session {trouble.what}")
    if broken is None:
        return None
    lines = (broken[1], *draw(conversation.log))
    return Evidence(lines, broken[0], "The end of a session cannot be told from a fault.", blame="server")


def _closed(parts: tuple[Sequence[str], Sequence[str]]) -> tuple[str, ...]:
    return (*parts[0], "close ahead", *parts[1])


def _badly_closed(conversation: Conversation) -> tuple[str, str] | None:
    """The signature of what is wrong, and the same in a sentence."""
    kinds = [each.move.what for each in conversation.exchanges]
    at = kinds.index("close")
    ending = conversation.stream.ending
    if conversation.exchanges[at].answer is None:
        return "close is not answered", f"a close was never answered: {told(ending)}"
    late = [each for each in conversation.exchanges[at + 1 :] if each.answer is not None]
    if late or conversation.strays:
        return "answers after close", "something was answered after the close"
    if ending is None:
        return "the stream stays open", "the stream stays open after a close"
    if ending.how != "status" or ending.status != "OK":
        return "the stream ends badly", f"after a close: {told(ending)}"
    return None


@check(
    "wire.large",
    severity="should",
    requirement="A step request of 16 MiB passes, most of it a field that is to be skipped, and so do large answers.",
    rule="gRPC's own limit, 4 MiB unless it is raised, is too small for observations and actions",
    cases=lambda _: st.integers(1, _LARGEST).map(_padded_step),
    example=lambda _: _padded_step(_LARGEST),
    applies=needs_server,
)
async def large(lab: Lab, case: tuple[str, ...]) -> Evidence | None:
    """Make the first step of an episode in few bytes, and then in many; answers are as large as observations are."""
    async with lab.raw_stream() as stream:
        conversation = await hold(stream, lab.facts, ("step", "reset", *case))
        await conversation.conclude()
    size = _answer_size(lab.facts)
    lost = next((each for each in conversation.exchanges if each.move.what in ("reset", "step")), None)
    if size >= _USUAL_LIMIT and lost is not None and lost.answer is None and stream.ending is not None:
        lines = (f"an answer of {size >> 20} MiB did not come: {told(stream.ending)}", *draw(conversation.log))
        meaning = "A message limit is set too low for the observations that are declared."
        return Evidence(lines, "a large answer does not come", meaning, blame="server")
    asked = [each for each in conversation.exchanges if each.asked]
    if len(asked) < 2 or asked[0].answer is None or asked[0].answer.error is not None:
        return None
    padded = asked[-1]
    if padded.answer is not None and padded.answer.error is None:
        return None
    came = told(padded.answer or stream.ending)
    lines = (f"a step of {padded.move.padding} MiB was not taken: {came}", *draw(conversation.log))
    meaning = "A message limit is set too low; larger actions or observations will fail too."
    return Evidence(lines, "a large request is not taken", meaning, blame="server")


def _answer_size(facts: Facts) -> int:
    """How many bytes of an answer are numbers of the observation of all lanes."""
    space = facts.contract.observation_space
    leaves = () if space is None else [leaf for leaf in space.leaves if leaf.kind != "text"]
    row = sum(array_dtype(leaf.kind, leaf.dtype).itemsize * math.prod(leaf.shape) for leaf in leaves)
    return row * facts.contract.num_envs


def _padded_step(size: int) -> tuple[str, ...]:
    return (str(Move("step", padding=size)),)


def _may_end(facts: Facts) -> str | None:
    return None if facts.factory or facts.allow_shutdown else "needs a factory, or --allow-shutdown"


@check(
    "wire.shutdown",
    severity="should",
    requirement="Shutdown is refused, or ends the process.",
    rule='edition 2026.06, "Shutdown"',
    cases=lambda _: st.just(()),  # and no example: what comes after it has no server, unless it can be started again
    applies=lambda facts: needs_server(facts) or _may_end(facts),
    after=("wire.one-answer",),
)
async def shutdown(lab: Lab, case: tuple[str, ...]) -> Evidence | None:  # noqa: ARG001 - there is one way only
    """Ask the server to end, and look whether it does what it says."""
    async with lab.raw_stream() as stream:
        try:
            accepted = (await stream.shutdown("conformance test")).accepted
        except HandshakeError:
            accepted = False  # by a status, as from a server without the method
        except (ConnectError, ProtocolError) as error:
            return _bad_shutdown("no answer", f"Shutdown was not answered: {error}")
    gone = await _port_closes(lab, _DRAINED if accepted else 0.0)
    if accepted and not gone:
        what = f"Shutdown was accepted; {_DRAINED:g} s later the port is still open"
        return _bad_shutdown("accepted, and still there", what)
    lab.facts.told[SHUT_DOWN] = gone and not lab.facts.factory
    if gone and not accepted:
        return _bad_shutdown("refused, and gone", "Shutdown was refused, and the server is gone all the same")
    return None


async def _port_closes(lab: Lab, within: float) -> bool:
    for _ in range(round(within / _PAUSE)):
        if await port_is_closed(lab):
            return True
        await trio.sleep(_PAUSE)
    return await port_is_closed(lab)


def _bad_shutdown(signature: str, what: str) -> Evidence:
    return Evidence((what,), signature, "Whoever ends the run cannot know whether a process is left.", blame="server")
