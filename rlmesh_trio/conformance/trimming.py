"""Making a script smaller past its strategy: what came after the fault, before its episode, in between; other seeds.

A strategy shrinks seeds to 0, also where another seed would show the fault many steps sooner.
"""

from collections.abc import Awaitable, Callable

import attrs

from rlmesh_trio.conformance.scripts import Op, Reset, Script
from rlmesh_trio.conformance.verdicts import Evidence

__all__ = ("reseeded", "trimmed")

_SEEDS = 16
_SHORT = 3
_Breaks = Callable[[Script], Awaitable[Evidence | None]]


async def trimmed(script: Script, evidence: Evidence, breaks: _Breaks) -> tuple[Script, Evidence]:
    """A part of *script*, which broke with *evidence*, that still *breaks*, and how."""
    best, shown = script, evidence

    async def take(ops: tuple[Op, ...]) -> bool:
        nonlocal best, shown
        if not ops or len(ops) >= len(best.ops):
            return False
        smaller = attrs.evolve(script, ops=ops)
        broken = await breaks(smaller)
        if broken is None:
            return False
        best, shown = smaller, broken
        return True

    if evidence.first is not None:
        await take(best.ops[: evidence.first[0] + 1])
    starts = [place for place, op in enumerate(best.ops) if isinstance(op, Reset) and not op.lanes]
    for start in reversed(starts[1:]):
        if await take(best.ops[start:]):
            break
    size = len(best.ops) // 2
    while size:
        start = len(best.ops) - size
        while start > 0:
            await take(best.ops[:start] + best.ops[start + size :])
            start = min(start - size, len(best.ops) - size)
        size //= 2
    return best, shown


async def reseeded(script: Script, evidence: Evidence, breaks: _Breaks) -> tuple[Script, Evidence]:
    """*script*, which broke with *evidence*, with the first of a few seeds for its one reset that needs fewest ops."""
    best, shown = script, evidence
    reset, *rest = script.ops
    seeded = isinstance(reset, Reset) and bool(reset.seeds) and not any(isinstance(op, Reset) for op in rest)
    for number in range(_SEEDS if seeded else 0):
        if len(best.ops) <= _SHORT:
            break
        first = attrs.evolve(reset, seeds=tuple([number + lane for lane in range(script.lanes)]))
        other = await breaks(attrs.evolve(script, ops=(first, *rest)))
        if other is None or other.first is None or other.first[0] + 1 >= len(best.ops):
            continue
        shorter = attrs.evolve(script, ops=(first, *rest[: other.first[0]]))
        broken = await breaks(shorter)
        if broken is not None:
            best, shown = shorter, broken
    return best, shown
