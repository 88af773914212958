from typing import get_args

import numpy as np
import pytest

from rlmesh_trio.messages import EnvReply, Phases
from rlmesh_trio.report import TelemetryRow, TelemetrySnapshot
from rlmesh_trio.telemetry.aggregate import METRIC_KINDS, Component, Metric, Telemetry
from rlmesh_trio.telemetry.reservoir import CAPACITY
from rlmesh_trio.wire.fields import encode_varint
from rlmesh_trio.wire.timings import ENV_TIMINGS

MS = 1_000_000


def test_durations_come_in_as_nanoseconds_and_leave_as_milliseconds() -> None:
    telemetry = Telemetry()
    take = telemetry.series("model.predict", "model", "rpc.total")
    for ms in (10, 20, 30, 40):
        take(ms * MS)
    assert telemetry.window_snapshot_and_flush() == TelemetrySnapshot(
        "window", (TelemetryRow("model.predict", "model", "rpc.total", "duration_ms", 4, 25, 30, 40, 40),)
    )


def test_bytes_and_counts_keep_their_unit() -> None:
    telemetry = Telemetry()
    telemetry.series("model.predict", "model", "held.bytes")(6_000_000)
    telemetry.series("model.predict", "model", "held.episodes")(5)
    assert [(row.metric, row.kind, row.avg) for row in telemetry.session_snapshot().rows] == [
        ("held.bytes", "bytes", 6_000_000),
        ("held.episodes", "count", 5),
    ]


def test_a_fraction_of_a_millisecond_is_exact() -> None:
    telemetry = Telemetry()
    telemetry.series("env.step", "env", "rpc.total")(1_234_567)
    assert telemetry.session_snapshot().rows[0].p99 == 1.234567


def test_zero_is_a_sample() -> None:
    telemetry = Telemetry()
    telemetry.series("env.step", "env", "lane.skew")(0)
    (row,) = telemetry.session_snapshot().rows
    assert (row.count, row.avg) == (1, 0)


def test_a_flushed_window_is_empty_and_the_session_still_counts() -> None:
    telemetry = Telemetry()
    take = telemetry.series("env.step", "env", "rpc.total")
    for ms in (10, 20, 30, 40):
        take(ms * MS)
    telemetry.window_snapshot_and_flush()
    assert telemetry.window_snapshot_and_flush() == TelemetrySnapshot("window", ())
    snapshot = telemetry.session_snapshot()
    assert snapshot.horizon == "session"
    assert snapshot.rows[0].count == 4


def test_a_session_snapshot_does_not_end_the_window() -> None:
    telemetry = Telemetry()
    telemetry.series("env.step", "env", "rpc.total")(MS)
    telemetry.session_snapshot()
    assert telemetry.window_snapshot_and_flush().rows[0].count == 1


def test_the_next_window_holds_only_its_own_samples() -> None:
    telemetry = Telemetry()
    take = telemetry.series("env.step", "env", "rpc.total")
    take(1 * MS)
    telemetry.window_snapshot_and_flush()
    take(5 * MS)
    (row,) = telemetry.window_snapshot_and_flush().rows
    assert (row.count, row.avg) == (1, 5)
    assert telemetry.session_snapshot().rows[0].avg == 3


def test_series_without_samples_are_left_out_of_that_horizon() -> None:
    telemetry = Telemetry()
    telemetry.series("env.reset", "env", "rpc.total")(MS)
    telemetry.series("env.step", "env", "rpc.total")
    telemetry.window_snapshot_and_flush()
    telemetry.series("runner.round", "runner", "rpc.total")(MS)
    assert [row.op for row in telemetry.window_snapshot_and_flush().rows] == ["runner.round"]
    assert [row.op for row in telemetry.session_snapshot().rows] == ["env.reset", "runner.round"]


def test_rows_are_ordered_by_operation_component_and_metric() -> None:
    telemetry = Telemetry()
    keys: list[tuple[str, Component, Metric]] = [
        ("runner.round", "runner", "rpc.total"),
        ("env.step", "env", "rpc.total"),
        ("env.step", "env", "endpoint.user"),
        ("model.predict", "model", "group.size"),
        ("env.reset", "env", "rpc.total"),
        ("env.step", "env", "lane.skew"),
    ]
    for op, component, metric in keys:
        telemetry.series(op, component, metric)(1)
    assert [(row.op, row.component, row.metric) for row in telemetry.session_snapshot().rows] == sorted(keys)


def test_asking_twice_feeds_one_series_also_after_a_drain() -> None:
    telemetry = Telemetry()
    first = telemetry.series("env.step", "env", "rpc.total")
    first(MS)
    telemetry.drain()
    telemetry.series("env.step", "env", "rpc.total")(MS)
    first(MS)
    (row,) = telemetry.session_snapshot().rows
    assert row.count == 3


def test_when_drained_makes_no_difference() -> None:
    rng = np.random.default_rng(0)
    samples: list[int] = rng.integers(0, 10**9, CAPACITY + 3000).tolist()
    often, once = Telemetry(), Telemetry()
    take_often, take_once = (t.series("env.step", "env", "rpc.total") for t in (often, once))
    for number, sample in enumerate(samples):
        take_often(sample)
        take_once(sample)
        if number % 777 == 0:
            often.drain()
    assert often.session_snapshot() == once.session_snapshot()
    assert often.window_snapshot_and_flush() == once.window_snapshot_and_flush()


