"""Wire checks on scripted servers: one server a check, which is asked about its example, or about a search."""

import math
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import attrs

from rlmesh_trio.conformance.checks import wire, wire_sessions
from rlmesh_trio.conformance.facts import facts_of
from rlmesh_trio.conformance.lab import TargetLab, open_lab
from rlmesh_trio.conformance.registry import CHECKS, Facts
from rlmesh_trio.conformance.search import Broken, Search
from rlmesh_trio.conformance.settings import Settings
from rlmesh_trio.conformance.targets import WireTarget
from rlmesh_trio.conformance.verdicts import Evidence
from tests.conformance.broken_server import ScriptedServer, scripted_server

__all__ = ("WIRE_CHECKS", "example_of", "facts_at", "failing", "judged_by_wire", "lab_at", "search_at", "searched")

WIRE_CHECKS = tuple(
    name for name, check in CHECKS.items() if check.judge.__module__ in (wire.__name__, wire_sessions.__name__)
)
_LIMIT = 5.0


async def facts_at(address: str) -> Facts:
    """The facts of the server at *address*, which may be shut down."""
    target = WireTarget(address)
    async with target.connect(5.0) as env:
        return facts_of(target, env, Settings(allow_shutdown=True))


@asynccontextmanager
async def lab_at(
    address: str, *, facts: Facts | None = None, step_timeout: float = _LIMIT
) -> AsyncGenerator[TargetLab]:
    """A lab on the server at *address*, of which *facts* are known or asked for."""
    known = facts or await facts_at(address)
    async with open_lab(WireTarget(address), known, step_timeout=step_timeout) as lab:
        yield lab


async def judged_by_wire(
    check: str, server: ScriptedServer, case: Any = None, *, facts: Facts | None = None
) -> Evidence | None:
    """What the judge of *check* says of *case*, by default the check's example, on *server*, a fresh one."""
    async with (
        scripted_server(attrs.evolve(server)) as address,
        lab_at(address, facts=facts) as lab,
    ):
        return await CHECKS[check].judge(lab, example_of(check, lab.facts) if case is None else case)


def example_of(check: str, facts: Facts) -> Any:
    """The example of *check*; a large request is no larger than it has to be, for a server written in Python."""
    example = CHECKS[check].example
    if example is None:
        assert check == "wire.shutdown"
        return ()
    return ("step padding=5",) if check == "wire.large" else example(facts)


async def searched(check: str, server: ScriptedServer) -> Broken | None:
    """The smallest case that breaks *check* on *server*; ``None`` when none of 30 does."""
    async with scripted_server(attrs.evolve(server)) as address, lab_at(address) as lab:
        return await search_at(lab, check, examples=30)


async def search_at(lab: TargetLab, check: str, *, examples: int) -> Broken | None:
    """As :func:`searched`, on the target of *lab*."""
    search = Search(
        name=check,
        settings=Settings(seed=0),
        attempt=lambda case: CHECKS[check].judge(lab, case),
        climbed=lab.take_climbed,
        on_broken=lambda case, evidence, shrinking: None,
    )
    cases = CHECKS[check].cases(lab.facts)
    await search.run(cases, examples=examples, deadline=math.inf, shrink_limit=math.inf, end=math.inf)
    return search.best


async def failing(server: ScriptedServer) -> dict[str, str]:
    """The checks whose examples fail on *server*, with their signatures, less those that a failed one blocks."""
    async with scripted_server(attrs.evolve(server)) as address:
        facts = await facts_at(address)
    found: dict[str, str] = {}
    for check in WIRE_CHECKS:
        if found.keys() & set(CHECKS[check].after):
            continue
        # What is no matter of size need not be large.
        case = ("step padding=1",) if check == "wire.large" and "MiB" not in server.fault else None
        if (evidence := await judged_by_wire(check, server, case, facts=facts)) is not None:
            found[check] = evidence.signature
    return {check: signature for check, signature in found.items() if not found.keys() & set(CHECKS[check].after)}
