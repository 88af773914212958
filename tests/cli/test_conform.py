import json
import re
import signal
import sys
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest

from rlmesh_trio.cli.conform_settings import reset_option, settings_from, tolerance
from rlmesh_trio.conformance import first_look, serving_process
from rlmesh_trio.conformance.catalogue import load_checks
from rlmesh_trio.conformance.registry import CHECKS
from tests.cli.program import LIMIT, Ran, run, started
from tests.peers import start_env_peer

OWN = "tests.cli.own_checks"
WALK = "tests.cli.toys:Walk"


@pytest.fixture(autouse=True)
def registry() -> Generator[None]:
    """Leave no check of these tests behind."""
    before = dict(load_checks())
    sys.modules.pop(OWN, None)
    yield
    CHECKS.clear()
    CHECKS.update(before)


@pytest.fixture(autouse=True)
def _one_interpreter(monkeypatch: pytest.MonkeyPatch) -> None:
    """The second one is for restarts, of which there are none here."""
    monkeypatch.setattr(serving_process, "_NESTS", 1)


@pytest.fixture(scope="module")
def walk() -> Generator[str]:
    """The address of a server of ``WALK``, for tests that do not need one of their own."""
    with started("serve", WALK, "--address", "127.0.0.1:0") as server:
        assert server.stdout is not None
        address = re.search(r"127\.0\.0\.1:\d+", server.stdout.readline())
        assert address is not None
        yield address[0]


def conform(capsys: pytest.CaptureFixture[str], *args: str, only: str = "own.accepted") -> Ran:
    return run(capsys, "conform", *args, "--checks", OWN, "--only", only, "--examples", "3", "--seed", "1")


def test_a_server_that_keeps_its_contract(capsys: pytest.CaptureFixture[str]) -> None:
    ran = conform(capsys, WALK)
    assert ran.status == 0
    assert "seed 1" in ran.out
    assert "own" in ran.out


def test_a_failure_is_told_with_its_script(capsys: pytest.CaptureFixture[str]) -> None:
    ran = conform(capsys, f"{OWN}:Lame", "-v")
    assert ran.status == 1
    assert "own.accepted" in ran.out
    assert "refused with INTERNAL" in ran.out
    assert "reset(seed=0) step(0) step(0)" in ran.err


