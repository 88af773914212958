"""Cases of the checks of lanes: a script, and the same with other lanes' parts redrawn, in another order, or cut out.

A case is a tuple of scripts and numbers. Those that change a script hold both forms, so that a reader sees them.
"""

from collections.abc import Mapping, Sequence

import attrs
from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

from rlmesh_trio.conformance.registry import Facts
from rlmesh_trio.conformance.scripts import Op, Reset, Row, Script, Step
from rlmesh_trio.conformance.strategies import action_space, actions, example_script, lane_seeds, scripts, seeds
from rlmesh_trio.contract import AutoresetMode

__all__ = (
    "BadResetCase",
    "PartialCase",
    "PermutedCase",
    "RedrawnCase",
    "SeedsCase",
    "WidthCase",
    "bad_reset_cases",
    "bad_reset_example",
    "of_width",
    "partial_cases",
    "partial_example",
    "permuted_cases",
    "permuted_example",
    "redrawn_cases",
    "redrawn_example",
    "seeds_cases",
    "seeds_example",
    "width_cases",
    "width_example",
)

RedrawnCase = tuple[Script, Script, int]
"""A script, the same with other lanes changed, and the lane that was kept."""

PermutedCase = tuple[Script, Script, tuple[int, ...]]
"""A script, the same with its lanes in another order, and where each lane went."""

SeedsCase = tuple[Script, int, int]
"""A script in which all lanes do the same with different seeds, and two of the lanes."""

PartialCase = tuple[Script, int]
"""A script with a reset of some lanes at this place."""

BadResetCase = tuple[Script, Reset, int]
"""A script, a reset that has to be refused, and where to put it in."""

WidthCase = tuple[Script, Script]
"""A script of some lanes, and of more lanes with the same for the first."""

_WIDTHS = (2, 3, 4, 8, 16)


def redrawn_cases(facts: Facts) -> SearchStrategy[RedrawnCase]:
    """One lane kept, and a few seeds and actions of others redrawn."""
    lanes = facts.contract.num_envs

    def built(base: Script, kept: int, edits: Sequence[tuple[int | None, int, int, Row]]) -> RedrawnCase:
        changed = base
        for behind, distance, seed, row in edits:
            place = 0 if behind is None else -1 - behind % len(base.ops)
            changed = _edited(changed, place, (kept + 1 + distance) % lanes, seed, row)
        return base, changed, kept

    edit = st.tuples(st.none() | st.integers(0, 31), st.integers(0, lanes - 2), seeds(), actions(action_space(facts)))
    base = scripts(facts, steps=16, reseed=True)
    return st.builds(built, base, st.integers(0, lanes - 1), st.lists(edit, min_size=1, max_size=8))


def redrawn_example(facts: Facts) -> RedrawnCase:
    """Lane 0 kept, all others with other seeds, and with the actions of a step later."""
    base = example_script(facts, steps=4)
    changed = base
    steps = [op for op in base.ops if isinstance(op, Step)]
    for lane in range(1, base.lanes):
        for place, later in enumerate([*steps, *steps[:1]]):
            changed = _edited(changed, place, lane, 100 + lane, later.actions[lane])
    return base, changed, 0


def _edited(script: Script, place: int, lane: int, seed: int, row: Row) -> Script:
    """*script* with *seed* or *row* for one lane in the op at *place*, from the end if negative: that shrinks well."""
    op = script.ops[place]
    if isinstance(op, Reset):
        op = attrs.evolve(op, seeds=(*op.seeds[:lane], seed, *op.seeds[lane + 1 :]))
    elif isinstance(op, Step):
        op = attrs.evolve(op, actions=(*op.actions[:lane], row, *op.actions[lane + 1 :]))
    ops = list(script.ops)
    ops[place] = op
    return attrs.evolve(script, ops=tuple(ops))


def permuted_cases(facts: Facts) -> SearchStrategy[PermutedCase]:
    """Lanes swapped in pairs, up to three times."""
    lanes = facts.contract.num_envs

    def built(base: Script, swaps: Sequence[tuple[int, int]]) -> PermutedCase:
        order = list(range(lanes))
        for one, distance in swaps:
            other = (one + 1 + distance) % lanes
            order[one], order[other] = order[other], order[one]
        return _permuted(base, order)

    swap = st.tuples(st.integers(0, lanes - 1), st.integers(0, lanes - 2))
    return st.builds(built, scripts(facts, steps=16, reseed=True), st.lists(swap, min_size=1, max_size=3))


def permuted_example(facts: Facts) -> PermutedCase:
    """All lanes in reverse order."""
    base = example_script(facts, steps=4)
    return _permuted(base, list(reversed(range(base.lanes))))


def _permuted(base: Script, order: Sequence[int]) -> PermutedCase:
    """*base* with lane ``i`` moved to lane ``order[i]``."""
    came_from = {place: lane for lane, place in enumerate(order)}
    ops = tuple([_moved(op, came_from) for op in base.ops])
    return base, attrs.evolve(base, ops=ops), tuple(order)


