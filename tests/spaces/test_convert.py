import re
import struct
from typing import Any
from unittest import mock

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from hypothesis import given
from hypothesis import strategies as st

from rlmesh_trio.errors import ProtocolError, SpaceError
from rlmesh_trio.spaces import OpenText, contract_from_wire, convert, space_from_gymnasium, space_from_wire
from rlmesh_trio.spec import WIRE_DTYPES, LeafSpec
from tests.spaces.oracle import Spec, captured_contract
from tests.spaces.strategies import any_spaces, boxes

DTYPE_NUMBERS = {name: number for number, name in enumerate(WIRE_DTYPES, 1)}


def box(dtype: str = "float32", shape: tuple[int, ...] = (2,), **bounds: Any) -> Any:
    return Spec(shape=shape, dtype=DTYPE_NUMBERS[dtype], box=bounds)


def floats(*values: float) -> bytes:
    return struct.pack(f"<{len(values)}f", *values)


FREE = box(unbounded=True)


# Round trips


@given(space=any_spaces)
def test_a_gymnasium_space_survives_the_wire(space: gymnasium.Space[Any]) -> None:
    written = space_from_gymnasium(space)
    read = space_from_wire(written.encoded)
    assert written.space == space
    assert read.space == space
    assert read.leaves == written.leaves
    assert read.encoded == written.encoded
    assert space_from_gymnasium(read.space).encoded == written.encoded


@given(space=any_spaces)
def test_what_is_written_is_what_google_protobuf_writes(space: gymnasium.Space[Any]) -> None:
    encoded = space_from_gymnasium(space).encoded
    message = Spec.FromString(encoded)
    assert message == expected_spec(space)
    assert message.SerializeToString(deterministic=True) == encoded


def expected_spec(space: Any) -> Any:
    match type(space).__name__:
        case "Box":
            return Spec(shape=space.shape, dtype=DTYPE_NUMBERS[space.dtype.name], box=expected_bounds(space))
        case "Discrete":
            return Spec(dtype=DTYPE_NUMBERS[space.dtype.name], discrete={"n": int(space.n), "start": int(space.start)})
        case "MultiBinary":
            return Spec(shape=space.shape, dtype=DTYPE_NUMBERS["uint8"], multi_binary={})
        case "MultiDiscrete":
            return Spec(
                shape=space.shape,
                dtype=DTYPE_NUMBERS[space.dtype.name],
                multi_discrete={"nvec": space.nvec.ravel().tolist()},
            )
        case "Text":
            is_default = space == spaces.Text(space.max_length, min_length=space.min_length)
            charset = "" if is_default else "".join(space.character_list)
            lengths = {"min_length": space.min_length, "max_length": space.max_length}
            return Spec(dtype=DTYPE_NUMBERS["uint8"], text={**lengths, "charset": charset})
        case "Dict":
            children = [expected_spec(child) for child in space.spaces.values()]
            return Spec(dict={"keys": list(space.spaces), "spaces": children})
        case _:
            return Spec(tuple={"spaces": [expected_spec(child) for child in space.spaces]})


def expected_bounds(space: Any) -> Any:
    low, high = space.low.ravel().tolist(), space.high.ravel().tolist()
    if all(a == -np.inf and b == np.inf for a, b in zip(low, high, strict=True)):
        return {"unbounded": True}
    lows, highs = ({value.tobytes() for value in side.ravel()} for side in (space.low, space.high))
    if len(lows) == len(highs) == 1:
        return {"uniform": {"low": lows.pop(), "high": highs.pop()}}
    return {"elementwise": {"low": space.low.tobytes(), "high": space.high.tobytes()}}


@given(space=boxes())
def test_every_form_of_bounds_is_read(space: Any) -> None:
    elementwise = {"low": space.low.tobytes(), "high": space.high.tobytes()}
    data = Spec(shape=space.shape, dtype=DTYPE_NUMBERS[space.dtype.name], box={"elementwise": elementwise})
    read: Any = space_from_wire(data.SerializeToString()).space
    assert read.low.tobytes() == space.low.tobytes()
    assert read.high.tobytes() == space.high.tobytes()
    assert read.dtype == space.dtype


@pytest.mark.parametrize("dtype", WIRE_DTYPES)
def test_an_unbounded_box_spans_its_dtype(dtype: str) -> None:
    read: Any = space_from_wire(box(dtype, unbounded=True).SerializeToString()).space
    if "float" in dtype:
        assert (read.low.tolist(), read.high.tolist()) == ([-np.inf] * 2, [np.inf] * 2)
    elif dtype == "bool":
        assert (read.low.tolist(), read.high.tolist()) == ([False] * 2, [True] * 2)
    else:
        assert (read.low.tolist(), read.high.tolist()) == ([np.iinfo(dtype).min] * 2, [np.iinfo(dtype).max] * 2)


