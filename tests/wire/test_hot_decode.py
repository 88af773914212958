"""The per-step decoders and google protobuf read the same from any bytes, or ours refuses with the one typed error."""

import re
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rlmesh_trio.errors import EndpointError, ProtocolError
from rlmesh_trio.messages import EnvReply, PredictReply
from rlmesh_trio.wire.hot_env import decode_env_join
from rlmesh_trio.wire.hot_model import decode_model_join
from rlmesh_trio.wire.metadata import LazyMetadata
from tests.wire.forms import damaged, messages, varint, wire_form
from tests.wire.oracle import google, google_parses
from tests.wire.test_captures import NAMES, load
from tests.wire.views import (
    ENV_REPLY,
    MODEL_REPLY,
    google_env_reply,
    google_model_reply,
    our_env_reply,
    our_model_reply,
)

LEGS = {ENV_REPLY: (our_env_reply, google_env_reply), MODEL_REPLY: (our_model_reply, google_model_reply)}
HOT_ARMS = {
    ENV_REPLY: ("reset", "step", "error"),
    MODEL_REPLY: ("predict", "grouped_predict", "error", "response"),
}
# What is refused although google reads it (the number 0 only in a message without fields).
STRICTER = re.compile(
    r"wire type 3|the number 0|arm comes after|a map entry holds more|values nest more"
    r"|comes twice|in several pieces|has the wire type \d instead|out of range"
)

each_leg = pytest.mark.parametrize("name", LEGS)
REPLIES = [(load(name)[0]["message"], load(name)[1]) for name in NAMES if load(name)[0]["message"] in LEGS]


def agree(name: str, data: bytes) -> bool:
    """Check that both read *data* the same; whether it was accepted."""
    ours, googles = LEGS[name]
    message = google_parses(name, data)
    try:
        read = ours(data)
    except ProtocolError as fault:
        refusal = str(fault)
    else:
        assert message is not None, f"google refuses what was read as {read}"
        assert read == googles(message)
        return True
    assert message is None or STRICTER.search(refusal), (refusal, message)
    return False


@pytest.mark.parametrize("capture", [name for name in NAMES if load(name)[0]["message"] in LEGS])
def test_captured_replies_are_read(capture: str) -> None:
    said, data = load(capture)
    assert agree(said["message"], data)


@each_leg
@settings(max_examples=100)
@given(data=st.data())
def test_every_form_of_a_reply_is_read(name: str, data: st.DataObject) -> None:
    message = data.draw(messages(name, arms=HOT_ARMS[name]))
    for seed in range(20):
        agree(name, wire_form(message, seed))
    assert agree(name, message.SerializeToString())


@each_leg
@settings(max_examples=40)
@given(data=st.data())
def test_damaged_replies_are_read_as_google_reads_them_or_refused(name: str, data: st.DataObject) -> None:
    message = data.draw(messages(name))
    for seed in range(60):
        agree(name, damaged(wire_form(message, seed), seed))


@pytest.mark.parametrize("captured", REPLIES)
def test_every_cut_of_a_captured_reply(captured: tuple[str, bytes]) -> None:
    name, data = captured
    for end in range(len(data)):
        agree(name, data[:end])


@pytest.mark.parametrize("captured", REPLIES)
def test_every_flipped_byte_of_a_captured_reply(captured: tuple[str, bytes]) -> None:
    name, data = captured
    for at in range(len(data)):
        agree(name, data[:at] + bytes((data[at] ^ 1 << at % 8,)) + data[at + 1 :])


@each_leg
@given(data=st.binary(max_size=40))
def test_random_bytes(name: str, data: bytes) -> None:
    agree(name, data)


