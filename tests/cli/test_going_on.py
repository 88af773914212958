"""``--journal`` and ``--resume``: a run that stopped goes on, and comes to what it would have come to."""

import json
import shlex
import signal
from pathlib import Path
from typing import Any

import pytest

from rlmesh_trio.observers import read_journal
from tests.cli.program import at_terminal, run, started
from tests.cli.schema import complaints
from tests.observers.full_disk import FullDisk

WALK = "tests.cli.toys:Walk"
BROKEN = "tests.cli.toys:BrokenWalk"
GONE = "tests.cli.toys:UnresettableWalk"
TIMES = ("duration_ms", "predict_ms", "step_ms")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty working directory."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def document(path: Path) -> dict[str, Any]:
    found = json.loads(path.read_text())
    assert complaints(found) == []
    return found


def episodes(path: Path) -> list[dict[str, Any]]:
    """The episodes of a report, without the time they took."""
    return [{key: one[key] for key in one if key not in TIMES} for one in document(path)["episodes"]]


def kinds(path: Path) -> list[str]:
    return [json.loads(line)["kind"] for line in path.read_text().splitlines()]


def test_a_failed_run_goes_on_from_its_journal(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    job = ("--seed", "7", "--episodes", "5", "--journal", "run.jsonl", "--json")
    ran = run(capsys, "run", BROKEN, *job, "failed.json")
    assert ran.status == 1
    assert ran.error.endswith("; the same command with --resume run.jsonl goes on")
    ran = run(capsys, "run", WALK, *job, "whole.json", "--resume", "run.jsonl")
    assert (ran.status, ran.err) == (0, "")
    rows = ran.rows()
    assert (rows["episodes"], rows["resumed"]) == ("5", "1 of them, 4 steps")
    assert rows["length"].startswith("4 ± 0 ")
    assert rows["steps"].startswith("16 in ")
    assert "recovered" not in rows
    assert kinds(folder / "run.jsonl") == ["header", "episode", "failed", "resumed", *["episode"] * 4, "ended"]
    run(capsys, "run", WALK, *job[:4], "--json", "undisturbed.json")
    assert episodes(folder / "whole.json") == episodes(folder / "undisturbed.json")
    whole, undisturbed = document(folder / "whole.json"), document(folder / "undisturbed.json")
    for name in ("run", "total_steps", "total_episodes", "incidents"):
        assert whole[name] == undisturbed[name]
    assert (whole["resumed_episodes"], undisturbed["resumed_episodes"]) == (1, 0)
    assert whole["steps_per_second"] == pytest.approx(16 / whole["wall_seconds"])


def test_a_failed_run_goes_on_from_its_report(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    job = ("--seeds", "3,4,5", "--json", "a report.json")
    ran = run(capsys, "run", BROKEN, *job)
    assert ran.error.endswith("; the same command with --resume 'a report.json' goes on")
    assert run(capsys, "run", WALK, *job, "--resume", "a report.json").status == 0
    assert [(one["seed"], one["step_count"]) for one in episodes(folder / "a report.json")] == [(3, 4), (4, 4), (5, 4)]


def test_a_finished_run_goes_on_to_its_summary(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    job = ("--episodes", "3", "--seed", "1", "--journal", "run.jsonl")
    assert run(capsys, "run", WALK, *job).status == 0
    ran = run(capsys, "run", GONE, *job, "--resume", "run.jsonl", "--json", "report.json")
    assert (ran.status, ran.err) == (0, "")
    assert (ran.rows()["episodes"], ran.rows()["resumed"]) == ("3", "3 of them, 12 steps")
    assert len(episodes(folder / "report.json")) == 3


def test_an_evaluation_is_extended(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    job = ("run", "CartPole-v1", "--seed", "7", "--json")
    run(capsys, *job, "whole.json", "--episodes", "9")
    run(capsys, *job, "3.json", "--episodes", "3", "--journal", "run.jsonl")
    run(capsys, *job, "6.json", "--episodes", "6", "--journal", "run.jsonl", "--resume", "run.jsonl")
    ran = run(capsys, *job, "9.json", "--episodes", "9", "--resume", "6.json")
    assert ran.rows()["resumed"].startswith("6 of them, ")
    assert episodes(folder / "9.json") == episodes(folder / "whole.json")
    assert episodes(folder / "6.json") == episodes(folder / "whole.json")[:6]
    ran = run(capsys, *job, "3.json", "--episodes", "5", "--resume", "run.jsonl")
    assert ran.error == "run.jsonl is of another run: max_episodes is 6 there and 5 here"


def test_a_list_of_seeds_is_extended(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(capsys, "run", WALK, "--seeds", "8,9", "--json", "2.json").status == 0
    ran = run(capsys, "run", WALK, "--seeds", "8,9,10", "--resume", "2.json", "--json", "3.json")
    assert (ran.status, ran.rows()["resumed"]) == (0, "2 of them, 8 steps")
    assert [one["seed"] for one in episodes(folder / "3.json")] == [8, 9, 10]


@pytest.mark.parametrize("file", ["run.jsonl", "report.json"])
@pytest.mark.parametrize(
    ("options", "told"),
    [
        ("run {} --seed 8 --episodes 2", "base_seed is 7 there and 8 here"),
        ("run {} --seeds 1,2", "base_seed is 7 there and None here"),
        ("run {} --seed 7 --episodes 1", "max_episodes is 2 there and 1 here"),
        ("run {} --seed 7 --episodes 2 --session-id b", "session_id is 'local' there and 'b' here"),
        ("run {} --seed 7 --episodes 2 --max-steps 9", "max_episode_steps is None there and 9 here"),
        ("run {} --seed 7 --episodes 2 --horizon 2", "execution_horizon is 1 there and 2 here"),
        ("run CartPole-v1 --seed 7 --episodes 2", "env is "),
    ],
)
def test_another_run_is_refused_by_the_fact_that_differs(
    folder: Path, file: str, options: str, told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    job = ("--seed", "7", "--episodes", "2", "--journal", "run.jsonl", "--json", "report.json")
    assert run(capsys, "run", WALK, *job).status == 0
    before = (folder / "run.jsonl").read_bytes()
    args = [*shlex.split(options.format(GONE)), "--resume", file, "--journal", "run.jsonl"]
    ran = run(capsys, *args, "--model", "tests.cli.toys:Unloadable")
    assert (ran.status, ran.out) == (2, "")
    assert ran.error.startswith(f"{file} is of another run: {told}")
    assert ran.err.count("\n") == 1
    assert (folder / "run.jsonl").read_bytes() == before


def test_a_journal_is_not_written_over(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    job = ("run", WALK, "--episodes", "2", "--journal", "run.jsonl")
    assert run(capsys, *job).status == 0
    ran = run(capsys, *job)
    assert ran.status == 2
    assert ran.error == (
        "journal run.jsonl holds 2 finished episodes of this run already: resume from it, or name another file"
    )


def test_a_file_that_was_never_begun_is_told(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "run.jsonl").touch()
    ran = run(capsys, "run", WALK, "--resume", "run.jsonl")
    assert (ran.status, ran.error) == (2, "run.jsonl is empty: its run finished no episode, start it anew")
    assert run(capsys, "run", WALK, "--journal", "run.jsonl").status == 0


def test_how_to_go_on_is_told_where_one_can(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for args in ([GONE, "--journal", "none.jsonl"], [BROKEN, "--episodes", "3"]):
        ran = run(capsys, "run", *args)
        assert ran.status == 1
        assert "--resume" not in ran.error
    vector = ("run", "tests.cli.toys:next_step_vector", "--model", "tests.cli.toys:Stopping", "--journal", "run.jsonl")
    ran = run(capsys, *vector, "--seed", "3")
    assert ran.status == 1
    assert "--resume" not in ran.error, "seeds that do not go by index"


def test_a_journal_on_a_full_disk_fails_the_run_in_the_end(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rlmesh_trio.observers.line_file.FileIO", FullDisk)
    monkeypatch.setattr(FullDisk, "room", 2000)
    ran = run(capsys, "run", WALK, "--episodes", "30", "--journal", "run.jsonl", "--json", "report.json")
    assert ran.status == 1
    assert ran.err.splitlines() == [
        "warning: journal run.jsonl cannot be written: No space left on device; the run goes on without it",
        "error: journal run.jsonl is incomplete: No space left on device",
    ]
    assert ran.rows()["episodes"] == "30"
    assert len(episodes(folder / "report.json")) == 30
    assert "error" not in document(folder / "report.json")
    assert 1 <= len(read_journal("run.jsonl").episodes) < 30
    header = len((folder / "run.jsonl").read_bytes().partition(b"\n")[0])
    for number, (options, told) in enumerate([((), ""), (("--json", "b.json"), "--resume b.json goes on")]):
        monkeypatch.setattr(FullDisk, "room", header + 10)
        ran = run(capsys, "run", BROKEN, "--episodes", "3", "--journal", f"{number}.jsonl", "--quiet", *options)
        assert ran.err.count("is incomplete") == 1
        assert ran.error.endswith(told), "only what is whole is a file to go on from"
        assert ".jsonl" not in ran.error


def test_ctrl_c_and_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    journal, report = tmp_path / "run.jsonl", tmp_path / "report.json"
    monkeypatch.setenv("TIRED_AFTER", "2")
    args = ("run", "tests.cli.toys:TiringWalk", "--seed", "3", "--episodes", "8", "--journal", str(journal))
    with at_terminal(*args) as terminal:
        terminal.wait_for("2/8 episodes")
        terminal.type("\x03")
        assert terminal.wait() == 130
    assert terminal.lines()[-1] == (
        f"error: interrupted (Ctrl-C or SIGTERM); the same command with --resume {journal} goes on"
    )
    finished = len(read_journal(journal).episodes)
    monkeypatch.delenv("TIRED_AFTER")
    with at_terminal(*args, "--resume", str(journal), "--json", str(report)) as terminal:
        assert terminal.wait() == 0
    shown = [line for line in terminal.lines() if "/8 episodes" in line]
    assert f" {finished}/8 episodes  return 20" in shown[0]
    assert "left" not in shown[0], "the pace is that of this run"
    assert len(episodes(report)) == 8
    assert document(report)["resumed_episodes"] == finished


def test_what_was_finished_survives_a_kill(tmp_path: Path) -> None:
    journal = tmp_path / "run.jsonl"
    args = ("run", "tests.cli.toys:TalkingWalk", "--episodes", "1000000", "--seed", "3", "--journal", str(journal))
    with started(*args) as process:
        assert process.stderr is not None
        assert process.stdout is not None
        for _ in range(41):
            assert process.stdout.readline().startswith("step ")
        process.send_signal(signal.SIGKILL)
        process.wait(30)
    assert len(read_journal(journal).episodes) >= 10
