"""A server reads from any bytes what google protobuf reads, or refuses; what it writes google reads as it was meant."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rlmesh_trio.errors import EndpointError, ProtocolError, SpaceError
from rlmesh_trio.messages import EnvReply, EpisodeRecord
from rlmesh_trio.wire.hot_env import decode_env_join
from rlmesh_trio.wire.served_env import (
    decode_served,
    encode_served_error,
    encode_served_reply,
    encode_served_reset,
    encode_served_step,
    read_served_id,
)
from tests.wire.forms import damaged, messages, wire_form
from tests.wire.oracle import google, google_parses, plain_google
from tests.wire.test_captures import NAMES, load
from tests.wire.test_hot_decode import STRICTER, UNUSUAL
from tests.wire.views import ENV_REPLY, google_metadata, our_env_reply, our_metadata

REQUEST = "rlmesh.env.v1.JoinRequest"
HOT_ARMS = ("reset", "step")
TIMES = ("endpoint_total_ns", "decode_ns", "user_ns", "encode_ns", "queue_ns")
CAPTURED = {name: load(name)[1] for name in NAMES if load(name)[0]["message"] == REQUEST}


def our_request(data: bytes) -> Any:
    request = decode_served(data)
    if request.target is not None:
        target = request.target
        action = [bytes(leaf) for leaf in request.action]
        return request.request_id, "step", action, target.timeout_ms, list(target.env_indices), list(target.episode_ids)
    if request.reset is not None:
        reset = request.reset
        facts = reset.timeout_ms, list(reset.env_indices), list(reset.episode_ids)
        return request.request_id, "reset", list(reset.seeds), our_metadata(reset.options), *facts
    return request.request_id, request.arm, request.raw


def google_request(message: Any) -> Any:
    arm = message.WhichOneof("kind") or "none"
    if arm == "none":
        return message.request_id, arm, b""
    body = getattr(message, arm)
    if arm == "step":
        what = (list(body.action.leaves),)
    elif arm == "reset":
        what = list(body.seeds), google_metadata(body.options) if body.HasField("options") else None
    else:
        return message.request_id, arm, plain_google(body)
    return message.request_id, arm, *what, body.timeout_ms, list(body.env_indices), list(body.episode_ids)


def agree(data: bytes) -> bool:
    """Check that both read *data* the same, a raw arm by its kind only; whether it was accepted."""
    message = google_parses(REQUEST, data)
    try:
        read = our_request(data)
    except ProtocolError as fault:
        refusal = str(fault)
    else:
        _check(read, message)
        return True
    assert message is None or STRICTER.search(refusal), (refusal, message)
    return False


def _check(read: Any, message: Any) -> None:
    if read[1] in (*HOT_ARMS, "none"):
        assert message is not None, f"google refuses what was read as {read}"
        assert read == google_request(message)
    elif message is not None:
        assert read[:2] == google_request(message)[:2]


@pytest.mark.parametrize("name", CAPTURED)
def test_captured_requests_are_read_whole_cut_and_flipped(name: str) -> None:
    data = CAPTURED[name]
    assert agree(data)
    for at in range(len(data)):
        agree(data[:at])
        agree(data[:at] + bytes((data[at] ^ 1 << at % 8,)) + data[at + 1 :])


@settings(max_examples=80)
@given(data=st.data())
def test_every_form_of_a_request_is_read(data: st.DataObject) -> None:
    message = data.draw(messages(REQUEST, arms=HOT_ARMS))
    for seed in range(15):
        agree(wire_form(message, seed))
    assert agree(message.SerializeToString())


@settings(max_examples=30)
@given(data=st.data())
def test_damaged_requests_are_read_as_google_reads_them_or_refused(data: st.DataObject) -> None:
    message = data.draw(messages(REQUEST))
    for seed in range(40):
        agree(damaged(wire_form(message, seed), seed))


@given(data=st.binary(max_size=40))
def test_random_bytes(data: bytes) -> None:
    agree(data)


@pytest.mark.parametrize("case", UNUSUAL)
def test_unusual_bytes(case: str) -> None:
    agree(UNUSUAL[case])


@pytest.mark.parametrize(
    ("data", "request_id"), [(b"\x2a\x02ab\x0a\xff", "ab"), (b"\x0a\xff\x2a", ""), (b"\x2a\x01\xff", ""), (b"", "")]
)
def test_an_id_is_found_in_front_of_what_cannot_be_read(data: bytes, request_id: str) -> None:
    assert read_served_id(data) == request_id


def rewritten(message: Any) -> bytes:
    """The reply *message* stands for, written by the server's codec."""
    request_id, arm, reply = decode_env_join(message.SerializeToString())
    assert isinstance(reply, EnvReply)
    assert reply.phases is not None
    write = encode_served_step if arm == "step" else encode_served_reset
    return write(request_id, reply, reply.phases.queue_ns)