UNUSUAL = {
    "nothing": b"",
    "overlong tag": b"\xaa\x80\x80\x80\x00\x01x",
    "six-byte tag": b"\xaa\x80\x80\x80\x80\x00\x01x",
    "overlong length": b"\x2a\x81\x80\x80\x80\x00x",
    "six-byte length": b"\x2a\x81\x80\x80\x80\x80\x00x",
    "tag beyond 32 bits": b"\xb0\x80\x80\x80\x10\x05",
    "ten-byte number": b"\x30" + b"\xff" * 9 + b"\x7f",
    "eleven-byte number": b"\x30" + b"\xff" * 10 + b"\x01",
    "cut number": b"\x30\xff",
    "cut two-byte number": b"\x30\xff\xff",
    "field number 0": b"\x00\x01",
    "text with number 0": b"\x02\x01x",
    "wire type 6": b"\x36\x00",
    "wire type 7": b"\x37\x00",
    "end of a group": b"\x4c",
    "fixed32 where a number belongs": b"\x35\x00\x00\x00\x00\x2a\x01x",
    "text where a number belongs": b"\x32\x01x\x2a\x01x",
    "number where a text belongs": b"\x28\x01\x30\x02",
    "text that is not UTF-8": b"\x2a\x01\xff",
    "lone surrogate": b"\x2a\x03\xed\xa0\x80",
    "two request ids": b"\x2a\x01a\x2a\x01b",
    "empty request id after another": b"\x2a\x01a\x2a\x00",
    "unknown arm": b"\x4a\x00\x2a\x01x",
    "step twice": b"\x12\x04\x0a\x02\x0a\x00\x12\x03\x1a\x01\x01",
    "step, reset": b"\x12\x03\x1a\x01\x01\x0a\x02\x0a\x00",
    "reset with bad infos, step": b"\x0a\x04\x12\x02\x0a\x05\x12\x00",
    "step, error, step": b"\x12\x03\x1a\x01\x01\x52\x00\x12\x03\x22\x01\x01",
    "error, error": b"\x52\x02\x08\x0a\x52\x03\x12\x01x",
    "error, step, error": b"\x52\x02\x08\x0a\x12\x00\x52\x03\x12\x01x",
    "unknown code": b"\x52\x02\x08\x63",
    "negative code": b"\x52\x0b\x08" + b"\xff" * 9 + b"\x01",
    "code beyond 32 bits": b"\x52\x07\x08\x81\x80\x80\x80\x80\x01",
    "bool of 2": b"\x52\x02\x18\x02",
    "bool without its 64 low bits": b"\x52\x0b\x18" + b"\x80" * 9 + b"\x02",
    "rewards in two pieces": b"\x12\x0b\x12\x08" + bytes(8) + b"\x11" + bytes(8),
    "rewards packed, single, packed": b"\x12\x1d"
    + (b"\x12\x08" + bytes(8) + b"\x11" + bytes(8))
    + b"\x12\x08"
    + bytes(8),
    "seven bytes of rewards": b"\x12\x09\x12\x07" + bytes(7),
    "lanes packed, single, packed": b"\x12\x09\x3a\x02\x01\x02\x38\x03\x3a\x01\x04",
    "lane beyond 32 bits": b"\x12\x0c\x3a\x0a" + b"\xff" * 9 + b"\x01",
    "lane cut by the end of its list": b"\x12\x04\x3a\x01\x80\x01",
    "field beyond the end of its message": b"\x12\x02\x0a\x01\x00",
    "number beyond the end of its message": b"\x12\x02\x38\x80\x01",
    "infos twice": b"\x12\x14\x2a\x08\x0a\x06\x0a\x01a\x12\x01\x00\x2a\x08\x0a\x06\x0a\x01b\x12\x01\x00",
    "infos cut in two": b"\x12\x09\x2a\x02\x0a\x03\x2a\x03\x0a\x01a",
    "observation twice": b"\x12\x0c\x0a\x03\x0a\x01a\x0a\x00\x0a\x03\x0a\x01b",
    "interrupted episode with bad info": b"\x52\x06\x2a\x04\x52\x02\x0a\x05",
    "close twice": b"\x22\x00\x22\x00",
    "close, step": b"\x22\x00\x12\x00",
    "bad close, step": b"\x22\x02\x0a\x05\x12\x00",
    "bad close, another unchecked arm": b"\x22\x02\x0a\x05\x1a\x00",
    "step with bad infos, close": b"\x12\x04\x2a\x02\x0a\x05\x22\x00",
    "step, bad close": b"\x12\x00\x22\x02\x0a\x05",
    "rewards beyond the end of the reply": b"\x12\x0a\x12\x10" + bytes(8),
    "code beyond the end of its error": b"\x52\x02\x08\x80\x01",
    "count beyond the end of its episode": b"\x12\x04\x32\x02\x18\x80\x01",
    "episode of a lane beyond 32 bits": b"\x12\x08\x32\x06\x18\x81\x80\x80\x80\x10",
    "double beyond the end of its episode": b"\x12\x04\x32\x02\x29\x00" + bytes(8),
    "tag beyond the end of its message": b"\x12\x01\xaa\x01\x00",
    "group": b"\x4b\x4c",
}


