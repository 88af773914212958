"""How runs end, and what is kept then: by the time, by an interruption, by a fault of the kit, by the target's loss."""

import math
from typing import Any

import pytest
import trio
from hypothesis import strategies as st
from trio.testing import MockClock

from rlmesh_trio.conformance import runner
from rlmesh_trio.conformance.registry import Lab
from rlmesh_trio.conformance.runner import TargetRun, run_checks
from rlmesh_trio.conformance.scripts import Reset, Script, Step
from rlmesh_trio.conformance.settings import Settings
from rlmesh_trio.conformance.targets import LocalTarget
from rlmesh_trio.conformance.verdicts import Evidence
from rlmesh_trio.conformance.watching import Watcher
from rlmesh_trio.errors import ConnectError
from tests.conformance.scripted_env import Counting
from tests.conformance.test_runner import BAD, run
from tests.conformance.toy_checks import constant, differs, drawn_scripts, high, never, one, table, toy


async def test_the_time_is_kept_in_the_middle_of_everything(autojump_clock: MockClock) -> None:
    async def slow(lab: Lab, case: Any) -> Evidence | None:
        await trio.sleep(1.5)
        return None

    async def endless(lab: Lab, case: Any) -> Evidence | None:
        await trio.sleep(math.inf)
        return None

    before = trio.current_time()
    outcome = await run(toy("mine.a", slow), toy("mine.b", endless), time=10.0)
    assert trio.current_time() - before <= 10.0 + 1.0
    assert [finding.verdict for finding in outcome.findings] == ["pass", "skip"]
    assert "--time gives more" in outcome.findings[1].reason


async def test_so_it_is_while_a_failure_becomes_small(autojump_clock: MockClock) -> None:
    async def slow(lab: Lab, script: Script) -> Evidence | None:
        await trio.sleep(0.7)
        return BAD

    before = trio.current_time()
    outcome = await run(*[toy(f"mine.{name}", slow, cases=drawn_scripts) for name in "abcd"], time=10.0)
    assert trio.current_time() - before <= 10.0 + 1.0
    assert [finding.verdict for finding in outcome.findings] == ["fail"] * 4
    assert all(finding.cut for finding in outcome.findings)


async def test_what_had_time_for_all_its_cases_is_not_cut() -> None:
    checks = (toy("mine.a", never, cases=drawn_scripts, soak=True), toy("mine.b", high(3), cases=drawn_scripts))
    outcome = await run(*checks, examples=2, time=60.0)
    assert [(finding.verdict, finding.cut) for finding in outcome.findings] == [("pass", False), ("fail", False)]


async def test_a_later_run_goes_by_what_an_earlier_one_found_out() -> None:
    class Lingering(Counting):
        total = 0

        def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
            self.total += 1
            self.steps = self.total % 7
            return self.observed(), 0.0, False, False, {}

    async def teller(lab: Lab, case: Any) -> Evidence | None:
        lab.facts.told["calm"] = True
        return await constant(BAD)(lab, case)

    pair = (Script(1, (Reset((0,)), Step(((bytes(8),),)))),) * 2
    history = toy("seed.history-independent", teller, cases=lambda _: st.just(pair), example=None)
    later = toy(
        "mine.compared",
        differs,
        cases=drawn_scripts,
        applies=lambda facts: None if facts.told.get("calm") else "needs to be calm",
    )
    target = LocalTarget(Lingering, where="inline")
    runs: list[TargetRun] = []
    for check in (history, later):
        run = TargetRun(target, Settings(seed=0, time=20.0, examples=3), table(check), Watcher())
        if runs:
            run.follow(runs[-1])
        runs.append(run)
        await run.look()
        await run.run()
    assert [run.outcome().findings[0].verdict for run in runs] == ["fail", "pass"]


async def test_a_fault_of_the_kit_keeps_what_was_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(pace: float | None) -> int:
        raise LookupError(f"no pace {pace}")

    monkeypatch.setattr(runner, "soak_steps", fails)
    checks = toy("mine.a", constant(BAD)), toy("mine.b", never)
    targets = [LocalTarget(Counting, where="inline")] * 2
    outcome = await run(*checks, targets=targets)
    assert [finding.verdict for finding in outcome.findings] == ["fail", "error"] * 2
    assert outcome.findings[1].reason.startswith("LookupError: no pace None")
    assert outcome.status == 4


async def test_an_interruption_keeps_what_was_found() -> None:
    async def interrupting(lab: Lab, case: Any) -> Evidence | None:
        scope.cancel()
        await trio.sleep(math.inf)
        return None

    scope = trio.CancelScope()
    checks = table(toy("contract.a", constant(BAD)), toy("mine.b", interrupting), toy("mine.c", never))
    target = LocalTarget(Counting, where="inline")
    outcome = await run_checks([target], Settings(seed=0), checks=checks, scope=scope)
    assert outcome.interrupted
    assert outcome.status == 130
    assert [(finding.verdict, finding.reason) for finding in outcome.findings] == [
        ("fail", ""),
        ("skip", "the run was interrupted"),
        ("skip", "the run was interrupted"),
    ]


async def test_a_lost_target_keeps_what_was_found_and_the_next_is_tested(autojump_clock: MockClock) -> None:
    from tests.conformance.scripted_env import ScriptedEnv, ScriptedTarget
    from tests.conformance.test_lab import dead

    lost = ScriptedTarget(ScriptedEnv(dead), ScriptedEnv(dead), ConnectError("nobody there"))
    checks = (toy("contract.a", constant(BAD)), toy("mine.b", never, cases=one))
    outcome = await run(*checks, targets=[lost, LocalTarget(Counting, where="inline")])
    first, second = outcome.targets
    assert first.lost.startswith("scripted did not come back: nobody there")
    assert first.last_script is not None
    assert [(finding.verdict, finding.reason) for finding in first.findings] == [
        ("fail", ""),
        ("skip", "the target was lost"),
    ]
    assert second.lost == ""
    assert [finding.verdict for finding in second.findings] == ["fail", "pass"]
    assert outcome.status == 3