def test_the_order_of_the_keys_is_the_wires() -> None:
    data = Spec(dict={"keys": ["z", "a"], "spaces": [FREE, Spec(dtype=9, discrete={"n": 2})]}).SerializeToString()
    read: Any = space_from_wire(data)
    assert list(read.space.spaces) == ["z", "a"]
    assert [leaf.path for leaf in read.leaves] == ["$.z", "$.a"]


def test_paths_quote_keys_that_would_be_unclear() -> None:
    keys = ["plain", "left-arm", "a.b", "a b", "", "[0]", 'q"\\']
    data = Spec(dict={"keys": keys, "spaces": [FREE] * len(keys)}).SerializeToString()
    assert [leaf.path for leaf in space_from_wire(data).leaves] == [
        "$.plain", "$.left-arm", '$["a.b"]', '$["a b"]', '$[""]', '$["[0]"]', '$["q\\"\\\\"]',
    ]  # fmt: skip


def test_a_text_without_charset_admits_every_character() -> None:
    read = space_from_wire(Spec(dtype=2, text={"min_length": 2, "max_length": 4}).SerializeToString()).space
    assert read.contains("a b")
    assert read.contains("é\n…")
    assert not read.contains("a")
    assert not read.contains("abcde")
    assert not read.contains(b"abc")
    assert len(read.sample()) in (2, 3, 4)


def test_a_text_of_the_default_alphabet_is_declared_open() -> None:
    written = space_from_gymnasium(spaces.Text(5))
    assert isinstance(written.space, OpenText)
    assert Spec.FromString(written.encoded).text.charset == ""


def test_the_same_seed_gives_the_same_sample_in_process_and_over_the_wire() -> None:
    space = spaces.Dict([("z", spaces.Box(-np.inf, np.inf, (3,), np.int64)), ("a", spaces.Discrete(9))])
    local, remote = space_from_gymnasium(space), space_from_wire(space_from_gymnasium(space).encoded)
    local.space.seed(7)
    remote.space.seed(7)
    assert str(local.space.sample()) == str(remote.space.sample())


# Golden: what a real server declares


def test_the_kitchen_of_every_kind() -> None:
    sent = captured_contract("kitchen")
    contract = contract_from_wire(sent.SerializeToString())
    assert contract.observation_space is not None
    assert contract.action_space is not None
    assert contract.observation_space.leaves == (
        LeafSpec("$.alpha.bits", "multi_binary", "uint8", (4,)),
        LeafSpec("$.alpha.pair[0]", "discrete", "int64", ()),
        LeafSpec("$.alpha.pair[1]", "box", "float64", (2,)),
        LeafSpec("$.free", "box", "float32", (2,)),
        LeafSpec("$.multi", "multi_discrete", "int64", (3,)),
        LeafSpec("$.say", "text", "uint8", ()),
        LeafSpec("$.zeta", "box", "uint8", (2, 3)),
    )
    bounds = np.array([1.0, 2.0])
    pair = spaces.Tuple((spaces.Discrete(7, start=-3), spaces.Box(-bounds, bounds, dtype=np.float64)))
    kitchen: dict[str, gymnasium.Space[Any]] = {
        "alpha": spaces.Dict({"bits": spaces.MultiBinary(4), "pair": pair}),
        "free": spaces.Box(-np.inf, np.inf, (2,)),
        "multi": spaces.MultiDiscrete([3, 5, 9]),
        "say": spaces.Text(32),
        "zeta": spaces.Box(0, 255, (2, 3), np.uint8),
    }
    assert contract.observation_space.space == spaces.Dict(kitchen)
    declared = sent.spec.observation_space.SerializeToString(deterministic=True)
    assert space_from_gymnasium(spaces.Dict(kitchen)).encoded == declared


@pytest.mark.parametrize("capture", ["single", "lanes", "vector", "kitchen"])
def test_a_space_keeps_the_bytes_it_came_in(capture: str) -> None:
    sent = captured_contract(capture)
    for declared in (sent.spec.action_space, sent.spec.observation_space):
        data = declared.SerializeToString()
        assert space_from_wire(data).encoded == data


# What is refused


