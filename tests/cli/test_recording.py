"""``--record``: the file is a recording that other tools read, and a run goes on from it."""

import json
import shlex
from pathlib import Path
from typing import Any

import pytest
from mcap.reader import make_reader

from rlmesh_trio.recording import open_recording, verify
from rlmesh_trio.resume import read_finished
from tests.cli.program import run
from tests.cli.schema import complaints

WALK = "tests.cli.toys:Walk"
BROKEN = "tests.cli.toys:BrokenWalk"
JOB = ("--seed", "7", "--episodes", "5")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty working directory."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def document(path: str) -> dict[str, Any]:
    found = json.loads(Path(path).read_text())
    assert complaints(found) == []
    return found


def root(path: str) -> str:
    with open_recording(path) as recording:
        assert recording.footer is not None
        return recording.footer.run_root.hex()


@pytest.mark.usefixtures("folder")
def test_a_recorded_run_says_where_and_what_its_root_is(capsys: pytest.CaptureFixture[str]) -> None:
    ran = run(capsys, "run", WALK, *JOB, "--record", "run.mcap", "--json", "report.json", "--lanes", "2")
    assert (ran.status, ran.err) == (0, "")
    assert ran.rows()["recording"] == f"run.mcap, run root {root('run.mcap')[:12]}"
    assert document("report.json")["recording"] == {"path": "run.mcap", "run_root": root("run.mcap")}
    assert verify("run.mcap").problems == ()
    run(capsys, "run", WALK, *JOB, "--record", "full.mcap", "--record-level", "full")
    assert root("full.mcap") == root("run.mcap")


@pytest.mark.usefixtures("folder")
def test_the_standard_library_reads_the_file_and_finds_every_checksum_right(capsys: pytest.CaptureFixture[str]) -> None:
    run(capsys, "run", "CartPole-v1", *JOB, "--record", "run.mcap", "--record-level", "full")
    with Path("run.mcap").open("rb") as stream:
        reader = make_reader(stream, validate_crcs=True)
        assert reader.get_header().profile == "rlmesh_trio.recording.v1"
        topics = [channel.topic for _, channel, _ in reader.iter_messages()]
        summary = reader.get_summary()
    assert summary is not None
    assert summary.statistics is not None
    assert summary.statistics.message_count == len(topics)
    assert topics[0] == topics[-1] == "/run"
    assert topics.count("/episode") == 5


@pytest.mark.usefixtures("folder")
def test_what_the_header_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    told = "--ignore-info at --ignore-info outer.at --ignore-leaf $ --tol ulp=4 --record-level ring=2"
    assert run(capsys, "run", WALK, *JOB, "--record", "run.mcap", *shlex.split(told)).status == 0
    with open_recording("run.mcap") as recording:
        header = recording.header
    assert (header.level, header.ring, header.tolerance) == ("ring", 2, "ulp=4")
    assert (header.ignored_infos, header.unstable_leaves) == (("at", "outer.at"), ("$",))
    assert (header.base_seed, header.settings["max_episodes"]) == (7, 5)


@pytest.mark.usefixtures("folder")
def test_a_failed_run_goes_on_from_its_recording(capsys: pytest.CaptureFixture[str]) -> None:
    ran = run(capsys, "run", BROKEN, *JOB, "--record", "run.mcap", "--journal", "run.jsonl")
    assert ran.status == 1
    assert ran.error.endswith("; the same command with --resume run.mcap goes on")
    job = ("--record", "run.mcap", "--resume", "run.mcap", "--journal", "run.jsonl", "--json", "report.json")
    ran = run(capsys, "run", WALK, *JOB, *job)
    assert (ran.status, ran.err) == (0, "")
    assert (ran.rows()["episodes"], ran.rows()["resumed"]) == ("5", "1 of them, 4 steps")
    run(capsys, "run", WALK, *JOB, "--record", "whole.mcap")
    assert document("report.json")["recording"]["run_root"] == root("whole.mcap")
    assert len(read_finished("run.jsonl").episodes) == len(read_finished("run.mcap").episodes) == 5


