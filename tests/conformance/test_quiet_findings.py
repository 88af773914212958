"""What does not count against a target: known faults, notes, and what nothing can be judged on."""

from typing import Any

import attrs
import pytest
import trio
from hypothesis import strategies as st
from trio.testing import MockClock

from rlmesh_trio.conformance.registry import Facts, Lab
from rlmesh_trio.conformance.scripts import Reset, Script
from rlmesh_trio.conformance.targets import LocalTarget
from rlmesh_trio.conformance.verdicts import Evidence
from tests.conformance.scripted_env import Counting, ScriptedEnv, ScriptedTarget
from tests.conformance.test_lab import dead
from tests.conformance.test_runner import BAD, MILD, know, only_a_reset, run, verdicts
from tests.conformance.toy_checks import constant, never, toy


class Unresettable(Counting):
    """Cannot be reset."""

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        raise OSError("no floor")


async def plays(lab: Lab, script: Script) -> Evidence | None:
    trace = await lab.play(script)
    return None if all(answer.refusal is None for answer in trace.answers) else BAD


FAMILIES = ("space.a", "space.b", "space.c", "seed.d", "life.e", "py.f")
RESETTING = [toy(name, plays, cases=only_a_reset, example=lambda _: Script(1, (Reset(),))) for name in FAMILIES]


async def test_where_no_reset_succeeds_little_else_is_judged() -> None:
    findings = (await run(*RESETTING, targets=[LocalTarget(Unresettable, where="inline")])).findings
    assert [finding.verdict for finding in findings] == ["fail", "fail", "fail", "skip", "skip", "fail"]
    assert findings[3].reason == "needs a reset that succeeds: all 3 failed"
    assert set((await verdicts(*RESETTING)).values()) == {"pass"}


async def test_a_server_that_is_gone_in_resets_is_not_one_that_refuses_them(autojump_clock: MockClock) -> None:
    findings = (await run(*RESETTING, targets=[ScriptedTarget(ScriptedEnv(dead))])).findings
    assert {finding.verdict for finding in findings} == {"fail"}


async def test_a_known_fault_that_weighs_less_blocks_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    know(monkeypatch, "mine.a", "bad")
    for evidence, verdict in ((BAD, "blocked"), (MILD, "pass")):
        told = await verdicts(toy("mine.a", constant(evidence)), toy("mine.b", never, after=("mine.a",)))
        assert told == {"mine.a": "known", "mine.b": verdict}


async def test_of_two_runs_that_differ_the_shortest_is_told_infos_last() -> None:
    async def judge(lab: Lab, case: int) -> Evidence | None:
        await trio.lowlevel.checkpoint()
        if not case:
            return None
        told = attrs.evolve(BAD, signature=str(case))
        return told if case > 6 else attrs.evolve(told, severity="note")

    def numbers(_: Facts) -> st.SearchStrategy[int]:
        return st.integers(0, 9)

    check = toy("mine.a", judge, cases=numbers, severity="note", compares=True)
    (compared,) = (await run(check, examples=60)).findings
    assert compared.verdict == "note"
    assert compared.case > 6
