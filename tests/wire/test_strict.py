"""The strict parser: what it accepts google protobuf reads the same; its refusals are typed."""

import re
from dataclasses import dataclass
from typing import Any, cast

import betterproto
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rlmesh_trio.errors import ProtocolError
from rlmesh_trio.wire import strict
from rlmesh_trio.wire.pb.rlmesh.core import v1 as core
from rlmesh_trio.wire.pb.rlmesh.env import v1 as env
from rlmesh_trio.wire.pb.rlmesh.model import v1 as model
from rlmesh_trio.wire.pb.rlmesh.spaces import v1 as spaces
from tests.wire.forms import damaged, messages, varint, wire_form
from tests.wire.oracle import MESSAGES, generated, google, google_parses, plain_generated, plain_google
from tests.wire.test_captures import NAMES, load

# What is refused although google reads it (the number 0 only in a message without fields).
STRICTER = re.compile(
    r"wire type 3|the number 0|a map entry holds more|field \w+ comes twice|field \w+ is packed in several pieces"
    r"|field \w+ has the wire type \d instead of \d|field \w+ is out of range"
)


def agree(name: str, data: bytes) -> bool:
    """Check that google and we read *data* the same; whether it was accepted."""
    message = google_parses(name, data)
    try:
        read = strict.decode(generated(name), data, what="it")
    except ProtocolError as fault:
        refusal = str(fault)
    else:
        assert message is not None, f"google refuses what was read as {read}"
        assert plain_generated(read) == plain_google(message)
        return True
    assert message is None or STRICTER.search(refusal), (refusal, message)
    return False


@settings(max_examples=150)
@given(data=st.data(), name=st.sampled_from(MESSAGES))
def test_forms_of_any_message(data: st.DataObject, name: str) -> None:
    message = data.draw(messages(name))
    assert agree(name, message.SerializeToString())
    for seed in range(8):
        written = wire_form(message, seed)
        agree(name, written)
        agree(name, damaged(written, seed))


@pytest.mark.parametrize("capture", [name for name in NAMES if len(load(name)[1]) < 300])
def test_every_cut_of_a_capture(capture: str) -> None:
    said, data = load(capture)
    for end in range(len(data)):
        agree(said["message"], data[:end])


@given(name=st.sampled_from(MESSAGES), data=st.binary(max_size=30))
def test_random_bytes(name: str, data: bytes) -> None:
    agree(name, data)


def double_field(tag: int, size: int) -> bytes:
    return bytes((tag, size)) + bytes(size)


