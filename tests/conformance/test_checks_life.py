"""The family ``life``: each planted fault fails its check and no other, and what is merely odd passes."""

from typing import Any

import gymnasium
import pytest
from gymnasium.wrappers import TimeLimit

from rlmesh_trio.conformance.checks import life as life_checks
from rlmesh_trio.conformance.targets import LocalTarget, WireTarget
from rlmesh_trio.conformance.verdicts import Finding
from rlmesh_trio.serve import serve_env
from tests.conformance.family_runs import found
from tests.conformance.planted import life as planted
from tests.conformance.planted.seed import Walk

REGISTERED = life_checks
AFTER_END = "life.after-end"


async def told(source: object, *, lanes: int = 1, **settings: Any) -> dict[str, Finding]:
    findings = await found(
        LocalTarget(source, lanes=lanes, where="inline"), "life", examples=1, shrink=False, **settings
    )
    return {id: finding for id, finding in findings.items() if id != AFTER_END}


def signature(finding: Finding) -> str:
    assert finding.evidence is not None
    return finding.evidence.signature


@pytest.mark.parametrize(
    ("env", "check", "verdict", "relation"),
    [
        (planted.TooLong, "life.time-limit-exact", "fail", "longer than the limit"),
        (planted.Untimed, "life.time-limit-exact", "fail", "longer than the limit"),
        (planted.TooShort, "life.time-limit-exact", "warn", "truncated at another step"),
        (planted.EndOfTimeIsDone, "life.limit-is-truncation", "warn", "a time limit is a termination"),
        (planted.FixedLength, "life.limit-is-truncation", "note", "a time limit is a termination"),
        (planted.LevelIgnored, "life.options-effective", "warn", "level changes nothing"),
        (planted.LevelByChance, "life.options-effective", "warn", "level does not repeat"),
        (planted.Strict, "life.options-unknown", "warn", "an unknown option ends the session as INTERNAL"),
    ],
)
async def test_a_fault_fails_its_check_alone(env: type[Walk], check: str, verdict: str, relation: str) -> None:
    findings = await told(env, lanes=2)
    assert {id: finding.verdict for id, finding in findings.items()} == {check: verdict}
    assert signature(findings[check]) == relation


@pytest.mark.parametrize(
    "env", [planted.Timed, planted.TimedOrDone, planted.OneStep, planted.Leveled, planted.GoesOn, planted.Refuses, Walk]
)
async def test_what_is_odd_is_no_fault(env: type[Walk]) -> None:
    assert await told(env) == {}


async def test_a_limit_that_is_told_and_kept() -> None:
    assert await told(lambda: TimeLimit(Walk(), 7), max_steps=7) == {}
    assert set(await told(lambda: TimeLimit(Walk(), 7), max_steps=6)) == {"life.time-limit-exact"}


@pytest.mark.parametrize(
    ("env", "does"), [(planted.GoesOn, "goes on"), (planted.Repeats, "repeats the end"), (planted.Refuses, "refuses")]
)
async def test_what_comes_after_the_end_is_told(env: type[Walk], does: str) -> None:
    finding = (await found(LocalTarget(env, where="inline"), "life"))[AFTER_END]
    assert (finding.verdict, signature(finding)) == ("note", f"after the end: {does}")


async def test_who_steps_what_was_not_reset() -> None:
    findings = await found(planted.UnreadyTarget(Walk, where="inline"), "life")
    assert set(findings) == {"life.step-needs-reset"}
    evidence = findings["life.step-needs-reset"].evidence
    assert evidence is not None
    assert evidence.blame == "server"


@pytest.mark.parametrize("lanes", [1, 2])
async def test_our_server_asks_for_a_reset_first(lanes: int) -> None:
    async with serve_env(Walk, lanes=lanes, where="inline") as server:
        assert await found(WireTarget(server.address), "life", examples=2) == {}


async def test_gymnasiums_own() -> None:
    assert await told(lambda: gymnasium.make("FrozenLake-v1"), lanes=2) == {}
