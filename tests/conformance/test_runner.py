from collections.abc import Sequence
from typing import Any

import attrs
import numpy as np
import pytest
import trio
from hypothesis import strategies as st
from trio.testing import MockClock

from rlmesh_trio.conformance import runner
from rlmesh_trio.conformance.outcome import Outcome
from rlmesh_trio.conformance.registry import Check, Facts, Lab
from rlmesh_trio.conformance.runner import run_checks
from rlmesh_trio.conformance.scripts import Reset, Script, Step
from rlmesh_trio.conformance.settings import Settings
from rlmesh_trio.conformance.targets import LocalTarget, Target, WireTarget
from rlmesh_trio.conformance.verdicts import Evidence, Finding
from rlmesh_trio.errors import ConnectError
from tests.conformance.scripted_env import Counting
from tests.conformance.toy_checks import constant, differs, drawn_scripts, high, never, table, toy

BAD = Evidence(("bad",), "bad")
MILD = attrs.evolve(BAD, severity="should")


async def run(*checks: Check, source: Any = Counting, targets: Sequence[Target] = (), **settings: Any) -> Outcome:
    chosen = attrs.evolve(Settings(seed=0, time=20.0, examples=20), **settings)
    asked = targets or (LocalTarget(source, where="inline"),)
    return await run_checks(asked, chosen, checks=table(*checks))


async def found(*checks: Check, **how: Any) -> dict[str, Finding]:
    return {finding.check: finding for finding in (await run(*checks, **how)).findings}


async def verdicts(*checks: Check, **how: Any) -> dict[str, str]:
    return {id: finding.verdict for id, finding in (await found(*checks, **how)).items()}


@pytest.mark.parametrize(
    ("severity", "evidence", "verdict", "status", "strict_status"),
    [
        ("must", None, "pass", 0, 0),
        ("must", BAD, "fail", 1, 1),
        ("should", BAD, "warn", 0, 1),
        ("note", BAD, "note", 0, 0),
        ("must", MILD, "warn", 0, 1),
        ("must", attrs.evolve(BAD, severity="note"), "note", 0, 0),
    ],
)
async def test_evidence_and_severity_make_the_verdict(
    severity: Any, evidence: Evidence | None, verdict: str, status: int, strict_status: int
) -> None:
    check = toy("mine.a", constant(evidence), severity=severity)
    outcome = await run(check)
    assert [finding.verdict for finding in outcome.findings] == [verdict]
    assert outcome.findings[0].evidence == evidence
    assert outcome.status == status
    assert (await run(check, strict=True)).status == strict_status


async def test_a_failure_is_shrunk_counted_and_kept_as_a_case() -> None:
    outcome = await run(toy("mine.a", high(3), cases=drawn_scripts))
    (finding,) = outcome.findings
    assert finding.verdict == "fail"
    assert finding.scripts == (finding.case,)
    assert [type(op) for op in finding.case.ops] == [Reset, Step, Step, Step]
    assert finding.shrunk_from > 4
    assert (finding.runs, finding.tries) == (3, 3)
    assert finding.evidence is not None
    assert finding.evidence.lines == ("3",)
    assert finding.moot == ((0, 0), (0, 1), (0, 2), (0, 3)), "neither seed nor actions matter"
    ids = finding.evidence.traces[0].answers[0].episode_ids
    assert ids[0].endswith("-000000000003"), "the last of three tries in a session of its own"


async def test_what_matters_is_not_moot() -> None:
    class Choosy(Counting):
        def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
            self.steps += int(action == 2)
            return self.observed(), 0.0, False, False, {}

    (finding,) = (await run(toy("mine.a", high(2), cases=drawn_scripts), source=Choosy)).findings
    assert len(finding.case.ops) == 3
    assert finding.moot == ((0, 0),)


async def test_a_failed_check_blocks_those_that_rest_on_it() -> None:
    asked: list[str] = []
    findings = await found(
        toy("seed.trace-repeatable", constant(BAD)),
        toy("mine.compared", constant(BAD, asked), compares=True),
        toy("mine.behind", constant(BAD, asked), after=("mine.compared",)),
        toy("mine.other", never),
    )
    assert {id: (finding.verdict, finding.reason) for id, finding in findings.items()} == {
        "seed.trace-repeatable": ("fail", ""),
        "mine.compared": ("blocked", "seed.trace-repeatable"),
        "mine.behind": ("blocked", "seed.trace-repeatable"),
        "mine.other": ("pass", ""),
    }
    assert asked == []


async def test_a_failure_found_later_blocks_what_was_found_before() -> None:
    findings = await found(
        toy("mine.late", high(3), cases=drawn_scripts, example=lambda _: Script(1, (Reset(),))),
        toy("mine.early", constant(BAD), after=("mine.late",)),
    )
    assert findings["mine.late"].verdict == "fail"
    assert (findings["mine.early"].verdict, findings["mine.early"].reason) == ("blocked", "mine.late")


