"""Making a script smaller where no strategy drew it: what came after the fault, before its episode, and in between."""

from collections.abc import Awaitable, Callable

import attrs

from rlmesh_trio.conformance.scripts import Op, Reset, Script
from rlmesh_trio.conformance.verdicts import Evidence

__all__ = ("trimmed",)

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
