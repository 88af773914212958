"""Scripts that lead to the ends of episodes: longer than others, with actions that are held for a while."""

from collections.abc import Sequence

from hypothesis.strategies import SearchStrategy

from rlmesh_trio.conformance.members import corner_rows
from rlmesh_trio.conformance.registry import Facts
from rlmesh_trio.conformance.scripts import Op, Reset, Row, Script, Step
from rlmesh_trio.conformance.strategies import action_space, scripts

__all__ = ("ending_example", "ending_scripts", "held_actions")

_HELD = 12
_USUAL = 96
_MOST = 240
_BEYOND = 8


def _ending_steps(facts: Facts) -> int:
    """How many steps a script should have to see episodes end, as far as that can be known."""
    if facts.limit is None or facts.limit + _BEYOND > _MOST:
        return _USUAL
    return max(2 * _HELD, facts.limit + _BEYOND)


def ending_scripts(facts: Facts, *, resets: bool = False) -> SearchStrategy[Script]:
    """Scripts from a seeded reset on; with *resets*, more of them, of some lanes too where lanes can be named."""
    partial = resets and facts.subset_step
    return scripts(facts, steps=_ending_steps(facts), reseed=resets, unseeded=resets, partial=partial)


def ending_example(facts: Facts, *, resets: bool = False) -> Script:
    """The corners of the action space in turn, each held for 12 steps; with *resets*, a reset after each two."""
    lanes = facts.contract.num_envs
    ops: list[Op] = [Reset(tuple(range(lanes)))]
    for number, step in enumerate(held_actions(facts, _ending_steps(facts))):
        if resets and number and number % (2 * _HELD) == 0:
            ops.append(Reset(tuple(range(number, number + lanes)) if number % (4 * _HELD) else ()))
        ops.append(step)
    return Script(lanes, tuple(ops))


def held_actions(facts: Facts, steps: int, *, ahead: int = 0) -> list[Step]:
    """So many steps, each lane one corner ahead of the one before it, and the first of them *ahead* by some."""
    corners: Sequence[Row] = corner_rows(action_space(facts))
    lanes = range(facts.contract.num_envs)
    return [
        Step(tuple([corners[(number // _HELD + lane + ahead) % len(corners)] for lane in lanes]))
        for number in range(steps)
    ]