async def test_what_others_rest_on_is_run_though_nobody_asked_but_told_only_when_it_fails() -> None:
    behind = toy("mine.behind", constant(BAD), after=("base.first",))
    assert await verdicts(toy("base.first", never), behind, only=("mine",)) == {"mine.behind": "fail"}
    assert await verdicts(toy("base.first", constant(BAD)), behind, only=("mine",)) == {
        "base.first": "fail",
        "mine.behind": "blocked",
    }
    assert await verdicts(toy("base.first", constant(BAD)), behind, only=("mine",), skip=("base",)) == {
        "mine.behind": "fail"
    }


async def test_mild_evidence_does_not_block_but_explains_what_is_as_mild() -> None:
    assert await verdicts(
        toy("seed.trace-repeatable", constant(MILD)),
        toy("mine.infos", constant(MILD), compares=True),
        toy("mine.values", constant(BAD), compares=True),
    ) == {"seed.trace-repeatable": "warn", "mine.infos": "pass", "mine.values": "fail"}


async def test_checks_are_chosen_by_id_family_and_pattern() -> None:
    checks = [toy(id, never) for id in ("seed.a", "seed.b", "lanes.a", "mine.a")]
    assert list(await verdicts(*checks)) == ["seed.a", "seed.b", "lanes.a", "mine.a"]
    assert list(await verdicts(*checks, only=("seed", "*.a"), skip=("lanes.*",))) == ["seed.a", "seed.b", "mine.a"]


@pytest.mark.parametrize(
    ("check", "reason"),
    [
        (toy("mine.a", never, applies=lambda _: "needs num_envs >= 2"), "needs num_envs >= 2"),
        (toy("wire.a", never), "needs a server: this env runs in the kit's own process"),
        (toy("mine.a", never, compares=True), "needs an env whose traces repeat: this one was declared nondeterm"),
    ],
)
async def test_a_skip_says_what_would_be_needed(check: Check, reason: str) -> None:
    outcome = await run(check, nondeterministic=True)
    assert outcome.findings[0].verdict == "skip"
    assert outcome.findings[0].reason.startswith(reason)
    assert outcome.status == 2, "nothing was tested"


async def test_what_a_check_found_out_is_told_to_later_ones() -> None:
    async def judge(lab: Lab, case: Any) -> Evidence | None:
        lab.facts.told["calm"] = True
        await trio.lowlevel.checkpoint()
        return None

    later = toy("mine.later", never, applies=lambda facts: "it is calm" if facts.told.get("calm") else None)
    assert await verdicts(toy("mine.first", judge), later) == {"mine.first": "pass", "mine.later": "skip"}


def _breaking(_: Facts) -> Any:
    raise LookupError("no such thing")


async def _faulty(lab: Lab, case: Any) -> Evidence | None:
    await trio.lowlevel.checkpoint()
    raise LookupError("no such thing")


@pytest.mark.parametrize(
    "check",
    [
        toy("mine.a", _faulty),
        toy("mine.a", _faulty, example=None),
        toy("mine.a", never, cases=_breaking, example=None),
        toy("mine.a", never, example=_breaking),
        toy("mine.a", never, applies=_breaking),
    ],
)
async def test_a_fault_of_the_checks_own_is_an_error_and_the_others_go_on(check: Check) -> None:
    outcome = await run(check, toy("mine.b", never))
    first, second = outcome.findings
    assert (first.verdict, second.verdict) == ("error", "pass")
    assert first.reason.startswith("LookupError: no such thing")
    assert outcome.status == 4


def know(monkeypatch: pytest.MonkeyPatch, check: str, signature: str) -> None:
    """Let one failure be a known fault of the server."""

    def lookup(package: str, version: str, failed: str, evidence: str, facts: Facts) -> str | None:
        return "an old fault" if (failed, evidence) == (check, signature) else None

    monkeypatch.setattr(runner, "lookup", lookup)


async def test_a_known_fault_is_shown_and_does_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    know(monkeypatch, "mine.a", "bad")
    outcome = await run(toy("mine.a", constant(BAD)))
    finding = outcome.findings[0]
    assert (finding.verdict, finding.reason) == ("known", "an old fault")
    assert finding.evidence == attrs.evolve(BAD, blame="server")
    assert outcome.status == 0
    assert (await run(toy("mine.a", constant(BAD)), strict_server=True)).status == 1
    other = attrs.evolve(BAD, signature="worse")
    assert await verdicts(toy("mine.a", constant(other))) == {"mine.a": "fail"}


async def test_a_known_fault_is_cut_short(monkeypatch: pytest.MonkeyPatch) -> None:
    know(monkeypatch, "mine.a", "high")
    (finding,) = (await run(toy("mine.a", high(3), cases=drawn_scripts))).findings
    assert finding.verdict == "known"
    assert len(finding.case.ops) == 4
    assert finding.shrunk_from > 4


async def test_another_failure_behind_a_known_one_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    async def judge(lab: Lab, case: int) -> Evidence | None:
        await trio.lowlevel.checkpoint()
        return attrs.evolve(BAD, signature="worse") if case > 5 else BAD

    know(monkeypatch, "mine.a", "bad")
    (finding,) = (await run(toy("mine.a", judge, cases=lambda _: st.integers(0, 9), example=lambda _: 0))).findings
    assert (finding.verdict, finding.case) == ("fail", 6)


