"""``replay show``: what stands on the screen, how wide, what is left out of it, and what becomes of a picture."""

import importlib
import json
from collections.abc import Callable, Sequence
from pathlib import Path

import attrs
import click
import pytest

from rlmesh_trio.cli.columns import labelled, table
from rlmesh_trio.recording import Header, Mishap, RecordingWriter
from tests.cli.program import Ran, at_terminal, run
from tests.recording.plays import DICT, Op, contract_of, episodes, record, recorded

Run = Callable[..., Ran]


@pytest.fixture
def show(capsys: pytest.CaptureFixture[str]) -> Run:
    return lambda *args: run(capsys, "replay", "show", *map(str, args))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "run.mcap"


def test_a_run_is_shown_with_its_header_episodes_and_what_they_amount_to(show: Run, path: Path) -> None:
    settings = {"max_episode_seconds": 5.0}
    machine = {"cpu": "Abacus", "cpu_count": "4", "python": "CPython 3.11.7", "numpy": "2.1", "cpu_flags": "fpu"}
    header = Header(contract=contract_of(2), base_seed=7, settings=settings, machine=machine, tolerance="ulp=2")
    recorded(path, episodes(2, 3, 4), attrs.evolve(header, env_address="localhost:5555"))
    ran = show(path)
    rows = ran.rows()
    assert (ran.status, ran.err) == (0, "")
    assert ran.out.splitlines()[0] == "Toy-v0: 3 episodes"
    assert rows["env"] == "Toy-v0 at localhost:5555"
    assert rows["contract"].endswith(", 2 lanes, autoreset DISABLED")
    assert rows["level"] == "digest"
    assert rows["seeds"] == "derived from 7, by=slot"
    assert rows["machine"] == "Abacus, 4 CPUs, CPython 3.11.7, numpy 2.1"
    assert rows["tolerance"] == "ulp=2"
    assert rows["repeatable"].startswith("no: its episodes are capped by the clock")
    assert "        2    42     1      4       1  truncated  " in ran.out
    assert rows["episodes"] == "3, 12 steps, 15 ticks"
    assert rows["return"] == "1 ± 0 (min 1, max 1)"
    assert rows["ends"] == "3 truncated"
    assert len(rows["run root"]) == 32


def test_mishaps_and_attempts_are_counted_and_a_few_told(show: Run, path: Path) -> None:
    with RecordingWriter(path, Header(contract=contract_of(1))) as writer:
        for attempt in range(7):
            record(writer, Op((0,), ((0.0, 0.0),), (1,), (41,), True))
            writer.record_decision(9, Mishap("retry", 1, attempt + 1, "EnvRpcError", "gone\nand \x1b[31mred"))
        writer.record_decision(9, Mishap("reconnect", 0, 0, "", ""))
    ran = show(path)
    rows = ran.rows()
    assert rows["given up"] == "6 earlier attempts"
    assert rows["mishaps"] == "7 retries, 1 reconnect"
    assert ran.out.count("retry of episode 1, EnvRpcError: gone and �[31mred") == 5
    assert "and 3 more" in ran.out


def test_a_failed_check_says_how_it_is_tried_again(show: Run, tmp_path: Path) -> None:
    path = tmp_path / "a file.mcap"
    settings = {"conform.check": "acct.interrupted", "conform.blob": "..."}
    recorded(path, episodes(1, 1, 1), Header(contract=contract_of(1), settings=settings), "full")
    ran = show(path)
    assert ran.rows()["check"] == "what failed the check acct.interrupted"
    again = f"again: rlmesh-trio conform replay '{path}' TARGET"
    assert "".join(again.split()) in "".join(ran.out.split()), "a long path is broken where the line ends"
    assert "repeatable" not in ran.out


def test_an_episode_is_shown_step_by_step_and_its_middle_left_out(show: Run, path: Path) -> None:
    recorded(path, episodes(1, 2, 60, observation=DICT), Header(contract=contract_of(1, DICT)), "full")
    ran = show(path, "--episode", 2)
    lines = ran.out.splitlines()
    assert lines[0] == "Toy-v0, episode 2 of 2: truncated after 60 steps, return 183"
    assert "  … 48 steps left out here (--all shows them)" in lines
    assert any(line.startswith("     1  1") and "  note='" in line and "' place=[" in line for line in lines)
    assert any(line.startswith("    60  0") and "truncated" in line for line in lines)
    assert "cumulative reward   ● truncated" in ran.out
    assert "obs.place   0 to 1 are [0] to [1]" in ran.out
    assert max(map(len, lines)) <= 80
    everything = show(path, "--episode", 2, "--all").out
    assert "left out" not in everything
    assert all(f"\n  {step:4}  " in everything for step in range(61))


