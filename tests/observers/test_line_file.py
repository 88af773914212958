"""A file of lines on a disk that fills up, and one that somebody else writes to."""

import logging
import os
import subprocess
import sys
from pathlib import Path

import pytest

from rlmesh_trio.errors import InvalidSpec
from rlmesh_trio.observers.line_file import LineFile, check_place
from tests.observers.full_disk import FullDisk


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "lines"


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> type[FullDisk]:
    monkeypatch.setattr("rlmesh_trio.observers.line_file.FileIO", FullDisk)
    monkeypatch.setattr(FullDisk, "room", 10)
    return FullDisk


def test_what_had_no_room_is_written_once_there_is_some(
    path: Path, disk: type[FullDisk], caplog: pytest.LogCaptureFixture
) -> None:
    file = LineFile(str(path), "diary")
    file.begin(0, b"one\n")
    with caplog.at_level(logging.WARNING, "rlmesh_trio"):
        file.append(b"two\n")
        assert file.failure is None
        file.append(b"three\n")
        file.append(b"four\n")
        assert file.failure is not None
        assert path.read_bytes() == b"one\ntwo\nth", "cut short, as by a kill"
        disk.room = 100
        file.append(b"five\n")
        assert file.failure is None
        file.close()
    assert path.read_bytes() == b"one\ntwo\nthree\nfour\nfive\n"
    assert caplog.messages == [
        f"diary {path} cannot be written: No space left on device; the run goes on without it",
        f"diary {path} can be written again; nothing of it is missing",
    ]


def test_room_may_come_at_the_last_moment(path: Path, disk: type[FullDisk]) -> None:
    file = LineFile(str(path), "diary")
    file.begin(0, b"one\n")
    file.append(b"two, three\n")
    disk.room = 100
    file.close()
    assert file.failure is None
    assert path.read_bytes() == b"one\ntwo, three\n"


def test_what_is_missing_in_the_end_is_an_error(
    path: Path, disk: type[FullDisk], caplog: pytest.LogCaptureFixture
) -> None:
    file = LineFile(str(path), "diary")
    file.begin(0, b"one\n")
    file.append(b"two, three\n")
    file.close()
    file.close()
    assert file.failure is not None
    assert [record.levelname for record in caplog.records] == ["WARNING", "ERROR"]
    assert caplog.messages[-1] == f"diary {path} is incomplete: No space left on device"


def test_a_disk_that_does_not_keep_what_it_took_has_failed_too(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = LineFile(str(path), "diary")

    def fail(_: int) -> None:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(os, "fsync", fail)
    file.append(b"one\n", sync=True)
    assert str(file.failure) == "[Errno 5] Input/output error"
    file.close()


def test_no_room_for_the_beginning_is_refused(path: Path, disk: type[FullDisk]) -> None:
    file = LineFile(str(path), "diary")
    with pytest.raises(InvalidSpec, match=r"diary .*lines cannot be written: No space left on device"):
        file.begin(0, b"a line of some length\n")
    file.close()


def test_what_is_kept_of_the_content(path: Path) -> None:
    path.write_bytes(b"one\ntwo\nthr")
    file = LineFile(str(path), "diary")
    assert file.read() == b"one\ntwo\nthr"
    file.begin(8, b"three\n")
    file.append(b"four\n")
    file.close()
    assert path.read_bytes() == b"one\ntwo\nthree\nfour\n"


def test_two_processes_do_not_write_the_same_file(path: Path) -> None:
    program = f"""if True:
        from rlmesh_trio.observers.line_file import LineFile
        file = LineFile({str(path)!r}, "diary")
        print("open", flush=True)
        input()
    """
    command = [sys.executable, "-c", program]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "open\n"
        with pytest.raises(InvalidSpec, match=r"diary .*lines is being written by another run"):
            LineFile(str(path), "diary")
        other.kill()
        other.wait()
    LineFile(str(path), "diary").close()


def test_places_are_looked_at_and_left_as_they_are(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    check_place(str(tmp_path / "new"), "diary")
    monkeypatch.chdir(tmp_path)
    check_place("new", "diary")
    (tmp_path / "old").write_bytes(b"one\n")
    check_place("old", "diary")
    assert [found.name for found in tmp_path.iterdir()] == ["old"]
    with pytest.raises(InvalidSpec, match=r"diary \. is no regular file"):
        check_place(".", "diary")
    with pytest.raises(InvalidSpec, match="diary gone/new cannot be written: there is no folder gone"):
        check_place("gone/new", "diary")

    def never(_: str, __: int) -> bool:
        return False  # what os.access says to anybody but root, as whom the tests may run

    monkeypatch.setattr(os, "access", never)
    for name in ("old", "new"):
        with pytest.raises(InvalidSpec, match=f"diary {name} cannot be written: it is write-protected"):
            check_place(name, "diary")