def only_a_reset(_: Facts) -> st.SearchStrategy[Script]:
    return st.just(Script(1, (Reset(),)))


async def test_long_play_finds_what_is_rare_and_cuts_it_short() -> None:
    class Rare(Counting):
        length = 200

    late = toy("mine.late", high(9), cases=drawn_scripts, soak=True, example=lambda _: Script(1, (Reset(),)))
    findings = await found(attrs.evolve(late, cases=only_a_reset), source=Rare)
    assert findings["mine.late"].verdict == "fail"
    assert [type(op) for op in findings["mine.late"].case.ops] == [Reset] + [Step] * 9
    assert findings["mine.late"].shrunk_from >= 10


async def test_once_history_matters_plays_are_kept_apart() -> None:
    class Lingering(Counting):
        """Remembers in the object: a fresh one is as new."""

        total = 0

        def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
            self.total += 1
            self.steps = self.total % 7
            return self.observed(), 0.0, False, False, {}

    pair = (Script(1, (Reset((0,)), Step(((bytes(8),),)))),) * 2
    history = toy("seed.history-independent", constant(BAD), cases=lambda _: st.just(pair), example=None)
    compared = toy("mine.compared", differs, cases=drawn_scripts)
    assert await verdicts(compared, source=Lingering) == {"mine.compared": "fail"}
    assert await verdicts(history, compared, source=Lingering) == {
        "seed.history-independent": "fail",
        "mine.compared": "pass",
    }


async def test_two_runs_with_one_seed_find_the_same() -> None:
    checks = (
        toy("mine.a", high(3), cases=drawn_scripts, soak=True),
        toy("mine.b", high(4), cases=drawn_scripts, example=None),
        toy("mine.c", differs, cases=drawn_scripts),
    )

    async def outcome() -> list[Finding]:
        findings = (await run(*checks, seed=5)).findings
        return [
            attrs.evolve(finding, seconds=0.0, shrink_seconds=0.0, evidence=timeless(finding)) for finding in findings
        ]

    assert await outcome() == await outcome()


def timeless(finding: Finding) -> Evidence | None:
    """The evidence of *finding* without what a clock has to do with."""
    evidence = finding.evidence
    if evidence is None:
        return None
    traces = [
        attrs.evolve(trace, answers=tuple(attrs.evolve(answer, seconds=0.0, completed=()) for answer in trace.answers))
        for trace in evidence.traces
    ]
    return attrs.evolve(evidence, traces=tuple(traces))


async def test_the_run_ends_after_so_many_failures() -> None:
    findings = await found(*[toy(f"mine.{name}", constant(BAD)) for name in "abcd"], max_fail=2)
    assert [finding.verdict for finding in findings.values()] == ["fail", "fail", "skip", "skip"]
    assert findings["mine.c"].reason == "the run ended after 2 failures"


async def test_several_targets_are_tested_one_after_the_other() -> None:
    targets = [LocalTarget(Counting, where="inline"), LocalTarget("CartPole-v1", where="inline")]
    outcome = await run(toy("mine.a", high(3), cases=drawn_scripts), targets=targets)
    assert [(target.name, target.kind) for target in outcome.targets] == [
        ("Counting", "local"),
        ("CartPole-v1", "local"),
    ]
    assert [finding.target for finding in outcome.findings] == ["Counting", "CartPole-v1"]
    assert [finding.verdict for finding in outcome.findings] == ["fail", "pass"]
    assert outcome.targets[0].contract_digest != outcome.targets[1].contract_digest


async def test_later_targets_are_compared_with_the_first() -> None:
    class Other(Counting):
        def observed(self) -> Any:
            return super().observed() + np.float32(self.steps == 2)

    async def agrees(lab: Lab, script: Script) -> Evidence | None:
        here, there = await lab.play(script), await lab.play_other(script)
        return BAD if [a.raw_leaves for a in here.answers] != [a.raw_leaves for a in there.answers] else None

    check = toy("twin.agrees", agrees, cases=drawn_scripts, applies=lambda facts: None if facts.other else "needs two")
    targets = [LocalTarget(source, where="inline") for source in (Counting, Counting, Other)]
    findings = (await run(check, targets=targets)).findings
    assert [(finding.verdict, finding.reason) for finding in findings] == [
        ("skip", "needs two"),
        ("pass", ""),
        ("fail", ""),
    ]
    assert len(findings[2].case.ops) == 3


async def test_a_target_that_is_not_there_is_told_before_anything_is_played(autojump_clock: MockClock) -> None:
    asked: list[str] = []
    targets = [LocalTarget(Counting, where="inline"), WireTarget("unix:///nowhere/at/all")]
    with pytest.raises(ConnectError, match="nowhere"):
        await run(toy("mine.a", constant(None, asked)), targets=targets)
    assert asked == []
