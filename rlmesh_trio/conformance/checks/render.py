"""The family ``render``: the pictures that a server sends of its env."""

import struct
from collections.abc import Iterator

import attrs
from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

from rlmesh_trio.conformance.conversation import Conversation, hold
from rlmesh_trio.conformance.moves import Move, move_lists
from rlmesh_trio.conformance.raw_stream import Received
from rlmesh_trio.conformance.registry import Facts, Lab, check
from rlmesh_trio.conformance.verdicts import Evidence
from rlmesh_trio.wire.pb.rlmesh.env import v1 as pb
from rlmesh_trio.wire.strict import decode

__all__ = ("render_frame",)

_PICTURES = "rgb_array"
_SIGNATURE = b"\x89PNG\r\n\x1a\n"
_HEADER = struct.Struct(">8sI4sII")
_MOST_MOVES = 12
_SHOWN = 24


def _served(facts: Facts) -> str | None:
    return None if facts.served else "needs a server: it is the server that makes pictures of frames"


def _moves(_: Facts) -> SearchStrategy[tuple[str, ...]]:
    asked = move_lists(st.sampled_from([Move("render"), Move("step"), Move("reset")]), most=_MOST_MOVES)
    return asked.map(lambda moves: ("reset", *moves))


@attrs.frozen
class _Frame:
    """What was answered to a render after *before*: a frame, or none; or an error."""

    before: str
    data: bytes
    error: str = ""

    @property
    def size(self) -> tuple[int, int] | None:
        """Width and height of the picture; ``None`` for what is no PNG."""
        if len(self.data) < _HEADER.size:
            return None
        signature, _, kind, width, height = _HEADER.unpack_from(self.data)
        return (width, height) if (signature, kind) == (_SIGNATURE, b"IHDR") and width and height else None

    def __str__(self) -> str:
        if self.error:
            told = self.error
        elif not self.data:
            told = "no frame"
        elif self.size is not None:
            told = "a PNG of {}x{}".format(*self.size)
        else:
            told = f"{len(self.data)} bytes: {self.data[:_SHOWN].hex(' ')}{' ...' if len(self.data) > _SHOWN else ''}"
        return f"render after {self.before}: {told}"


@check(
    "render.frame",
    severity="should",
    requirement="With the render mode rgb_array frames come, PNGs of one size; without a render mode none comes.",
    rule='edition 2026.06, "Render and Close"; gymnasium Env.render',
    cases=_moves,
    example=lambda _: ("reset", "render", "step", "render", "step", "render"),
    applies=_served,
)
async def render_frame(lab: Lab, case: tuple[str, ...]) -> Evidence | None:
    """Ask for pictures between steps."""
    async with lab.raw_stream() as stream:
        conversation = await hold(stream, lab.facts, case)
    mode = lab.facts.contract.render_mode
    first: _Frame | None = None
    for frame in _frames(conversation):
        if not mode:
            if frame.data:
                return _evidence(
                    "a frame without a render mode", frame, meaning="Clients do not expect it.", server=True
                )
            continue
        if mode == _PICTURES and not frame.data:
            meaning = "render() fails, or returns no uint8 array of shape (height, width, channels)."
            return _evidence("no frame", frame, meaning=meaning)
        if frame.data and frame.size is None:
            return _evidence("no PNG", frame, meaning="The server sends frames in a form of its own.", server=True)
        first = first or (frame if frame.data else None)
        if first is not None and frame.data and frame.size != first.size:
            meaning = "Videos and buffers are made for the size of the first frame."
            return _evidence("the size of frames changes", first, frame, meaning=meaning)
    return None


def _frames(conversation: Conversation) -> Iterator[_Frame]:
    """The answers to the renders, as far as they are answers to them."""
    before = "the reset"
    for exchange in conversation.exchanges:
        answer, what = exchange.answer, exchange.move.what
        if what == "render" and answer is not None and answer.arm in ("render", "error"):
            yield _frame(before, answer)
        elif what in ("reset", "step"):
            before = f"the {what}" if what == "reset" else "a step"


def _frame(before: str, answer: Received) -> _Frame:
    if answer.error is not None:
        return _Frame(before, b"", f"{answer.error.code}: {answer.error.message}")
    return _Frame(before, decode(pb.JoinResponse, answer.data, what="answer").render.frame or b"")


def _evidence(signature: str, *frames: _Frame, meaning: str, server: bool = False) -> Evidence:
    return Evidence(tuple(map(str, frames)), signature, meaning, blame="server" if server else "env")
