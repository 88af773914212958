"""``export`` at the command line: what it says, and with which status it ends."""

import re
import sys
from pathlib import Path
from typing import Any

import click
import pytest

from rlmesh_trio.cli.replay_export import export_command
from tests.export.foreign import minari, pq
from tests.export.recordings import of_each_end, seen


def export(*args: object) -> Any:
    return export_command.main([str(arg) for arg in args], standalone_mode=False)


@pytest.mark.parametrize(("form", "name"), [("parquet", "a.parquet"), ("minari", "a-v0"), ("lerobot", "data")])
def test_a_recording_is_exported(form: str, name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path, out = seen(tmp_path / "a.mcap"), tmp_path / name
    assert export(path, out, "--to", form) == 0
    assert capsys.readouterr() == (f"3 episodes, 12 steps: {out}\n", "")
    assert export(path, out, "--to", form) == 2
    assert capsys.readouterr() == ("", f"error: {out}: it is there already; --force replaces it\n")
    assert export(path, out, "--to", form, "--force") == 0
    assert sorted(found.name for found in tmp_path.iterdir()) == sorted(["a.mcap", name])


def test_what_was_left_out_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = of_each_end(tmp_path / "a.mcap")
    assert export(path, tmp_path / "a.parquet", "--to", "parquet") == 0
    told = capsys.readouterr()
    assert told.err == "note: left out: episode 4 that ended in an error; --all exports them too\n"
    assert export(path, tmp_path / "all-v0", "--to", "minari", "--all") == 0
    assert minari.MinariDataset(tmp_path / "all-v0" / "data").total_episodes == 5


def test_options_of_one_format_are_refused_for_others(tmp_path: Path) -> None:
    path = seen(tmp_path / "a.mcap")
    with pytest.raises(click.UsageError, match="--video is of --to lerobot alone"):
        export(path, tmp_path / "a.parquet", "--to", "parquet", "--video", "none")
    assert export(path, tmp_path / "data", "--to", "lerobot", "--video", "none", "--fps", "5", "--task", "look") == 0
    assert pq.read_table(tmp_path / "data" / "meta" / "tasks.parquet")["task"].to_pylist() == ["look"]


@pytest.mark.parametrize(
    ("form", "module", "package"),
    [
        ("parquet", "pyarrow.parquet", "pyarrow"),
        ("minari", "minari", "minari"),
        ("lerobot", "pyarrow.parquet", "pyarrow"),
        ("lerobot", "av", "av"),
    ],
)
def test_a_missing_extra_is_one_line_and_leaves_nothing(
    form: str,
    module: str,
    package: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    path = seen(tmp_path / "a.mcap")
    monkeypatch.setitem(sys.modules, module, None)
    assert export(path, tmp_path / "out-v0", "--to", form) == 2
    said = capsys.readouterr().err
    assert re.fullmatch(rf"error: .* needs the package {package}, .*pip install 'rlmesh_trio\[{form}\]'\n", said)
    assert list(tmp_path.iterdir()) == [path]


def test_a_damaged_recording_leaves_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = seen(tmp_path / "a.mcap")
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 255
    path.write_bytes(data)
    assert export(path, tmp_path / "a.parquet", "--to", "parquet") == 2
    assert re.fullmatch(r"error: recording .*a\.mcap: it cannot be read between ticks .*\n", capsys.readouterr().err)
    assert list(tmp_path.iterdir()) == [path]
