"""Every bad input: status 2, one line on standard error, nothing on standard output, and nothing started."""

import shlex
from pathlib import Path

import pytest

from rlmesh_trio import Limits
from rlmesh_trio.cli.run_job import RunJob
from tests.cli.program import run

WALK = "tests.cli.toys:Walk"


@pytest.mark.parametrize(
    ("args", "told"),
    [
        ("run", "Missing argument 'ENV'"),
        ("run tests.cli.toys:Walk extra", "extra"),
        ("run tests.cli.toys:Walk --nope", "--nope"),
        ("run tests.cli.toys:Walk --model", "--model"),
        ("walk", "walk"),
        ("inspect", "Missing argument 'ENV'"),
        ("run CartPole-v", "did you mean CartPole-v1"),
        ("run ''", "''"),
        ("run no_such_module:make", "no module named 'no_such_module'"),
        ("run tests.cli.toys:Wallk", "no attribute 'Wallk' (did you mean Walk, SlowWalk?)"),
        ("run tests.cli.toys:number", "neither a gymnasium env nor a factory"),
        ("run tests.cli.toys:raising_factory", "FileNotFoundError: no floor to walk on"),
        ("run tests.cli.toys:leaving_factory", "the code of the env or the policy called sys.exit()"),
        ("inspect tests.cli.toys:leaving_factory", "the code of the env or the policy called sys.exit()"),
        ("run tests.cli.toys:numberless_factory", "returned an int, not a gymnasium env"),
        ("run tests.cli.toys:needy_factory", "floor"),
        ("run tests.cli.toys:Sequences", "Sequence spaces have no wire form"),
        ("run tests.cli.toys:same_step_vector", "SAME_STEP"),
        ("run tests.cli.toys:disabled_vector", "require NEXT_STEP autoreset"),
        ("inspect tests.cli.toys:same_step_vector", "SAME_STEP"),
        ("run http://here:80", "bad address"),
        ("run unix://relative", "bad address"),
        ("run here:0", "a port is a number from 1 to 65535"),
        ("inspect here:99999", "a port is a number from 1 to 65535"),
        ("run tests.cli.toys:Walk --model rndom", "did you mean random"),
        ("run tests.cli.toys:Walk --model no_such_module:policy", "no module named 'no_such_module'"),
        ("run tests.cli.toys:Walk --model tests.cli.toys:gone", "no attribute 'gone'"),
        ("run tests.cli.toys:Walk --model tests.cli.toys:number", "neither callable nor with any of"),
        ("run tests.cli.toys:Walk --model tests.cli.toys:Unloadable", "OSError: no weights"),
        ("run tests.cli.toys:Walk --model here:0", "a port is a number from 1 to 65535"),
        ("run tests.cli.toys:Walk --episodes 0", "--episodes"),
        ("run tests.cli.toys:Walk --episodes few", "--episodes"),
        ("run tests.cli.toys:Walk --lanes 0", "--lanes"),
        ("run here:5555 --lanes 1", "--lanes is for an env started here"),
        ("run here:5555 --where thread", "--where is for an env started here"),
        ("run tests.cli.toys:Walk --where here", "--where"),
        ("run tests.cli.toys:Walk --where inline --step-timeout 1s", "--where inline cannot be had with"),
        ("run tests.cli.toys:next_step_vector --lanes 2", "a vector env brings its own lanes"),
        ("run tests.cli.toys:Walk --seed lucky", "--seed"),
        ("run tests.cli.toys:Walk --seed 9223372036854775808", "--seed"),
        ("run tests.cli.toys:Walk --seeds 1,two", "'two' is no seed"),
        ("run tests.cli.toys:Walk --seeds ''", "'' is no seed"),
        ("run tests.cli.toys:Walk --seeds 1,-2", "'-2' is no seed"),
        ("run tests.cli.toys:Walk --seed 1 --seeds 2", "--seed and --seeds exclude each other"),
        ("run tests.cli.toys:Walk --seeds 1,2 --episodes 3", "2 seeds for 3 episodes"),
        ("run tests.cli.toys:next_step_vector --seeds 1,2", "episode_seeds requires"),
        ("run tests.cli.toys:Walk --session-id ' '", "session_id must not be empty"),
        ("run tests.cli.toys:Walk --horizon 0", "--horizon"),
        ("run tests.cli.toys:Walk --horizon 1025", "--horizon"),
        ("run tests.cli.toys:Walk --horizon 3 --model tests.cli.toys:ahead", "needs a policy with predict_chunk"),
        ("run tests.cli.toys:Walk --prefetch -1", "--prefetch"),
        ("run tests.cli.toys:Walk --max-steps 0", "--max-steps"),
        ("run tests.cli.toys:next_step_vector --max-steps 9", "require an env with autoreset disabled"),
        ("run tests.cli.toys:Walk --max-seconds 0", "longer than nothing"),
        ("run tests.cli.toys:Walk --step-timeout soon", "'soon' is no duration"),
        ("run tests.cli.toys:Walk --reset-timeout -1s", "'-1s' is no duration"),
        ("run tests.cli.toys:Walk --predict-timeout 5d", "'5d' is no duration"),
        ("run tests.cli.toys:Walk --json /no/such/folder/report.json", "cannot write '/no/such/folder/report.json'"),
        ("run tests.cli.toys:Walk --json .", "cannot write '.'"),
        ("run tests.cli.toys:Walk --on-env-error again", "a recovery is fail, retry, retry:N (N from 1 on) or"),
        ("run tests.cli.toys:Walk --on-env-error retry:0", "not 'retry:0'"),
        ("run tests.cli.toys:Walk --on-env-error ''", "not ''"),
        ("run here:5555 --on-timeout retry:-1", "not 'retry:-1'"),
        ("run here:5555 --on-timeout retry:" + "9" * 5000, "--on-timeout"),
        ("run tests.cli.toys:Walk --on-timeout retry", "--on-timeout retry is for a server"),
        ("run tests.cli.toys:Walk --journal .", "journal . is no regular file"),
        ("run tests.cli.toys:Walk --journal /dev/null", "journal /dev/null is no regular file"),
        ("run tests.cli.toys:Walk --journal gone/run.jsonl", "there is no folder gone"),
        ("run tests.cli.toys:Walk --journal README.md", "journal README.md, line 1: it is not JSON"),
        ("run tests.cli.toys:Walk --journal -", "'-' is no file"),
        ("run tests.cli.toys:Walk --journal ''", "'' is no file"),
        ("run tests.cli.toys:Walk --journal one --json ./one", "--json and --journal name the same file"),
        ("run tests.cli.toys:Walk --resume gone", "there is no 'gone': name what an earlier run wrote with --journal"),
        ("run tests.cli.toys:Walk --resume .", "the run to resume . cannot be read"),
        ("run tests.cli.toys:Walk --resume README.md", "README.md is neither a run's journal nor its JSON report"),
        ("run tests.cli.toys:Walk --partial-reset", "partial_reset needs a vector env"),
        ("run tests.cli.toys:next_step_vector --partial-reset", "made with AutoresetMode.DISABLED"),
    ],
)
def test_what_cannot_be_run(args: str, told: str, capsys: pytest.CaptureFixture[str]) -> None:
    ran = run(capsys, *shlex.split(args))
    assert ran.status == 2
    assert told in ran.error
    assert ran.err.count("\n") == 1, ran.err
    assert ran.out == ""


