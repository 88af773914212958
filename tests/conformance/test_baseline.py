"""The baseline: what it takes off a run, when an entry is stale, how it is read, written and updated."""

from datetime import date
from pathlib import Path

import attrs
import pytest

from rlmesh_trio.conformance.baseline import Baseline, Entry, baseline_text, read_baseline, updated
from rlmesh_trio.conformance.outcome import Outcome
from rlmesh_trio.conformance.registry import CHECKS
from rlmesh_trio.errors import InvalidSpec
from tests.conformance.outcomes import finding, history, outcome, server_fault, solo, target

TODAY = date(2027, 1, 15)
ID = "seed.history-independent"
ENTRY = Entry(ID, signature="obs.velocity: value", reason="cache, #41")


@pytest.fixture(autouse=True)
def _catalogue(monkeypatch: pytest.MonkeyPatch) -> None:
    # A baseline asks only whether there is such a check.
    for check in (ID, "lanes.solo-equal", "life.step-needs-reset"):
        monkeypatch.setitem(CHECKS, check, CHECKS.get(check))


FAILED = outcome(target(history()))
PASSED = outcome(target(finding(ID, "pass")))


def verdicts(told: Outcome) -> list[tuple[str, str]]:
    return [(one.verdict, one.reason) for one in told.findings]


def whys(entry: Entry, told: Outcome) -> list[str]:
    return [stale.why for stale in Baseline((entry,)).stale(told, TODAY)]


def test_an_accepted_failure_is_known_and_does_not_count() -> None:
    applied = Baseline((ENTRY,)).applied(FAILED, TODAY)
    assert verdicts(applied) == [("known", "in the baseline: cache, #41")]
    assert applied.findings[0].evidence == FAILED.findings[0].evidence, "it is still shown"
    assert (FAILED.status, applied.status) == (1, 0)
    assert whys(ENTRY, FAILED) == []


def test_so_is_a_warning_of_a_strict_run() -> None:
    strict = outcome(target(server_fault()), strict=True)
    entry = Entry("life.step-needs-reset", signature="answered")
    assert (strict.status, Baseline((entry,)).applied(strict, TODAY).status) == (1, 0)


def test_another_failure_of_the_same_check_is_not_swallowed() -> None:
    entry = attrs.evolve(ENTRY, signature="reward: value")
    applied = Baseline((entry,)).applied(FAILED, TODAY)
    why = "not the failure of the baseline: 'obs.velocity: value', accepted is 'reward: value'"
    assert verdicts(applied) == [("fail", why)]
    assert applied.status == 1


def test_without_a_signature_any_failure_of_the_check_is_accepted() -> None:
    assert Baseline((Entry(ID),)).applied(FAILED, TODAY).status == 0


@pytest.mark.parametrize(
    ("pattern", "name", "matches"),
    [
        ("*", "Pole-v1", True),
        ("Pole-*", "Pole-v1", True),
        ("127.0.0.1:*", "127.0.0.1:5555", True),
        ("[[]::1]:5555", "[::1]:5555", True),
        ("Cart*", "Pole-v1", False),
    ],
)
def test_targets_are_patterns(pattern: str, name: str, matches: bool) -> None:
    told = outcome(target(history(name), name=name))
    assert Baseline((Entry(ID, pattern),)).applied(told, TODAY).status == (0 if matches else 1)


def test_a_check_that_passes_makes_its_entry_stale() -> None:
    assert whys(ENTRY, PASSED) == ["the check passes on Pole-v1: take it out, or narrow its target"]
    assert whys(attrs.evolve(ENTRY, target="Pole-v1"), PASSED) == ["the check passes: take it out"]
    assert whys(attrs.evolve(ENTRY, target="Cart*"), PASSED) == [], "this run says nothing of other targets"


def test_a_flaky_entry_may_do_either() -> None:
    flaky = attrs.evolve(ENTRY, flaky=True)
    assert whys(flaky, PASSED) == whys(flaky, FAILED) == []


def test_an_entry_is_good_until_the_end_of_its_day() -> None:
    assert whys(attrs.evolve(ENTRY, until=TODAY), FAILED) == []
    over = attrs.evolve(ENTRY, until=date(2027, 1, 14), flaky=True)
    (why,) = whys(over, FAILED)
    assert why == "its date 2027-01-14 is over: mend the env, or agree on a new date"
    assert Baseline((over,)).applied(FAILED, TODAY).status == 1, "and it covers nothing"


@pytest.mark.parametrize("verdict", ["skip", "blocked", "error"])
def test_what_was_not_judged_makes_nothing_stale(verdict: str) -> None:
    told = outcome(target(finding(ID, verdict, reason="x")))
    assert whys(attrs.evolve(ENTRY, until=date(2020, 1, 1)), told) == []
    assert whys(ENTRY, outcome(target())) == []


