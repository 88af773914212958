"""How plays must be kept apart once they were found to leave something behind: by sessions, or by processes."""

from rlmesh_trio.conformance.lab import Isolation, TargetLab
from rlmesh_trio.conformance.scripts import Script
from rlmesh_trio.conformance.traces import Answer, Trace

__all__ = ("HISTORY_INDEPENDENT", "isolation_for")

HISTORY_INDEPENDENT = "seed.history-independent"
"""The check whose failure calls for it."""


async def isolation_for(lab: TargetLab, before: Script, after: Script, *, restartable: bool) -> Isolation:
    """The least that makes *after* play the same whether or not *before* was played; processes only where they can be.

    The lab is left as it was.
    """
    if not restartable:
        return "session"
    was, lab.isolation = lab.isolation, "process"
    try:
        alone = await lab.play_fresh(after)
        lab.isolation = "session"
        await lab.play_fresh(before)
        apart = await lab.play_fresh(after)
    finally:
        lab.isolation = was
    return "session" if _bits(alone) == _bits(apart) else "process"


def _bits(trace: Trace) -> list[tuple[object, ...]]:
    return [_answered(answer) for answer in trace.answers]


def _answered(answer: Answer) -> tuple[object, ...]:
    rewards = tuple(reward.hex() for reward in answer.rewards)
    return answer.raw_leaves, rewards, answer.terminated, answer.truncated, answer.refusal is None
