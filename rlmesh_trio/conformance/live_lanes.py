"""Which lanes of an answer are in the middle of an episode: of what they do elsewhere nothing is promised.

A lane is live from a reset that was answered to the end of its episode; one that the env restarts stays so. An error
that says more than "not this action" leaves nobody knows what, until the next reset.
"""

from collections.abc import Iterator, Sequence
from typing import TypeVar

import attrs

from rlmesh_trio.conformance.printing import place_text
from rlmesh_trio.conformance.registry import Facts
from rlmesh_trio.conformance.scripts import Reset, Row, Step
from rlmesh_trio.conformance.traces import Answer, Trace
from rlmesh_trio.conformance.verdicts import Blame, Evidence
from rlmesh_trio.contract import AutoresetMode

__all__ = ("Moment", "ended_lanes", "moments")

T = TypeVar("T")

_RESTARTING = (AutoresetMode.NEXT_STEP, AutoresetMode.SAME_STEP)
_HARMLESS = ("INVALID_ACTION", "UNSUPPORTED", "NOT_READY")


@attrs.frozen
class Moment:
    """One answer of *trace*: *op* was asked of the lanes of ``answer``, of which ``lanes`` were live, or were reset."""

    trace: Trace
    op: Reset | Step
    answer: Answer
    lanes: tuple[int, ...]

    @property
    def whole(self) -> bool:
        """Whether every lane that was asked is live."""
        return len(self.lanes) == len(self.answer.lanes)

    @property
    def is_reset(self) -> bool:
        """Whether it was a reset."""
        return isinstance(self.op, Reset)

    def of(self, lane: int, values: Sequence[T]) -> T | None:
        """What *lane* has among *values*, which follow the answer's lanes; ``None`` where they are too few."""
        position = self.answer.lanes.index(lane)
        return values[position] if position < len(values) else None

    def row(self, lane: int) -> Row:
        """The observation of *lane*; nothing where it cannot be told from others."""
        return self.of(lane, self.answer.observation) or ()

    def action(self, lane: int) -> Row:
        """What *lane* was stepped with; nothing at a reset."""
        return () if isinstance(self.op, Reset) else self.of(lane, self.op.actions) or ()

    def place(self, lane: int | None = None) -> str:
        """Where that is, for people: ``step 3``, or ``step 3 lane 1`` where there are lanes."""
        place = place_text(self.trace.script, self.answer.op)
        return place if lane is None or self.trace.script.lanes == 1 else f"{place} lane {lane}"

    def evidence(
        self, lines: tuple[str, ...], signature: str, meaning: str, *, lane: int | None = None, blame: Blame = "env"
    ) -> Evidence:
        """Evidence that shows here, at *lane* where it is one."""
        first = self.answer.op, self.answer.lanes[0] if lane is None else lane
        return Evidence(lines, signature, meaning, blame, (self.trace,), first)


def moments(trace: Trace, facts: Facts) -> Iterator[Moment]:
    """The answers of *trace* in order, with the lanes that are live in each."""
    restarts = facts.contract.autoreset_mode in _RESTARTING
    live: set[int] = set()
    for answer in trace.answers:
        op = trace.script.ops[answer.op]
        assert isinstance(op, (Reset, Step))
        resets = isinstance(op, Reset)
        asked = answer.lanes if resets else tuple([lane for lane in answer.lanes if lane in live])
        yield Moment(trace, op, answer, asked)
        if answer.refusal is None:
            live.update(answer.lanes if resets else ())
            live.difference_update(() if restarts else ended_lanes(answer))
        elif resets or answer.refusal.code not in _HARMLESS:
            live.difference_update(answer.lanes)


def ended_lanes(answer: Answer) -> tuple[int, ...]:
    """The lanes whose episodes ended with *answer*."""
    flags = zip(answer.lanes, answer.terminated, answer.truncated, strict=False)
    return tuple([lane for lane, terminated, truncated in flags if terminated or truncated])