def test_a_check_that_does_not_exist_is_stale() -> None:
    assert whys(Entry("seed.history-independant"), PASSED) == ["there is no such check: take it out"]


def test_what_is_written_is_read_again(tmp_path: Path) -> None:
    odd = 'obs["a\\b"]: é \n\t \x7f 漢 😀'
    entries = (ENTRY, Entry("a.b", odd, odd, odd, date(2027, 1, 31), flaky=True), Entry("c.d"))
    path = tmp_path / "conform-baseline.toml"
    path.write_text(baseline_text(Baseline(entries)), encoding="utf-8")
    assert read_baseline(str(path)) == Baseline(entries)
    path.write_text(baseline_text(Baseline()), encoding="utf-8")
    assert read_baseline(str(path)) == Baseline()


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("[[entry]]\nid = 3", "entry 1: id must be a text, not 3"),
        ("[[entry]]\nreason = 'x'", "entry 1 has no id: name the check"),
        (
            "[[entry]]\nid = 'a.b'\n[[entry]]\nid = 'a.b'\nuntill = 2027-01-01",
            "entry 2 has an unknown key 'untill'; the keys are id, target, signature, reason, until, flaky",
        ),
        ("[[entry]]\nid = 'a.b'\nuntil = '2027'", "entry 1: until must be a date, as in 2027-01-31, not '2027'"),
        ("[[entry]]\nid = 'a.b'\nuntil = 2027-01-01T00:00:00", "entry 1: until must be a date"),
        ("[[entry]]\nid = 'a.b'\nflaky = 1", "entry 1: flaky must be true or false, not 1"),
        ("entry = ['a.b']", "entry 1 is no table: write [[entry]] above it"),
        ("[[entries]]\nid = 'a.b'", "holds [[entry]] tables only, not entries"),
        ("entry = 3", "holds [[entry]] tables only, not entry = …"),
        ("[[entry", "is no TOML"),
    ],
)
def test_what_is_no_baseline_is_refused_in_one_line(text: str, complaint: str, tmp_path: Path) -> None:
    path = tmp_path / "b.toml"
    path.write_text(text)
    with pytest.raises(InvalidSpec) as refused:
        read_baseline(str(path))
    assert refused.value.why.startswith(f"baseline {path}")
    assert complaint in refused.value.why
    assert "\n" not in refused.value.why


def test_a_baseline_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidSpec, match="No such file"):
        read_baseline(str(tmp_path / "none.toml"))


def update(told: Outcome, *entries: Entry) -> tuple[Entry, ...]:
    """The entries after an update, which leaves nothing stale and nothing that counts."""
    after = updated(Baseline(entries), told, TODAY)
    assert after.stale(told, TODAY) == ()
    assert after.applied(told, TODAY).failed == ()
    return after.entries


def test_an_update_adds_what_fails() -> None:
    told = outcome(target(history()), target(solo("[v]"), name="[v]"))
    assert update(told) == (
        Entry(ID, "Pole-v1", "obs.velocity: value"),
        Entry("lanes.solo-equal", "[[]v]", "obs.velocity: value", flaky=True),
    )


def test_an_update_keeps_reasons_and_drops_what_is_stale() -> None:
    assert update(FAILED, ENTRY) == (ENTRY,)
    assert update(PASSED, ENTRY) == ()
    over = attrs.evolve(ENTRY, until=date(2020, 1, 1))
    assert update(FAILED, over) == (attrs.evolve(ENTRY, target="Pole-v1"),)


def test_an_update_narrows_an_entry_that_passes_elsewhere() -> None:
    told = outcome(target(history()), target(finding(ID, "pass", "other"), name="other"))
    assert update(told, ENTRY) == (attrs.evolve(ENTRY, target="Pole-v1"),)


def test_an_update_keeps_what_was_not_judged() -> None:
    elsewhere = Entry(ID, "elsewhere")
    assert update(PASSED, elsewhere) == (elsewhere,)


def test_an_update_leaves_an_entry_beside_a_new_failure() -> None:
    other = attrs.evolve(ENTRY, signature="reward: value")
    assert update(FAILED, other) == (other, Entry(ID, "Pole-v1", "obs.velocity: value"))


def test_a_finding_tells_its_entry() -> None:
    (failure,) = FAILED.findings
    assert Baseline((ENTRY,)).entry_for(failure, TODAY) == ENTRY
    assert Baseline((ENTRY,)).entry_for(PASSED.findings[0], TODAY) is None
