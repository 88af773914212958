"""Cases as JSON and as blobs: nothing is lost, and what is foreign or damaged is refused in one line."""

import base64
import json
import math
import struct
import zlib
from typing import Any

import attrs
import pytest
from gymnasium import spaces
from hypothesis import given, settings
from hypothesis import strategies as st

from rlmesh_trio.conformance.blob import BlobError, contract_digest, decode_blob, encode_blob
from rlmesh_trio.conformance.scripts import Reset, Script, Step, Wait
from rlmesh_trio.conformance.scripts_json import case_from_json, case_to_json, script_from_json, script_to_json
from rlmesh_trio.conformance.strategies import scripts
from rlmesh_trio.contract import AutoresetMode
from rlmesh_trio.spaces import contract_from_wire, contract_to_wire
from tests.conformance.making import VECTOR, facts_for

FACTS = facts_for(lanes=2)
CONTRACT = FACTS.contract
SCRIPT = Script(
    2,
    (
        Reset((0, 2**63 - 1), {"level": 3, "raw": b"\xff", "deep": {"x": [math.nan, None]}}),
        Step(((b"\x01", b""), (b"\x02", b"\xff"))),
        Reset(lanes=(1,)),
        Step(((b"\x00",),), (1,)),
        Wait(0.25),
    ),
)
PLAIN = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=4) | st.binary(max_size=4)
CASES: st.SearchStrategy[Any] = st.recursive(
    PLAIN | scripts(FACTS, steps=3, partial=True, pauses=True),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.lists(inner, max_size=3).map(tuple)
        | st.dictionaries(st.text(max_size=3), inner, max_size=3)
    ),
    max_leaves=6,
)


def same(a: object, b: object) -> bool:
    """Equal, floats by their bits."""
    if isinstance(a, float) and isinstance(b, float):
        return struct.pack(">d", a) == struct.pack(">d", b)
    return repr(a) == repr(b) and type(a) is type(b)


def packed(document: object) -> str:
    return base64.b85encode(zlib.compress(json.dumps(document).encode())).decode()


@settings(max_examples=50, database=None)
@given(CASES)
def test_a_case_survives_json_and_the_blob(case: Any) -> None:
    assert same(case_from_json(json.loads(json.dumps(case_to_json(case), allow_nan=False))), case)
    blob = decode_blob(encode_blob("mine.check", case, CONTRACT))
    assert blob.check == "mine.check"
    assert same(blob.case, case)


def test_a_script_reads_well_in_json() -> None:
    document = script_to_json(Script(1, (Reset((7,)), Step(((b"\x01",),)), Wait(0.5))))
    assert document == {"lanes": 1, "ops": [{"reset": {"seeds": [7]}}, {"step": [["01"]]}, {"wait": 0.5}]}
    assert same(script_from_json(json.loads(json.dumps(script_to_json(SCRIPT)))), SCRIPT)


NO_SCRIPTS: list[Any] = [
    None,
    5,
    [],
    {},
    {"lanes": 1},
    {"lanes": -1, "ops": []},
    {"lanes": 1, "ops": [{}]},
    {"lanes": True, "ops": []},
]


@pytest.mark.parametrize("document", NO_SCRIPTS)
def test_what_is_no_script_is_told(document: Any) -> None:
    with pytest.raises(ValueError, match="no script: "):
        script_from_json(document)


def test_what_is_no_case_is_told() -> None:
    for document in ({"surprise": 1}, {"bytes": "zz"}, {"float": "00"}, {"tuple": 5}, {"a": 1, "b": 2}):
        with pytest.raises(ValueError, match="no case: "):
            case_from_json(document)
    with pytest.raises(TypeError, match="cannot hold a set"):
        case_to_json({1})


def test_a_blob_can_be_quoted_and_is_no_option() -> None:
    blob = encode_blob("seed.trace-repeatable", SCRIPT, CONTRACT)
    assert blob.isascii()
    assert not set(blob) & set("'\"\\ \n")
    assert blob.startswith("c")
    assert len(blob) < 400


def test_a_blob_knows_its_contract() -> None:
    blob = decode_blob(encode_blob("x.y", None, CONTRACT))
    blob.expect(CONTRACT)
    blob.expect(contract_from_wire(contract_to_wire(CONTRACT)))
    blob.expect(attrs.evolve(CONTRACT, render_mode="rgb_array", metadata={"v": 2}))
    for other, told in (
        (facts_for(), "here is Made-v0 with 1 lane"),
        (facts_for(spaces.Discrete(2), lanes=2), "the one here has other spaces or another autoreset mode"),
        (facts_for(lanes=2, mode=AutoresetMode.NEXT_STEP), "other spaces or another autoreset mode"),
    ):
        with pytest.raises(BlobError, match=f"^the blob was made for Made-v0 with 2 lanes; .*{told}$"):
            blob.expect(other.contract)


def test_the_digest_is_the_same_in_every_process() -> None:
    assert contract_digest(facts_for(VECTOR).contract) == "c1c0cd185c5d40ec8ea0ca6d4262cd3a"


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "this is no blob, or one that was cut short"),
        ("hello world", "this is no blob"),
        (encode_blob("x.y", SCRIPT, CONTRACT)[:-9], "this is no blob"),
        (packed([1]), "this is no blob of a conformance check"),
        (packed({"format": 99}), "the blob has format 99, this version reads 1"),
        (packed({"format": 1, "check": "a.b"}), "the blob is damaged: 'case'"),
        (packed({"format": 1, "case": {"what": 1}}), "the blob is damaged: no case"),
    ],
)
def test_what_is_no_blob_is_told_in_one_line(text: str, told: str) -> None:
    with pytest.raises(BlobError) as caught:
        decode_blob(text)
    assert str(caught.value).startswith(told)
    assert "\n" not in str(caught.value)