REFUSED = {
    "cut text": (env.CloseEnvsRequest, b"\x0a\x05ab", "ends in the middle"),
    "cut tag": (env.CloseEnvsRequest, b"\x8a", "ends in the middle"),
    "cut number": (core.EnvContract, b"\x10\x80", "ends in the middle"),
    "cut submessage": (env.HandshakeRequest, b"\x0a\x02\x0a\x05", "ends in the middle"),
    "wire type 7": (env.CloseEnvsRequest, b"\x0f", "wire type 7"),
    "number 0": (env.CloseEnvsRequest, b"\x02\x00", "number 0"),
    "group": (env.CloseEnvsRequest, b"\x4b\x4c", "wire type 3"),
    "text as number": (env.CloseEnvsRequest, b"\x08\x01", "field reason has the wire type 0 instead of 2"),
    "number as text": (core.EnvContract, b"\x12\x01x", "field num_envs has the wire type 2 instead of 0"),
    "not UTF-8": (env.CloseEnvsRequest, b"\x0a\x01\xff", "not UTF-8"),
    "message twice": (env.HandshakeRequest, b"\x0a\x00\x0a\x00", "field base comes twice"),
    "packed in two pieces": (env.ResetRequest, b"\x0a\x01\x01\x0a\x01\x02", "field seeds is packed in several pieces"),
    "packed after single": (env.ResetRequest, b"\x08\x01\x0a\x01\x02", "field seeds is packed in several pieces"),
    "packed number beyond its list": (env.ResetRequest, b"\x0a\x01\x80\x01", "ends in the middle"),
    "seven bytes of doubles": (env.StepResponse, double_field(0x12, 7), "ends in the middle"),
    "uint32 of 33 bits": (core.EnvContract, b"\x10" + varint(2**32), "field num_envs is out of range"),
    "negative enum": (core.EnvContract, b"\x20" + varint(2**64 - 1), "field autoreset_mode is out of range"),
    "uint64 of 70 bits": (env.StepRequest, b"\x10" + b"\xff" * 9 + b"\x7f", "field timeout_ms is out of range"),
    "packed uint32 of 33 bits": (env.StepRequest, b"\x1a\x05" + varint(2**32), "field env_indices is out of range"),
    "field in a map entry": (spaces.MetaMap, b"\x0a\x02\x18\x01", "a map entry holds more"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_refusals_say_what_and_why(case: str) -> None:
    message_class, data, why = REFUSED[case]
    with pytest.raises(ProtocolError, match=why) as refused:
        strict.decode(message_class, data, what="the peer's word")
    assert str(refused.value).startswith(f"protocol error: the peer's word ({message_class.__name__}) is malformed: ")


def nested_lists(levels: int) -> bytes:
    data = b""
    for _ in range(levels):
        for tag in (b"\x0a", b"\x32"):
            data = tag + varint(len(data)) + data
    return data


def test_nesting_ends_where_googles_does() -> None:
    name = "rlmesh.spaces.v1.MetaValue"
    assert agree(name, nested_lists(50))
    assert not agree(name, nested_lists(51))
    assert not agree("rlmesh.spaces.v1.MetaList", b"\x0a" + varint(len(nested_lists(50))) + nested_lists(50))
    with pytest.raises(ProtocolError, match="nest more than 100 deep"):
        strict.decode(spaces.MetaValue, nested_lists(5000), what="it")


@dataclass(eq=False, repr=False)
class Faulty(betterproto.Message):
    """A message whose parser fails in a way nobody foresaw."""

    def parse(self, data: bytes) -> Any:
        raise ZeroDivisionError


def test_whatever_the_parser_raises_is_typed() -> None:
    with pytest.raises(ProtocolError, match=r"it cannot be read as Faulty: ZeroDivisionError\(\)") as refused:
        strict.decode(Faulty, b"", what="it")
    assert isinstance(refused.value.__cause__, ZeroDivisionError)


@settings(max_examples=100)
@given(data=st.data(), name=st.sampled_from(MESSAGES))
def test_what_is_parsed_is_written_back(data: st.DataObject, name: str) -> None:
    message = data.draw(messages(name))
    parsed = strict.decode(generated(name), message.SerializeToString(), what="it")
    written = google(name).FromString(strict.encode(parsed))
    assert without_what_is_left_off(plain_google(written)) == without_what_is_left_off(plain_google(message))


def without_what_is_left_off(plain: Any) -> Any:
    """*plain* with -0.0 as 0.0, and without map entries that are empty throughout."""
    if isinstance(plain, dict):
        items = cast("dict[str, Any]", plain).items()
        return {
            key: without_what_is_left_off(value) for key, value in items if (key, value) not in (("", ""), ("", {}))
        }
    if isinstance(plain, list):
        return [without_what_is_left_off(value) for value in cast("list[Any]", plain)]
    return bytes(8) if plain == bytes(7) + b"\x80" else plain


@pytest.mark.parametrize(
    ("message", "why"),
    [
        (env.ResetRequest(seeds=[2**70]), "more than ten bytes"),
        (env.ResetRequest(env_indices=[2**32]), "field env_indices is out of range"),
        (env.ResetRequest(timeout_ms=-(2**63) - 1), "ValueError"),
        (env.CloseEnvsRequest(reason="\ud800"), "UnicodeEncodeError"),
        (env.CloseEnvsRequest(reason=5), "AttributeError"),  # pyright: ignore[reportArgumentType]
    ],
)
def test_what_has_no_wire_form_is_not_written(message: betterproto.Message, why: str) -> None:
    with pytest.raises(ProtocolError, match=f"cannot write {type(message).__name__}: .*{why}"):
        strict.encode(message)


def test_an_empty_submessage_is_written_when_it_is_made_present() -> None:
    assert strict.encode(env.HandshakeRequest(base=core.HandshakeRequest())) == b""
    assert strict.encode(env.HandshakeRequest(base=strict.present(core.HandshakeRequest()))) == b"\x0a\x00"


def test_a_relayed_field_travels_byte_for_byte() -> None:
    said, data = load("env_handshake_response_kitchen")
    spec = strict.encoded_field(env.HandshakeResponse, data, "env_contract", "spec")
    assert spec is not None
    assert spec in data
    assert (
        google("rlmesh.core.v1.EnvSpec").FromString(spec) == google(said["message"]).FromString(data).env_contract.spec
    )

    resolve = strict.relay_field(model.ResolveAdapterRequest(execution_horizon=4), "env_spec", spec)
    written = strict.encode(model.JoinRequest(resolve_adapter=resolve, request_id="r"))
    assert strict.encoded_field(model.JoinRequest, written, "resolve_adapter", "env_spec") == spec
    assert google("rlmesh.model.v1.JoinRequest").FromString(written).resolve_adapter.execution_horizon == 4


def test_a_field_that_is_absent_has_no_bytes() -> None:
    assert strict.encoded_field(env.HandshakeResponse, b"", "env_contract", "spec") is None
    assert strict.encoded_field(env.HandshakeResponse, b"\x12\x02\x10\x05", "env_contract", "spec") is None
    assert strict.encoded_field(env.HandshakeResponse, b"\x12\x02\x10\x05", "env_contract") == b"\x10\x05"
