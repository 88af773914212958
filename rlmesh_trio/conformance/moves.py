"""Moves of a conversation with a server: what is asked, of which lanes, how it is spoilt, and whether to wait.

A case of the ``wire`` checks is a tuple of moves as texts, such as ``("reset", "step @0 ahead", "leave cut")``: short
to read, easy to store, and what hypothesis shrinks. What a move comes to depends on the answers so far; see
:mod:`~rlmesh_trio.conformance.conversation`.
"""

from collections.abc import Sequence
from typing import Literal, Self, get_args

import attrs
from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

from rlmesh_trio.conformance.raw_stream import Leaving
from rlmesh_trio.conformance.registry import Facts
from rlmesh_trio.transport.handshake import NAMED_RESETS

__all__ = (
    "LEAF_FLAWS",
    "MESSAGE_FLAWS",
    "MOST_MOVES",
    "OTHER_EDITION",
    "TEXT_FLAWS",
    "Asking",
    "Move",
    "flaws",
    "good_moves",
    "has_leaves",
    "leavings",
    "move_lists",
    "unsupported_moves",
    "wrong_moves",
)

MOST_MOVES = 40

Asking = Literal["empty", "unknown", "render", "reset", "step", "configure", "close"]
"""The kinds of requests: ``empty`` has no arm, ``unknown`` one that nobody knows."""

LEAF_FLAWS = ("leaf-missing", "leaf-extra", "leaf-short", "leaf-long", "action-missing")
"""What can be wrong with the leaves of any action."""
TEXT_FLAWS = ("text-count", "text-length", "text-huge", "text-bytes")
"""What can be wrong with the slab of a text: its count, a length, an absurd count, bytes that are not UTF-8."""
MESSAGE_FLAWS = ("message-cut", "wire-type", "field-zero", "endless-number", "id-bytes")
"""What makes bytes no message at all."""

OTHER_EDITION = "2099.01"
"""A workflow edition that nobody has."""

_LONGEST_TIMEOUT = 500
_FAR_LANE = 4096


