"""``conform A B``: each target is tested, and what comes later is compared with the first."""

import re
from pathlib import Path

import pytest

from rlmesh_trio.conformance import serving_process
from tests.cli.program import Ran, run
from tests.peers import start_env_peer

WALK, LONGER = "tests.cli.toys:Walk", "tests.cli.toys:LongerWalk"
NOTE = "NOTE twin.two-servers-agree"


@pytest.fixture(autouse=True)
def _in_a_folder_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[2]))
    monkeypatch.setattr(serving_process, "_NESTS", 1)  # the second one is for restarts, of which there are none here


def conform(capsys: pytest.CaptureFixture[str], *args: str) -> Ran:
    options = ("--examples", "1", "--seed", "1", "--time", "60s")
    return run(capsys, "conform", *args, "--only", "twin.two-servers-agree", "--skip", "acct", *options)


def test_where_two_targets_part_is_told_and_fails_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    ran = conform(capsys, WALK, LONGER)
    assert ran.status == 0
    _, told = ran.out.split(f"\n{LONGER}  factory")
    assert NOTE not in ran.out.removesuffix(told)
    assert "needs a target before this one: conform A B compares B with A" in " ".join(ran.out.split())
    shown = told.split(NOTE)[1]
    assert re.search(r"reset\(seed=\d+\)( step\(\d\)){4}\n", shown)
    assert re.search(rf"{LONGER} +step 4 +terminated = False\n", shown)
    assert re.search(rf"{WALK} +step 4 +terminated = True +the 4 answers before", shown)


def test_two_targets_that_agree(capsys: pytest.CaptureFixture[str]) -> None:
    ran = conform(capsys, WALK, WALK)
    assert ran.status == 0
    assert NOTE not in ran.out
    assert re.search(r"^twin +1 ", ran.out, re.MULTILINE)


@pytest.mark.interop
def test_a_real_server_and_what_is_served_here(capsys: pytest.CaptureFixture[str]) -> None:
    with start_env_peer("--env", "CartPole-v1") as peer:
        ran = conform(capsys, peer.address, "CartPole-v1")
    assert ran.status == 0
    assert NOTE not in ran.out
    assert re.search(r"^twin +1 ", ran.out, re.MULTILINE)
