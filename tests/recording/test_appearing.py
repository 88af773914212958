"""Nobody writes where another one does, and what is at a place stays until something whole can take it."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from rlmesh_trio.recording import Header, RecordingError, RecordingWriter, canon, open_recording, repair, verify
from rlmesh_trio.recording.resumed import continue_recording
from tests.recording.plays import contract_of, episodes, recorded

HEADER = Header(contract=contract_of(1))


def go_on(path: Path, out: Path) -> RecordingWriter:
    return continue_recording(path, out, HEADER)


@pytest.fixture
def whole(tmp_path: Path) -> Path:
    path = tmp_path / "whole.mcap"
    recorded(path, episodes(1, 4, 9), HEADER, chunk_ticks=3)
    return path


def test_a_recording_has_one_writer(whole: Path) -> None:
    with RecordingWriter(whole, HEADER):
        while_written = whole.read_bytes()
        for begin in (lambda: RecordingWriter(whole, HEADER), lambda: go_on(whole, whole)):
            with pytest.raises(RecordingError, match="is being written by another run"):
                begin()
        assert whole.read_bytes() == while_written
    assert verify(whole).problems == ()


def test_a_recording_that_goes_on_has_one_writer_too(whole: Path, tmp_path: Path) -> None:
    out = tmp_path / "b.mcap"
    with go_on(whole, out):
        for write in (canon, repair, go_on):
            with pytest.raises(RecordingError, match=r"b\.mcap: it is being written by another run"):
                write(whole, out)
    assert verify(out).problems == ()
    assert canon(whole, out).run_root == verify(whole).footer.run_root


def test_what_fails_leaves_what_was_there(whole: Path, tmp_path: Path) -> None:
    with open_recording(whole) as recording:
        span = recording.container.spans[len(recording.container.spans) // 2]
    data = bytearray(whole.read_bytes())
    data[span.start + span.length - 5] ^= 1
    whole.write_bytes(data)
    out = tmp_path / "out"
    out.write_text("kept")
    for write in (canon, go_on):
        with pytest.raises(RecordingError, match="cannot be read between ticks"):
            write(whole, out)
    assert out.read_text() == "kept"
    assert sorted(os.listdir(tmp_path)) == ["out", "whole.mcap"]


@pytest.mark.parametrize("write", [canon, repair])
def test_a_place_that_cannot_be_is_named(write: Callable[[Path, Path], object], whole: Path, tmp_path: Path) -> None:
    for out, why in ((tmp_path, "no regular file"), (tmp_path / "no" / "out", "No such file")):
        with pytest.raises(RecordingError, match=f"^recording {out}: it cannot be written: .*{why}"):
            write(whole, out)
