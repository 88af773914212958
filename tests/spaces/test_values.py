import re
import struct
from collections.abc import Callable, Sequence
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

from rlmesh_trio.errors import SpaceError
from rlmesh_trio.messages import Leaf
from rlmesh_trio.spaces import SpaceCodec, space_from_gymnasium
from tests.spaces.strategies import CARTPOLE, MEMBER, NESTED, codec, slab_of


def discrete(dtype: type[np.integer[Any]]) -> gymnasium.Space[Any]:
    return spaces.Discrete(100, dtype=dtype)


def box(dtype: type[Any], *shape: int) -> gymnasium.Space[Any]:
    return spaces.Box(0, 1, shape, dtype)


CONVERTED: dict[str, tuple[gymnasium.Space[Any], Any, bytes]] = {
    "int": (discrete(np.int8), 7, b"\7"),
    "negative": (spaces.Discrete(9, start=-4, dtype=np.int16), -4, b"\xfc\xff"),
    "wide numpy int": (discrete(np.uint8), np.int64(255), b"\xff"),
    "bool for an int": (discrete(np.int32), True, b"\1\0\0\0"),
    "numpy bool for an int": (discrete(np.int32), np.True_, b"\1\0\0\0"),
    "rank-0 array": (discrete(np.uint16), np.array(258), b"\2\1"),
    "64 unsigned bits": (discrete(np.uint64), 2**64 - 1, b"\xff" * 8),
    "list": (box(np.float32, 2), [0.5, 1], struct.pack("<2f", 0.5, 1)),
    "wider float": (box(np.float32, 1), np.array([0.1]), struct.pack("<f", 0.1)),
    "narrower float": (box(np.float64, 1), np.array([0.1], np.float32), struct.pack("<d", float(np.float32(0.1)))),
    "infinity": (box(np.float16, 1), np.array([-np.inf]), b"\0\xfc"),
    "ints for floats": (box(np.float32, 2), np.array([1, 2]), struct.pack("<2f", 1, 2)),
    "big-endian": (box(np.float32, 1), np.array([1.0], ">f4"), struct.pack("<f", 1)),
    "other order": (box(np.uint8, 2, 2), np.array([[1, 2], [3, 4]], np.uint8).T, b"\1\3\2\4"),
    "fitting ints": (box(np.uint8, 2), np.array([0, 255]), b"\0\xff"),
    "ints for bools": (box(np.bool_, 2), [0, 1], b"\0\1"),
    "binary of bools": (spaces.MultiBinary(2), np.array([True, False]), b"\1\0"),
    "binary of uint8": (spaces.MultiBinary(2), np.array([1, 0], np.uint8), b"\1\0"),
    "nothing": (box(np.int32, 0), [], b""),
    "text": (spaces.Text(9), "aé", slab_of(["aé"])),
    "numpy text": (spaces.Text(9), np.str_("ab"), slab_of(["ab"])),
}


@pytest.mark.parametrize("case", CONVERTED)
def test_a_value_that_fits_is_converted(case: str) -> None:
    space, value, slab = CONVERTED[case]
    assert codec(space).pack_rows([value]) == [slab]
    assert codec(spaces.Dict({"a": space})).pack_rows([{"a": value}]) == [slab]
    if not isinstance(value, str):
        assert codec(space).pack_batch(np.asarray(value)[np.newaxis], 1) == [slab]


