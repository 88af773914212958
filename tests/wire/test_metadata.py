"""Metadata maps: lazily read, strictly, as google protobuf reads them; written from plain Python and numpy values."""

import copy
import pickle
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rlmesh_trio.errors import ProtocolError, SpaceError
from rlmesh_trio.wire.metadata import MAX_NESTING, LazyMetadata, encode_metadata
from tests.wire.forms import damaged, messages, wire_form
from tests.wire.oracle import google, google_parses
from tests.wire.views import google_metadata, metadata_of_google, our_metadata

MAP = "rlmesh.spaces.v1.MetaMap"
# What is refused although google reads it.
STRICTER = ("wire type 3", "a map entry holds more", "values nest more")


def agree(data: bytes) -> bool:
    """Check that google and we read *data* the same; whether it was accepted."""
    message = google_parses(MAP, data)
    try:
        read = our_metadata(LazyMetadata(data))
    except ProtocolError as fault:
        refusal = str(fault)
    else:
        assert message is not None, f"google refuses what was read as {read}"
        assert read == google_metadata(message)
        return True
    assert message is None or any(reason in refusal for reason in STRICTER), (refusal, message)
    return False


@settings(max_examples=100)
@given(message=messages(MAP, depth=7))
def test_every_form_of_a_map_is_read(message: Any) -> None:
    for seed in range(15):
        assert agree(wire_form(message, seed))
        agree(damaged(wire_form(message, seed), seed))


@settings(max_examples=100)
@given(message=messages(MAP, depth=7))
def test_what_is_written_google_reads(message: Any) -> None:
    written = encode_metadata(metadata_of_google(message))
    assert google_metadata(google(MAP).FromString(written)) == google_metadata(message)


@given(data=st.binary(max_size=30))
def test_random_bytes(data: bytes) -> None:
    agree(data)


@pytest.mark.parametrize(
    "data",
    [
        b"\x0a\x00",
        b"\x0a\x05\x0a\x01a\x12\x00",
        b"\x0a\x08\x12\x02\x08\x01\x0a\x00\x12\x00",
        b"\x0a\x0f\x12\x04\x32\x02\x0a\x00\x12\x04\x32\x02\x0a\x00\x0a\x01k",
        b"\x0a\x06\x12\x04\x3a\x00\x08\x01",
        b"\x0a\x06\x12\x04\x20\x80\x80\x01",
    ],
    ids=["empty entry", "no arm", "value in two pieces", "list in two pieces", "two arms", "bool of 16384"],
)
def test_unusual_maps_are_read(data: bytes) -> None:
    assert agree(data)


def test_a_map_that_comes_twice_is_merged_and_each_piece_must_be_whole() -> None:
    metadata = LazyMetadata(encode_metadata({"a": 1, "b": 1}))
    assert metadata["b"] == 1
    metadata.merge(encode_metadata({"b": 2}))
    assert metadata == {"a": 1, "b": 2}
    torn = LazyMetadata(b"\x0a\x03")
    torn.merge(b"\x0a\x01a")
    with pytest.raises(ProtocolError, match="ends in the middle"):
        len(torn)


def test_it_is_a_mapping_that_survives_copies() -> None:
    plain: dict[str, Any] = {"a": 1, "b": {"c": [None, True, b"\0", 0.5, "x"]}}
    metadata = LazyMetadata(encode_metadata(plain))
    assert metadata == plain
    assert plain == metadata
    assert metadata != {"a": 1}
    assert (list(metadata), len(metadata), "a" in metadata, metadata.get("z")) == (["a", "b"], 2, True, None)
    assert repr(metadata) == f"LazyMetadata({plain!r})"
    for other in (pickle.loads(pickle.dumps(metadata)), copy.deepcopy(metadata)):
        assert isinstance(other, LazyMetadata)
        assert other == metadata
        assert other.encoded == metadata.encoded


def test_undecodable_metadata_can_still_be_shown() -> None:
    assert repr(LazyMetadata(b"\x0a\x05")) == "LazyMetadata(<2 undecodable bytes>)"


def in_list(inner: Any) -> Any:
    return [inner]


def in_map(inner: Any) -> Any:
    return {"k": inner}


@pytest.mark.parametrize("make", [in_list, in_map])
def test_the_deepest_nesting_is_read_everywhere_and_one_more_is_refused(make: Any) -> None:
    value: Any = type(make(0))()
    for _ in range(MAX_NESTING - 1):
        value = make(value)
    written = encode_metadata({"top": value})
    assert LazyMetadata(written) == {"top": value}
    reply = google("rlmesh.env.v1.JoinResponse")()
    reply.step.completed_episodes.add().final_info.ParseFromString(written)
    google("rlmesh.env.v1.JoinResponse").FromString(reply.SerializeToString())

    with pytest.raises(SpaceError, match="nests more than"):
        encode_metadata({"top": make(value)})
    entry = google(MAP)()
    entry.ParseFromString(written)
    deeper = google(MAP)()
    deeper.entries["top"].list.items.add().CopyFrom(entry.entries["top"])
    with pytest.raises(ProtocolError, match="values nest more than"):
        LazyMetadata(deeper.SerializeToString()).decode()


@pytest.mark.parametrize(
    ("value", "read"),
    [
        (np.bool_(True), True),
        (np.uint8(200), 200),
        (np.int64(-1), -1),
        (np.float16(0.5), 0.5),
        (np.float64(0.5), 0.5),
        (np.str_("x"), "x"),
        (np.array(3), 3),
        (np.array([[1, 2], [3, 4]], np.uint16), [[1, 2], [3, 4]]),
        (np.array([True, False]), [True, False]),
        (np.array([0.5], np.float32), [0.5]),
        (np.array(["a", None, 1], dtype=object), ["a", None, 1]),
        ((1, (2.0,)), [1, [2.0]]),
        (range(2), [0, 1]),
        (True, True),
        (-(2**63), -(2**63)),
    ],
)
def test_a_value_is_written_as_what_it_holds(value: Any, read: Any) -> None:
    written = LazyMetadata(encode_metadata({"k": value}))
    assert our_metadata(written) == our_metadata({"k": read})


@pytest.mark.parametrize(
    ("metadata", "complaint"),
    [
        ({"a": {"b": [0, {1, 2}]}}, "$.a.b[1]: metadata cannot hold a set"),
        ({"a": 2**63}, f"$.a: {2**63} does not fit the signed 64-bit integer of metadata"),
        ({"a": np.uint64(2**63)}, f"$.a: {2**63} does not fit the signed 64-bit integer of metadata"),
        ({"a": {1: 2}}, "$.a: a metadata key must be a text, not 1"),
        ({"a": 1j}, "$.a: metadata cannot hold a complex"),
        ({"a": np.complex64(1)}, "$.a: metadata cannot hold numpy's complex64"),
        ({"a": np.array(["2020-01-01"], "datetime64[ns]")}, "$.a: metadata cannot hold numpy's datetime64[ns]"),
        ({"a": bytearray(b"x")}, "$.a: metadata cannot hold a bytearray"),
        ({"a": ["\ud800"]}, "$.a[0]: '\\ud800' has no UTF-8 form"),
        ({"\ud800": 1}, "$: '\\ud800' has no UTF-8 form"),
    ],
)
def test_what_metadata_cannot_hold_is_refused_by_path(metadata: dict[str, Any], complaint: str) -> None:
    with pytest.raises(SpaceError) as refused:
        encode_metadata(metadata)
    assert str(refused.value) == complaint
