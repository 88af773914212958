"""Relations between two plays: what changed between them must not matter.

Before a difference is blamed on the change, the unchanged script is played once more. An env that does not even repeat
itself breaks another requirement, and only that one.
"""

from collections.abc import Awaitable, Callable, Mapping

from rlmesh_trio.conformance.differences import Difference, first_difference
from rlmesh_trio.conformance.printing import difference_lines
from rlmesh_trio.conformance.registry import Facts
from rlmesh_trio.conformance.traces import Trace
from rlmesh_trio.conformance.verdicts import Evidence

__all__ = ("confirmed", "difference_evidence")


async def confirmed(
    base: Trace,
    changed: Trace,
    again: Callable[[], Awaitable[Trace]],
    facts: Facts,
    *,
    lanes: Mapping[int, int] | None = None,
) -> Difference | None:
    """Where *changed* parts from *base*, provided that *again*, which plays the script of *base*, does not.

    Where only episodes that the env began by itself do not repeat, these are left out. *lanes* maps the lanes of *base*
    that are compared to those of *changed*.
    """
    if first_difference(base, changed, facts, lanes=lanes) is None:
        return None
    repeated = await again()
    same = None if lanes is None else {lane: lane for lane in lanes}
    for autoresets in (True, False):
        difference = first_difference(base, changed, facts, lanes=lanes, autoresets=autoresets)
        own = first_difference(base, repeated, facts, lanes=same, autoresets=autoresets)
        if difference is None or own is None or (own.info_only and not difference.info_only):
            return difference
    return None


def difference_evidence(
    difference: Difference, a: Trace, b: Trace, labels: tuple[str, str], meaning: str, *lines: str
) -> Evidence:
    """What a reader gets to see of *difference*, with more *lines* before it. Infos alone are a should."""
    return Evidence(
        (*lines, *difference_lines(difference, (a.script, b.script), labels)),
        f"{difference.path} differs",
        meaning,
        traces=(a, b),
        first=(difference.op, difference.lane),
        severity="should" if difference.info_only else None,
    )
