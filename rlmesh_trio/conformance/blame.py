"""Which failure explains which: the order in which checks are tried, and what a failed one makes of those after it."""

from collections.abc import Collection, Iterable, Mapping

from rlmesh_trio.conformance.registry import Check

__all__ = ("REPEATABLE", "blockers_of", "in_order", "with_blockers")

REPEATABLE = "seed.trace-repeatable"
"""What everything that compares two runs rests on."""

_FAMILIES = ("contract", "space", "value", "seed", "lanes", "autoreset", "life", "acct", "wire", "render", "py", "twin")


def blockers_of(check: Check) -> tuple[str, ...]:
    """The ids whose failure makes *check* meaningless, nearest last."""
    rests_on = (REPEATABLE,) if check.compares and check.id != REPEATABLE else ()
    return (*rests_on, *check.after)


def in_order(checks: Iterable[Check]) -> tuple[Check, ...]:
    """*checks* family by family as the catalogue has them, others last, and each behind what may block it."""
    by_id = {check.id: check for check in sorted(checks, key=_family_rank)}
    ordered: dict[str, Check] = {}

    def place(check: Check, above: Collection[str]) -> None:
        for blocker in blockers_of(check):
            if blocker in by_id and blocker not in ordered and blocker not in above:
                place(by_id[blocker], {*above, check.id})
        ordered.setdefault(check.id, check)

    for check in by_id.values():
        place(check, ())
    return tuple(ordered.values())


def with_blockers(selected: Iterable[str], checks: Mapping[str, Check]) -> set[str]:
    """The ids *selected*, and all that may block one of them, directly or not."""
    found: set[str] = set()
    waiting = list(selected)
    while waiting:
        id = waiting.pop()
        if id in checks and id not in found:
            found.add(id)
            waiting.extend(blockers_of(checks[id]))
    return found


def _family_rank(check: Check) -> int:
    return _FAMILIES.index(check.family) if check.family in _FAMILIES else len(_FAMILIES)
