from enum import Enum, IntEnum
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rlmesh._metadata import sanitize_metadata

from rlmesh_trio.spaces import plain_metadata
from rlmesh_trio.wire.metadata import LazyMetadata, encode_metadata


class Point(NamedTuple):
    x: int
    y: int


class Colour(Enum):
    RED = "red"
    ODD = object()


class Level(IntEnum):
    LOW = 1


class Handle:
    def __str__(self) -> str:
        return "a handle"


PLAIN: dict[str, tuple[Any, Any]] = {
    "none": (None, None),
    "bool": (True, True),
    "numpy bool": (np.True_, True),
    "int": (-(2**63), -(2**63)),
    "numpy int": (np.uint8(3), 3),
    "float": (0.5, 0.5),
    "numpy float": (np.float32(0.5), 0.5),
    "bytes": (b"\0", b"\0"),
    "array": (np.array([[1, 2]]), [[1, 2]]),
    "tuple": ((1, "a", None), [1, "a", None]),
    "named tuple": (Point(1, 2), {"x": 1, "y": 2}),
    "map": ({1: {"a": (2,)}}, {"1": {"a": [2]}}),
    "enum": (Colour.RED, "red"),
    "enum without a form": (Colour.ODD, "ODD"),
    "int enum": (Level.LOW, 1),
    "object": (Handle(), "a handle"),
    "complex": (1j, "1j"),
}


@pytest.mark.parametrize("case", PLAIN)
def test_a_value_is_made_plain_as_rlmesh_makes_it(case: str) -> None:
    value, plain = PLAIN[case]
    made = plain_metadata({"key": value})
    assert made == {"key": plain}
    assert type(made["key"]) is type(plain)
    assert sanitize_metadata({"key": value}) == made


def test_what_has_no_form_is_texted_where_rlmesh_fails() -> None:
    own: dict[str, Any] = {"n": 1}
    own["self"] = own
    deep: Any = 0
    for _ in range(100):
        deep = [deep]
    made = plain_metadata({"big": 2**63, "own": own, "deep": deep, "torn": "a\ud800", "\ud800": 1, "class": np.float32})
    assert made["big"] == str(2**63)
    assert made["own"] == {"n": 1, "self": str(own)}
    assert made["torn"] == "a?"
    assert made["class"] == str(np.float32)
    assert made["?"] == 1
    assert dict(LazyMetadata(encode_metadata(made))) == made


values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False)
    | st.text()
    | st.binary()
    | st.just(Handle()),
    lambda children: st.lists(children, max_size=3) | st.dictionaries(st.text() | st.integers(), children, max_size=3),
    max_leaves=8,
)


@given(metadata=st.dictionaries(st.text(), values, max_size=4))
def test_plain_metadata_always_has_a_wire_form(metadata: dict[str, Any]) -> None:
    made = plain_metadata(metadata)
    assert dict(LazyMetadata(encode_metadata(made))) == made
    assert plain_metadata(made) == made
