"""Checks for tests of the runner: made of a judge and little else, and registered nowhere."""

from collections.abc import Callable
from typing import Any, Literal

import numpy as np
from hypothesis import strategies as st

from rlmesh_trio.conformance.registry import Check, Facts, Judge, Lab
from rlmesh_trio.conformance.scripts import Reset, Script
from rlmesh_trio.conformance.strategies import example_script, scripts
from rlmesh_trio.conformance.traces import Trace
from rlmesh_trio.conformance.verdicts import Evidence, Severity

__all__ = ("anything", "constant", "differs", "drawn_scripts", "high", "never", "nothing", "one", "table", "toy")


def anything(_: Facts) -> str | None:
    """Every target will do."""
    return None


def nothing(_: Facts) -> None:
    """The case there is nothing to."""


def one(_: Facts) -> st.SearchStrategy[None]:
    """Nothing to draw: one case."""
    return st.none()


def drawn_scripts(facts: Facts) -> st.SearchStrategy[Script]:
    """Scripts of up to 12 steps."""
    return scripts(facts, steps=12)


def toy(
    id: str,
    judge: Judge,
    *,
    cases: Callable[[Facts], Any] = one,
    example: Callable[[Facts], Any] | Literal["usual"] | None = "usual",
    applies: Callable[[Facts], str | None] = anything,
    severity: Severity = "must",
    after: tuple[str, ...] = (),
    compares: bool = False,
    soak: bool = False,
) -> Check:
    """A check of this *judge*, a must by default, its example a fixed script where its cases are scripts."""
    if example == "usual":
        example = example_script if cases is drawn_scripts else nothing
    return Check(
        id=id,
        severity=severity,
        requirement="It holds.",
        rule="",
        judge=judge,
        cases=cases,
        example=example,
        applies=applies,
        after=after,
        compares=compares,
        soak=soak,
        needs_own_session=False,
    )


def table(*checks: Check) -> dict[str, Check]:
    """*checks* by id, as the registry has them."""
    return {check.id: check for check in checks}


def constant(evidence: Evidence | None, asked: list[str] | None = None) -> Judge:
    """A judge that always says the same, and notes in *asked* that it was."""

    async def judge(lab: Lab, case: Any) -> Evidence | None:
        if asked is not None:
            asked.append("asked")
        await lab.play(Script(lab.facts.contract.num_envs, (Reset(),)))
        return evidence

    return judge


never = constant(None)


def high(limit: float) -> Judge:
    """A judge that wants the first element of each observation below *limit*."""

    async def judge(lab: Lab, script: Script) -> Evidence | None:
        trace = await lab.play(script)
        for answer in trace.answers:
            for lane, row in zip(answer.lanes, answer.observation, strict=False):
                if (value := float(np.frombuffer(row[0], np.float32)[0])) >= limit:
                    return Evidence((f"{value:g}",), "high", traces=(trace,), first=(answer.op, lane))
        return None

    return judge


async def differs(lab: Lab, script: Script) -> Evidence | None:
    """Play twice and compare."""
    first, second = await lab.play(script), await lab.play(script)
    return Evidence(("differs",), "differs", traces=(first, second)) if _bits(first) != _bits(second) else None


def _bits(trace: Trace) -> list[tuple[bytes, ...]]:
    return [answer.raw_leaves for answer in trace.answers]