def test_a_should_fails_a_strict_run_only(walk: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert conform(capsys, walk, only="own.short").status == 0
    assert conform(capsys, walk, "--strict", only="own.short").status == 1


def test_a_fault_of_a_check_is_no_fault_of_the_env(walk: str, capsys: pytest.CaptureFixture[str]) -> None:
    ran = conform(capsys, walk, only="own.faulty,own.accepted")
    assert ran.status == 4
    assert "a fault of its own" in ran.out


def test_every_request_is_shown_when_asked_twice(walk: str, capsys: pytest.CaptureFixture[str]) -> None:
    ran = conform(capsys, walk, "-vv")
    assert "  reset(seed=0) -> " in ran.err
    assert "lane 0 terminated" in ran.err


@pytest.mark.parametrize(
    ("args", "why"),
    [
        (("tcp://nowhere",), "bad address"),
        (("no_such_module:make",), "no module named 'no_such_module'"),
        (("tests.cli.toys:raising_factory",), "FileNotFoundError: no floor to walk on"),
        (("NoSuchEnv-v7",), "NoSuchEnv-v7"),
        (("127.0.0.1:5555", "--lanes", "2"), "lanes are for an env started here"),
        ((WALK, "--quick", "--deep"), "--quick and --deep exclude each other"),
        ((WALK, "--only", "sed"), "there is no check 'sed' (did you mean seed"),
        ((WALK, "--skip", "seed.nothing"), "there is no check 'seed.nothing'"),
        ((WALK, "--checks", "tests.cli.nothing"), "cannot load the checks of 'tests.cli.nothing'"),
        ((WALK, "--options", "level"), "'level' is no reset option"),
        ((WALK, "--tolerance", "0.1"), "'0.1' is no tolerance"),
        ((WALK, "--time", "long"), "'long' is no duration"),
        ((), "Missing argument"),
    ],
)
def test_what_cannot_be_tested_is_refused_in_one_line(
    args: tuple[str, ...], why: str, capsys: pytest.CaptureFixture[str]
) -> None:
    ran = run(capsys, "conform", "--time", "5s", *args)
    assert ran.status == 2
    assert why in ran.error
    assert ran.out == ""


def test_a_server_that_is_not_there(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(first_look, "OPENING", 0.2)
    ran = conform(capsys, "unix:///nowhere/at/all")
    assert ran.status == 2
    assert "/nowhere/at/all" in ran.error


def test_a_target_is_the_first_word_or_not(capsys: pytest.CaptureFixture[str]) -> None:
    shown = run(capsys, "conform", "--help")
    assert shown.status == 0
    assert "TARGET" in shown.out
    assert "--shrink-time" in shown.out


def test_an_interrupted_run_tells_what_it_found(walk: str) -> None:
    args = ("--checks", OWN, "--only", "own.short,own.endless", "--seed", "1")
    with started("conform", walk, *args) as process:
        assert process.stderr is not None
        assert any("endless" in line for line in process.stderr), "what a check prints is no part of the report"
        process.send_signal(signal.SIGINT)
        out, _ = process.communicate(timeout=LIMIT)
    assert process.returncode == 130
    assert "own.short" in out
    assert "own.endless" in out


@pytest.mark.interop
def test_a_server_that_hangs_is_given_up(capsys: pytest.CaptureFixture[str]) -> None:
    with start_env_peer("--env", "counter", "--fault", "hang", "--fault-at", "1") as peer:
        ran = conform(capsys, peer.address, "--step-timeout", "0.2s", "--time", "20s", only="own.accepted,own.short")
    assert ran.status == 3
    assert "refused with TIMEOUT" in ran.out


@pytest.mark.interop
def test_a_server_that_is_tested_and_lives_on(capsys: pytest.CaptureFixture[str]) -> None:
    with start_env_peer("--env", "counter", "--kind", "lanes", "--num-envs", "2") as peer:
        for _ in range(2):
            assert conform(capsys, peer.address).status == 0


def test_a_project_sets_defaults(
    walk: str, capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    project = tmp_path / "pyproject.toml"
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(Path(__file__).parents[2]))  # pyright: ignore[reportUnknownMemberType]
    project.write_text(
        f'[tool.rlmesh-trio.conform]\nchecks = ["{OWN}"]\nonly = ["own.short"]\nstrict = true\ntime = 5\nseed = 3\n'
        'no-shrink = true\nexamples = 2\nstep-timeout = "2s"\n'
    )
    ran = run(capsys, "conform", walk)
    assert ran.status == 1
    assert "seed 3" in ran.out
    assert "own.accepted" not in ran.out
    ran = run(capsys, "conform", walk, "--only", "own.accepted", "--seed", "4")
    assert (ran.status, "seed 4" in ran.out) == (0, True)
    project.write_text("[tool.rlmesh-trio.conform]\nfast = true\n")
    ran = run(capsys, "conform", WALK)
    assert ran.status == 2
    assert "[tool.rlmesh-trio.conform] has 'fast', which is no option of conform" in ran.error
    project.write_text("[tool.rlmesh-trio.conform]\nstrict = 1\n")
    assert "strict is true or false, not 1" in run(capsys, "conform", WALK).error
    project.write_text("[tool\n")
    assert "pyproject.toml cannot be read" in run(capsys, "conform", WALK).error


@pytest.mark.parametrize(
    ("text", "value"), [("level=3", 3), ("level=easy", "easy"), ('level={"a": [1]}', {"a": [1]}), ("level=", "")]
)
def test_a_reset_option_is_json_where_it_reads_as_such(text: str, value: Any) -> None:
    assert reset_option(text) == ("level", value)


def test_a_tolerance_is_in_units_of_the_last_place() -> None:
    assert tolerance("ulp=4") == 4


def test_with_a_number_of_examples_the_time_ends_only_what_hangs() -> None:
    given = {"only": (), "skip": (), "ignored_leaves": (), "ignored_infos": (), "options": ()}
    given |= {"time": None, "quick": False, "deep": False}
    hurried, counted = (settings_from({**given, "examples": examples}) for examples in (None, 3))
    assert (hurried.time, hurried.shrink_time) == (60.0, 20.0)
    assert (counted.time, counted.shrink_time) == (900.0, 900.0)
    chosen = settings_from({**given, "examples": 3, "time": 5.0, "shrink_time": 1.0})
    assert (chosen.time, chosen.shrink_time) == (5.0, 1.0)


def test_settings_follow_the_options() -> None:
    given = {"only": (("a", "b"), ("c",)), "skip": (), "ignored_leaves": (), "ignored_infos": (), "options": ()}
    settings = settings_from({"time": None, "quick": True, "deep": False, "seed": None, **given})
    assert (settings.time, settings.only, settings.examples_each) == (9.0, ("a", "b", "c"), 3)
    assert json.dumps(settings.seeded().seed).isdecimal()