def test_below_level_full_digests_are_shown(show: Run, path: Path) -> None:
    recorded(path, episodes(1, 1, 3), Header(contract=contract_of(1)))
    ran = show(path, "--episode", 1)
    assert "digests of the observation" in ran.out
    assert "reward   ● truncated" in ran.out


def test_everything_is_had_as_json(show: Run, path: Path) -> None:
    recorded(path, episodes(1, 30, 3), Header(contract=contract_of(1)))
    ran = show(path, "--json")
    assert (ran.status, ran.err) == (0, "")
    document = json.loads(ran.out)
    assert (document["file"], document["damage"], len(document["episodes"])) == (str(path), "", 30)
    document = json.loads(show(path, "--episode", 30, "--json").out)
    assert (document["ordinal"], len(document["rows"])) == (30, 4)


def test_an_episode_that_is_not_there_is_refused(show: Run, path: Path) -> None:
    recorded(path, episodes(1, 3, 1), Header(contract=contract_of(1)))
    ran = show(path, "--episode", 4)
    assert (ran.status, ran.out) == (2, "")
    assert ran.error == f"recording {path}: it holds no episode 4: it has episodes 1 to 3"
    recorded(path, [], Header(contract=contract_of(1)))
    assert show(path, "--episode", 4).error.endswith("it holds no episode 4: it has none")
    assert show(path).rows()["episodes"] == "0, 0 steps, 0 ticks"


@pytest.mark.parametrize("options", [(), ("--episode", "2"), ("--json",)])
def test_a_picture_is_drawn_beside_what_is_shown(options: Sequence[str], show: Run, path: Path, tmp_path: Path) -> None:
    recorded(path, episodes(1, 3, 5), Header(contract=contract_of(1)), "full")
    png = tmp_path / "out.png"
    ran = show(path, *options, "--png", png)
    assert (ran.status, ran.err) == (0, f"drawn: {png}\n")
    assert png.read_bytes().startswith(b"\x89PNG")
    assert ran.out == show(path, *options).out


def test_a_picture_of_nothing_is_not_drawn(show: Run, path: Path, tmp_path: Path) -> None:
    recorded(path, [], Header(contract=contract_of(1)))
    ran = show(path, "--png", tmp_path / "out.png")
    assert (ran.status, ran.error.partition("png: ")[2]) == (
        2,
        "it was not drawn: there is nothing that can be plotted",
    )


def test_without_the_extra_there_is_a_table_and_one_line(
    show: Run, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recorded(path, episodes(1, 1, 3), Header(contract=contract_of(1)))
    load = importlib.import_module

    def without(name: str) -> object:
        if name in ("plotext", "matplotlib.figure"):
            raise ModuleNotFoundError(name=name)
        return load(name)

    monkeypatch.setattr(importlib, "import_module", without)
    ran = show(path, "--episode", 1)
    assert ran.status == 0
    assert "digests of the observation" in ran.out
    assert ran.err == (
        "no plot: a plot in the terminal needs the package plotext, which is not installed: "
        "pip install 'rlmesh_trio[plot]'\n"
    )
    ran = show(path, "--png", "out.png")
    assert (ran.status, ran.error) == (
        2,
        "a PNG needs the package matplotlib, which is not installed: pip install 'rlmesh_trio[plot]'",
    )


@pytest.mark.parametrize(("columns", "no_color"), [(60, ""), (120, "1")])
def test_a_terminal_is_filled_and_coloured_as_it_asks(
    columns: int, no_color: str, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NO_COLOR", no_color)
    recorded(path, episodes(1, 1, 40, observation=DICT), Header(contract=contract_of(1, DICT)), "full")
    with at_terminal("replay", "show", str(path), "--episode", "1", columns=columns) as terminal:
        assert terminal.wait() == 0
    assert max(map(len, terminal.lines())) == columns
    assert ("\x1b[38;5" in terminal.written) == (not no_color)


def test_text_fits_its_lines() -> None:
    lines = labelled([("a", "word " * 30), ("label", "x\x1b[2J\ny")], 40)
    assert max(len(click.unstyle(line)) for line in lines) <= 40
    assert lines[-1] == "  \x1b[1mlabel\x1b[0m  x�[2J y"
    lines = table(("n", "text", "rest"), [("1", "ab", "long " * 20), ("20", "c", "")], 30, left=("text", "rest"))
    assert lines[1:] == ["   1  ab    long long long lo…", "  20  c"]