UNPACKABLE: dict[str, tuple[gymnasium.Space[Any], Any, str]] = {
    "float for int": (discrete(np.int64), 1.0, "$: row 0: float64 values are not cast to int64"),
    "out of dtype": (discrete(np.int8), 300, "$: row 0: the value 300 at [] does not fit int8"),
    "negative unsigned": (box(np.uint8, 2), [1, -1], "$: row 0: the value -1 at [1] does not fit uint8"),
    "beyond 64 bits": (
        discrete(np.int64),
        2**70,
        "$: row 0: object values are not cast to int64",
    ),
    "2 for a bool": (box(np.bool_, 2), [0, 2], "$: row 0: the value 2 at [1] does not fit bool"),
    "floats for bools": (
        box(np.bool_, 1),
        [1.0],
        "$: row 0: float64 values are not cast to bool",
    ),
    "overflow": (box(np.float32, 2), [0, 1e300], "$: row 0: the value 1e+300 at [1] does not fit float32"),
    "large int": (box(np.float16, 1), [10**6], "$: row 0: the value 1000000 at [0] does not fit float16"),
    "complex": (box(np.float32, 1), [1j], "$: row 0: complex128 values are not cast to float32"),
    "text for number": (
        box(np.float32, 1),
        ["1"],
        "$: row 0: <U1 values are not cast to float32",
    ),
    "shape": (box(np.float32, 2), np.zeros(3, np.float32), "$: row 0: expected the shape (2,), got (3,)"),
    "discrete shape": (discrete(np.int64), np.array([1]), "$: row 0: expected the shape (), got (1,)"),
    "ragged": (
        box(np.float32, 2),
        [[1], [1, 2]],
        "$: row 0: cannot read list as an array: setting an array element with a sequence. The requested array has an "
        "inhomogeneous shape after 1 dimensions. The detected shape was (2,) + inhomogeneous part.",
    ),
    "no text": (spaces.Text(3), b"abc", "$: row 0: expected a text, got bytes"),
    "surrogate": (spaces.Text(3), "\ud800", "$: row 0: the text has no UTF-8 form: surrogates not allowed"),
    "no mapping": (NESTED, [1], "$: row 0: expected a mapping with the keys ['z', 'a'], got list"),
    "missing key": (NESTED, {"z": (1, "a")}, "$: row 0: expected the keys ['z', 'a'], got ['z']"),
    "further key": (NESTED, MEMBER | {"x": 1}, "$: row 0: expected the keys ['z', 'a'], got ['z', 'a', 'x']"),
    "no tuple": (NESTED, MEMBER | {"z": "ab"}, "$.z: row 0: expected a tuple of 2 values, got str"),
    "tuple length": (NESTED, MEMBER | {"z": (1,)}, "$.z: row 0: expected 2 values, got 1"),
    "nested shape": (NESTED, MEMBER | {"a": np.zeros(5)}, "$.a: row 0: expected the shape (2,), got (5,)"),
    "nested int": (NESTED, MEMBER | {"z": (1.5, "a")}, "$.z[0]: row 0: float64 values are not cast to int64"),
}


@pytest.mark.parametrize("case", UNPACKABLE)
def test_a_value_that_does_not_fit_is_refused_naming_where(case: str) -> None:
    space, value, message = UNPACKABLE[case]
    with pytest.raises(SpaceError, match=f"^{re.escape(message)}$"):
        codec(space).pack_rows([value])
    good = MEMBER if space is NESTED else codec(space).unpack_row(_zeros(space), 1, 0)
    with pytest.raises(SpaceError, match=re.escape(message.replace("row 0", "row 1"))):
        codec(space).pack_rows([good, value])


def _zeros(space: gymnasium.Space[Any]) -> list[bytes]:
    if isinstance(space, spaces.Text):
        return [slab_of([""])]
    leaf = space_from_gymnasium(space).leaves[0]
    return [bytes(int(np.prod(leaf.shape, dtype=int)) * np.dtype(leaf.dtype).itemsize)]


BATCHES: dict[str, tuple[gymnasium.Space[Any], Any, str]] = {
    "rows": (CARTPOLE, np.zeros((3, 2), np.float32), "$: expected the shape (2, 2), got (3, 2)"),
    "no axis": (CARTPOLE, np.zeros(2, np.float32), "$: expected the shape (2, 2), got (2,)"),
    "floats": (spaces.Discrete(3), np.zeros(2), "$: float64 values are not cast to int64"),
    "texts": (spaces.Text(3), ["a"], "$: expected 2 texts, got 1"),
    "one text": (spaces.Text(3), "ab", "$: expected a sequence of 2 texts, got str"),
    "no text": (spaces.Text(3), ["a", 1], "$: row 1: expected a text, got int"),
    "nested": (
        NESTED,
        {"z": (np.zeros(2, int), ["a", "b"]), "a": np.zeros((2, 3))},
        "$.a: expected the shape (2, 2), got (2, 3)",
    ),
    "keys": (NESTED, {"z": ()}, "$: expected the keys ['z', 'a'], got ['z']"),
}