@pytest.mark.parametrize("name", [name for name in NAMES if name.startswith(("env_reset_resp", "env_step_resp"))])
def test_captured_replies_are_rewritten(name: str) -> None:
    message = google(ENV_REPLY).FromString(load(name)[1])
    assert google(ENV_REPLY).FromString(rewritten(message)) == message


@settings(max_examples=150)
@given(data=st.data())
def test_every_reply_is_written(data: st.DataObject) -> None:
    message = data.draw(messages(ENV_REPLY, arms=HOT_ARMS).filter(lambda drawn: drawn.WhichOneof("kind")))
    getattr(message, message.WhichOneof("kind")).observation.SetInParent()
    for name in TIMES:
        setattr(message, name, getattr(message, name))
    written = rewritten(message)
    assert plain_google(google(ENV_REPLY).FromString(written)) == plain_google(message)
    assert len(written) == message.ByteSize()


def test_a_reply_without_phases_has_no_times() -> None:
    message = google(ENV_REPLY).FromString(encode_served_step("r", EnvReply([b"x"], {}), 5))
    assert not any(message.HasField(name) for name in TIMES)


def test_the_other_replies_are_written() -> None:
    records = [EpisodeRecord("a", -1, 2, 3, -0.0, True, False, 4, 5, {"k": 1}), EpisodeRecord()]
    close = google(ENV_REPLY).FromString(encode_served_reply("r", "close", 7, episodes=records))
    again = encode_served_step("r", EnvReply([], completed=records), 0)
    assert list(close.close.final_episodes) == list(google(ENV_REPLY).FromString(again).step.completed_episodes)
    assert close.endpoint_total_ns == 7
    frame = google(ENV_REPLY).FromString(encode_served_reply("r", "render", 0, frame=b"png")).render
    assert (frame.frame, frame.format) == (b"png", 1)
    none = google(ENV_REPLY).FromString(encode_served_reply("r", "render", 0)).render
    assert (none.HasField("frame"), none.format) == (False, 0)
    assert our_env_reply(encode_served_reply("r", "configure", 0))[:2] == ("r", "configure")


@pytest.mark.parametrize(
    ("code", "known"), [("TIMEOUT", True), ("NOT_READY", True), ("INTERNAL", True), ("CONNECTION", False)]
)
def test_errors_are_written(code: str, known: bool) -> None:
    error = EndpointError(code, "why \ud800", code == "TIMEOUT")
    _, arm, read = decode_env_join(encode_served_error("r", error, 1))
    assert arm == "error"
    assert isinstance(read, EndpointError)
    assert (read.code, read.recoverable) == (code if known else "UNSPECIFIED", code == "TIMEOUT")


def test_infos_without_wire_form_are_refused_by_path() -> None:
    with pytest.raises(SpaceError, match=r"^\$\.a: "):
        encode_served_step("r", EnvReply([], {"a": object()}), 0)  # pyright: ignore[reportArgumentType]
