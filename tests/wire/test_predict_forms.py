"""A reader of model replies reads each exactly as the decoder of single replies does, whatever it has read before."""

import re
from random import Random
from typing import Any

import attrs
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rlmesh_trio.errors import EndpointError, ProtocolError
from rlmesh_trio.messages import Phases, PredictReply
from rlmesh_trio.wire import predict_forms
from rlmesh_trio.wire.hot_model import decode_model_join
from rlmesh_trio.wire.predict_forms import ModelReader
from tests.wire.counting import patterns_made
from tests.wire.forms import damaged, messages, varint, wire_form
from tests.wire.oracle import google
from tests.wire.test_captures import NAMES, load
from tests.wire.test_hot_decode import UNUSUAL
from tests.wire.views import MODEL_REPLY

REPLIES = {name: load(name)[1] for name in NAMES if load(name)[0]["message"] == MODEL_REPLY}
PREDICTS = {name: data for name, data in REPLIES.items() if name.startswith("model_predict")}
TIMES = (
    "endpoint_total_ns",
    "decode_ns",
    "user_ns",
    "encode_ns",
    "queue_ns",
    "in_flight",
    "adapter_ns",
    "held_episodes",
    "held_state_bytes",
)
COUNTS = ("in_flight", "held_episodes")

each_predict = pytest.mark.parametrize("name", PREDICTS)


def facts(value: Any) -> Any:
    """All that tells one answer from another, types included."""
    if isinstance(value, PredictReply | Phases):
        return type(value), [facts(getattr(value, field.name)) for field in attrs.fields(type(value))]
    if isinstance(value, EndpointError):
        return str(value), value.code, value.recoverable
    if isinstance(value, bytes | str | int | None):
        return type(value), value
    return type(value).__name__, [facts(item) for item in value]


class Watched:
    """A reader whose replies are checked, and how often it read one field by field."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.reader = ModelReader()
        self.slow = 0
        patch.setattr(predict_forms, "decode_model_join", self._decode)

    def _decode(self, data: bytes) -> Any:
        self.slow += 1
        return decode_model_join(data)

    def reads(self, *replies: bytes) -> int:
        """Check that each is read as it is alone; how many of them were read field by field."""
        before = self.slow
        for data in replies:
            same(self.reader, data)
        return self.slow - before


@pytest.fixture
def watched(monkeypatch: pytest.MonkeyPatch) -> Watched:
    return Watched(monkeypatch)


def same(reader: ModelReader, data: bytes) -> None:
    try:
        expected = decode_model_join(data)
    except ProtocolError as fault:
        with pytest.raises(ProtocolError, match=f"^{re.escape(str(fault))}$"):
            reader.decode(data)
    else:
        assert facts(reader.decode(data)) == facts(expected)


@attrs.frozen
class Server:
    """One server's way to write predicts: what stays the same from reply to reply."""

    frames: tuple[tuple[int, ...], ...]
    id_lengths: tuple[int, int, int, int]

    def reply(self, random: Random) -> Any:
        session, env, asked, named = ("".join(random.choices("0189-abz:", k=length)) for length in self.id_lengths)
        message = google(MODEL_REPLY)(request_id=named)
        message.predict.context.session_id = session
        message.predict.context.env_id = env
        message.predict.context.request_id = asked
        for sizes in self.frames:
            message.predict.actions.add().leaves.extend([random.randbytes(size) for size in sizes])
        for name in random.sample(TIMES, random.randint(0, len(TIMES))):
            setattr(message, name, random.getrandbits(random.randint(0, 32 if name in COUNTS else 63)))
        return message


ID_LENGTHS = st.sampled_from((1, 5, 36, 127, 128))
SERVERS = st.builds(
    Server,
    frames=st.lists(
        st.lists(st.sampled_from((0, 1, 8, 10, 127, 128)), max_size=3).map(tuple), min_size=1, max_size=5
    ).map(tuple),
    id_lengths=st.tuples(ID_LENGTHS, ID_LENGTHS, ID_LENGTHS, ID_LENGTHS),
)


@st.composite
def usual(draw: st.DrawFn) -> list[bytes]:
    """A few replies of one server, one of them perhaps damaged or written in another form or with other contents."""
    server, random = draw(SERVERS), Random(draw(st.integers(0, 2**32)))
    first, *others, last = [server.reply(random) for _ in range(draw(st.integers(2, 5)))]
    change = draw(st.sampled_from(("none", "form", "damage", "no context", "id", "frame", "long", "late", "error")))
    if change == "no context":
        last.predict.ClearField("context")
    elif change == "id":
        last.predict.context.request_id = draw(st.text(max_size=6) | st.just("é" * 18) | st.just("x" * 300))
    elif change == "frame":
        last.predict.actions.add()
    elif change == "long":
        last.predict.actions[0].leaves.append(bytes(draw(st.sampled_from((3900, 4096, 4097, 9000)))))
    elif change == "late":
        last.user_ns = last.held_state_bytes = 2**64 - draw(st.integers(1, 9))
    elif change == "error":
        last.error.message = "no"
    encoded = wire_form(last, draw(st.integers(0, 99))) if change == "form" else last.SerializeToString()
    if change == "damage":
        encoded = damaged(encoded, draw(st.integers(0, 2**32)))
    known = first.SerializeToString()
    return [known, *(reply.SerializeToString() for reply in others), encoded, known]


