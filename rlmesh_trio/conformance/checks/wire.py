"""The ``wire`` family, first half: what one client may expect of each request on its stream.

Cases are moves as texts; each judge holds the conversation and reads what came of it. The server is to blame for all.
"""

from collections.abc import Iterable

from hypothesis import strategies as st

from rlmesh_trio.conformance.conversation import Conversation, Exchange, hold, needs_server
from rlmesh_trio.conformance.moves import (
    LEAF_FLAWS,
    MESSAGE_FLAWS,
    OTHER_EDITION,
    TEXT_FLAWS,
    Move,
    flaws,
    good_moves,
    has_leaves,
    move_lists,
    unsupported_moves,
    wrong_moves,
)
from rlmesh_trio.conformance.next_session import next_session
from rlmesh_trio.conformance.registry import Facts, Lab, check
from rlmesh_trio.conformance.sequence import draw, told
from rlmesh_trio.conformance.verdicts import Evidence

__all__ = ("deadline", "malformed", "one_answer", "recoverable_honest", "unsupported")

_SLACK = 0.25
_LATE = "more than 250 ms after that"
_REFUSALS = ("UNSUPPORTED", "INVALID_ACTION")
_NEVER = "no answer"
_FEW = 8
_ACTION_FLAWS = (*LEAF_FLAWS, *TEXT_FLAWS)


def _seen(conversation: Conversation, signature: str, what: str, meaning: str, *, times: bool = False) -> Evidence:
    measured = draw(conversation.log, times=True) if times else ()
    return Evidence((what, *draw(conversation.log)), signature, meaning, blame="server", measured=measured)


def _judged(conversation: Conversation) -> list[Exchange]:
    """What the moves of the case asked, less a good message that found the stream ended by the error before it."""
    before: Exchange | None = None
    judged: list[Exchange] = []
    for each in conversation.exchanges:
        erred = before is not None and before.answer is not None and before.answer.error is not None
        lost = each.answer is None and conversation.stream.ending is not None and each.move.flaw not in MESSAGE_FLAWS
        if each.asked and not (lost and erred):
            judged.append(each)
        before = each
    return judged


def _whole(facts: Facts, moves: Iterable[str]) -> tuple[str, ...]:
    """*moves*, those that name lanes 0 and 1 only where lanes can be named."""
    named = facts.subset_step and facts.contract.num_envs > 1
    return tuple(move for move in moves if named or "@" not in move)


@check(
    "wire.one-answer",
    severity="must",
    requirement="Each request gets exactly one answer with its request id, in order save for lanes that are named.",
    rule='edition 2026.06, "Ordering"; a server with subset_step works on lanes side by side',
    cases=lambda facts: move_lists(good_moves(facts, ahead=True)),
    example=lambda facts: _whole(
        facts,
        ("step ahead", "step @0 ahead", "step @1 ahead", "render ahead", "reset same-id ahead", "step ahead", "render"),
    ),
    applies=needs_server,
)
async def one_answer(lab: Lab, case: tuple[str, ...]) -> Evidence | None:
    """Hold the conversation to its end, and lay answers and requests side by side."""
    async with lab.raw_stream() as stream:
        conversation = await hold(stream, lab.facts, case)
        await conversation.finish()
    return _unpaired(conversation)


def _unpaired(conversation: Conversation) -> Evidence | None:
    asked = {each.sent.request_id for each in conversation.exchanges}
    for stray in conversation.strays:
        if stray.arm == "unreadable":
            return _seen(
                conversation, "unreadable answer", "an answer cannot be read", "The server writes no protobuf."
            )
        if stray.request_id in asked:
            meaning = "The server answers one request more than once; a client takes the second for another's answer."
            return _seen(conversation, "answered twice", f"{stray.request_id} was answered twice", meaning)
        meaning = "The server does not give back the request id it was sent, so that answers cannot be told apart."
        return _seen(conversation, "unknown id", f"an answer has the id {stray.request_id!r}, never asked", meaning)
    for first, second in conversation.overtaken:
        if not _apart(first.move, second.move):
            what = f"{first.sent.request_id} was answered before {second.sent.request_id}"
            meaning = "Requests are to be processed one at a time, in arrival order."
            return _seen(conversation, "out of order", what, meaning)
    for each in conversation.exchanges:
        if each.answer is None:
            return _unanswered(conversation, each)
        if each.answer.error is None and each.answer.arm != each.move.what:
            what = f"{each.sent.request_id}, a {each.move.what}, was answered with {each.answer.arm}"
            return _seen(conversation, "another kind of answer", what, "The server mixes up its answers.")
    return None


