"""What the checks of some families complain of: each is asked once, about its example or about a given script."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import attrs

from rlmesh_trio.conformance.blame import blockers_of, in_order
from rlmesh_trio.conformance.catalogue import load_checks
from rlmesh_trio.conformance.facts import facts_of, unreadable_facts
from rlmesh_trio.conformance.lab import TargetLab, open_lab
from rlmesh_trio.conformance.scripts import Script
from rlmesh_trio.conformance.settings import Settings
from rlmesh_trio.conformance.targets import LocalTarget, Target
from rlmesh_trio.conformance.verdicts import Evidence
from rlmesh_trio.errors import HandshakeError

__all__ = ("complaints", "complaints_about", "lab_of")

CHECKS = load_checks()
FAMILIES = ("contract", "space", "value", "render", "py")


@asynccontextmanager
async def lab_of(target: Target, **facts: Any) -> AsyncGenerator[TargetLab]:
    """A lab on *target*, the contract of which may be one that cannot be read; *facts* are laid over its own."""
    try:
        async with target.connect(5.0) as env:
            known = attrs.evolve(facts_of(target, env, Settings()), **facts)
    except HandshakeError:
        known = unreadable_facts(target, Settings())
    async with open_lab(target, known, step_timeout=5.0) as lab:
        yield lab


async def complaints(
    target: Target, script: Script | None = None, *, families: tuple[str, ...] = FAMILIES, **facts: Any
) -> dict[str, Evidence]:
    """By check of *families* what it found, save for notes, and for checks behind one that found something.

    Where a *script* is given it takes the place of the examples that are one script.
    """
    async with lab_of(target, **facts) as lab:
        found: dict[str, Evidence] = {}
        over: set[str] = set()
        for check in in_order(check for check in CHECKS.values() if check.family in families):
            blocked = over & set(blockers_of(check))
            if blocked or check.applies(lab.facts) is not None:
                over.update([check.id] if blocked else [])
                continue
            assert check.example is not None
            case = check.example(lab.facts)
            # A py check of one call has nothing to do with the script.
            given = script is not None and isinstance(case, Script) and len(case.ops) > 2
            evidence = await check.judge(lab, script if given else case)
            if evidence is not None and check.severity != "note":
                found[check.id] = evidence
                over.add(check.id)
        return found


async def complaints_about(
    source: object, script: Script | None = None, *, lanes: int = 1, **facts: Any
) -> dict[str, Evidence]:
    """As :func:`complaints`, about what can be opened as an env in this process."""
    return await complaints(LocalTarget(source, lanes=lanes, where="inline"), script, **facts)
