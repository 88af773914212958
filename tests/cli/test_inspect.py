import json

import pytest

from tests.cli.program import run


def test_an_env_of_this_process(capsys: pytest.CaptureFixture[str]) -> None:
    ran = run(capsys, "inspect", "CartPole-v1")
    assert (ran.status, ran.err) == (0, "")
    lines = ran.out.splitlines()
    assert lines[0] == "CartPole-v1"
    assert max(map(len, lines)) <= 80
    assert not any(line.endswith(" ") or "\x1b" in line for line in lines)
    facts = [" ".join(line.split()) for line in lines]
    assert "driven as one lane" in facts
    assert "autoreset DISABLED: the engine resets every episode" in facts
    assert "$ box float32 (4,) [-4.8 -inf -0.4189 -inf] to [4.8 inf 0.4189 inf]" in facts
    assert "$ discrete int64 () 0 to 1" in facts
    assert "render_fps 50" in facts


def test_a_vector_env(capsys: pytest.CaptureFixture[str]) -> None:
    document = json.loads(run(capsys, "inspect", "tests.cli.toys:next_step_vector", "--json").out)
    assert document["env"] == "tests.cli.toys:next_step_vector"
    assert (document["width"], document["driven"]) == (2, "2 lanes in lockstep")
    assert document["autoreset_mode"] == "NEXT_STEP"
    assert document["capabilities"] == {}
    assert document["editions"] == {"selected": "2026.06", "offered": ["2026.06"]}
    assert (document["peer"], document["limits"]) == (None, None)


def test_every_kind_of_space(capsys: pytest.CaptureFixture[str]) -> None:
    document = json.loads(run(capsys, "inspect", "tests.cli.toys:Furnished", "--json").out)
    bounds = {leaf["path"]: (leaf["kind"], leaf["shape"], leaf["bounds"]) for leaf in document["observation_space"]}
    assert bounds == {
        "$.bits": ("multi_binary", [3], {}),
        "$.counts": ("multi_discrete", [2], {"nvec": [2, 5]}),
        "$.far": ("box", [2], {"low": "-Infinity", "high": [1.0, 2.0]}),
        "$.pair[0]": ("discrete", [], {"n": 3, "start": -1}),
        "$.pair[1]": ("text", [], {"min_length": 2, "max_length": 9, "charset": "ab"}),
        "$.say": ("text", [], {"min_length": 1, "max_length": 5, "charset": None}),
        "$.wide": ("box", [20], {"low": 0, "high": 255}),
    }
    out = " ".join(run(capsys, "inspect", "tests.cli.toys:Furnished").out.split())
    for words in ("0 or 1", "0 to [1 4]", "-inf to [1 2]", "-1 to 1", "2 to 9 characters of 'ab'", "0 to 255"):
        assert words in out
