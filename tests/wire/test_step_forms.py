"""A reader of env replies reads each as the decoder of single replies does, whatever it has read before.

Undecoded timings are compared as that decoder reads them behind an empty step.
"""

import re
from random import Random
from typing import Any

import attrs
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rlmesh_trio.errors import EndpointError, ProtocolError
from rlmesh_trio.messages import EnvReply, EpisodeRecord, Phases
from rlmesh_trio.wire.hot_env import EnvAnswer, decode_env_join
from rlmesh_trio.wire.metadata import LazyMetadata
from rlmesh_trio.wire.step_forms import EnvReader
from tests.wire.counting import patterns_made
from tests.wire.forms import damaged, messages, wire_form
from tests.wire.oracle import google, plain_float
from tests.wire.test_captures import NAMES, load
from tests.wire.test_hot_decode import UNUSUAL
from tests.wire.views import ENV_REPLY

REPLIES = {name: load(name)[1] for name in NAMES if load(name)[0]["message"] == ENV_REPLY}
STEPS = {name: data for name, data in REPLIES.items() if "step_response" in name}
USUAL = [name for name in STEPS if "completed_episodes" not in load(name)[0]["decoded"]["step"]]
TIMES = ("endpoint_total_ns", "decode_ns", "user_ns", "encode_ns", "queue_ns", "lane_skew_ns")


def facts(value: Any) -> Any:
    """All that tells one answer from another, types included; metadata stays undecoded."""
    if isinstance(value, EnvReply):
        known = {name: facts(getattr(value, name)) for name in EnvReply.__match_args__ if name != "timings"}
        if value.timings:
            assert known["endpoint_total_ns"] is None
            assert known["phases"] is None
            timed = decode_env_join(b"\x12\x00" + value.timings)[2]
            assert isinstance(timed, EnvReply)
            known |= {"endpoint_total_ns": timed.endpoint_total_ns, "phases": facts(timed.phases)}
        return known
    if isinstance(value, Phases | EpisodeRecord):
        return {field.name: facts(getattr(value, field.name)) for field in attrs.fields(type(value))}
    if isinstance(value, EndpointError):
        return str(value), value.code, value.recoverable
    if isinstance(value, LazyMetadata):
        return "metadata", value.encoded
    if isinstance(value, memoryview):
        return "view", value.tobytes()
    if isinstance(value, bytes | str | int | None):
        return value
    return plain_float(value) if isinstance(value, float) else [facts(item) for item in value]


def same(reader: EnvReader, data: bytes) -> EnvAnswer | None:
    """Check that *reader* reads *data* as it is read alone; what the reader made of it, unless both refuse."""
    try:
        expected = decode_env_join(data)
    except ProtocolError as fault:
        with pytest.raises(ProtocolError, match=f"^{re.escape(str(fault))}$"):
            reader.decode(data)
        return None
    request_id, arm, answer = reader.decode(data)
    assert (request_id, arm) == expected[:2]
    assert facts(lanes_as_numbers(answer)) == facts(lanes_as_numbers(expected[2]))
    return answer


def lanes_as_numbers(answer: EnvAnswer) -> EnvAnswer:
    """Lanes may come as bytes: one small number each."""
    return attrs.evolve(answer, env_indices=list(answer.env_indices)) if isinstance(answer, EnvReply) else answer


def quick(answer: EnvAnswer | None) -> bool:
    """Whether an answer was read at one stroke; only tells for a reply with timings."""
    return isinstance(answer, EnvReply) and bool(answer.timings)


@attrs.frozen
class Server:
    """One server's way to write steps: what stays the same from reply to reply."""

    leaves: tuple[int, ...]
    lanes: tuple[int, ...]
    lane_count: int
    infos: int | None
    id_length: int
    timed: tuple[str, ...]

    def reply(self, random: Random) -> Any:
        message = google(ENV_REPLY)(request_id="".join(random.choices("0123456789-abz", k=self.id_length)))
        step = message.step
        step.observation.leaves.extend([random.randbytes(size) for size in self.leaves])
        step.observation.SetInParent()
        step.rewards.extend([random.uniform(-1e9, 1e9) for _ in range(self.lane_count)])
        step.terminated_mask = random.randbytes(self.lane_count)
        step.truncated_mask = random.randbytes(self.lane_count)
        step.env_indices.extend(self.lanes)
        if self.infos is not None:
            step.infos.entries["k"].text = "x" * self.infos
        for name in self.timed:
            setattr(message, name, random.getrandbits(random.randint(0, 63)))
        return message


