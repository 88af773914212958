"""``rlmesh-trio run`` on envs of this process."""

import json
from pathlib import Path
from typing import Any

import pytest

from rlmesh_trio import __version__
from tests.cli.program import run, started
from tests.cli.schema import complaints

WALK = "tests.cli.toys:Walk"


def episodes(path: Path) -> list[tuple[Any, ...]]:
    """What an episode is, whenever and wherever it ran."""
    keys = ("episode_index", "seed", "step_count", "cumulative_reward", "success")
    return [tuple(one[key] for key in keys) for one in json.loads(path.read_text())["episodes"]]


def test_ten_episodes_of_a_random_policy_and_a_table(capsys: pytest.CaptureFixture[str]) -> None:
    ran = run(capsys, "run", WALK)
    assert (ran.status, ran.err) == (0, "")
    assert ran.out.splitlines()[0] == "tests.cli.toys:Walk with random"
    rows = ran.rows()
    assert list(rows) == ["episodes", "return", "length", "success", "steps", "time per step"]
    assert rows["episodes"] == "10"
    assert rows["return"] == rows["length"] == "4 ± 0 (min 4, max 4)"
    assert rows["success"].startswith("0 of 10: 0 % (95 % confidence 0 to 27.8 %)")
    assert rows["steps"].startswith("40 in ")
    assert max(map(len, ran.out.splitlines())) <= 80


def test_the_report_on_standard_output_stands_alone(capsys: pytest.CaptureFixture[str]) -> None:
    ran = run(capsys, "run", "tests.cli.toys:TalkingWalk", "--seeds", "1,2,3", "--json", "-")
    assert ran.status == 0
    document = json.loads(ran.out)
    assert complaints(document) == []
    assert (document["session_id"], document["total_steps"], document["total_episodes"]) == ("local", 12, 3)
    assert [(one["seed"], one["success"]) for one in document["episodes"]] == [(1, True), (2, False), (3, True)]
    assert document["steps_per_second"] == pytest.approx(12 / document["wall_seconds"])
    assert ran.err.startswith("step 0\nstep 1\n"), "what an env prints gives way"


def test_the_same_seed_gives_the_same_episodes_on_any_number_of_lanes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    paths = [tmp_path / "one.json", tmp_path / "eight.json", tmp_path / "other.json"]
    cartpole = ("run", "CartPole-v1", "--episodes", "12", "--quiet")
    assert run(capsys, *cartpole, "--seed", "7", "--json", str(paths[0])).status == 0
    assert run(capsys, *cartpole, "--seed", "7", "--lanes", "8", "--json", str(paths[1])).status == 0
    assert run(capsys, *cartpole, "--seed", "8", "--json", str(paths[2])).status == 0
    one, eight, other = map(episodes, paths)
    assert one == eight
    assert one != other
    assert len(one) == 12


def test_the_session_id_is_part_of_the_seed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "report.json"
    run(capsys, "run", WALK, "--seed", "1234", "--session-id", "session-1", "--episodes", "2", "--json", str(path))
    assert [one[1] for one in episodes(path)] == [5827150907976557851, 6673286045664998248]


@pytest.mark.parametrize(
    ("options", "count", "length"),
    [
        ("--model zero --episodes 3", 3, 4),
        ("--model tests.cli.toys:ahead --lanes 2", 10, 4),
        ("--model tests.cli.toys:Chunks --horizon 3 --prefetch 1 --seeds 5,6", 2, 4),
        ("--max-steps 2 --seeds 5,6 --episodes 1", 1, 2),
        ("--step-timeout 10s --reset-timeout 1m --predict-timeout 500ms --close-env", 10, 4),
    ],
)
def test_options(options: str, count: int, length: int, capsys: pytest.CaptureFixture[str]) -> None:
    ran = run(capsys, "run", WALK, *options.split())
    assert (ran.status, ran.err) == (0, "")
    assert ran.rows()["episodes"] == str(count)
    assert ran.rows()["length"].startswith(f"{length} ")


