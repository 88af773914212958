"""``replay FILE``: exit statuses, what is told, commands that work as they are printed, files, refusals and signals."""

import json
import shlex
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import attrs
import pytest

from rlmesh_trio.recording import RecordingWriter, open_recording, verify
from tests.cli.program import Ran, at_terminal, run, started

Run = Callable[..., Ran]

ENVS = "tests.replay.planted"
STEADY = f"{ENVS}:steady"
SEEDS = ",".join(map(str, range(101, 110)))
BOTH = (f"{ENVS}:Walker", "--model", STEADY)


@pytest.fixture
def replay(capsys: pytest.CaptureFixture[str]) -> Run:
    return lambda *args: run(capsys, "replay", *map(str, args))


@pytest.fixture(scope="module")
def recordings(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with ``digest`` and ``full``: one run in which nothing is planted."""
    folder = tmp_path_factory.mktemp("recordings")
    for level in ("digest", "full"):
        words = ("--seeds", SEEDS, "--lanes", "2", "--record", str(folder / level), "--record-level", level)
        with started("run", *BOTH, *words, "--quiet") as process:
            assert process.wait(30) == 0
    return folder


@pytest.mark.parametrize("live", [BOTH, BOTH[:1], BOTH[1:]])
def test_what_repeats_is_equal(replay: Run, recordings: Path, live: tuple[str, ...]) -> None:
    ran = replay(recordings / "full", *live)
    first, *more = ran.out.splitlines()
    assert (ran.status, ran.err) == (0, "")
    assert first.startswith("EQUAL  9 episodes, 49 steps, run root ")
    said = ["model: asked in the recorded batches and row by row, it answers as recorded"]
    assert more == (said if live == BOTH[1:] else [])


def test_what_differs_is_told_and_the_next_command_works_as_it_is_printed(replay: Run, recordings: Path) -> None:
    ran = replay(recordings / "digest", f"{ENVS}:Noise", "--model", STEADY, "--blame", "--lanes", "1")
    lines = ran.out.splitlines()
    assert ran.status == 1
    assert lines[0] == "DIVERGED  mode (i)  episode 4 of 9 (seed 104)  step 2 of 7  3 episodes before it equal"
    assert "played twice up to step 2, episode 4 disagrees with itself at step 2: the env is random, or" in ran.out
    assert "bisected: episode 4 diverges also by itself (2 plays)" in lines
    assert "blame: the env" in lines
    again = f"replay {recordings / 'digest'} {ENVS}:Noise --episode 4 --until 2 --level full"
    assert lines[-1] == f"next: rlmesh-trio {again}"
    ran = replay(*shlex.split(again)[1:])
    assert ran.status == 1
    assert ran.out.startswith("DIVERGED  mode (ii)  episode 4 (seed 104)  step 2 of 7  ")
    assert "  leaf obs.qpos  index [1]   first " in ran.out
    assert "next:" not in ran.out
    assert "bisected" not in ran.out


@pytest.mark.parametrize(
    ("level", "live", "words"),
    [
        ("full", (f"{ENVS}:Worn",), f"{ENVS}:Worn --episode 2 --episode 7"),
        ("full", ("--model", f"{ENVS}:contrary"), f"--model {ENVS}:contrary --episode 1"),
        (
            "full",
            (f"{ENVS}:Walker", "--model", f"{ENVS}:Grudge"),
            f"{ENVS}:Walker --model {ENVS}:Grudge --lanes 1 --episode 2 --episode 7",
        ),
        ("full", (f"{ENVS}:Walker", "--model", f"{ENVS}:contrary"), f"--model {ENVS}:contrary --episode 1"),
        (
            "digest",
            (f"{ENVS}:Walker", "--model", f"{ENVS}:contrary"),
            f"{ENVS}:Walker --model {ENVS}:contrary --blame",
        ),
        (
            "full",
            (f"{ENVS}:Rounding", "--tol", "abs=1e-9", "--ignore", "info.x y", "--force"),
            f"{ENVS}:Rounding --episode 3 --until 2 --level full --tol abs=1e-9 --ignore 'info.x y' --force",
        ),
    ],
)
def test_the_next_command(replay: Run, recordings: Path, level: str, live: tuple[str, ...], words: str) -> None:
    ran = replay(recordings / level, *live)
    assert ran.status == 1
    assert ran.out.splitlines()[-1] == f"next: rlmesh-trio replay {recordings / level} {words}"
    assert replay(recordings / level, *shlex.split(words)).status == 1


def test_a_changed_contract_is_a_difference(replay: Run, recordings: Path) -> None:
    ran = replay(recordings / "full", f"{ENVS}:Renewed")
    assert ran.status == 1
    assert ran.out.splitlines()[:2] == ["CONTRACT CHANGED  1 field", "  metadata.version   recorded nothing   now 2"]
    assert ran.error == "it was not played: --force plays it all the same"
    ran = replay(recordings / "full", f"{ENVS}:Renewed", "--force")
    assert ran.status == 1
    assert ran.out.splitlines()[-1] == "otherwise equal: 9 episodes, 49 steps"


def test_episodes_that_hang_on_their_lanes_are_not_bisected(replay: Run, tmp_path: Path) -> None:
    path, policy = str(tmp_path / "v.mcap"), ("--model", "tests.replay.playing:back")
    words = ("--episodes", "9", "--seed", "3", "--record", path, "--quiet")
    with started("run", "tests.replay.playing:vector", *policy, *words) as process:
        assert process.wait(30) == 0
    assert replay(path, "tests.replay.playing:vector", *policy).status == 0
    ran = replay(path, f"{ENVS}:noisy_vector", *policy, "--blame")
    *_, other, remark, not_bisected, again = ran.out.splitlines()
    assert ran.status == 1
    assert "the model was not tried" in other
    assert remark.startswith("of this run: its env restarts lanes without a seed (by=lane)")
    assert not_bisected == "not bisected: these episodes hang on what their lanes played before"
    ran = replay(*shlex.split(again)[3:])
    assert ran.status == 1
    assert "differs from the recorded machine, and agrees with itself here" in ran.out


def test_what_a_failed_conformance_case_was_answered(replay: Run, recordings: Path, tmp_path: Path) -> None:
    path = tmp_path / "case.mcap"
    with open_recording(recordings / "full") as recording:
        settings = {**recording.header.settings, "conform.blob": "c-x"}
        with RecordingWriter(path, attrs.evolve(recording.header, settings=settings), "full") as writer:
            writer.copy(recording)
            writer.finish()
    assert "rlmesh-trio conform replay FILE TARGET tries it again" in replay(path).error
    assert replay(path, BOTH[0], "--lanes", "2").status == 0
    ran = replay(path, f"{ENVS}:Flipped", "--lanes", "2")
    assert ran.status == 1
    assert ran.out.splitlines()[-1] == f"next: rlmesh-trio conform replay {path} {ENVS}:Flipped"


def test_a_tolerance_and_what_is_left_out(replay: Run, recordings: Path) -> None:
    assert replay(recordings / "full", f"{ENVS}:Rounding", "--tol", "ulp=9").out.startswith("EQUAL within ulp=9")
    assert replay(recordings / "full", f"{ENVS}:Gossip", "--ignore", "info.height").status == 0
    assert replay(recordings / "full", f"{ENVS}:Gossip").status == 1


def test_several_runs(replay: Run, recordings: Path) -> None:
    ran = replay(recordings / "digest", *BOTH, "--runs", "3")
    assert (ran.status, ran.out.splitlines()[1:]) == (0, ["3 runs: 1 trace; 3 as recorded"])
    ran = replay(recordings / "digest", f"{ENVS}:Noise", "--runs", "3", "--no-bisect")
    assert ran.status == 1
    assert "3 runs: 3 traces (1, 1, 1); none as recorded" in ran.out


def test_returns_alone(replay: Run, recordings: Path) -> None:
    ran = replay(recordings / "digest", f"{ENVS}:Walker", "--stats")
    assert (ran.status, [line[:8] for line in ran.out.splitlines()]) == (0, ["returns ", "lengths "])


def test_what_is_found_as_json(replay: Run, recordings: Path, tmp_path: Path) -> None:
    document: dict[str, Any] = json.loads(replay(recordings / "full", f"{ENVS}:Worn", "--json").out)
    assert document["mode"] == "ii"
    assert document["bisection"]["episodes"] == [2]
    assert document["comparison"]["divergences"][0]["ordinal"] == 7
    assert document["next"].endswith("--episode 2 --episode 7")
    out = tmp_path / "found.json"
    words = (f"{ENVS}:Noise", "--model", f"{ENVS}:contrary", "--blame", "--json", out)
    assert replay(recordings / "full", *words).out.startswith("DIVERGED")
    blame = json.loads(out.read_text())["blame"]
    assert (blame["blame"], blame["model"]["verdict"]) == ("both", "other")


def test_the_play_is_kept_when_it_is_asked_for(replay: Run, recordings: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.mcap"
    assert replay(recordings / "digest", *BOTH, "--record", out, "--level", "full", "--quiet") == Ran(0, "", "")
    assert verify(out).problems == ()
    with open_recording(out) as kept:
        assert kept.header.level == "full"
    assert replay("diff", recordings / "digest", out).status == 0
    ran = replay(recordings / "digest", *BOTH, "--record", out)
    assert (ran.status, ran.error.startswith("--record: ")) == (2, True)


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ((), "name what is to play it again, ENV and --model M for the run"),
        ((*BOTH, "--until", "3"), "--until is for recorded actions"),
        ((*BOTH[1:], "--until", "3"), "--until is for recorded actions"),
        ((BOTH[0], "--blame"), "--blame needs ENV and --model M"),
        ((BOTH[0], "--stats", "--ignore", "reward"), "--stats compares no values"),
        (("localhost:1", "--lanes", "2"), "--lanes is for an ENV that is started here"),
        ((BOTH[0], "--fixed-batch"), "give --model M as well"),
        ((BOTH[0], "--tol", "ulp"), "--tol: "),
        ((BOTH[0], "--episode", "12"), "has no episode 12; it has 1 to 9"),
        ((f"{ENVS}:Nobody",), "Nobody"),
        (BOTH[1:], "holds digests of the observations only"),
    ],
)
def test_nothing_is_compared(replay: Run, recordings: Path, words: tuple[str, ...], told: str) -> None:
    ran = replay(recordings / "digest", *words)
    assert (ran.status, ran.out) == (2, "")
    assert told in ran.error


def test_what_is_no_recording(replay: Run, tmp_path: Path) -> None:
    assert "cannot be read" in replay(tmp_path / "none", "CartPole-v1").error
    (tmp_path / "some").write_bytes(b"something else")
    ran = replay(tmp_path / "some", "CartPole-v1")
    assert (ran.status, ran.out) == (2, "")


def test_a_model_that_fails_breaks_the_play_off(replay: Run, recordings: Path) -> None:
    ran = replay(recordings / "digest", BOTH[0], "--model", f"{ENVS}:Tired", "--lanes", "1")
    assert ran.status == 1
    assert "too tired" in ran.error
    broken_off, equal, *_ = ran.out.splitlines()
    assert broken_off == "NOT PLAYED TO THE END  what follows is of 3 episodes alone"
    assert equal == "EQUAL  3 episodes, 15 steps"


def test_the_groups_help_is_the_commands(replay: Run) -> None:
    told = replay("--help").out
    assert told.startswith("Usage: rlmesh-trio replay [OPTIONS] FILE [ENV]")
    assert "replay show" in told
    assert max(map(len, told.splitlines())) <= 80


@pytest.mark.parametrize("columns", [80, 120])
def test_at_a_terminal_lines_fit(recordings: Path, columns: int) -> None:
    words = (f"{ENVS}:Worn", "--model", STEADY, "--lanes", "1", "--blame")
    with at_terminal("replay", str(recordings / "full"), *words, columns=columns) as terminal:
        assert terminal.wait() == 1
    lines = [line for line in terminal.lines() if not line.startswith("next: ")]
    assert any(line.startswith("DIVERGED") for line in lines)
    assert max(map(len, lines)) <= columns


@pytest.fixture(scope="module")
def tiring(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = str(tmp_path_factory.mktemp("tiring") / "tiring.mcap")
    words = ("--model", "zero", "--episodes", "8", "--seed", "1", "--record", path, "--record-level", "full")
    with started("run", "tests.cli.toys:TiringWalk", *words) as process:
        assert process.wait(30) == 0
    return path


@pytest.mark.parametrize("model", [(), ("--model", "zero")])
def test_ctrl_c_tells_what_was_compared(tiring: str, model: tuple[str, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TIRED_AFTER", "2")
    with at_terminal("replay", tiring, "tests.cli.toys:TiringWalk", *model) as terminal:
        terminal.wait_for("2/8 episodes")
        terminal.type("\x03")
        assert terminal.wait() == 130
    *_, broken_off, equal, error = [line for line in terminal.lines() if "as far as both go" not in line]
    assert equal.startswith("EQUAL  ")
    assert broken_off.startswith("NOT PLAYED TO THE END  ")
    assert error == "error: interrupted (Ctrl-C or SIGTERM)"


def test_two_signals_end_it_at_once_and_leave_nothing(
    tiring: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setenv("TIRED_AFTER", "0")
    with started("replay", tiring, "tests.cli.toys:TiringWalk") as process:
        while process.poll() is None:
            time.sleep(0.01)
            if list(tmp_path.glob("*/play-1.mcap")):
                process.send_signal(signal.SIGINT)
        assert process.returncode == 130
    assert list(tmp_path.iterdir()) == []