def _apart(move: Move, other: Move) -> bool:
    """Whether the two name different lanes: those work side by side."""
    return bool(move.lanes and other.lanes) and not set(move.lanes) & set(other.lanes)


def _unanswered(conversation: Conversation, lost: Exchange) -> Evidence | None:
    if conversation.fatal is not None:
        return None
    ending = conversation.stream.ending
    if ending is not None and ending.how in ("broken", "reset"):
        meaning = "The server, or its process, ended the stream in the middle of requests."
        return _seen(
            conversation, "stream cut", f"the stream was cut before {lost.sent.request_id} was answered", meaning
        )
    meaning = "A request was dropped without a word; whoever waits for its answer waits for ever."
    return _seen(conversation, _NEVER, f"{lost.sent.request_id} was never answered", meaning)


@check(
    "wire.unsupported",
    severity="must",
    requirement="What is not supported is refused with UNSUPPORTED or INVALID_ACTION, recoverable.",
    rule='edition 2026.06, "Ordering" and "Timeouts and Errors"',
    cases=lambda facts: move_lists(st.sampled_from(unsupported_moves(facts)), most=_FEW),
    example=lambda facts: tuple(map(str, unsupported_moves(facts))),
    applies=needs_server,
    after=("wire.one-answer",),
)
async def unsupported(lab: Lab, case: tuple[str, ...]) -> Evidence | None:
    """Ask for what is not offered, and look at each refusal."""
    async with lab.raw_stream() as stream:
        conversation = await hold(stream, lab.facts, case)
        await conversation.conclude()
    for each in _judged(conversation):
        error = each.answer.error if each.answer is not None else None
        name = _kind(each.move)
        if error is None:
            came = told(each.answer or stream.ending)
            what, signature = f"{name} was not refused: {came}", f"{name} is not refused"
        elif error.code not in _REFUSALS:
            what, signature = f"{name} was refused with {error.code}", f"{name} gets another code"
        elif not error.recoverable:
            what, signature = f"{name} was refused with {error.code} and without recovery", f"{name} is fatal"
        else:
            continue
        return _seen(
            conversation, signature, what, "A client that asks for too much cannot go on, or never learns of it."
        )
    return None


def _kind(move: Move) -> str:
    if move.lanes:
        return f"{move.what} of {'one lane' if len(move.lanes) == 1 else 'two lanes'}"
    return f"{move.what} request"


@check(
    "wire.malformed",
    severity="must",
    requirement="Bytes that are no action, or no request, get an error; the server takes no harm.",
    rule='edition 2026.06, "Ordering" and "Value Conformance"',
    cases=lambda facts: move_lists(
        flaws(facts, _ACTION_FLAWS), last=flaws(facts, (*_ACTION_FLAWS, *MESSAGE_FLAWS)), most=_FEW
    ),
    example=lambda _: ("step !leaf-short:1", "step !leaf-long:1", "step !leaf-missing:1", "step !message-cut:1"),
    applies=lambda facts: needs_server(facts) or (None if has_leaves(facts) else "needs an action space with leaves"),
    after=("wire.one-answer", "wire.survives"),
)
async def malformed(lab: Lab, case: tuple[str, ...]) -> Evidence | None:
    """Send what is malformed, look for an error each, then for a server that still works."""
    async with lab.raw_stream() as stream:
        conversation = await hold(stream, lab.facts, case)
        await conversation.conclude()
    for each in _judged(conversation):
        if (evidence := _not_refused(conversation, each)) is not None:
            return evidence
    trouble = await next_session(lab)
    if trouble is None:
        return None
    meaning = "Bytes that cannot be read bring the server down, for every client."
    lines = (f"the next session {trouble.what}", *draw(conversation.log))
    return Evidence(lines, f"afterwards {trouble.signature}", meaning, blame="server")