@st.composite
def unusual(draw: st.DrawFn) -> list[bytes]:
    message = draw(messages(MODEL_REPLY, arms=("predict", "grouped_predict", "error", "response"), depth=4))
    forms = [wire_form(message, seed) for seed in range(draw(st.integers(1, 4)))]
    return [message.SerializeToString(), *forms, damaged(forms[0], draw(st.integers(0, 2**32)))]


KNOWN = st.sampled_from([*REPLIES.values(), *UNUSUAL.values()]).map(lambda data: [data] * 2)


@settings(max_examples=150)
@given(stream=st.lists(usual() | unusual() | KNOWN, max_size=4))
def test_each_reply_of_a_stream_is_read_as_it_is_alone(stream: list[list[bytes]]) -> None:
    reader = ModelReader()
    for replies in stream:
        for data in replies:
            same(reader, data)


@settings(max_examples=60)
@given(server=SERVERS, seed=st.integers(0, 2**32))
def test_the_replies_of_one_server_are_read_at_one_stroke(server: Server, seed: int) -> None:
    random = Random(seed)
    replies = [server.reply(random).SerializeToString() for _ in range(4)]
    with pytest.MonkeyPatch.context() as patch:
        assert Watched(patch).reads(*replies) == 1


@each_predict
def test_a_captured_predict_is_read_at_one_stroke_when_it_comes_again_with_other_values(
    name: str, watched: Watched
) -> None:
    assert watched.reads(PREDICTS[name]) == 1
    message = google(MODEL_REPLY).FromString(PREDICTS[name])
    leaves, context = message.predict.actions[0].leaves, message.predict.context
    leaves[0] = b"\x0a" * len(leaves[0])
    context.request_id = "é" + "~" * (len(context.request_id) - 2)
    message.endpoint_total_ns, message.queue_ns, message.in_flight = 2**63 - 1, 0, 2**32 - 1
    message.ClearField("user_ns")
    assert watched.reads(PREDICTS[name], message.SerializeToString()) == 0


def test_a_grouped_predict_and_an_error_are_read_field_by_field(watched: Watched) -> None:
    others = [data for name, data in REPLIES.items() if name not in PREDICTS]
    assert (len(PREDICTS), len(others)) == (4, 10)
    assert watched.reads(*others, *others) == 2 * len(others)


@each_predict
def test_every_flipped_byte_of_a_captured_predict_that_was_read_before(name: str) -> None:
    data = PREDICTS[name]
    for at in range(len(data)):
        reader = ModelReader()
        wrong = data[:at] + bytes((data[at] ^ 1 << at % 8,)) + data[at + 1 :]
        for reply in (data, wrong, data, wrong):
            same(reader, reply)


@each_predict
def test_every_cut_and_every_further_byte_of_a_captured_predict_that_was_read_before(name: str) -> None:
    reader, data = ModelReader(), PREDICTS[name]
    for end in range(len(data)):
        same(reader, data)
        same(reader, data[:end])
    for byte in range(256):
        same(reader, data + bytes((byte,)))
        same(reader, data + bytes((byte, 1)))


def test_an_id_that_is_not_utf_8_is_refused_where_the_form_fits(watched: Watched) -> None:
    data = PREDICTS["model_predict_response"]
    assert watched.reads(data, *(data.replace(text, b"\xff" + text[1:]) for text in (b"sess-1", b"env-A"))) == 3
    assert watched.reads(data.replace(b"predict-1", b"\xffredict-1")) == 1
    assert watched.reads(data.replace(b"*\x09predict-1", b"*\x09predict-\xff")) == 1


@pytest.mark.parametrize("tag", range(0x58, 0x91, 8))
def test_one_timing_alone_and_in_every_length(tag: int, watched: Watched) -> None:
    message = google(MODEL_REPLY).FromString(PREDICTS["model_predict_response"])
    for name in TIMES:
        message.ClearField(name)
    bare, head = message.SerializeToString(), varint(tag)
    sizes = [bare + head + varint(2 ** (7 * size) - 1 - size, size) for size in range(1, 10)]
    assert watched.reads(bare, *sizes, bare + b"\x30\x00") == 1
    assert watched.reads(bare + head + varint(2**64 - 1), bare + head + varint(1) * 2) == 2


def test_a_reply_above_4_kib_keeps_its_views(watched: Watched) -> None:
    for size in (4096, 4097):
        long = Server(((size,),), (1, 1, 1, 1)).reply(Random(0)).SerializeToString()
        assert watched.reads(long, long) == 2


def test_a_server_whose_replies_are_all_different_costs_a_bounded_number_of_forms() -> None:
    reader, random = ModelReader(), Random(0)
    replies = [Server(((size,),), (3, 3, 3, 3)).reply(random).SerializeToString() for size in range(200)]
    with patterns_made() as made:
        for data in replies:
            reader.decode(data)
    assert 1 <= len(made) <= 100
    for data in replies:
        same(reader, data)


def test_a_server_that_keeps_to_one_form_at_last_is_read_at_one_stroke_again(watched: Watched) -> None:
    random = Random(0)
    replies = [Server(((size,),), (3, 3, 3, 3)).reply(random).SerializeToString() for size in range(300)]
    assert watched.reads(*replies) == len(replies)
    settled = Server(((400,),), (3, 3, 3, 3)).reply(random).SerializeToString()
    assert watched.reads(*[settled] * 500) < 400
    assert watched.reads(settled) == 0
