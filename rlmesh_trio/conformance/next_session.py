"""The session after the one in which something happened: whether it can be had, and works."""

import math
from contextlib import suppress

import attrs
import trio

from rlmesh_trio.conformance.conversation import Conversation, hold
from rlmesh_trio.conformance.moves import Move
from rlmesh_trio.conformance.registry import WAS_RESET, Lab
from rlmesh_trio.conformance.sequence import told
from rlmesh_trio.errors import ConnectError
from rlmesh_trio.transport.address import parse_address
from rlmesh_trio.transport.dial import dial

__all__ = ("SHUT_DOWN", "Trouble", "next_session", "port_is_closed")

SHUT_DOWN = "shut down"
"""What ``Facts.told`` calls it when a server that cannot be started again was asked to end, and did."""

_AGAIN = 5.0
_DIAL_LIMIT = 1.0
_PAUSE = 0.1


@attrs.frozen
class Trouble:
    """How a session failed that should have worked: what happened, its signature, and whether nobody listens."""

    what: str
    signature: str
    gone: bool = False


async def next_session(lab: Lab) -> Trouble | None:
    """Whether a session works now: it is had within 5 s, and a reset and a step are answered in it.

    Where no reset has ever succeeded, one that fails is no news.
    """
    with trio.move_on_after(_AGAIN) as opening:
        while True:
            with suppress(ConnectError):
                async with lab.raw_stream(patience=_AGAIN) as stream:
                    if stream.ending is not None:
                        return Trouble(f"is refused: {stream.ending.message}", "the next client is refused")
                    conversation = await hold(stream, lab.facts, ())
                    opening.deadline = math.inf
                    known_to_work = bool(lab.facts.told.get(WAS_RESET))
                    return await _plain_play(conversation, known_to_work)
            await trio.sleep(_PAUSE)
    if await port_is_closed(lab):
        return Trouble("finds nobody there", "the server is gone", gone=True)
    return Trouble(f"does not begin within {_AGAIN:g} s", "the next client waits")


async def _plain_play(conversation: Conversation, known_to_work: bool) -> Trouble | None:
    for text in ("reset", "step"):
        if not conversation.over:
            await conversation.make(Move.parse(text))
    for each in conversation.exchanges:
        if each.move.what == "empty":  # asked by the conversation itself, and answered with an error
            continue
        if each.answer is None:
            came = told(conversation.stream.ending)
            return Trouble(f"gets no answer to its {each.move.what}: {came}", "the next session is not answered")
        if each.answer.error is not None and (known_to_work if each.move.what == "reset" else each.move.what != "step"):
            said = f"{told(each.answer)}: {each.answer.error.message}"
            return Trouble(f"gets an error for its {each.move.what}: {said}", f"the next {each.move.what} fails")
    return None


async def port_is_closed(lab: Lab) -> bool:
    """Whether nobody listens where the server was."""
    try:
        (await dial(parse_address(lab.address), _DIAL_LIMIT, patient=False)).close()
    except ConnectError:
        return True
    return False
