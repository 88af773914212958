"""Texts without the address of a server that was started here: its port is another one in each run."""

import re

import attrs

from rlmesh_trio.conformance.traces import Answer, Refusal, Trace
from rlmesh_trio.conformance.verdicts import Evidence

__all__ = ("placeless", "placeless_evidence")

_ADDRESS = re.compile(r"\b(?:127\.0\.0\.1|localhost):\d{1,5}\b")
_INSTEAD = "the server"


def placeless(text: str) -> str:
    """*text* with ``the server`` for each local address."""
    return _ADDRESS.sub(_INSTEAD, text)


def placeless_evidence(evidence: Evidence) -> Evidence:
    """*evidence*, in its lines and in what its traces were refused with."""
    return attrs.evolve(
        evidence,
        lines=tuple(map(placeless, evidence.lines)),
        measured=tuple(map(placeless, evidence.measured)),
        traces=tuple(map(_trace, evidence.traces)),
    )


def _trace(trace: Trace) -> Trace:
    if trace.lost is None and not any(answer.refusal for answer in trace.answers):
        return trace
    return attrs.evolve(trace, answers=tuple(map(_answer, trace.answers)), lost=_refusal(trace.lost))


def _answer(answer: Answer) -> Answer:
    return answer if answer.refusal is None else attrs.evolve(answer, refusal=_refusal(answer.refusal))


def _refusal(refusal: Refusal | None) -> Refusal | None:
    return None if refusal is None else attrs.evolve(refusal, message=placeless(refusal.message))
