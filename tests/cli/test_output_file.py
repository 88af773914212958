import os
import stat
from pathlib import Path

import pytest

from rlmesh_trio.cli.output_file import JsonOutput


def test_a_file_is_written_whole_and_alone(tmp_path: Path) -> None:
    path = tmp_path / "report.json"
    output = JsonOutput(str(path))
    assert list(tmp_path.iterdir()) == [], "naming a file leaves nothing behind"
    output.write("one")
    output.write("two")
    assert path.read_text() == "two"
    assert list(tmp_path.iterdir()) == [path]


def test_an_existing_file_keeps_its_mode(tmp_path: Path) -> None:
    path = tmp_path / "report.json"
    path.write_text("old")
    path.chmod(0o600)
    JsonOutput(str(path)).write("new")
    assert path.read_text() == "new"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_a_failed_write_leaves_what_was_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "report.json"
    path.write_text("old")

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    output = JsonOutput(str(path))
    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space"):
        output.write("new")
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_a_link_stays_a_link(tmp_path: Path) -> None:
    target, link = tmp_path / "target.json", tmp_path / "link.json"
    link.symlink_to(target)
    JsonOutput(str(link)).write("text")
    assert link.is_symlink()
    assert target.read_text() == "text"


def test_what_is_no_regular_file_is_written_directly(tmp_path: Path) -> None:
    JsonOutput(os.devnull).write("text")
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    JsonOutput(str(pipe)).write("text")
    assert os.read(reader, 10) == b"text"
    os.close(reader)
    assert stat.S_ISFIFO(pipe.stat().st_mode)


def test_standard_output(capsys: pytest.CaptureFixture[str]) -> None:
    output = JsonOutput("-")
    assert output.is_stdout
    output.write("text\n")
    assert capsys.readouterr().out == "text\n"


@pytest.mark.parametrize("name", ["", ".", "new/", "missing/report.json", "file/report.json"])
def test_what_cannot_be_written_is_refused_at_once(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("file").touch()
    with pytest.raises(OSError, match=r"."):
        JsonOutput(name)


def test_a_write_protected_file_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "report.json"
    path.touch()

    def never(_: str, __: int) -> bool:
        return False  # what os.access says to anybody but root, as whom the tests may run

    monkeypatch.setattr(os, "access", never)
    with pytest.raises(PermissionError):
        JsonOutput(str(path))