BROKEN = {
    "no kind": (Spec(shape=[2], dtype=11), "$: the space has no kind this build knows"),
    "no dtype": (Spec(shape=[2], box={"unbounded": True}), "$: unknown dtype number 0"),
    "unknown dtype": (Spec(shape=[2], dtype=99, box={"unbounded": True}), "$: unknown dtype number 99"),
    "no bounds": (box(), "$: the box has no bounds"),
    "short uniform": (
        box(uniform={"low": b"ab", "high": floats(1)}),
        "$: the low bounds take 4 bytes, 1 of float32, got 2",
    ),
    "short elementwise": (
        box(elementwise={"low": floats(0, 0), "high": floats(1)}),
        "$: the high bounds take 8 bytes, 2 of float32, got 4",
    ),
    "nan": (
        box(elementwise={"low": floats(0, float("nan")), "high": floats(1, 1)}),
        "$: the low bound at (1,) is NaN",
    ),
    "crossed": (
        box(elementwise={"low": floats(0, 3), "high": floats(1, 2)}),
        "$: the low bound 3.0 exceeds the high bound 2.0 at (1,)",
    ),
    "bool bounds": (
        box("bool", uniform={"low": b"\0", "high": b"\2"}),
        "$: the high bounds of a bool box must be 0 or 1",
    ),
    "negative size": (box(shape=(-1,), unbounded=True), "$: bad shape (-1,): at most 32 sizes, none negative"),
    "high rank": (box(shape=(1,) * 33, unbounded=True), f"$: bad shape {(1,) * 33}: at most 32 sizes, none negative"),
    "huge": (box(shape=(2**40,), unbounded=True), "$: a row up to here exceeds the largest message, 268435456 bytes"),
    "huge beside 0": (
        box(shape=(0, 2**62), unbounded=True),
        "$: a row up to here exceeds the largest message, 268435456 bytes",
    ),
    "huge together": (
        Spec(tuple={"spaces": [Spec(shape=[2**28], dtype=2, multi_binary={}), FREE]}),
        "$[1]: a row up to here exceeds the largest message, 268435456 bytes",
    ),
    "discrete dtype": (Spec(dtype=11, discrete={"n": 2}), "$: a discrete space cannot have the dtype float32"),
    "discrete n": (Spec(dtype=9, discrete={}), "$: a discrete space needs at least one value, got n=0"),
    "discrete range": (
        Spec(dtype=6, discrete={"n": 100, "start": 100}),
        "$: n=100 values from start=100 do not fit int8",
    ),
    "discrete count": (
        Spec(dtype=6, discrete={"n": 200, "start": -100}),
        "$: n=200 values from start=-100 do not fit int8",
    ),
    "discrete shape": (Spec(shape=[1], dtype=9, discrete={"n": 2}), "$: a discrete space has no shape, got (1,)"),
    "multi_binary dtype": (
        Spec(shape=[2], dtype=9, multi_binary={}),
        "$: a multi_binary space has one byte per value, not the dtype int64",
    ),
    "multi_binary size": (
        Spec(shape=[2, 0], dtype=2, multi_binary={}),
        "$: a multi_binary space has no size 0, got (2, 0)",
    ),
    "multi_discrete counts": (
        Spec(shape=[3], dtype=9, multi_discrete={"nvec": [1, 2]}),
        "$: the shape (3,) takes 3 counts, got 2",
    ),
    "multi_discrete zero": (
        Spec(shape=[2], dtype=9, multi_discrete={"nvec": [1, 0]}),
        "$: count 1 must be 1 to 9223372036854775807 for int64, got 0",
    ),
    "multi_discrete range": (
        Spec(shape=[1], dtype=2, multi_discrete={"nvec": [256]}),
        "$: count 0 must be 1 to 255 for uint8, got 256",
    ),
    "multi_discrete dtype": (
        Spec(shape=[1], dtype=12, multi_discrete={"nvec": [2]}),
        "$: a multi_discrete space cannot have the dtype float64",
    ),
    "text dtype": (Spec(dtype=9, text={"max_length": 2}), "$: a text space has the dtype uint8, not int64"),
    "text shape": (Spec(shape=[2], dtype=2, text={"max_length": 2}), "$: a text space has no shape, got (2,)"),
    "text lengths": (
        Spec(dtype=2, text={"min_length": 3, "max_length": 2}),
        "$: bad text lengths: at least 3 and at most 2 characters",
    ),
    "negative length": (
        Spec(dtype=2, text={"min_length": -1, "max_length": 2}),
        "$: bad text lengths: at least -1 and at most 2 characters",
    ),
    "dict counts": (Spec(dict={"keys": ["a", "b"], "spaces": [FREE]}), "$: 2 keys for 1 spaces"),
    "dict repeats": (Spec(dict={"keys": ["a", "a"], "spaces": [FREE, FREE]}), "$: the key 'a' is repeated"),
    "dict shape": (Spec(shape=[2], dict={}), "$: a dict space has no shape, got (2,)"),
    "deep inside": (
        Spec(dict={"keys": ["a", "b"], "spaces": [FREE, Spec(tuple={"spaces": [FREE, box()]})]}),
        "$.b[1]: the box has no bounds",
    ),
}


