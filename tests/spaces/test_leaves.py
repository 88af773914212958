import base64
import json
import re
from collections.abc import Sequence
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.vector.utils import batch_space, iterate
from hypothesis import given
from hypothesis import strategies as st

from rlmesh_trio.errors import SpaceError
from rlmesh_trio.messages import Leaf
from rlmesh_trio.spaces import codec_for, space_from_gymnasium, space_from_wire
from tests.spaces.oracle import CAPTURES, captured_contract
from tests.spaces.strategies import CARTPOLE, MEMBER, NESTED, Batch, any_spaces, batches, codec, corners


def as_bytes(leaves: Sequence[Leaf]) -> list[bytes]:
    return [bytes(leaf) for leaf in leaves]


# Round trips


@given(batch=batches())
def test_a_batch_survives_unpacking_bit_for_bit(batch: Batch) -> None:
    plan = codec_for(batch.space)
    unpacked = plan.unpack_batch(batch.leaves, batch.rows)
    assert plan.pack_batch(unpacked, batch.rows) == as_bytes(batch.leaves)


@given(batch=batches())
def test_rows_survive_unpacking_bit_for_bit(batch: Batch) -> None:
    plan = codec_for(batch.space)
    rows = [plan.unpack_row(batch.leaves, batch.rows, row) for row in range(batch.rows)]
    assert plan.pack_rows(rows) == as_bytes(batch.leaves)


@given(batch=batches(), cuts=st.lists(st.integers(0, 3), min_size=1, max_size=4))
def test_what_is_split_is_put_together_again(batch: Batch, cuts: list[int]) -> None:
    plan = codec_for(batch.space)
    whole = plan.concatenate([batch.leaves] * len(cuts), [batch.rows] * len(cuts))
    rows = [batch.rows] * len(cuts)
    for moved, cut in enumerate(cuts[:-1]):
        take = min(cut, rows[moved])
        rows[moved], rows[moved + 1] = rows[moved] - take, rows[moved + 1] + take
    parts = plan.split(whole, rows)
    assert [len(part) for part in parts] == [len(batch.space.leaves)] * len(rows)
    for part, count in zip(parts, rows, strict=True):
        plan.check_layout(part, count)
    assert as_bytes(plan.concatenate(parts, rows)) == as_bytes(whole)


@given(batch=batches())
def test_parts_hold_their_own_rows(batch: Batch) -> None:
    plan = codec_for(batch.space)
    parts = plan.split(batch.leaves, [1] * batch.rows)
    for row, part in enumerate(parts):
        single = plan.pack_rows([plan.unpack_row(batch.leaves, batch.rows, row)])
        assert as_bytes(part) == single


@given(batch=batches())
def test_membership_is_gymnasiums(batch: Batch) -> None:
    plan = codec_for(batch.space)
    rows = [plan.unpack_row(batch.leaves, batch.rows, row) for row in range(batch.rows)]
    with np.errstate(invalid="ignore"):
        members = [batch.space.space.contains(row) for row in rows]
    if all(members):
        plan.check_members(batch.leaves, batch.rows)
    else:
        with pytest.raises(SpaceError) as refusal:
            plan.check_members(batch.leaves, batch.rows)
        named = re.match(r"row (\d+)", refusal.value.why)
        assert named is not None
        assert not members[int(named[1])]


@given(space=any_spaces, data=st.data())
def test_the_corners_of_a_space_are_members(space: gymnasium.Space[Any], data: st.DataObject) -> None:
    value_space = space_from_gymnasium(space)
    rows = data.draw(st.lists(corners(value_space.space), min_size=1, max_size=3))
    plan = codec_for(value_space)
    leaves = plan.pack_rows(rows)
    plan.check_members(leaves, len(rows))
    assert all(value_space.space.contains(plan.unpack_row(leaves, len(rows), row)) for row in range(len(rows)))


# Golden: what a real server sends


@pytest.mark.parametrize("capture", ["kitchen", "kitchen_lanes"])
def test_the_kitchen_reads_as_its_env_wrote_it(capture: str) -> None:
    space = space_from_wire(captured_contract("kitchen").spec.observation_space.SerializeToString())
    sidecar = json.loads((CAPTURES / f"env_reset_response_{capture}.json").read_text())
    leaves = [base64.b64decode(leaf) for leaf in sidecar["decoded"]["reset"]["observation"]["leaves"]]
    wanted = sidecar["values"]["observation"]["values"]
    plan, rows = codec_for(space), len(wanted)
    read = [plan.unpack_row(leaves, rows, row) for row in range(rows)]
    assert [plain(row) for row in read] == wanted
    assert plan.pack_rows(read) == leaves
    assert all(space.space.contains(row) for row in read)
    plan.check_members(leaves, rows)


