"""Hypothesis strategies for what a script is made of; public, for checks of your own.

Every one shrinks to what is plainest to read: seed 0, the first or middle member of a space, few ops, short waits::

    @check("mine.calm", severity="should", requirement="…", cases=lambda facts: scripts(facts, steps=100))
    async def calm(lab: Lab, script: Script) -> Evidence | None: ...

A script is as wide as its target, and leaves the reset options that the user asked for to the player. Its steps take
their actions from a small pool drawn with it, and repeat them for a while: that leads farther from the start than fresh
actions would, and shrinks well.
"""

from collections.abc import Sequence

from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

from rlmesh_trio.conformance.members import corner_rows, rows
from rlmesh_trio.conformance.registry import Facts
from rlmesh_trio.conformance.scripts import Op, Reset, Row, Script, Step, Wait
from rlmesh_trio.contract import ValueSpace
from rlmesh_trio.messages import Metadata

__all__ = (
    "action_space",
    "actions",
    "example_script",
    "lane_seeds",
    "options",
    "resets",
    "scripts",
    "seeds",
    "waits",
)

_SEED_LIMIT = 2**63
_SEED_EDGES = (2**31 - 1, 2**31, 2**32 - 1, 2**32, _SEED_LIMIT - 1)
_POOL = 6
_PARTS = 12
_DRAWN_LANES = 16
_PAUSES = (0.02, 0.1, 0.3)


def seeds() -> SearchStrategy[int]:
    """Every seed the wire can carry, ``0`` to ``2**63 - 1``, with the edges of narrower integers mixed in."""
    return st.one_of(st.integers(0, _SEED_LIMIT - 1), st.sampled_from(_SEED_EDGES))


def lane_seeds(lanes: int, *, distinct: bool = False) -> SearchStrategy[tuple[int, ...]]:
    """One seed a lane. Beyond 16 lanes they follow one another from a drawn one."""
    if lanes > _DRAWN_LANES:
        return seeds().map(lambda first: tuple([(first + lane) % _SEED_LIMIT for lane in range(lanes)]))
    return st.lists(seeds(), min_size=lanes, max_size=lanes, unique=distinct).map(tuple)


def actions(space: ValueSpace) -> SearchStrategy[Row]:
    """Members of *space* as rows of one lane, built leaf by leaf, the bounds and what lies just inside them mixed in.

    A side that is unbounded, or bounded by the largest number of its dtype only, is taken to reach 1000 beyond the
    other side or zero. A Text without a charset keeps to letters and digits. Leaves of more than 32 elements are
    drawn as a pattern with a few elements of their own.
    """
    return rows(space)


def options() -> SearchStrategy[Metadata]:
    """Small maps of reset options that no env knows: short keys, with a number, a text, a flag or nothing each."""
    values = st.one_of(st.none(), st.integers(0, 9), st.booleans(), st.text("ab", max_size=2))
    return st.dictionaries(st.text("xyz", min_size=1, max_size=3), values, min_size=1, max_size=2)


def waits() -> SearchStrategy[Wait]:
    """Pauses of 0.02 s, which is the plainest, 0.1 s and 0.3 s."""
    return st.sampled_from(_PAUSES).map(Wait)


def resets(facts: Facts, *, seeded: bool = True) -> SearchStrategy[Reset]:
    """Resets of all lanes, with a seed for each, or with none."""
    given = lane_seeds(facts.contract.num_envs) if seeded else st.just(())
    return st.builds(Reset, seeds=given)


def _pools(facts: Facts) -> SearchStrategy[tuple[Row, ...]]:
    """The few actions of one script. Raises :exc:`ValueError` for a target that declares no action space."""
    return st.lists(actions(action_space(facts)), min_size=1, max_size=_POOL).map(tuple)