@pytest.mark.parametrize("case", BROKEN)
def test_a_broken_spec_is_refused_naming_where(case: str) -> None:
    spec, message = BROKEN[case]
    with pytest.raises(SpaceError, match=f"^{re.escape(message)}$"):
        space_from_wire(spec.SerializeToString())


def test_too_deep_a_nesting_is_refused_both_ways() -> None:
    space: Any = spaces.Discrete(2)
    spec = Spec(dtype=9, discrete={"n": 2})
    for _ in range(32):
        space, spec = spaces.Tuple((space,)), Spec(tuple={"spaces": [spec]})
    assert space_from_gymnasium(space).encoded == spec.SerializeToString()
    with pytest.raises(SpaceError, match="nest at most 32 deep"):
        space_from_gymnasium(spaces.Tuple((space,)))
    with pytest.raises(SpaceError, match="nest at most 32 deep"):
        space_from_wire(Spec(tuple={"spaces": [spec]}).SerializeToString())


@pytest.mark.parametrize("data", [b"\x0a\x05\x01", b"\x52\xff", b"\x10\x01\x10", b"\xa2\x01\x04\x0a\x02\xff\xfe"])
def test_bytes_that_are_no_spec_are_a_protocol_error(data: bytes) -> None:
    with pytest.raises(ProtocolError):
        space_from_wire(data)


@given(space=any_spaces, data=st.data())
def test_damaged_bytes_are_read_or_refused_and_nothing_else(space: gymnasium.Space[Any], data: st.DataObject) -> None:
    damaged = bytearray(space_from_gymnasium(space).encoded)
    for _ in range(data.draw(st.integers(1, 3))):
        place = data.draw(st.integers(0, len(damaged)))
        damaged[place : place + data.draw(st.integers(0, 2))] = data.draw(st.binary(max_size=2))
    with mock.patch.object(convert, "MAX_MESSAGE_BYTES", 1 << 16):
        try:
            read = space_from_wire(bytes(damaged))
        except (SpaceError, ProtocolError):
            return
        assert space_from_gymnasium(read.space).leaves == read.leaves


def test_no_bytes_are_a_space_without_a_kind() -> None:
    with pytest.raises(SpaceError, match="no kind"):
        space_from_wire(b"")


REFUSED: dict[str, tuple[Any, str]] = {
    "sequence": (
        spaces.Sequence(spaces.Discrete(2)),
        "$: Sequence spaces have no wire form; use Box, Discrete, MultiBinary, MultiDiscrete, Text, Dict or Tuple",
    ),
    "graph": (
        spaces.Graph(spaces.Discrete(2), None),
        "$: Graph spaces have no wire form; use Box, Discrete, MultiBinary, MultiDiscrete, Text, Dict or Tuple",
    ),
    "one of, nested": (
        spaces.Dict({"a": spaces.Tuple((spaces.Discrete(2), spaces.OneOf([spaces.Discrete(2)])))}),
        "$.a[1]: OneOf spaces have no wire form; use Box, Discrete, MultiBinary, MultiDiscrete, Text, Dict or Tuple",
    ),
    "multi_discrete start": (
        spaces.MultiDiscrete([2, 3], start=[0, 1]),
        "$: the wire's multi_discrete starts at 0, this one at [0, 1]",
    ),
    "long double": (
        spaces.Box(0, 1, (2,), np.longdouble),
        f"$: the dtype {np.dtype(np.longdouble).name} has no wire form; use one of {', '.join(WIRE_DTYPES)}",
    ),
    "key": (spaces.Dict([(1, spaces.Discrete(2))]), "$: the wire's keys are text, this one is 1"),  # pyright: ignore[reportArgumentType]
    "surrogate": (spaces.Dict({"\ud800": spaces.Discrete(2)}), "$: the key '\\ud800' has no UTF-8 form"),
    "no characters": (
        spaces.Text(3, charset=""),
        "$: a text of no characters has no wire form: there an empty charset admits every character",
    ),
    "large n": (
        spaces.Discrete(2**63, dtype=np.uint64),
        "$: the wire holds n and start up to 9223372036854775807, got n=9223372036854775808, start=0",
    ),
    "large count": (
        spaces.MultiDiscrete(np.array([2**63], np.uint64), dtype=np.uint64),
        "$: the wire holds counts up to 9223372036854775807, got 9223372036854775808",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_a_space_without_a_wire_form_is_refused(case: str) -> None:
    space, message = REFUSED[case]
    with pytest.raises(SpaceError, match=f"^{re.escape(message)}$"):
        space_from_gymnasium(space)
