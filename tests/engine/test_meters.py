from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlmesh_trio.engine.meters import EnvMeter
from rlmesh_trio.messages import EnvReply, Phases
from rlmesh_trio.telemetry.aggregate import Telemetry
from rlmesh_trio.telemetry.reservoir import CAPACITY
from rlmesh_trio.wire.fields import encode_varint
from rlmesh_trio.wire.hot_env import decode_env_join

_TAGS = (0x30, 0x58, 0x60, 0x68, 0x70, 0x78)
_NUMBERS = st.none() | st.integers(0, 3) | st.integers(0, 10**9) | st.integers(0, 2**64 - 1)


def timings(numbers: Sequence[int | None]) -> bytes:
    """One number a tag, or none."""
    timed = zip(_TAGS, numbers, strict=True)
    return b"".join(bytes((tag,)) + encode_varint(number) for tag, number in timed if number is not None)


def decoded(reply: EnvReply) -> EnvReply:
    """*reply* as it is when its timings are read at once."""
    _, _, read = decode_env_join(b"\x12\x00" + reply.timings)
    assert isinstance(read, EnvReply)
    read.request_bytes, read.response_bytes = reply.request_bytes, reply.response_bytes
    return read


class Meter:
    """A meter of steps and the telemetry behind it."""

    def __init__(self) -> None:
        self.telemetry = Telemetry()
        self.record = EnvMeter(self.telemetry, "env.step", "env").record


_REPLIES = st.builds(
    EnvReply,
    timings=st.tuples(*[_NUMBERS] * len(_TAGS)).map(timings),
    request_bytes=st.integers(1, 2000),
    response_bytes=st.integers(1, 2000),
)
# A reply, whether it comes undecoded where some do, or what is done between two replies.
_SCRIPTS = st.lists(st.tuples(_REPLIES, st.booleans()) | st.sampled_from(["drain", "window"]), max_size=30)


@given(script=_SCRIPTS)
def test_timings_count_the_same_whether_decoded_or_not(script: list[tuple[EnvReply, bool] | str]) -> None:
    meters = undecoded, mixed, one_by_one = Meter(), Meter(), Meter()
    for event in script:
        if event == "drain":
            undecoded.telemetry.drain()
        elif isinstance(event, str):
            windows = [meter.telemetry.window_snapshot_and_flush() for meter in meters]
            assert windows[0] == windows[1] == windows[2]
        else:
            reply, late = event
            undecoded.record(reply, 5)
            mixed.record(reply if late else decoded(reply), 5)
            one_by_one.record(decoded(reply), 5)
    sessions = [meter.telemetry.session_snapshot() for meter in meters]
    assert sessions[0] == sessions[1] == sessions[2]


def test_timings_beyond_what_is_kept_are_chosen_the_same_whether_decoded_or_not() -> None:
    undecoded, one_by_one = Meter(), Meter()
    for number in range(2 * CAPACITY + 500):
        # Some are 0, some are missing, so that the series differ in length.
        numbers = [number * factor % 1000 if number % factor else None for factor in (2, 7, 11, 13, 17, 19)]
        reply = EnvReply(timings=timings(numbers), request_bytes=60, response_bytes=number % 90 + 1)
        undecoded.record(reply, number)
        one_by_one.record(decoded(reply), number)
        if number % 1024 == 0:
            undecoded.telemetry.drain()
        if number == CAPACITY + 99:
            windows = undecoded.telemetry, one_by_one.telemetry
            assert windows[0].window_snapshot_and_flush() == windows[1].window_snapshot_and_flush()
    window, other = (meter.telemetry.window_snapshot_and_flush() for meter in (undecoded, one_by_one))
    session, judge = (meter.telemetry.session_snapshot() for meter in (undecoded, one_by_one))
    assert (window, session) == (other, judge)
    assert len(session.rows) == 9
    assert all(row.count > CAPACITY for row in session.rows)


@pytest.mark.parametrize(
    ("reply", "metrics"),
    [
        (EnvReply(), set[str]()),
        (EnvReply(phases=Phases()), set[str]()),
        (EnvReply(response_bytes=9, request_bytes=8), {"request.bytes", "response.bytes"}),
        (EnvReply(endpoint_total_ns=0, phases=Phases(lane_skew_ns=0)), {"endpoint.total", "lane.skew"}),
        (
            EnvReply(timings=b"\x60\x01", response_bytes=9, request_bytes=8),
            {"endpoint.user", "request.bytes", "response.bytes"},
        ),
    ],
)
def test_what_an_env_did_not_measure_is_no_sample(reply: EnvReply, metrics: set[str]) -> None:
    meter = Meter()
    meter.record(reply, 1)
    assert {row.metric for row in meter.telemetry.session_snapshot().rows} == {"rpc.total"} | metrics
