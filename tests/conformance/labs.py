"""Labs for tests of checks: an env in this process, without threads or servers, and one judge asked about it.

``lab_on`` opens a lab on an env; ``judged`` asks a check about its example, or about a case; ``broken_by`` searches for
a case that breaks a check, and makes it small.
"""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import attrs
import trio

from rlmesh_trio.conformance.facts import facts_of
from rlmesh_trio.conformance.lab import TargetLab, open_lab
from rlmesh_trio.conformance.registry import CHECKS
from rlmesh_trio.conformance.search import Broken, Search
from rlmesh_trio.conformance.settings import Settings
from rlmesh_trio.conformance.targets import LocalTarget
from rlmesh_trio.conformance.verdicts import Evidence

__all__ = ("broken_by", "judged", "lab_on")

_ENDS = 30.0


@asynccontextmanager
async def lab_on(source: object, *, lanes: int = 1, **facts: Any) -> AsyncGenerator[TargetLab]:
    """A lab on *source*: an env, a factory, a name, or a vector env, on *lanes* lanes; *facts* are laid over its own.

    A factory is called anew for each fresh session; an env that exists is used again.
    """
    target = LocalTarget(source, lanes=lanes, where="inline")
    async with target.connect(1.0) as env:
        known = attrs.evolve(facts_of(target, env, Settings()), **facts)
    async with open_lab(target, known, step_timeout=5.0) as lab:
        yield lab


async def judged(check: str, source: object, case: Any = None, *, lanes: int = 1, **facts: Any) -> Evidence | None:
    """What the judge of *check* says of *case*, by default the check's example, on *source*."""
    asked = CHECKS[check]
    async with lab_on(source, lanes=lanes, **facts) as lab:
        assert asked.applies(lab.facts) is None
        if case is None:
            assert asked.example is not None, f"{check} has no example: give a case"
            case = asked.example(lab.facts)
        return await asked.judge(lab, case)


async def broken_by(
    check: str, source: object, *, lanes: int = 1, examples: int = 50, seed: int = 0, **facts: Any
) -> Broken | None:
    """The shrunk case that breaks *check* on *source*; ``None`` when none of *examples* does."""
    asked = CHECKS[check]
    async with lab_on(source, lanes=lanes, **facts) as lab:
        assert asked.applies(lab.facts) is None
        search = Search(
            name=check,
            settings=Settings(seed=seed),
            attempt=lambda case: asked.judge(lab, case),
            climbed=lab.take_climbed,
            on_broken=lambda case, evidence, shrinking: None,
        )
        ends = trio.current_time() + _ENDS
        await search.run(asked.cases(lab.facts), examples=examples, deadline=ends, shrink_limit=_ENDS, end=ends)
        return search.best