@each_leg
@pytest.mark.parametrize("case", UNUSUAL)
def test_unusual_bytes(name: str, case: str) -> None:
    agree(name, UNUSUAL[case])


@pytest.mark.parametrize(
    "case", ["step, error, step", "rewards packed, single, packed", "lanes packed, single, packed"]
)
def test_unusual_but_legal_env_replies_are_accepted(case: str) -> None:
    assert agree(ENV_REPLY, UNUSUAL[case])


@pytest.mark.parametrize("decode", [decode_env_join, decode_model_join])
@pytest.mark.parametrize("wrong", [b"\x12\x05", b"\x2a\x01\xff", b"\x07"])
def test_what_is_refused_says_whose_reply_it_was(decode: Callable[[bytes], Any], wrong: bytes) -> None:
    with pytest.raises(ProtocolError, match=r"^protocol error: (env|model) reply is malformed: "):
        decode(wrong)


def step_reply(**fields: Any) -> bytes:
    message = google(ENV_REPLY)()
    for name, value in fields.items():
        getattr(message.step, name).extend(value)
    message.step.infos.entries["k"].integer = 1
    return message.SerializeToString()


def test_a_leaf_above_4_kib_is_a_view_of_the_message_and_a_smaller_one_is_not() -> None:
    message = google(ENV_REPLY)()
    message.step.observation.leaves.extend([bytes(4096), bytes(4097)])
    data = message.SerializeToString()
    _, _, reply = decode_env_join(data)
    assert isinstance(reply, EnvReply)
    assert reply.observation is not None
    small, large = reply.observation
    assert isinstance(small, bytes)
    assert isinstance(large, memoryview)
    assert large.obj is data


def test_any_buffer_is_read() -> None:
    data = step_reply(rewards=[1.0])
    for buffer in (bytearray(data), memoryview(data)):
        request_id, arm, reply = decode_env_join(buffer)
        assert (request_id, arm) == ("", "step")
        assert isinstance(reply, EnvReply)
        assert list(reply.rewards) == [1.0]


def test_infos_stay_bytes_until_somebody_looks() -> None:
    _, _, reply = decode_env_join(b"\x12\x04\x2a\x02\x0a\x05")
    assert isinstance(reply, EnvReply)
    assert isinstance(reply.infos, LazyMetadata)
    with pytest.raises(ProtocolError, match="metadata is malformed"):
        len(reply.infos)


def test_no_timing_at_all_is_told_from_a_timing_of_zero() -> None:
    bare, timed = decode_env_join(b"\x12\x00")[2], decode_env_join(b"\x12\x00\x70\x00")[2]
    assert isinstance(bare, EnvReply)
    assert isinstance(timed, EnvReply)
    assert bare.phases is None
    assert timed.phases is not None
    assert (timed.phases.lane_skew_ns, timed.phases.queue_ns) == (0, 0)
    assert timed.endpoint_total_ns is None


def test_a_grouped_reply_keeps_its_order_and_its_timings_lie_on_the_first_answer() -> None:
    message = google(MODEL_REPLY)(endpoint_total_ns=5, user_ns=4)
    results = message.grouped_predict.results
    results.add().error.message = "bad group"
    results.add().response.context.env_id = "a"
    results.add().response.context.env_id = "b"
    results.add()
    data = message.SerializeToString()
    _, arm, answers = decode_model_join(data)
    assert arm == "grouped_predict"
    assert isinstance(answers, list)
    failed, first, second, empty = answers
    assert isinstance(failed, EndpointError)
    assert isinstance(first, PredictReply)
    assert isinstance(second, PredictReply)
    assert isinstance(empty, EndpointError)
    assert (str(failed), first.env_id, second.env_id) == ("bad group", "a", "b")
    assert (first.endpoint_total_ns, first.response_bytes) == (5, len(data))
    assert first.phases is not None
    assert (second.endpoint_total_ns, second.phases, second.response_bytes) == (None, None, 0)


def test_many_pieces_of_one_field_are_merged_in_linear_time() -> None:
    # Merging them by copying would take minutes.
    infos, reward, lane = b"\x2a\x00", b"\x11" + bytes(8), b"\x38\x01"
    step = infos * 20_000 + reward * 20_000 + lane * 20_000 + b"\x0a\x02\x0a\x00" * 20_000
    assert agree(ENV_REPLY, b"\x12" + varint(len(step)) + step)
