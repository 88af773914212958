"""The report for a terminal: what it says, that it fits, and that nothing an env says acts on the terminal."""

import re
from typing import Any

import attrs
import click
import pytest

from rlmesh_trio.conformance.reports.material import Material, Stale
from rlmesh_trio.conformance.reports.terminal import SCREEN, failure_block, terminal_text, wants_color
from rlmesh_trio.conformance.scripts import Reset, Script, Step
from rlmesh_trio.conformance.verdicts import Evidence
from tests.conformance.outcomes import action, everything, finding, history, material, outcome, server_fault, target


def block(failure: Any, **options: Any) -> list[str]:
    told = material(outcome(target(failure)))
    return [click.unstyle(line) for line in failure_block(told, told.outcome.targets[0], failure, **options)]


def rows_of(lines: list[str], width: int = 80) -> int:
    return sum(max(1, -(-len(line) // width)) for line in lines)


def test_a_failure_is_told_as_the_manual_shows_it() -> None:
    blob = "c-m~WK?($!" * 9
    assert block(history(), width=120) == [
        "FAIL seed.history-independent   must   2 scripts, 5 ops, 3/3 runs   shrunk from 61 ops in 4.1 s",
        "  A  reset(seed=0) step(2)",
        "  B  reset(seed=0) step(1) step(1)",
        "  others do as well for: A reset; B step 1",
        "  B alone    step 2  obs.velocity[0] = 0.0917   (0x3dbbcd36)",
        "  B after A  step 2  obs.velocity[0] = 0.0921   (0x3dbc9eed)   53687 ulp apart",
        "  meaning: something reset() does not clear acts on the first or later transitions (caches, timers, filters)",
        '  rule: edition 2026.06 "Reset", gymnasium Env.reset'
        "      more: rlmesh-trio conform show seed.history-independent",
        f"  again: rlmesh-trio conform try '{blob}' Pole-v1",
        "  file: .rlmesh-trio/fail/history-8c1f.mcap",
        "  plain gymnasium: .rlmesh-trio/fail/history-8c1f.py  (14 lines, needs no rlmesh_trio)",
    ]


def test_at_80_columns_lines_are_folded_and_commands_are_not() -> None:
    lines = block(history())
    assert max(len(line) for line in lines if "again:" not in line) <= 80
    assert [line for line in lines if line.startswith("  again: ")] == [line for line in lines if "conform try" in line]


LONG = Script(1, (Reset((0,)), *[Step((action(number % 3),)) for number in range(400)]))


@pytest.mark.parametrize(
    "changes",
    [
        {"scripts": (LONG, LONG)},
        {"scripts": (LONG,) * 9},
        {
            "evidence": Evidence(
                tuple(f"{number:3} " + "word " * 30 for number in range(60)), "many", meaning="so " * 90
            )
        },
        {"scripts": (LONG,), "moot": (), "evidence": Evidence(("x" * 3000,), "wide"), "reason": "because " * 60},
        {"moot": tuple((1, 0) for _ in range(200))},
    ],
)
def test_whatever_failed_fits_a_screen_and_keeps_what_is_to_be_done(changes: dict[str, Any]) -> None:
    lines = block(history(**changes))
    assert rows_of(lines) <= SCREEN
    assert lines[-1].startswith("  plain gymnasium: ")
    assert "  file: .rlmesh-trio/fail/history-8c1f.mcap" in lines


def test_what_is_cut_says_so_and_verbose_cuts_nothing() -> None:
    many = history(evidence=Evidence(tuple(f"line {number}" for number in range(60)), "many"))
    assert re.search(r"^  … \d+ more lines$", "\n".join(block(many)), re.MULTILINE)
    assert "  line 59" in block(many, verbose=True)


def test_a_blob_that_fills_the_screen_gives_way_to_the_file() -> None:
    failure = history()
    told = material(outcome(target(failure)))
    key = (failure.check, failure.target)
    long = attrs.evolve(told.reproductions[key], again="rlmesh-trio conform try '" + "b" * 900 + "'")
    lines = failure_block(attrs.evolve(told, reproductions={key: long}), told.outcome.targets[0], failure)
    assert "  again: rlmesh-trio conform replay .rlmesh-trio/fail/history-8c1f.mcap Pole-v1" in lines


def test_the_whole_report() -> None:
    text = terminal_text(material())
    assert max(len(line) for line in text.splitlines() if "again:" not in line and "failed:" not in line) <= 80
    table = "family    pass  fail  warn  note  skip  blocked  known  examples   steps   time"
    assert text.count(table) == 2
    assert "seed         ·     1     ·     ·     ·        1      ·        40   2,468    3.0" in text
    assert (
        "not tested\n"
        "  seed.timing-independent: blocked by seed.history-independent\n"
        "  lanes.*: needs num_envs >= 2\n" in text
    )
    assert "ERROR wire.large   must\n  error: ValueError: no such leaf\n       at checks/wire.py:12\n" in text
    assert "WARN life.step-needs-reset   should   2 moves, 1/1 runs   blame: server\n" in text
    assert "  known: rlmesh 0.1.0 answers any step\n" in text
    assert "1 check could not be judged: a fault of this tool\n" in text
    assert "LOST the server no longer answers: connection refused\n  last script: reset(seed=0) step(2)\n" in text
    assert "NOTE space.bounds-report\n  obs.position   declared -1 to 1   seen -0.9 to 0.9\n" in text
    *_, seed, conclusion = text.splitlines()
    assert seed == "seed 42  the same run again: --seed 42"
    assert conclusion.startswith(
        "3 checks failed: space.member-accepted, seed.history-independent, lanes.solo-equal; a"
    )


@pytest.mark.parametrize(
    ("told", "conclusion"),
    [
        (material(outcome(target(finding("a.b", "pass")))), "passed  (32 s)"),
        (material(outcome(target(finding("a.b", "skip", reason="x")))), "nothing was tested  (32 s)"),
        (material(outcome(target(finding("a.b", "pass"))), times=False), "passed"),
        (
            material(outcome(target(finding("a.b", "pass"))), stale=(Stale("a.b", "*", "passes"),)),
            "1 stale entry in the baseline  (32 s)",
        ),
        (
            material(attrs.evolve(outcome(target(finding("a.b", "pass"))), interrupted=True)),
            "interrupted: what was found so far  (32 s)",
        ),
        (material(outcome(target(server_fault()), strict=True)), "1 check failed: life.step-needs-reset  (32 s)"),
    ],
)
def test_the_last_line_is_the_conclusion(told: Material, conclusion: str) -> None:
    assert terminal_text(told).splitlines()[-1] == conclusion


def test_colour_changes_nothing_but_colour() -> None:
    plain, colored = terminal_text(material()), terminal_text(material(), color=True)
    assert "\x1b[31m" in colored
    assert "\x1b" not in plain
    assert click.unstyle(colored) == plain


def test_control_characters_of_an_env_are_written_out() -> None:
    text = terminal_text(material(everything()))
    assert "\\x1b[31m<script>" in text
    assert "Segmentation fault \\x07" in text


class Screen:
    def __init__(self, tty: bool) -> None:
        self._tty = tty

    def isatty(self) -> bool:
        return self._tty


@pytest.mark.parametrize(
    ("tty", "environment", "wanted"),
    [(True, {}, True), (False, {}, False), (True, {"NO_COLOR": "1"}, False), (True, {"TERM": "dumb"}, False)],
)
def test_colour_is_for_terminals_that_want_it(
    tty: bool, environment: dict[str, str], wanted: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in ({"TERM": "xterm", "NO_COLOR": ""} | environment).items():
        monkeypatch.setenv(name, value)
    screen: Any = Screen(tty)
    assert wants_color(screen) is wanted


def test_a_known_fault_is_told_in_half_a_screen_and_in_full_when_asked() -> None:
    evidence = Evidence(tuple(f"line {number}" for number in range(9)), "bad", "it is so", blame="server")
    known = finding("wire.large", "known", reason="an old fault", evidence=evidence)
    short = block(known)
    assert "  known: an old fault" in short
    assert "  … 8 more lines" in short
    assert not any("meaning" in line for line in short)
    assert {"  line 8", "  meaning: it is so"} <= set(block(known, verbose=True))


def test_a_run_without_a_reset_that_succeeded_does_not_just_say_passed() -> None:
    unplayed = finding("seed.sensitive", "skip", reason="needs a reset that succeeds: all 3 failed")
    text = terminal_text(material(outcome(target(finding("contract.stable", "pass"), unplayed))))
    assert "passed, but no reset succeeded and little was tested" in text
