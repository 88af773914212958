"""An export appears whole or not at all, and replaces nothing but what it is told to."""

import os
from pathlib import Path

import pytest

from rlmesh_trio.export import ExportError
from rlmesh_trio.export.destination import appearing_file, appearing_folder


class Failure(Exception):
    pass


def write_half_of(draft: Path) -> None:
    draft.write_text("half")
    raise Failure


def test_a_file_appears_in_the_end(tmp_path: Path) -> None:
    with appearing_file(tmp_path / "out", tmp_path / "source", force=False) as draft:
        Path(draft).write_text("new")
        assert not (tmp_path / "out").exists()
    assert (tmp_path / "out").read_text() == "new"
    assert os.listdir(tmp_path) == ["out"]


@pytest.mark.parametrize("force", [False, True])
def test_a_file_that_is_there_is_replaced_if_so_told(force: bool, tmp_path: Path) -> None:
    out, source = tmp_path / "out", tmp_path / "source"
    out.write_text("old")
    source.touch()
    if not force:
        with pytest.raises(ExportError, match="out: it is there already"), appearing_file(out, source, force=False):
            pass
        assert out.read_text() == "old"
    else:
        with appearing_file(out, source, force=True) as draft:
            Path(draft).write_text("new")
            assert out.read_text() == "old"
        assert out.read_text() == "new"


def test_a_failure_leaves_what_was_there(tmp_path: Path) -> None:
    out, source = tmp_path / "out", tmp_path / "source"
    out.write_text("old")
    source.touch()
    with pytest.raises(Failure), appearing_file(out, source, force=True) as draft:
        write_half_of(Path(draft))
    with (
        pytest.raises(ExportError, match="it cannot be written: No space left"),
        appearing_file(out, source, force=True) as draft,
    ):
        raise OSError(28, "No space left on device")
    assert out.read_text() == "old"
    assert sorted(os.listdir(tmp_path)) == ["out", "source"]


def test_the_recording_itself_is_never_replaced(tmp_path: Path) -> None:
    source, link = tmp_path / "source", tmp_path / "link"
    source.write_text("recording")
    link.symlink_to(source)
    for out in (source, link):
        with pytest.raises(ExportError, match="it is the recording itself"), appearing_file(out, source, force=True):
            pass
    with pytest.raises(ExportError, match="it is a folder"), appearing_file(tmp_path, source, force=True):
        pass


def test_a_folder_appears_in_the_end(tmp_path: Path) -> None:
    out = tmp_path / "out"
    out.mkdir()  # an empty one is as good as none
    with appearing_folder(out, mark="mark", force=False) as draft:
        Path(draft, "mark").touch()
        assert os.listdir(out) == []
    assert os.listdir(out) == ["mark"]
    assert os.listdir(tmp_path) == ["out"]


def test_a_folder_is_replaced_only_if_it_is_an_export(tmp_path: Path) -> None:
    out = tmp_path / "out"
    out.mkdir()
    (out / "mine").touch()
    with pytest.raises(ExportError, match="it is there already"), appearing_folder(out, mark="mark", force=False):
        pass
    with (
        pytest.raises(ExportError, match="without mark it is no earlier"),
        appearing_folder(out, mark="mark", force=True),
    ):
        pass
    (out / "mark").touch()
    with appearing_folder(out, mark="mark", force=True) as draft:
        Path(draft, "new").touch()
    assert os.listdir(out) == ["new"]
    assert os.listdir(tmp_path) == ["out"]


def test_a_failure_leaves_no_folder(tmp_path: Path) -> None:
    with pytest.raises(Failure), appearing_folder(tmp_path / "out", mark="mark", force=False) as draft:
        write_half_of(Path(draft, "half"))
    (tmp_path / "file").touch()
    with pytest.raises(ExportError, match="it is a file"), appearing_folder(tmp_path / "file", mark="m", force=True):
        pass
    with (
        pytest.raises(ExportError, match="it cannot be written: No such file"),
        appearing_folder(tmp_path / "nowhere" / "out", mark="mark", force=False),
    ):
        pass
    assert os.listdir(tmp_path) == ["file"]


def test_what_is_neither_file_nor_folder_is_never_replaced(tmp_path: Path) -> None:
    out, source = tmp_path / "out", tmp_path / "source"
    os.mkfifo(out)
    source.touch()
    with (
        pytest.raises(ExportError, match="out: it is no regular file"),
        appearing_file(out, source, force=True) as draft,
    ):
        Path(draft).write_text("new")
    assert out.is_fifo()