@attrs.frozen
class Move:
    """One request, or the leaving of the stream.

    ``lanes`` are named as they are, right or wrong; empty for all. With ``ahead`` the next move goes out before this
    one's answer. ``timeout_ms`` is the deadline given to the server. ``action`` is a number, 0 the plainest member.
    ``same_id`` repeats the request id before. ``flaw`` is a name, ``amount`` how much of it. ``padding`` is how many
    MiB a request has besides, in a field that is to be skipped. ``edition`` is what a configure selects, by default the
    one this kit judges by.
    """

    what: Asking | Literal["leave"]
    lanes: tuple[int, ...] = ()
    ahead: bool = False
    timeout_ms: int = 0
    action: int = 0
    same_id: bool = False
    flaw: str = ""
    amount: int = 1
    padding: int = 0
    edition: str = ""
    how: Leaving = "half-close"

    def __str__(self) -> str:
        if self.what == "leave":
            return f"leave {self.how}"
        words = [self.what]
        if self.lanes:
            words.append("@" + ",".join(map(str, self.lanes)))
        if self.flaw:
            words.append(f"!{self.flaw}:{self.amount}")
        for name, value in (("action", self.action), ("padding", self.padding), ("edition", self.edition)):
            if value:
                words.append(f"{name}={value}")
        if self.timeout_ms:
            words.append(f"{self.timeout_ms}ms")
        return " ".join([*words, *["same-id"] * self.same_id, *["ahead"] * self.ahead])

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read what ``str`` wrote. Raises :exc:`ValueError`, naming the word that is none."""
        what, *words = text.split()
        if what == "leave" and len(words) == 1 and words[0] in get_args(Leaving):
            return cls("leave", how=words[0])  # pyright: ignore[reportArgumentType] - looked up in the line above
        if what not in get_args(Asking):
            raise ValueError(f"{text!r} is no move: {what!r} is none of {', '.join(get_args(Asking))} and leave HOW")
        move = cls(what)  # pyright: ignore[reportArgumentType] - looked up in the line above
        for word in words:
            move = attrs.evolve(move, **_read(word, text))
        return move


def _read(word: str, text: str) -> dict[str, object]:
    name, sign, value = word.partition("=")
    if word in ("ahead", "same-id"):
        return {word.replace("-", "_"): True}
    if word.startswith("@"):
        return {"lanes": tuple(map(int, word[1:].split(",")))}
    if word.startswith("!"):
        flaw, _, amount = word[1:].partition(":")
        if flaw in (*LEAF_FLAWS, *TEXT_FLAWS, *MESSAGE_FLAWS):
            return {"flaw": flaw, "amount": int(amount)}
    if word.endswith("ms"):
        return {"timeout_ms": int(word.removesuffix("ms"))}
    if sign and name in ("action", "padding"):
        return {name: int(value)}
    if sign and name == "edition":
        return {name: value}
    raise ValueError(f"{text!r} is no move: it has the word {word!r}")


def move_lists(
    move: SearchStrategy[Move], *, last: SearchStrategy[Move] | None = None, most: int = MOST_MOVES
) -> SearchStrategy[tuple[str, ...]]:
    """One to *most* moves, as texts, of which *last* says what the last one is. Shrinks to fewer and plainer ones."""
    if last is None:
        return st.lists(move.map(str), min_size=1, max_size=most).map(tuple)
    return st.tuples(st.lists(move.map(str), max_size=most - 1), last.map(str)).map(lambda both: (*both[0], both[1]))


def good_moves(facts: Facts, *, ahead: bool = False, timeouts: bool = False) -> SearchStrategy[Move]:
    """Requests any server of this contract must answer: resets, steps, renders, and configure again.

    Where lanes can be named some are; *ahead* lets them overlap, *timeouts* gives each reset and step a deadline.
    """
    overlap = st.booleans() if ahead else st.just(False)
    limits = st.integers(1, _LONGEST_TIMEOUT) if timeouts else st.just(0)
    lanes = _named(facts) if facts.subset_step and facts.contract.num_envs > 1 else st.just(())
    ids = st.booleans() if ahead else st.just(False)
    ops: list[SearchStrategy[Move]] = [
        st.builds(Move, st.just("step"), lanes, overlap, limits, st.integers(0, 9), same_id=ids),
        st.builds(Move, st.just("reset"), lanes, overlap, limits, same_id=ids),
    ]
    if not timeouts:
        ops += [st.builds(Move, st.sampled_from(("render", "configure")), ahead=overlap)]
    return st.one_of(ops)


def _named(facts: Facts) -> SearchStrategy[tuple[int, ...]]:
    one = st.integers(0, facts.contract.num_envs - 1)
    return st.one_of(st.just(()), st.tuples(one))


def unsupported_moves(facts: Facts) -> tuple[Move, ...]:
    """Requests for what a server of this contract does not offer."""
    named = () if facts.subset_step else (Move("step", (0,)),)
    if not facts.subset_step and NAMED_RESETS not in facts.capabilities:
        named += (Move("reset", (0,)),)
    two = (Move("render", (0, 1)),) if facts.contract.num_envs > 1 else ()
    return (Move("empty"), Move("unknown"), *named, *two)


def wrong_moves(facts: Facts) -> SearchStrategy[Move]:
    """Requests that any server of this contract must refuse in an answer, each for a reason of its own."""
    width = facts.contract.num_envs
    lanes = (Move("step", (width,)), Move("reset", (_FAR_LANE,)), Move("step", (0, 0))) if facts.subset_step else ()
    fixed = st.sampled_from([*unsupported_moves(facts), *lanes, Move("configure", edition=OTHER_EDITION)])
    return st.one_of(fixed, flaws(facts, LEAF_FLAWS)) if has_leaves(facts) else fixed


def has_leaves(facts: Facts) -> bool:
    """Whether there is something in an action that can be spoilt."""
    return facts.contract.action_space is not None and bool(facts.contract.action_space.leaves)


def flaws(facts: Facts, names: Sequence[str]) -> SearchStrategy[Move]:
    """Steps spoilt in one of the ways *names*; those of texts only where the action has one."""
    leaves = facts.contract.action_space.leaves if facts.contract.action_space is not None else ()
    texts = any(leaf.kind == "text" for leaf in leaves)
    possible = [name for name in names if texts or name not in TEXT_FLAWS]
    return st.builds(
        Move, st.just("step"), action=st.integers(0, 9), flaw=st.sampled_from(possible), amount=st.integers(1, 9)
    )


def leavings() -> SearchStrategy[Move]:
    """The ways to leave a stream."""
    ways: tuple[Leaving, ...] = get_args(Leaving)
    return st.sampled_from([Move("leave", how=how) for how in ways])
