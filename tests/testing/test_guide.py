"""The guide's example of scripted endpoints is run as it stands."""

import re
from pathlib import Path

import pytest

GUIDE = (Path(__file__).parents[2] / "docs" / "guide.md").read_text()


def test_the_example_of_scripted_endpoints(capsys: pytest.CaptureFixture[str]) -> None:
    section = GUIDE.partition("\n## Testing your own harness: scripted endpoints\n")[2].partition("\n## ")[0]
    [block] = re.findall(r"^```python\n(.*?)^```", section, re.MULTILINE | re.DOTALL)
    exec(compile(block, "guide.md", "exec"), {})
    assert re.fullmatch(
        r"model\.predict timed out on route [0-9a-f-]{36} component local-model at runtime step 1 after 300s; "
        r"2 episodes are kept\n",
        capsys.readouterr().out,
    )