def scripts(
    facts: Facts,
    *,
    steps: int = 24,
    fewest: int = 0,
    start: bool = True,
    reseed: bool = False,
    unseeded: bool = False,
    partial: bool = False,
    pauses: bool = False,
) -> SearchStrategy[Script]:
    """Scripts of *fewest* to *steps* steps over all lanes.

    They begin with a seeded reset of every lane, unless *start* is false. ``reseed`` mixes more such resets in,
    ``unseeded`` resets without seeds, ``partial`` resets of some lanes, ``pauses`` waits.
    """
    lanes = facts.contract.num_envs
    others: list[SearchStrategy[_Part]] = []
    if reseed:
        others.append(resets(facts))
    if unseeded:
        others.append(resets(facts, seeded=False))
    if partial and lanes > 1:
        others.append(_partial_resets(lanes))
    if pauses:
        others.append(waits())
    # Equal branches of a one_of count once; those of sampled_from have their weight.
    kinds = [_stretches(lanes, max(1, steps // 4))] * (1 + 2 * len(others)) + others
    parts = st.sampled_from(kinds).flatmap(lambda kind: kind)

    def assembled(first: Reset | None, pool: tuple[Row, ...], drawn: Sequence[_Part]) -> Script:
        ops = _ops(drawn, pool, steps)
        missing = fewest - sum(isinstance(op, Step) for op in ops)
        idle = Step((pool[0],) * lanes)
        return Script(lanes, (*([first] if first else []), *ops, *[idle] * missing))

    return st.builds(assembled, resets(facts) if start else st.none(), _pools(facts), _long_lists(parts))


_Choice = tuple[int, ...]
_Part = tuple[_Choice, int] | Reset | Wait


def _stretches(lanes: int, longest: int) -> SearchStrategy[_Part]:
    return st.tuples(_choices(lanes), st.integers(1, longest))


def _choices(lanes: int) -> SearchStrategy[_Choice]:
    """For each lane which action of a pool it takes; beyond 16 lanes, each takes the one after its neighbour's."""
    index = st.integers(0, _POOL - 1)
    if lanes > _DRAWN_LANES:
        return index.map(lambda first: tuple(range(first, first + lanes)))
    return st.tuples(*[index] * lanes)


def _long_lists(parts: SearchStrategy[_Part]) -> SearchStrategy[list[_Part]]:
    """Lists that are not as short as hypothesis likes them, but shrink all the same."""
    by_length = [st.lists(parts, min_size=length, max_size=_PARTS) for length in range(_PARTS)]
    return st.integers(0, _PARTS - 1).flatmap(by_length.__getitem__)


def _ops(parts: Sequence[_Part], pool: Sequence[Row], steps: int) -> list[Op]:
    """The ops of *parts*, with no more than *steps* steps among them."""
    ops: list[Op] = []
    left = steps
    for part in parts:
        if isinstance(part, tuple):
            choice, times = part
            times = min(times, left)
            left -= times
            ops.extend([_step(pool, choice)] * times)
        else:
            ops.append(part)
    return ops


def _step(pool: Sequence[Row], choice: Sequence[int]) -> Step:
    return Step(tuple([pool[index % len(pool)] for index in choice]))


def _partial_resets(lanes: int) -> SearchStrategy[Reset]:
    chosen = st.sets(st.integers(0, lanes - 1), min_size=1, max_size=min(lanes - 1, 4)).map(sorted).map(tuple)
    return chosen.flatmap(lambda some: st.builds(Reset, lane_seeds(len(some)), lanes=st.just(some)))


def example_script(facts: Facts, *, steps: int = 12) -> Script:
    """The same script each time: lanes seeded 0, 1, …, and the corners of the action space one after the other.

    Each lane is one corner ahead of the one before it.
    """
    lanes = facts.contract.num_envs
    corners = corner_rows(action_space(facts))
    played = [_step(corners, range(number, number + lanes)) for number in range(steps)]
    return Script(lanes, (Reset(tuple(range(lanes))), *played))


def action_space(facts: Facts) -> ValueSpace:
    """The target's action space. Raises :exc:`ValueError` when it declares none."""
    space = facts.contract.action_space
    if space is None:
        raise ValueError(f"{facts.name} declares no action space")
    return space