def _moved(op: Op, came_from: Mapping[int, int]) -> Op:
    lanes = range(len(came_from))
    if isinstance(op, Reset):
        return Reset(tuple([op.seeds[came_from[lane]] for lane in lanes]))
    if isinstance(op, Step):
        return Step(tuple([op.actions[came_from[lane]] for lane in lanes]))
    return op


def seeds_cases(facts: Facts) -> SearchStrategy[SeedsCase]:
    """All lanes with one lane's actions and seeds of their own, and two lanes."""
    lanes = facts.contract.num_envs

    def built(script: Script, given: tuple[int, ...], one: int, distance: int) -> SeedsCase:
        return _alike(script, given), one, (one + 1 + distance) % lanes

    numbers = st.integers(0, lanes - 1), st.integers(0, lanes - 2)
    return st.builds(built, scripts(facts, steps=32), lane_seeds(lanes, distinct=True), *numbers)


def seeds_example(facts: Facts) -> SeedsCase:
    """Lanes 0 and 1, seeded 0 and 1."""
    script = example_script(facts, steps=24)
    return _alike(script, tuple(range(script.lanes))), 0, 1


def _alike(script: Script, given: tuple[int, ...]) -> Script:
    steps = [Step((op.actions[0],) * script.lanes) for op in script.ops if isinstance(op, Step)]
    return attrs.evolve(script, ops=(Reset(given), *steps))


def partial_cases(facts: Facts) -> SearchStrategy[PartialCase]:
    """Resets of some lanes, somewhere behind the first reset."""
    lanes = facts.contract.num_envs
    chosen = st.sets(st.integers(0, lanes - 1), min_size=1, max_size=min(lanes - 1, 4)).map(sorted).map(tuple)

    def built(base: Script, place: int, some: tuple[int, ...], given: tuple[int, ...]) -> PartialCase:
        return _inserted(base, Reset(given[: len(some)], lanes=some), place)

    base = scripts(facts, steps=12, fewest=1)
    return st.builds(built, base, st.integers(0, 11), chosen, lane_seeds(min(lanes, 4)))


def partial_example(facts: Facts) -> PartialCase:
    """A reset of the last lane in the middle of an episode."""
    base = example_script(facts, steps=6)
    return _inserted(base, Reset((7,), lanes=(base.lanes - 1,)), 3)


def bad_reset_cases(facts: Facts) -> SearchStrategy[BadResetCase]:
    """Resets of a lane twice, of one that is not there, and with a seed too many or too few."""
    lanes = facts.contract.num_envs
    place = st.integers(0, lanes - 1)
    bad = st.one_of(
        place.map(lambda lane: Reset((1, 2), lanes=(lane, lane))),
        st.integers(lanes, lanes + 3).map(lambda lane: Reset((1,), lanes=(lane,))),
        place.map(lambda lane: Reset((1, 2), lanes=(lane,))),
        st.just(Reset((1,), lanes=tuple(range(lanes)))),
    )

    def built(base: Script, reset: Reset, at: int) -> BadResetCase:
        return base, reset, _inserted(base, reset, at)[1]

    return st.builds(built, scripts(facts, steps=8, fewest=1), bad, st.integers(0, 7))


def bad_reset_example(facts: Facts) -> BadResetCase:
    """A reset of lane 0 twice."""
    return example_script(facts, steps=3), Reset((1, 2), lanes=(0, 0)), 2


def _inserted(base: Script, reset: Reset, place: int) -> PartialCase:
    """*base* with *reset* before its op at *place*, counted around behind the first reset, and where that is."""
    at = 1 + place % (len(base.ops) - 1)
    return attrs.evolve(base, ops=(*base.ops[:at], reset, *base.ops[at:])), at


def of_width(facts: Facts, lanes: int) -> Facts:
    """*facts* of the same env opened in this process on so many lanes."""
    contract = attrs.evolve(facts.contract, num_envs=lanes, autoreset_mode=AutoresetMode.DISABLED)
    return attrs.evolve(facts, contract=contract, subset_step=True)


def width_cases(facts: Facts) -> SearchStrategy[WidthCase]:
    """Widths 1 to 16, the narrower with what the first lanes of the wider one do."""

    def built(wide: Script, share: int) -> WidthCase:
        return _narrowed(wide, 1 + share % (wide.lanes - 1)), wide

    widths = st.sampled_from(_WIDTHS).flatmap(lambda lanes: scripts(of_width(facts, lanes), steps=12))
    return st.builds(built, widths, st.integers(0, 14))


def width_example(facts: Facts) -> WidthCase:
    """One lane, and three."""
    wide = example_script(of_width(facts, 3), steps=6)
    return _narrowed(wide, 1), wide


def _narrowed(wide: Script, lanes: int) -> Script:
    ops: list[Op] = []
    for op in wide.ops:
        if isinstance(op, Reset):
            ops.append(Reset(op.seeds[:lanes]))
        elif isinstance(op, Step):
            ops.append(Step(op.actions[:lanes]))
        else:
            ops.append(op)
    return Script(lanes, tuple(ops))
