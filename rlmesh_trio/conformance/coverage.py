"""What a run did to an env, counted: operations, ends, and how far the leaves of its spaces were reached."""

from collections import Counter
from collections.abc import Iterable

import attrs

from rlmesh_trio.conformance.scripts import Reset, Row, Step, Wait
from rlmesh_trio.conformance.traces import Trace

__all__ = ("Coverage",)

_MOST_ACTIONS = 4096


@attrs.define
class Coverage:
    """Counts over every script played on one target.

    ``steps`` are requests, ``lane_steps`` the lanes in them. ``terminated``, ``truncated`` and ``both`` count ends by
    their flags, ``lengths`` episodes by their steps as far as their start and end were seen. ``actions`` counts what
    lanes were stepped with, the first 4096 different ones. ``refusals`` counts answers by their error code. ``slowest``
    is the longest that an operation took, in seconds.
    """

    sessions: int = 0
    restarts: int = 0
    scripts: int = 0
    resets: int = 0
    unseeded_resets: int = 0
    partial_resets: int = 0
    steps: int = 0
    partial_steps: int = 0
    lane_steps: int = 0
    waits: int = 0
    terminated: int = 0
    truncated: int = 0
    both: int = 0
    refusals: Counter[str] = attrs.field(factory=Counter[str])
    lengths: Counter[int] = attrs.field(factory=Counter[int])
    actions: Counter[Row] = attrs.field(factory=Counter[Row])
    slowest: float = 0.0

    def note(self, trace: Trace) -> None:
        """Count one trace."""
        self.scripts += 1
        ages: dict[int, int] = {}
        played = trace.script.ops[: trace.answers[-1].op + 1] if trace.answers else ()
        self.waits += sum(isinstance(op, Wait) for op in played)
        for answer in trace.answers:
            self.slowest = max(self.slowest, answer.seconds)
            op = trace.script.ops[answer.op]
            if isinstance(op, Reset):
                self.resets += 1
                self.unseeded_resets += not op.seeds
                self.partial_resets += bool(op.lanes)
            elif isinstance(op, Step):
                self.steps += 1
                self.partial_steps += bool(op.lanes)
                self.lane_steps += len(answer.lanes)
                self._note_actions(op.actions)
            if answer.refusal is not None:
                self.refusals[answer.refusal.code] += 1
            elif isinstance(op, Reset):
                ages.update(dict.fromkeys(answer.lanes, 0))
            else:
                flags = zip(answer.lanes, answer.terminated, answer.truncated, strict=False)
                self._note_ends(flags, ages)

    def _note_actions(self, actions: Iterable[Row]) -> None:
        for action in actions:
            if len(self.actions) < _MOST_ACTIONS or action in self.actions:
                self.actions[action] += 1

    def _note_ends(self, flags: Iterable[tuple[int, bool, bool]], ages: dict[int, int]) -> None:
        for lane, terminated, truncated in flags:
            if lane in ages:
                ages[lane] += 1
            if terminated or truncated:
                self.both += terminated and truncated
                self.terminated += terminated and not truncated
                self.truncated += truncated and not terminated
                if lane in ages:
                    self.lengths[ages.pop(lane)] += 1