@pytest.mark.parametrize("case", BATCHES)
def test_a_batch_that_does_not_fit_is_refused_naming_where(case: str) -> None:
    space, value, message = BATCHES[case]
    with pytest.raises(SpaceError, match=f"^{re.escape(message)}$"):
        codec(space).pack_batch(value, 2)


OUTSIDE: dict[str, tuple[gymnasium.Space[Any], list[Any], str]] = {
    "above": (
        CARTPOLE,
        [[0, 0], [5, 0]],
        "$: row 1, index [0]: the value 5.0 is above the highest value, 4.800000190734863",
    ),
    "below": (CARTPOLE, [[-5, 0]], "$: row 0, index [0]: the value -5.0 is below the lowest value, -4.800000190734863"),
    "nan where unbounded": (CARTPOLE, [[0, np.nan]], "$: row 0, index [1]: the value is NaN"),
    "nan in an unbounded box": (
        spaces.Box(-np.inf, np.inf, (1,)),
        [[np.inf], [np.nan]],
        "$: row 1, index [0]: the value is NaN",
    ),
    "high discrete": (spaces.Discrete(3), [0, 3], "$: row 1: the value 3 is above the highest value, 2"),
    "low discrete": (spaces.Discrete(3, start=-1), [-2], "$: row 0: the value -2 is below the lowest value, -1"),
    "multi_discrete": (
        spaces.MultiDiscrete([2, 3]),
        [[1, 2], [2, 0]],
        "$: row 1, index [0]: the value 2 is above the highest value, 1",
    ),
    "multi_binary": (spaces.MultiBinary(2), [[0, 2]], "$: row 0, index [1]: the value 2 is above the highest value, 1"),
    "unsigned": (
        spaces.Box(0, 2**64 - 2, (1,), np.uint64),
        [[2**64 - 1]],
        "$: row 0, index [0]: the value 18446744073709551615 is above the highest value, 18446744073709551614",
    ),
    "scalar box": (spaces.Box(0, 1, ()), [2.0], "$: row 0: the value 2.0 is above the highest value, 1.0"),
    "large": (
        spaces.Box(0, 1, (8, 8)),
        [np.zeros((8, 8)), np.eye(8) * 2],
        "$: row 1, index [0, 0]: the value 2.0 is above the highest value, 1.0",
    ),
    "large and uneven": (
        spaces.Box(np.zeros(64, np.float32), np.arange(64, dtype=np.float32)),
        [np.ones(64)],
        "$: row 0, index [0]: the value 1.0 is above the highest value, 0.0",
    ),
    "large with nan": (
        spaces.Box(-np.inf, np.inf, (64,)),
        [[0] * 63 + [np.nan]],
        "$: row 0, index [63]: the value is NaN",
    ),
    "long text": (spaces.Text(3, min_length=2), ["abc", "abcd"], "$: row 1: 4 characters, expected 2 to 3"),
    "short text": (spaces.Text(3, min_length=2), ["é"], "$: row 0: 1 characters, expected 2 to 3"),
    "strange text": (spaces.Text(3, charset="ab"), ["abz"], "$: row 0: the character 'z' is not in the charset"),
    "nested": (
        NESTED,
        [MEMBER, MEMBER | {"z": (2, "abc")}],
        "$.z[0]: row 1: the value 2 is above the highest value, 1",
    ),
}


@pytest.mark.parametrize("case", OUTSIDE)
def test_a_row_outside_the_space_is_named(case: str) -> None:
    space, rows, message = OUTSIDE[case]
    leaves = codec(space).pack_rows(rows)
    with pytest.raises(SpaceError, match=f"^{re.escape(message)}$"):
        codec(space).check_members(leaves, len(rows))


