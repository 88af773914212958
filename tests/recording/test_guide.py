"""The example of a recording in the documentation is run as it stands."""

import re
from pathlib import Path

import pytest

PAGE = (Path(__file__).parents[2] / "docs" / "recordings.md").read_text()


def test_the_example_of_a_recording(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    section = PAGE.partition("\n## The library\n")[2].partition("\n## ")[0]
    [block] = re.findall(r"^```python\n(.*?)^```", section, re.MULTILINE | re.DOTALL)
    monkeypatch.chdir(tmp_path)
    exec(compile(block, "recordings.md", "exec"), {})
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) > 5
    assert lines[0].endswith(" None None")
    assert lines[-1].endswith(" 1.0 True")