def plain(value: Any) -> Any:
    match type(value).__name__:
        case "dict":
            return {key: plain(child) for key, child in value.items()}
        case "tuple":
            return [plain(child) for child in value]
        case _:
            return value if isinstance(value, str) else value.tolist()


# The shapes of values


def test_a_batch_is_the_spaces_structure_with_a_leading_axis() -> None:
    plan = codec(NESTED)
    leaves = plan.pack_rows([MEMBER] * 3)
    batch = plan.unpack_batch(leaves, 3)
    assert list(batch) == ["z", "a"]
    assert batch["z"][0].tolist() == [1, 1, 1]
    assert batch["z"][1] == ["abc"] * 3
    assert batch["a"].shape == (3, 2)


def test_a_batch_is_a_read_only_view_and_a_row_the_callers_own() -> None:
    plan, slab = codec(CARTPOLE), np.array([[1, 2], [3, 4]], np.float32).tobytes()
    for leaf in (slab, memoryview(bytearray(slab))):
        batch = plan.unpack_batch([leaf], 2)
        assert not batch.flags.writeable
        assert np.shares_memory(batch, np.frombuffer(leaf, np.uint8))
        row = plan.unpack_row([leaf], 2, 1)
        row += 1
        assert batch.tolist() == [[1, 2], [3, 4]]


def test_packing_copies_what_the_env_may_reuse() -> None:
    plan, buffer = codec(CARTPOLE), np.array([1, 2], np.float32)
    (leaf,) = plan.pack_rows([buffer])
    buffer[:] = 9
    assert plan.unpack_batch([leaf], 1).tolist() == [[1, 2]]


def test_rows_are_members_of_gymnasiums_types() -> None:
    plan = codec(spaces.Tuple([spaces.Discrete(3), spaces.MultiBinary(2), spaces.Text(3), spaces.Box(0, 1, ())]))
    row = plan.unpack_row(plan.pack_rows([(1, [0, 1], "a b", 0.5)]), 1, 0)
    assert [type(value) for value in row] == [np.int64, np.ndarray, str, np.ndarray]
    assert row[1].dtype == np.int8
    assert row[3].shape == ()


@pytest.mark.parametrize("space", [NESTED, CARTPOLE, spaces.Discrete(3), spaces.Text(3), spaces.MultiBinary(2)])
def test_a_batch_is_what_gymnasiums_vector_envs_iterate(space: gymnasium.Space[Any]) -> None:
    value_space = space_from_gymnasium(space)
    plan = codec_for(value_space)
    leaves = plan.pack_rows([value_space.space.sample() for _ in range(3)])
    batch = plan.unpack_batch(leaves, 3)
    assert plan.pack_rows(list(iterate(batch_space(value_space.space, 3), batch))) == leaves


def test_a_space_without_leaves_has_rows_too() -> None:
    empty: spaces.Tuple[Any] = spaces.Tuple([])
    plan = codec(spaces.Dict({"none": empty}))
    assert plan.pack_rows([{"none": ()}, {"none": ()}]) == []
    assert plan.unpack_batch([], 2) == {"none": ()}
    assert plan.split([], [1, 1]) == [[], []]


def test_large_parts_are_views_and_single_parts_the_same_object() -> None:
    plan = codec(spaces.Box(0, 255, (4096,), np.uint8))
    whole = plan.pack_batch(np.zeros((2, 4096), np.uint8), 2)
    parts = plan.split(whole, [1, 1])
    assert all(isinstance(part[0], memoryview) for part in parts)
    assert plan.split(whole, [2])[0] is whole
    assert plan.concatenate([whole], [2]) is whole


def test_a_space_has_one_codec_for_as_long_as_it_lives() -> None:
    space = space_from_gymnasium(CARTPOLE)
    assert codec_for(space) is codec_for(space)
    assert codec_for(space) is not codec_for(space_from_gymnasium(CARTPOLE))