def test_a_signalling_nan_is_named_like_any_other() -> None:
    for size in (1, 64):
        leaf = bytes.fromhex("0100807f") * size
        with pytest.raises(SpaceError, match="the value is NaN"):
            codec(spaces.Box(-1, 1, (size,))).check_members([leaf], 1)


# Malformed leaves


def header(*numbers: int) -> bytes:
    return struct.pack(f"<{len(numbers)}Q", *numbers)


MALFORMED: dict[str, tuple[gymnasium.Space[Any], list[bytes], str]] = {
    "short": (CARTPOLE, [bytes(15)], "$: 2 rows of shape (2,) and dtype float32 take 16 bytes, got 15"),
    "long": (CARTPOLE, [bytes(24)], "$: 2 rows of shape (2,) and dtype float32 take 16 bytes, got 24"),
    "empty": (spaces.Discrete(2), [b""], "$: 2 rows of shape () and dtype int64 take 16 bytes, got 0"),
    "too few": (NESTED, [bytes(16)], "$: expected 3 leaves, got 1"),
    "too many": (CARTPOLE, [bytes(16)] * 2, "$: expected 1 leaves, got 2"),
    "none": (CARTPOLE, [], "$: expected 1 leaves, got 0"),
    "text header": (spaces.Text(3), [header(2, 1)], "$: the header of 2 texts takes 24 bytes, got 16"),
    "text count": (spaces.Text(3), [header(3, 0, 0, 0)], "$: expected 2 texts, the header counts 3"),
    "text lengths": (spaces.Text(3), [header(2, 2, 2) + b"abc"], "$: the header announces 28 bytes, got 27"),
    "text length": (spaces.Text(3), [header(2, 2**64 - 1, 1)], f"$: the header announces {2**64 + 24} bytes, got 24"),
    "nested": (
        NESTED,
        [bytes(16), slab_of(["a", "b"]), bytes(4)],
        "$.a: 2 rows of shape (2,) and dtype float32 take 16 bytes, got 4",
    ),
}


READERS: dict[str, Callable[[SpaceCodec, Sequence[Leaf]], object]] = {
    "unpack_batch": lambda plan, leaves: plan.unpack_batch(leaves, 2),
    "unpack_row": lambda plan, leaves: plan.unpack_row(leaves, 2, 0),
    "check_layout": lambda plan, leaves: plan.check_layout(leaves, 2),
    "check_members": lambda plan, leaves: plan.check_members(leaves, 2),
    "concatenate": lambda plan, leaves: plan.concatenate([leaves, leaves], [2, 2]),
    "split": lambda plan, leaves: plan.split(leaves, [1, 1]),
}


@pytest.mark.parametrize("case", MALFORMED)
@pytest.mark.parametrize("reader", READERS)
def test_malformed_leaves_are_refused_with_bytes_wanted_and_got(case: str, reader: str) -> None:
    space, leaves, message = MALFORMED[case]
    with pytest.raises(SpaceError, match=f"^{re.escape(message)}$"):
        READERS[reader](codec(space), [memoryview(leaf) for leaf in leaves])


UNREADABLE: dict[str, tuple[gymnasium.Space[Any], bytes, str]] = {
    "bool": (box(np.bool_, 2), b"\0\1\7\1", "$: row 1, index [0]: the byte 7 is neither 0 nor 1"),
    "utf-8": (
        spaces.Text(3),
        header(2, 1, 2) + b"a\xff\xfe",
        "$: row 1: the text is not UTF-8: invalid start byte",
    ),
    "cut character": (
        spaces.Text(3),
        header(2, 1, 1) + "é".encode(),
        "$: row 0: the text is not UTF-8: unexpected end of data",
    ),
}


@pytest.mark.parametrize("case", UNREADABLE)
@pytest.mark.parametrize("reader", ["unpack_batch", "check_layout", "check_members"])
def test_bytes_that_are_no_values_are_refused_by_whatever_opens_them(case: str, reader: str) -> None:
    space, leaf, message = UNREADABLE[case]
    with pytest.raises(SpaceError, match=f"^{re.escape(message)}$"):
        READERS[reader](codec(space), [leaf])
