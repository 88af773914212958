"""Which ops of a shrunk script do not matter: those that break the check as well with other actions, or other seeds."""

from collections.abc import Awaitable, Callable

import attrs
import numpy as np

from rlmesh_trio.conformance.registry import Facts
from rlmesh_trio.conformance.scripts import Op, Reset, Script, Step
from rlmesh_trio.conformance.soak import ActionSampler
from rlmesh_trio.conformance.verdicts import Evidence

__all__ = ("moot_ops",)

_VARIANTS = 2
_LONGEST = 30
_DRAWS = 8


async def moot_ops(
    script: Script, breaks: Callable[[Script], Awaitable[Evidence | None]], facts: Facts, *, seed: int
) -> tuple[tuple[int, int], ...]:
    """The places ``(0, op)`` of the ops of *script* that may be others. Long scripts are not gone into."""
    if len(script.ops) > _LONGEST:
        return ()
    sampler = ActionSampler(facts, seed=seed)
    random = np.random.default_rng(seed)
    found: list[tuple[int, int]] = []
    for place, op in enumerate(script.ops):
        others = _others(op, sampler, random)
        for other in others:
            varied = attrs.evolve(script, ops=(*script.ops[:place], other, *script.ops[place + 1 :]))
            if await breaks(varied) is None:
                break
        else:
            if others:
                found.append((0, place))
    return tuple(found)


def _others(op: Op, sampler: ActionSampler, random: np.random.Generator) -> list[Op]:
    """Ops that differ from *op* in actions or seeds; none where it has neither, or no others were drawn."""
    variants: list[Op] = []
    for _ in range(_DRAWS):
        if isinstance(op, Step):
            variant: Op = attrs.evolve(op, actions=tuple(sampler.row() for _ in op.actions))
        elif isinstance(op, Reset) and op.seeds:
            variant = attrs.evolve(op, seeds=tuple(random.integers(2**31, size=len(op.seeds)).tolist()))
        else:
            return []
        if variant != op and variant not in variants:
            variants.append(variant)
        if len(variants) == _VARIANTS:
            break
    return variants