SERVERS = st.builds(
    Server,
    leaves=st.lists(st.sampled_from((0, 1, 10, 16, 127, 128, 200)), max_size=3).map(tuple),
    lanes=st.lists(st.integers(0, 127), max_size=4).map(tuple),
    lane_count=st.integers(1, 20),
    infos=st.none() | st.integers(0, 140),
    id_length=st.sampled_from((1, 6, 127, 128, 200)),
    timed=st.lists(st.sampled_from(TIMES), unique=True).map(tuple),
)


@st.composite
def usual(draw: st.DrawFn) -> list[bytes]:
    """A few replies of one server, one of them perhaps damaged or written in another form or with other contents."""
    server, random = draw(SERVERS), Random(draw(st.integers(0, 2**32)))
    replies = [server.reply(random) for _ in range(draw(st.integers(1, 4)))]
    last = server.reply(random)
    change = draw(st.sampled_from(("none", "form", "damage", "episode", "far lane", "id", "infos", "long", "late")))
    if change == "episode":
        last.step.completed_episodes.add(episode_id="e", step_count=draw(st.integers(0, 3)))
    elif change == "far lane":
        last.step.env_indices.append(draw(st.sampled_from((128, 300, 2**32 - 1))))
    elif change == "id":
        last.request_id = draw(st.text(max_size=6) | st.just("é" * 3) | st.just("x" * 300))
    elif change == "infos":
        last.step.infos.entries["more"].integer = draw(st.integers(0, 300))
    elif change == "long":
        last.step.observation.leaves.append(bytes(draw(st.sampled_from((3900, 4096, 4097, 9000)))))
    elif change == "late":
        last.user_ns = 2**64 - draw(st.integers(1, 9))
    encoded = wire_form(last, draw(st.integers(0, 99))) if change == "form" else last.SerializeToString()
    if change == "damage":
        encoded = damaged(encoded, draw(st.integers(0, 2**32)))
    return [reply.SerializeToString() for reply in replies] + [encoded] + [replies[0].SerializeToString()]


@st.composite
def unusual(draw: st.DrawFn) -> list[bytes]:
    message = draw(messages(ENV_REPLY, arms=("reset", "step", "error"), depth=3))
    forms = [wire_form(message, seed) for seed in range(draw(st.integers(1, 4)))]
    return [message.SerializeToString(), *forms, damaged(forms[0], draw(st.integers(0, 2**32)))]


STREAMS = st.lists(
    usual() | unusual() | st.sampled_from(list(REPLIES.values()) + list(UNUSUAL.values())).map(lambda data: [data] * 2),
    max_size=4,
)


@settings(max_examples=150)
@given(stream=STREAMS)
def test_each_reply_of_a_stream_is_read_as_it_is_alone(stream: list[list[bytes]]) -> None:
    reader = EnvReader()
    for replies in stream:
        for data in replies:
            same(reader, data)


@settings(max_examples=60)
@given(server=SERVERS.filter(lambda server: bool(server.timed)), seed=st.integers(0, 2**32))
def test_the_replies_of_one_server_are_read_at_one_stroke(server: Server, seed: int) -> None:
    reader, random = EnvReader(), Random(seed)
    assert not quick(same(reader, server.reply(random).SerializeToString()))
    for _ in range(3):
        assert quick(same(reader, server.reply(random).SerializeToString()))


def test_the_captured_steps_are_here() -> None:
    assert (len(STEPS), len(USUAL)) == (9, 4)


@pytest.mark.parametrize("name", USUAL)
def test_a_captured_step_is_read_at_one_stroke_when_it_comes_again_with_other_values(name: str) -> None:
    reader, data = EnvReader(), STEPS[name]
    assert not quick(same(reader, data))
    assert quick(same(reader, data))
    message = google(ENV_REPLY).FromString(data)
    message.step.rewards[0] = float("nan")
    message.step.observation.leaves[0] = bytes(len(message.step.observation.leaves[0]))
    message.request_id = "~" * len(message.request_id)
    message.endpoint_total_ns, message.queue_ns = 2**63 - 1, 0
    message.ClearField("user_ns")
    assert quick(same(reader, message.SerializeToString()))


@pytest.mark.parametrize("name", sorted({*STEPS} - {*USUAL}))
def test_a_step_that_ends_episodes_is_always_read_field_by_field(name: str) -> None:
    reader = EnvReader()
    for _ in range(3):
        assert not quick(same(reader, STEPS[name]))