def test_episodes_are_cut_at_the_time_limit(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "report.json"
    slow = ("run", "tests.cli.toys:SlowWalk", "--episodes", "1", "--max-seconds", "20ms", "--json", str(path))
    assert run(capsys, *slow).status == 0
    (episode,) = json.loads(path.read_text())["episodes"]
    assert episode["truncated"]
    assert episode["step_count"] < 20


def test_a_vector_env_counts_every_lanes_steps(capsys: pytest.CaptureFixture[str]) -> None:
    ran = run(capsys, "run", "tests.cli.toys:next_step_vector", "--episodes", "4")
    assert ran.status == 0
    assert ran.rows()["steps"].startswith("16 in ")


def test_quiet_says_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    ran = run(capsys, "run", WALK, "--quiet")
    assert (ran.status, ran.out, ran.err) == (0, "", "")


def test_a_failed_run_tells_why_and_keeps_what_was_finished(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "report.json"
    ran = run(capsys, "run", "tests.cli.toys:BrokenWalk", "--seeds", "1,2,3", "--json", str(path))
    assert ran.status == 1
    assert ran.error == (
        "env.step failed at step 2 of episode 2 (lane 0, seed 2): step failed: RuntimeError: a leg broke in two; the "
        f"same command with --resume {path} goes on"
    )
    assert ran.err.count("\n") == 1
    assert ran.rows()["episodes"] == "1 of 3 finished"
    document = json.loads(path.read_text())
    assert complaints(document) == []
    assert [one["seed"] for one in document["episodes"]] == [1]
    assert document["error"]["type"] == "EnvRpcError"
    assert document["error"]["operation"] == "env.step"
    assert document["error"]["in_flight"] == [{"episode_index": 2, "env_index": 0, "seed": 2}]


@pytest.mark.parametrize(
    ("policy", "kind", "told"),
    [("Stopping", "ModelRpcError", "ValueError: lost the way"), ("astray", "ModelRpcError", "not in the action space")],
)
def test_a_policy_that_fails(policy: str, kind: str, told: str, capsys: pytest.CaptureFixture[str]) -> None:
    ran = run(capsys, "run", WALK, "--model", f"tests.cli.toys:{policy}", "--json", "-")
    assert ran.status == 1
    assert told in ran.error
    assert ran.err.count("\n") == 1
    assert json.loads(ran.out)["error"]["type"] == kind


def test_an_env_that_ends_the_program_ends_the_run(capsys: pytest.CaptureFixture[str]) -> None:
    ran = run(capsys, "run", "tests.cli.toys:LeavingWalk", "--json", "-")
    assert ran.status == 1
    assert ran.error == "the code of the env or the policy called sys.exit()"
    document = json.loads(ran.out)
    assert complaints(document) == []
    assert document["error"]["type"] == "SessionError"


def test_a_step_limit_is_kept_by_an_env_of_this_process(capsys: pytest.CaptureFixture[str]) -> None:
    ran = run(capsys, "run", "tests.cli.toys:StuckWalk", "--step-timeout", "50ms", "--quiet")
    assert ran.status == 1
    assert ran.error == (
        "env.step took longer than 50ms at step 2 of episode 1 (lane 0, no seed); --step-timeout sets this limit"
    )


def test_debug_shows_where_an_error_came_from(capsys: pytest.CaptureFixture[str]) -> None:
    ran = run(capsys, "run", "tests.cli.toys:BrokenWalk", "--debug")
    assert ran.status == 1
    assert 'raise RuntimeError("a leg broke' in ran.err
    assert ran.error.startswith("env.step failed")
    ran = run(capsys, "run", WALK, "--model", "tests.cli.toys:Unloadable", "--debug")
    assert ran.status == 2
    assert 'raise OSError("no weights")' in ran.err


def test_rewards_that_json_has_not(capsys: pytest.CaptureFixture[str]) -> None:
    ran = run(capsys, "run", "tests.cli.toys:PricelessWalk", "--episodes", "1", "--json", "-")
    assert ran.status == 0
    document = json.loads(ran.out, parse_constant=lambda name: pytest.fail(f"{name} is not JSON"))
    assert complaints(document) == []
    assert document["episodes"][0]["cumulative_reward"] == "NaN"


def test_a_report_that_cannot_be_written_in_the_end_fails_the_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    ran = run(capsys, "run", WALK, "--json", str(tmp_path / "report.json"))
    assert ran.status == 1
    assert ran.error == "the report could not be written: No space left on device"
    assert ran.rows()["episodes"] == "10", "the table is shown all the same"


def test_the_token_is_told_nowhere(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RLMESH_TRIO_TOKEN", "hush-from-env")
    ran = run(capsys, "run", "tests.cli.toys:BrokenWalk", "--token", "hush-from-option", "--debug", "--json", "-")
    assert ran.status == 1
    assert "hush" not in ran.out + ran.err
    assert "hush" not in run(capsys, "run", "--help").out


def test_version_and_help(capsys: pytest.CaptureFixture[str]) -> None:
    ran = run(capsys, "--version")
    assert (ran.status, ran.out) == (0, f"rlmesh-trio {__version__}\n")
    for args in ([], ["run"], ["inspect"]):
        ran = run(capsys, *args, "--help")
        assert ran.status == 0
        assert ran.out.startswith("Usage: rlmesh-trio")
        assert max(map(len, ran.out.splitlines())) <= 80


def test_modules_of_the_working_directory_are_found(tmp_path: Path) -> None:
    (tmp_path / "my_things.py").write_text(
        "import gymnasium\n"
        "def make():\n    return gymnasium.make('CartPole-v1')\n"
        "class Policy:\n    def predict(self, observation):\n        return int(observation[2] > 0)\n"
    )
    args = ("run", "my_things:make", "--model", "my_things:Policy", "--episodes", "2", "--seed", "1")
    with started(*args, cwd=tmp_path) as process:
        out, err = process.communicate(timeout=30)
    assert (process.returncode, err) == (0, "")
    assert out.startswith("my_things:make (CartPole-v1) with my_things:Policy\n  episodes       2\n")


def test_a_reader_that_goes_away_is_no_traceback() -> None:
    with started("run", WALK) as process:
        assert process.stdout is not None
        process.stdout.close()
        process.stdout = None
        _, err = process.communicate(timeout=30)
    assert process.returncode == 1
    assert "Traceback" not in err
