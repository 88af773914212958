"""Observations that a server keeps to itself, and says so in an error: structure broken, or NaN, or out of the space.

The edition has a server refuse such an observation as ``INTERNAL``, as it does for an env that raises. Which of the two
it was stands in the message alone, so the words of the servers that are known are known here. The words of another one
make it an env that raises.
"""

import re
from collections.abc import Iterator
from typing import Literal

import attrs

from rlmesh_trio.conformance.traces import Refusal

__all__ = ("Flaw", "Withheld", "withheld")

Flaw = Literal["structure", "nan", "outside"]

_PATH = r"(?P<path>\$(?:\[\"(?:\\.|[^\"\\])*\"\]|[^\s\"])*)"
_OURS = re.compile(f"the env's observation is not in its observation space: {_PATH}: (?P<why>.*)", re.DOTALL)
_OUR_WORDS: tuple[tuple[str, Flaw], ...] = (
    ("the value is NaN", "nan"),
    ("the lowest value", "outside"),
    ("the highest value", "outside"),
    ("characters, expected", "outside"),
    ("is not in the charset", "outside"),
)
_RLMESH = re.compile(r"(?:reset|step) failed: \w+: (?P<told>.*)", re.DOTALL)
_RLMESH_WORDS: tuple[tuple[re.Pattern[str], Flaw], ...] = (
    (re.compile(r"(?P<path>\$.*): Box value at element \d+ is NaN"), "nan"),
    (re.compile(r"(?P<path>\$.*): Box value at element \d+ out of bounds.*"), "outside"),
    (re.compile(r"(?P<path>\$.*): value(?:\[\d+\] =)? \S+ not in range .*"), "outside"),
    (re.compile(r"(?P<path>\$.*): (?:text length \d+ .*|character .* not in charset)"), "outside"),
    (re.compile(r"value supplied for integer dtype \w+ is not representable in its range"), "outside"),
    (re.compile(r"invalid \w+ value: data is \d+ bytes but shape and dtype require .*"), "structure"),
    (re.compile(r"\w+ value must be an integer, got .*"), "structure"),
    (re.compile(r"Tuple space expected \d+ items, got \d+"), "structure"),
    (re.compile(r"[\"']missing dict key .*"), "structure"),
)


@attrs.frozen
class Withheld:
    """An observation that was not sent: what is wrong with it, the ``$``-rooted path where it was told, the words."""

    flaw: Flaw
    path: str
    why: str


def withheld(refusal: Refusal | None) -> Withheld | None:
    """The observation that *refusal* is about; ``None`` when it is about something else."""
    if refusal is None or refusal.code != "INTERNAL":
        return None
    return next(_readings(refusal.message), None)


def _readings(message: str) -> Iterator[Withheld]:
    if ours := _OURS.fullmatch(message):
        why = ours["why"]
        flaws: list[Flaw] = [flaw for words, flaw in _OUR_WORDS if words in why]
        yield Withheld(flaws[0] if flaws else "structure", ours["path"], why)
    if rlmesh := _RLMESH.fullmatch(message):
        for words, flaw in _RLMESH_WORDS:
            if found := words.fullmatch(rlmesh["told"]):
                yield Withheld(flaw, found.groupdict().get("path") or "$", rlmesh["told"])
