"""Checks, and an env, that the tests of ``conform`` name on the command line; importing this registers the checks."""

from typing import Any

import numpy as np
import trio

from rlmesh_trio.conformance.registry import Lab, check
from rlmesh_trio.conformance.scripts import Script
from rlmesh_trio.conformance.strategies import example_script, scripts
from rlmesh_trio.conformance.verdicts import Evidence
from tests.cli.toys import Vector, Walk


class Lame(Walk):
    """Breaks in the second step of every episode."""

    def step(self, action: np.int64) -> tuple[Vector, float, bool, bool, dict[str, Any]]:
        if self.clock == 1:
            raise RuntimeError("a leg broke")
        return super().step(action)


@check(
    "own.accepted",
    severity="must",
    requirement="Steps are answered.",
    cases=lambda facts: scripts(facts, steps=12),
    example=example_script,
)
async def accepted(lab: Lab, script: Script) -> Evidence | None:
    trace = await lab.play(script)
    for answer in trace.answers:
        if answer.refusal is not None:
            return Evidence((f"refused with {answer.refusal.code}",), "refused", first=(answer.op, 0), traces=(trace,))
    return None


@check(
    "own.short",
    severity="should",
    requirement="No script has more than two steps.",
    cases=lambda facts: scripts(facts, steps=12),
    example=example_script,
)
async def short(lab: Lab, script: Script) -> Evidence | None:
    await lab.play(script)
    return Evidence((f"{len(script.ops)} ops",), "long") if len(script.ops) > 3 else None


@check("own.endless", severity="must", requirement="It ends.", cases=scripts, example=example_script)
async def endless(lab: Lab, script: Script) -> Evidence | None:
    await lab.play(script)
    print("endless", flush=True)
    await trio.sleep_forever()


@check("own.faulty", severity="must", requirement="It has no faults.", cases=scripts, example=example_script)
async def faulty(lab: Lab, script: Script) -> Evidence | None:
    await lab.play(script)
    raise LookupError("a fault of its own")
