import json
import math
from typing import Any

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlmesh_trio.observers.records import decode_record, json_line, parse_object, plain, strict_json
from rlmesh_trio.report import EpisodeSummary
from tests.cli.reports import episode

EPISODE = attrs.asdict(episode(3))


@given(
    reward=st.floats(),
    mean=st.none() | st.floats(),
    seed=st.none() | st.integers(-(2**63), 2**63 - 1),
    success=st.none() | st.booleans(),
)
def test_an_episode_comes_back_exactly(
    reward: float, mean: float | None, seed: int | None, success: bool | None
) -> None:
    summary = episode(2, cumulative_reward=reward, predict_ms=mean, seed=seed, success=success)
    line = json_line(attrs.asdict(summary))
    assert line.endswith(b"}\n")
    # repr tells NaN from numbers and 0.0 from -0.0.
    assert repr(decode_record(EpisodeSummary, parse_object(line))) == repr(summary)


def test_what_json_has_not_is_text() -> None:
    assert plain({"a": (math.nan, [math.inf, -math.inf], 1.5)}) == {"a": ["NaN", ["Infinity", "-Infinity"], 1.5]}
    assert strict_json({"a": b"xyz", 3: {None: ()}}) == '{"a": "eHl6", "3": {"None": []}}'


def test_letters_can_stand_as_they_are() -> None:
    assert strict_json(["ü\udc80", {1}], ensure_ascii=False, default=list) == '["ü?", [1]]'


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"seed": 1.5}, "its 'seed' cannot be 1.5"),
        ({"step_count": True}, "its 'step_count' cannot be True"),
        ({"terminated": 1}, "its 'terminated' cannot be 1"),
        ({"cumulative_reward": "nan"}, "its 'cumulative_reward' cannot be 'nan'"),
        ({"cumulative_reward": 2**53 + 1}, "its 'cumulative_reward' cannot be"),
        ({"cumulative_reward": None}, "its 'cumulative_reward' cannot be None"),
        ({"surprise": 0}, "it has an unknown 'surprise'"),
    ],
)
def test_a_field_of_another_type_is_named(change: dict[str, Any], why: str) -> None:
    with pytest.raises(ValueError, match=why):
        decode_record(EpisodeSummary, EPISODE | change)


def test_a_missing_field_is_named() -> None:
    with pytest.raises(ValueError, match="it has no 'step_ms'"):
        decode_record(EpisodeSummary, {name: value for name, value in EPISODE.items() if name != "step_ms"})


def test_a_whole_number_may_stand_for_a_float() -> None:
    assert decode_record(EpisodeSummary, EPISODE | {"cumulative_reward": 21}).cumulative_reward == 21.0


@pytest.mark.parametrize("text", ["", "{", "NaN", '{"a": NaN}', "[" * 100_000, "[]", "3", '{"a": "\udc80"}'])
def test_text_that_is_no_object_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"it is (not JSON|no JSON object)"):
        parse_object(text.encode(errors="surrogateescape"))


def test_lines_are_strict_json() -> None:
    assert json.loads(json_line({"kind": "x", "text": "one\ntwo"})) == {"kind": "x", "text": "one\ntwo"}
    assert json_line({"text": "one\ntwo"}).count(b"\n") == 1