@pytest.mark.usefixtures("folder")
def test_a_run_that_need_not_repeat_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    ran = run(capsys, "run", WALK, "--episodes", "2", "--record", "a.mcap", "--max-seconds", "60")
    assert ran.status == 0
    assert ran.err.splitlines() == [
        "warning: this run need not repeat: its episodes are capped by the clock, after 60 s: cap steps instead",
        "warning: this run need not repeat: it has no seed: what the env draws is drawn anew each time",
    ]
    vector = "tests.cli.toys:next_step_vector"
    ran = run(capsys, "run", vector, "--episodes", "2", "--seed", "1", "--record", "b.mcap")
    assert ran.err == (
        "warning: this run need not repeat: its env restarts lanes without a seed (by=lane): it repeats lane by lane "
        "and not by episode, with 2 lanes only\n"
    )
    assert run(capsys, "run", WALK, "--episodes", "2", "--record", "c.mcap", "--quiet").err == ""


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ("--record a.mcap --json a.mcap", "--json and --record name the same file"),
        ("--record a.mcap --journal ./a.mcap", "--journal and --record name the same file"),
        ("--record gone/a.mcap", "recording gone/a.mcap cannot be written: there is no folder gone"),
        ("--record -", "'-' is no file: a recording is read again"),
        ("--record run.mcap", "recording run.mcap holds 5 finished episodes already: resume from it, or name another"),
        ("--record a.mcap --record-level most", "the level of a recording is digest, full or ring=K"),
        ("--record-level full", "--record-level says what is in a recording: give --record FILE as well"),
        ("--record a.mcap --tol ulp=x", "--tol: "),
        ("--ignore-leaf $.x", "--ignore-leaf says what is in a recording"),
        ("--record a.mcap --ignore-leaf x", "the env's observation has no leaf 'x' to ignore; it has $"),
        ("--resume run.mcap --seed 8", "run.mcap is of another run: base_seed is 7 there and 8 here"),
        ("--resume run.mcap --record a.mcap --record-level full", "a recording goes on as it began: level digest"),
        ("--resume cut.mcap", "recording cut.mcap: it holds no whole chunk"),
    ],
)
def test_what_cannot_be_recorded_is_refused_in_one_line(
    folder: Path, options: str, told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    run(capsys, "run", WALK, *JOB, "--record", "run.mcap")
    (folder / "cut.mcap").write_bytes((folder / "run.mcap").read_bytes()[:300])
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    ran = run(capsys, "run", "tests.cli.toys:UnresettableWalk", *JOB, *shlex.split(options))
    assert (ran.status, ran.out, ran.err.count("\n")) == (2, "", 1)
    assert told in ran.error
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before


def test_a_model_server_makes_its_own_batches(capsys: pytest.CaptureFixture[str]) -> None:
    ran = run(capsys, "run", WALK, "--model", "localhost:1", "--fixed-batch")
    assert (ran.status, ran.err.count("\n")) == (2, 1)
    assert ran.error.startswith("--fixed-batch is for a policy run here: the server at localhost:1 makes its own")


@pytest.mark.usefixtures("folder")
def test_a_disk_that_fills_up_fails_the_run_in_the_end(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("rlmesh_trio.recording.mcap_file.McapFile.finish", full)
    ran = run(capsys, "run", WALK, *JOB, "--record", "run.mcap", "--json", "report.json")
    assert ran.status == 1
    assert ran.err.splitlines() == [
        "warning: recording run.mcap: it cannot be written: No space left on device; the run goes on without it",
        "error: recording run.mcap is incomplete: it cannot be written: No space left on device",
    ]
    assert (ran.rows()["episodes"], ran.rows()["recording"]) == ("5", "run.mcap, incomplete")
    assert document("report.json")["recording"] == {"path": "run.mcap", "run_root": None}
    ran = run(capsys, "run", BROKEN, *JOB, "--record", "b.mcap", "--json", "b.json")
    assert ran.error.endswith("--resume b.json goes on"), "what is not whole is not advised"