def _not_refused(conversation: Conversation, each: Exchange) -> Evidence | None:
    flaw = each.move.flaw
    if each.answer is not None:
        if each.answer.error is not None:
            return None
        meaning = "The server steps its env with an action that nobody sent."
        return _seen(conversation, f"{flaw} is taken", f"a request with the flaw {flaw} was answered", meaning)
    if flaw in MESSAGE_FLAWS and any(stray.error is not None for stray in conversation.strays):
        return None  # an id that cannot be read cannot be given back
    ending = conversation.stream.ending
    group = "an unreadable message" if flaw in MESSAGE_FLAWS else "a malformed action"
    if ending is None:
        what, signature = "was never answered", f"{group}: no answer"
    elif ending.how == "status" and ending.status == "OK":
        what, signature = "ended the stream with OK, without an error", f"{group}: the stream ends with OK"
    elif ending.how == "broken":
        what, signature = f"ended the connection: {ending.message}", f"{group}: the connection is lost"
    else:
        return None  # a status or a reset is an error, if not the best of them
    return _seen(conversation, signature, f"{group} ({flaw}) {what}", "The client never learns what was wrong.")


@check(
    "wire.deadline",
    severity="must",
    requirement="A request with timeout_ms is answered, if only with TIMEOUT, within that time and 250 ms.",
    rule='edition 2026.06, "Timeouts and Errors"',
    cases=lambda facts: move_lists(good_moves(facts, timeouts=True), most=_FEW),
    example=lambda _: ("step 1ms", "step 100ms", "reset 50ms", "step 10ms"),
    applies=needs_server,
    after=("wire.one-answer",),
)
async def deadline(lab: Lab, case: tuple[str, ...]) -> Evidence | None:
    """Give each request a deadline. A late answer must be late again: this side may have been held up."""
    evidence = await _late(lab, case)
    if evidence is None or evidence.signature == _NEVER:
        return evidence
    return await _late(lab, case)


async def _late(lab: Lab, case: tuple[str, ...]) -> Evidence | None:
    async with lab.raw_stream() as stream:
        conversation = await hold(stream, lab.facts, case, probing=False)
        await conversation.conclude()
    for each in conversation.exchanges:
        limit = each.move.timeout_ms / 1000
        if not limit or (each.seconds is not None and each.seconds <= limit + _SLACK):
            continue
        if each.seconds is None or each.answer is None:
            if conversation.fatal is not None:
                continue
            signature, came = _NEVER, "no answer came"
        elif each.answer.error is not None and each.answer.error.code == "TIMEOUT":
            signature, came = "TIMEOUT comes too late", f"TIMEOUT came {_LATE}"
        else:
            signature, came = "the answer comes too late", f"an answer came {_LATE}"
        what = f"{each.sent.request_id} had {each.move.timeout_ms} ms, and {came}"
        meaning = "The deadline is looked at when the operation is over; one that hangs is never answered."
        return _seen(conversation, signature, what, meaning, times=True)
    return None


@check(
    "wire.recoverable-honest",
    severity="must",
    requirement="After an error that calls itself recoverable the session goes on; after any other the stream ends.",
    rule='edition 2026.06, "Timeouts and Errors"',
    cases=lambda facts: move_lists(st.one_of(wrong_moves(facts), good_moves(facts))),
    example=lambda facts: (*map(str, unsupported_moves(facts)), f"configure edition={OTHER_EDITION}"),
    applies=needs_server,
    after=("wire.one-answer", "wire.survives"),
)
async def recoverable_honest(lab: Lab, case: tuple[str, ...]) -> Evidence | None:
    """Provoke errors, and see whether what they promise of the session is so."""
    async with lab.raw_stream() as stream:
        conversation = await hold(stream, lab.facts, (*case, "reset"))
        await conversation.conclude()
    ending = stream.ending
    for each, after in zip(conversation.exchanges, [*conversation.exchanges[1:], None], strict=True):
        error = each.answer.error if each.answer is not None else None
        if error is None:
            continue
        if error.recoverable and after is not None and after.answer is None:
            came = told(ending)
            what = f"{each.sent.request_id} got {error.code}, recoverable, and then {after.sent.request_id} got: {came}"
            meaning = "A client that goes on as it was told to is left without an answer."
            return _seen(conversation, "recoverable, and over", what, meaning)
        if not error.recoverable and (ending is None or (after is not None and after.answer is not None)):
            what = f"{each.sent.request_id} got {error.code}, not recoverable, and the stream goes on"
            meaning = "A client gives up a session that was not lost, or cannot tell which ones are."
            return _seen(conversation, f"{error.code} not recoverable, and goes on", what, meaning)
    return None