@pytest.mark.parametrize("name", STEPS)
def test_every_flipped_byte_of_a_captured_step_that_was_read_before(name: str) -> None:
    data = STEPS[name]
    for at in range(len(data)):
        reader = EnvReader()
        same(reader, data)
        wrong = data[:at] + bytes((data[at] ^ 1 << at % 8,)) + data[at + 1 :]
        for reply in (wrong, data, wrong):
            same(reader, reply)


@pytest.mark.parametrize("name", STEPS)
def test_every_cut_and_every_further_byte_of_a_captured_step_that_was_read_before(name: str) -> None:
    reader, data = EnvReader(), STEPS[name]
    same(reader, data)
    for end in range(len(data)):
        same(reader, data[:end])
    for byte in range(256):
        same(reader, data + bytes((byte,)))
        same(reader, data + bytes((byte, 1)))


TIMED = {
    "none": b"",
    "nine bytes": b"\x30" + b"\xff" * 8 + b"\x7f",
    "ten bytes": b"\x30" + b"\xff" * 9 + b"\x01",
    "more than 64 bits": b"\x30" + b"\xff" * 9 + b"\x7f",
    "eleven bytes": b"\x30" + b"\xff" * 10 + b"\x01",
    "more bytes than needed": b"\x30\x80\x00\x58\x81\x80\x80\x00",
    "cut": b"\x30\xff",
    "out of order": b"\x60\x07\x58\x05\x30\x01",
    "twice": b"\x30\x01\x30\x02",
    "twice, apart": b"\x58\x01\x60\x02\x58\x03",
    "another field between": b"\x30\x01\x50\x02\x58\x03",
    "another field after": b"\x30\x01\xa0\x06\x02",
    "fixed64 of the same field": b"\x31" + bytes(8),
    "text of the same field": b"\x32\x01x",
    "another id after": b"\x30\x01\x2a\x02no",
    "another step after": b"\x30\x01\x12\x03\x1a\x01\x01",
    "a reset after": b"\x30\x01\x0a\x02\x0a\x00",
    "an error after": b"\x30\x01\x52\x03\x12\x01x",
    "overlong tag": b"\xb0\x00\x01",
}


@pytest.mark.parametrize("case", TIMED)
def test_what_follows_a_step_that_was_read_before(case: str) -> None:
    reader = EnvReader()
    bare = google(ENV_REPLY).FromString(STEPS["env_step_response_single"])
    for name in TIMES:
        bare.ClearField(name)
    usual = bare.SerializeToString()
    for data in (usual + b"\x30\x01", usual + TIMED[case], TIMED[case] + usual, usual + TIMED[case]):
        same(reader, data)
    assert quick(same(reader, usual + b"\x30\x01"))


@pytest.mark.parametrize("lanes", [b"\x82\x01", b"\x80\x00", b"\x01\x80", b"\xff\xff"])
def test_a_far_lane_where_two_near_ones_were(lanes: bytes) -> None:
    def reply(lanes: bytes) -> bytes:
        values = b"\x0a\x02\x0a\x00" + b"\x12\x08" + bytes(8) + b"\x1a\x01\x00\x22\x01\x00"
        return b"\x12\x18" + values + b"\x3a\x02" + lanes + b"\x2a\x01x\x30\x05"

    reader = EnvReader()
    same(reader, reply(b"\x01\x02"))
    assert quick(same(reader, reply(b"\x7f\x00")))
    assert not quick(same(reader, reply(lanes)))


def test_a_reply_above_4_kib_keeps_its_views() -> None:
    reader, random = EnvReader(), Random(0)
    for size in (4096, 4097, 5000):
        server = Server((size, 3), (0,), 1, 1, 6, ("user_ns",))
        for _ in range(3):
            answer = same(reader, server.reply(random).SerializeToString())
            assert isinstance(answer, EnvReply)
            assert answer.observation is not None
            assert isinstance(answer.observation[0], bytes if size == 4096 else memoryview)


def test_a_server_whose_replies_are_all_different_costs_a_bounded_number_of_forms() -> None:
    reader, random = EnvReader(), Random(0)
    replies = [
        Server((4,), (), lane_count, infos, 6, ("user_ns",)).reply(random).SerializeToString()
        for lane_count in range(1, 11)
        for infos in range(40)
    ]
    with patterns_made() as made:
        for data in replies:
            reader.decode(data)
    assert 1 <= len(made) <= 100 < len(replies)
    for data in replies:
        same(reader, data)
