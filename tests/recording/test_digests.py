"""A lane's digests are those it has alone, and infos count by their values, less what a clock or a session decides."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rlmesh_trio.messages import Metadata
from rlmesh_trio.recording import SESSION_ENTRIES, Digester
from rlmesh_trio.wire.metadata import LazyMetadata, encode_metadata
from tests.recording.plays import DICT, INFOS, contract_of, leaves_of, row, space_of

CONTRACT = contract_of(3, DICT)
DIGESTER = Digester(CONTRACT.observation_space, CONTRACT.action_space, ["score", "inner.seen"])


def info(infos: Metadata | None) -> bytes:
    return DIGESTER.info_rows(infos, 1)


@settings(max_examples=50)
@given(st.lists(row(), min_size=1, max_size=4))
def test_a_row_has_the_digests_it_has_alone(rows: list[dict[str, Any]]) -> None:
    space = space_of(CONTRACT)
    together = DIGESTER.observation_rows(leaves_of(space, rows), len(rows))
    alone = [DIGESTER.observation_rows(leaves_of(space, [one]), 1) for one in rows]
    assert together == b"".join(alone)
    assert {len(one) for one in alone} == {3 * 16}


def test_every_bit_of_an_observation_counts() -> None:
    box = contract_of(1)
    digester = Digester(box.observation_space, box.action_space)

    def digest(*values: float) -> bytes:
        return digester.observation_rows([np.array(values, "<f4").tobytes()], 1)

    assert len({digest(0.0, 1.0), digest(-0.0, 1.0), digest(0.0, np.nextafter(np.float32(1), np.float32(2)))}) == 3
    assert digest(np.nan, 0) == digest(np.nan, 0)


@pytest.mark.parametrize(
    "leaves", [[b"12345"], [b"", b"x"], [np.arange(6, dtype="<i4").data.cast("B")], [np.arange(6).data]]
)
def test_leaves_that_break_the_layout_have_digests_too(leaves: list[Any]) -> None:
    assert len(DIGESTER.observation_rows(leaves, 3)) == 3 * 16 * len(leaves)
    box = contract_of(3)
    assert len(Digester(box.observation_space, None).observation_rows(leaves, 3)) == 3 * 16 * len(leaves)


@settings(max_examples=50)
@given(INFOS)
def test_order_and_origin_of_infos_do_not_count(infos: dict[str, Any]) -> None:
    turned = dict(reversed(infos.items()))
    assert info(infos) == info(turned) == info(LazyMetadata(encode_metadata(turned)))


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ({}, None),
        ({"a": np.float32(0.5)}, {"a": 0.5}),
        ({"a": np.array([1, 2])}, {"a": [1, 2]}),
        ({"a": (1, 2)}, {"a": [1, 2]}),
        ({"episode": {"r": 1.0, "t": 0.25}}, {"episode": {"r": 1.0, "t": 99.0}}),
        ({"final_info": {"episode": {"t": 1.5}}}, {"final_info": {"episode": {}}}),
        ({"score": 1, "a": 2}, {"a": 2}),
        ({"inner": {"seen": 3}}, {"inner": {}}),
        ({"rlmesh.conformance.warning": "out of bounds", "a": 1}, {"a": 1}),
        ({"a": [object(), {"b": object()}]}, {"a": [object(), {"b": object()}]}),
    ],
)
def test_infos_that_are_the_same(one: Metadata, other: Metadata) -> None:
    assert info(one) == info(other)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ({"a": 1}, {"a": 1.0}),
        ({"a": True}, {"a": 1}),
        ({"a": 0.0}, {"a": -0.0}),
        ({"a": None}, {}),
        ({"t": 1.0}, {"t": 2.0}),
        ({"seen": 1}, {"seen": 2}),
        ({"a": b"x"}, {"a": "x"}),
        ({"a": "at 0x1"}, {"a": "at 0x2"}),
    ],
)
def test_infos_that_are_not_the_same(one: Metadata, other: Metadata) -> None:
    assert info(one) != info(other)


def test_what_no_digest_covers_is_one_list() -> None:
    assert {"episode.t", "endpoint_total_ns", "rlmesh.conformance.warning"} <= set(SESSION_ENTRIES)


VECTORS: list[tuple[dict[str, Any], list[dict[str, Any]]]] = [
    ({"a": [1, 2, 3], "_a": [True, False, True]}, [{"a": 1}, {}, {"a": 3}]),
    ({"a": np.array([1.5, 0, 0]), "_a": np.array([True, False, False])}, [{"a": 1.5}, {}, {}]),
    (
        {"in": {"b": [1, 2, 3], "_b": [False, True, True]}, "_in": [False, True, True]},
        [{}, {"in": {"b": 2}}, {"in": {"b": 3}}],
    ),
    ({"final_info": [{"x": 1}, {"x": 2}, {}], "_final_info": [False, True, False]}, [{}, {"x": 2}, {}]),
    ({"shared": 7}, [{"shared": 7}] * 3),
    ({}, [{}] * 3),
]


@pytest.mark.parametrize(("vector", "lanes"), VECTORS)
def test_infos_in_vector_form_are_those_of_each_lane(vector: Metadata, lanes: list[Metadata]) -> None:
    assert DIGESTER.info_rows(vector, 3) == b"".join(map(info, lanes))


def test_infos_nobody_can_read_count_as_their_bytes() -> None:
    broken, other = LazyMetadata(b"\x0a\xff"), LazyMetadata(b"\x0a\xfe")
    assert len(DIGESTER.info_rows(broken, 2)) == 32
    assert info(broken) != info(other)
