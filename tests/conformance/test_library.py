import sys
from collections.abc import Generator
from pathlib import Path

import pytest

from rlmesh_trio.conformance.blame import blockers_of, in_order, with_blockers
from rlmesh_trio.conformance.catalogue import load_checks, refuse_unknown
from rlmesh_trio.conformance.library import trio_conform
from rlmesh_trio.conformance.registry import CHECKS
from rlmesh_trio.conformance.settings import Settings
from rlmesh_trio.conformance.targets import LocalTarget
from rlmesh_trio.errors import ConnectError, InvalidSpec
from tests.conformance.scripted_env import Counting
from tests.conformance.toy_checks import never, table, toy


@pytest.fixture(autouse=True)
def registry() -> Generator[None]:
    """Leave no check of these tests behind."""
    before = dict(load_checks())
    yield
    CHECKS.clear()
    CHECKS.update(before)


async def test_a_target_is_tested_by_what_is_asked_for() -> None:
    settings = Settings(seed=1, time=10, examples=2)
    async with trio_conform(LocalTarget(Counting, where="inline"), settings) as run:
        findings = await run("seed.reset-repeatable", "wire.close")
        assert [(finding.check, finding.verdict) for finding in findings] == [
            ("seed.reset-repeatable", "pass"),
            ("wire.close", "skip"),
        ]
        (again,) = await run("seed.reset-repeatable", examples=1)
        assert again.examples < findings[0].examples
        assert run.outcome is not None
        assert run.outcome.findings == (again,)
        with pytest.raises(InvalidSpec, match=r"there is no check 'seed\.reset-repeatible'"):
            await run("seed.reset-repeatible")


async def test_a_class_is_tested_in_this_process() -> None:
    async with trio_conform(Counting, Settings(lanes=2, examples=1)) as run:
        assert (run.target.kind, run.target.name) == ("local", "Counting")


async def test_what_cannot_be_had_is_told_when_it_is_opened() -> None:
    with pytest.raises(ConnectError, match="no module named 'nowhere'"):
        async with trio_conform("nowhere:make"):
            raise AssertionError


OWN = """
from hypothesis import strategies as st
from rlmesh_trio.conformance.registry import check

@check("{id}", severity="must", requirement="It holds.", cases=lambda facts: st.none())
async def judge(lab, case):
    return None
"""


def test_checks_of_ones_own_are_found_in_the_working_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    for name, text in {
        "own_good": OWN.format(id="own.good"),
        "own_twice": OWN.format(id="own.good"),
        "own_nothing": "",
        "own_broken": "1 / 0",
    }.items():
        (tmp_path / f"{name}.py").write_text(text)
    assert "own.good" in load_checks(("own_good",))
    load_checks(("own_good",))
    for module, why in {
        "own_twice": "a check's id is family.name and is there once, not 'own.good'",
        "own_nothing": "registers no check",
        "own_broken": "ZeroDivisionError",
        "own_absent": "No module named 'own_absent'",
    }.items():
        with pytest.raises(InvalidSpec, match=why):
            load_checks((module,))


def test_a_name_that_stands_for_no_check_is_refused() -> None:
    refuse_unknown(Settings(only=("seed", "wire.close", "*.malformed")), CHECKS)
    with pytest.raises(InvalidSpec, match=r"there is no check 'wire\.closed' \(did you mean wire\.close"):
        refuse_unknown(Settings(skip=("wire.closed",)), CHECKS)


def test_checks_stand_behind_those_that_may_explain_them() -> None:
    checks = table(
        toy("mine.last", never, after=("lanes.second",)),
        toy("lanes.second", never, compares=True),
        toy("contract.a", never, after=("mine.first",)),
        toy("seed.trace-repeatable", never, compares=True),
        toy("mine.first", never),
    )
    assert [check.id for check in in_order(checks.values())] == [
        "mine.first",
        "contract.a",
        "seed.trace-repeatable",
        "lanes.second",
        "mine.last",
    ]
    assert blockers_of(checks["lanes.second"]) == ("seed.trace-repeatable",)
    assert blockers_of(checks["seed.trace-repeatable"]) == ()
    assert with_blockers(["mine.last"], checks) == {"mine.last", "lanes.second", "seed.trace-repeatable"}


def test_checks_that_explain_each_other_are_put_in_some_order() -> None:
    checks = table(toy("a.a", never, after=("a.b",)), toy("a.b", never, after=("a.a",)))
    assert {check.id for check in in_order(checks.values())} == {"a.a", "a.b"}


def test_the_time_says_how_many_examples_there_are() -> None:
    assert [Settings(time=time).examples_each for time in (10.0, 60.0, 900.0)] == [3, 20, 300]
    assert Settings(time=10.0, examples=7).examples_each == 7


def test_seeds_of_parts_follow_from_the_seed() -> None:
    drawn = Settings().seeded()
    assert drawn.seed_drawn
    assert drawn.seeded() is drawn
    given = Settings(seed=3).seeded()
    assert not given.seed_drawn
    assert given.seed_of("a") == Settings(seed=3).seed_of("a") != given.seed_of("b")
