"""``conform list``, ``show``, ``try`` and ``replay``: what is printed, and the exit status."""

import re
import shlex
import sys
from collections.abc import Generator
from pathlib import Path

import pytest

from rlmesh_trio.conformance import serving_process
from rlmesh_trio.conformance.blob import encode_blob
from rlmesh_trio.conformance.catalogue import load_checks
from rlmesh_trio.conformance.registry import CHECKS
from rlmesh_trio.conformance.scripts import Reset, Script
from rlmesh_trio.contract import EnvContract
from rlmesh_trio.recording import Header, RecordingWriter
from tests.cli.program import Ran, run

FAULTY = "tests.conformance.planted.seed:UnseededStart"
MENDED = "tests.conformance.planted.seed:Walk"
CHECK = "seed.reset-repeatable"
OTHER = EnvContract(env_id="Other-v0", num_envs=2)
FOREIGN = encode_blob(CHECK, Script(2, (Reset((0, 1)),)), OTHER)


@pytest.fixture(autouse=True)
def _checks_as_they_were(monkeypatch: pytest.MonkeyPatch) -> Generator[None]:
    load_checks()
    before = dict(CHECKS)
    monkeypatch.delitem(sys.modules, "tests.cli.own_checks", raising=False)
    yield
    CHECKS.clear()
    CHECKS.update(before)


@pytest.fixture(autouse=True)
def _in_a_folder_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[2]))
    monkeypatch.setattr(serving_process, "_NESTS", 1)  # one interpreter forks all processes: to start one takes long


def conform(capsys: pytest.CaptureFixture[str], *args: str) -> Ran:
    return run(capsys, "conform", *args)


def test_every_check_is_listed_and_explained(capsys: pytest.CaptureFixture[str]) -> None:
    listed = conform(capsys, "list")
    assert listed.status == 0
    ids = [line.split()[0] for line in listed.out.splitlines()]
    assert len(ids) == len(set(ids)) > 20
    assert set(ids) <= set(CHECKS)
    for id in ids:
        shown = conform(capsys, "show", id)
        assert shown.status == 0
        assert shown.out.startswith(f"{id}   {CHECKS[id].severity}: ")
        told = " ".join(shown.out.split())
        assert " ".join(CHECKS[id].requirement.split()) in told
        assert "judged: " in told
        assert max(map(len, shown.out.splitlines())) <= 100


def test_a_list_of_some_and_of_ones_own(capsys: pytest.CaptureFixture[str]) -> None:
    listed = conform(capsys, "list", "seed", "lanes.permute", "--checks", "tests.cli.own_checks")
    assert {line.split()[0].partition(".")[0] for line in listed.out.splitlines()} == {"seed", "lanes"}
    assert "own.short" in conform(capsys, "list", "--checks", "tests.cli.own_checks").out


@pytest.mark.parametrize(
    ("args", "why"),
    [
        (("list", "sed"), "there is no check 'sed' (did you mean seed"),
        (("show", "seed.reset-repeatabl"), "there is no check 'seed.reset-repeatabl' (did you mean seed.reset-rep"),
        (("try", "nonsense", MENDED), "this is no blob, or one that was cut short"),
        (("try", FOREIGN, MENDED), "the blob was made for Other-v0 with 2 lanes; here is "),
        (("try", encode_blob("mine.gone", (), OTHER), MENDED), "mine.gone, a check that is not known here"),
        (("try", FOREIGN, "no_such_module:make"), "no module named 'no_such_module'"),
        (("replay", "nowhere.mcap", MENDED), "'nowhere.mcap' does not exist"),
        (("replay", "text.mcap", MENDED), "text.mcap"),
        (("replay", "run.mcap", MENDED), "run.mcap is no recording of a failed check"),
        (("try",), "Missing argument 'BLOB'"),
    ],
)
def test_what_means_nothing_is_refused_in_one_line(
    args: tuple[str, ...], why: str, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("text.mcap").write_text("no recording")
    with RecordingWriter("run.mcap", Header(contract=EnvContract()), "full"):
        pass
    ran = conform(capsys, *args)
    assert ran.status == 2
    assert why in ran.error
    assert ran.out == ""


def test_what_a_run_prints_shows_the_failure_again(capsys: pytest.CaptureFixture[str]) -> None:
    args = (FAULTY, "--only", CHECK, "--seed", "1", "--examples", "3", "--time", "20s", "--lanes", "2")
    ran = conform(capsys, *args)
    assert ran.status == 1
    again = re.search(r"again: rlmesh-trio conform (try .*?)(?: {6}|$)", ran.out, re.MULTILINE)
    file = re.search(r"file: (\S+\.mcap)", ran.out)
    plain = re.search(r"plain gymnasium: (\S+\.py)  \((\d+) lines", ran.out)
    assert again
    assert file
    assert plain
    assert len(Path(plain[1]).read_text().splitlines()) == int(plain[2])

    tried = conform(capsys, *shlex.split(again[1]))
    assert tried.status == 1
    assert f"FAIL {CHECK}" in tried.out
    replayed = conform(capsys, "replay", file[1], FAULTY, "--lanes", "2")
    assert replayed.status == 1
    assert f"FAIL {CHECK}" in replayed.out
    mended = conform(capsys, "replay", file[1], MENDED, "--lanes", "2", "--runs", "2")
    assert (mended.status, mended.out) == (0, f"PASS {CHECK}   2 runs on {MENDED}\n")
    refused = conform(capsys, "replay", file[1], MENDED)
    assert refused.status == 2
    assert "with 2 lanes; here is" in refused.error