def test_a_horizon_that_a_lockstep_vector_cannot_play_is_refused_in_full(capsys: pytest.CaptureFixture[str]) -> None:
    ran = run(capsys, "run", "tests.cli.toys:next_step_vector", "--horizon", "8")
    assert ran.status == 2
    assert ran.error.startswith("execution_horizon=8 cannot be combined with a lockstep vector env (num_envs=2)")
    assert ran.error.endswith("Use num_envs=1, a lane endpoint, or execution_horizon=1.")


@pytest.mark.parametrize("place", [["unix:///no/such/socket"], [WALK, "--model", "unix:///no/such/socket"]])
def test_a_server_that_is_not_there(
    place: list[str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(RunJob, "limits", Limits(env_connect_timeout=0.1, model_connect_timeout=0.1))
    ran = run(capsys, "run", *place)
    assert ran.status == 2
    assert "unix:///no/such/socket" in ran.error
    assert "No such file or directory" in ran.error


def test_a_refused_run_writes_no_report(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "report.json"
    path.write_text("the last run's")
    assert run(capsys, "run", WALK, "--model", "tests.cli.toys:gone", "--json", str(path)).status == 2
    assert path.read_text() == "the last run's"


def test_without_a_command_there_is_help(capsys: pytest.CaptureFixture[str]) -> None:
    ran = run(capsys)
    assert ran.status == 2
    assert "Usage: rlmesh-trio" in ran.err