def test_the_largest_duration_a_peer_can_claim_is_taken() -> None:
    telemetry = Telemetry()
    telemetry.series("env.step", "env", "endpoint.user")(2**64 - 1)
    assert telemetry.session_snapshot().rows[0].p50 == pytest.approx(2**64 / 1e6)


def test_every_metric_has_a_kind() -> None:
    assert tuple(METRIC_KINDS) == get_args(Metric)
    by_kind = {kind: {metric for metric, own in METRIC_KINDS.items() if own == kind} for kind in METRIC_KINDS.values()}
    assert by_kind["bytes"] == {"request.bytes", "response.bytes", "held.bytes"}
    assert by_kind["count"] == {"predict.in_flight", "held.episodes", "group.size", "history.rows"}
    assert len(by_kind["duration_ms"]) == 8


def timings(*timed: tuple[int, int]) -> bytes:
    return b"".join(bytes((tag,)) + encode_varint(number) for tag, number in timed)


def told(telemetry: Telemetry) -> dict[str, tuple[int, float]]:
    return {row.metric: (row.count, row.avg) for row in telemetry.session_snapshot().rows}


def test_undecoded_timings_are_samples_of_their_series() -> None:
    telemetry = Telemetry()
    take = telemetry.timings("env.step", "env")
    take(timings((0x30, 9 * MS), (0x58, 1 * MS), (0x60, 2 * MS), (0x68, 3 * MS), (0x70, 4 * MS), (0x78, 5 * MS)))
    take(timings((0x30, 7 * MS)))
    assert told(telemetry) == {
        "endpoint.total": (2, 8),
        "endpoint.decode": (1, 1),
        "endpoint.user": (1, 2),
        "endpoint.encode": (1, 3),
        "lane.skew": (1, 4),
        "endpoint.queue": (1, 5),
    }


def test_an_undecoded_zero_is_a_sample_only_where_it_differs_from_not_measured() -> None:
    telemetry = Telemetry()
    telemetry.timings("env.step", "env")(timings(*((tag, 0) for tag in ENV_TIMINGS)))
    phases = Phases()
    unmeasured = {
        "endpoint.total": EnvReply().endpoint_total_ns,
        "endpoint.decode": phases.decode_ns,
        "endpoint.user": phases.user_ns,
        "endpoint.encode": phases.encode_ns,
        "endpoint.queue": phases.queue_ns,
        "lane.skew": phases.lane_skew_ns,
    }
    assert set(unmeasured) == set(ENV_TIMINGS.values())
    assert told(telemetry) == {metric: (1, 0) for metric, value in unmeasured.items() if value is None}


def test_undecoded_timings_belong_to_their_operation_and_window() -> None:
    telemetry = Telemetry()
    telemetry.timings("env.reset", "env")(timings((0x30, 1 * MS)))
    telemetry.timings("env.step", "env")(timings((0x30, 2 * MS)))
    assert [(row.op, row.avg) for row in telemetry.window_snapshot_and_flush().rows] == [
        ("env.reset", 1),
        ("env.step", 2),
    ]
    telemetry.timings("env.step", "env")(timings((0x30, 4 * MS)))
    assert [(row.op, row.avg) for row in telemetry.window_snapshot_and_flush().rows] == [("env.step", 4)]
    assert [(row.op, row.avg) for row in telemetry.session_snapshot().rows] == [("env.reset", 1), ("env.step", 3)]


def test_decoded_and_undecoded_timings_feed_one_series() -> None:
    telemetry = Telemetry()
    first = telemetry.timings("env.step", "env")
    take = telemetry.series("env.step", "env", "endpoint.user")
    for ms in (1, 3):
        take(ms * MS)
        first(timings((0x60, ms * MS)))
        telemetry.timings("env.step", "env")(timings((0x60, ms * MS)))
        telemetry.drain()
    assert told(telemetry) == {"endpoint.user": (6, 2)}


def test_undecoded_timings_beyond_what_is_kept_are_chosen_like_decoded_ones() -> None:
    rng = np.random.default_rng(0)
    samples: list[int] = rng.integers(0, 2**64, CAPACITY + 3000, dtype=np.uint64).tolist()
    undecoded, decoded = Telemetry(), Telemetry()
    take_undecoded = undecoded.timings("env.step", "env")
    take_total = decoded.series("env.step", "env", "endpoint.total")
    take_user = decoded.series("env.step", "env", "endpoint.user")
    for number, sample in enumerate(samples):
        user = sample >> number % 64
        take_undecoded(timings((0x30, sample), (0x60, user)))
        take_total(sample)
        if user:
            take_user(user)
        if number % 777 == 0:
            undecoded.drain()
    assert undecoded.session_snapshot() == decoded.session_snapshot()
    assert undecoded.window_snapshot_and_flush() == decoded.window_snapshot_and_flush()
