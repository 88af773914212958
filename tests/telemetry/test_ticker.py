import math

import pytest
import trio
import trio.testing

from rlmesh_trio.report import TelemetryRow, TelemetrySnapshot
from rlmesh_trio.telemetry.ticker import run_ticker

FULL = TelemetrySnapshot("window", (TelemetryRow("env.step", "env", "rpc.total", "duration_ms", 1, 1, 1, 1, 1),))
EMPTY = TelemetrySnapshot("window", ())


async def ticks_within(
    seconds: float, window: float, *, snapshot: TelemetrySnapshot = FULL, busy: tuple[float, ...] = ()
) -> tuple[list[float], list[float]]:
    """When snapshots were taken and delivered; delivery *n* takes ``busy[n]`` seconds."""
    taken: list[float] = []
    delivered: list[float] = []
    start = trio.current_time()

    def take() -> TelemetrySnapshot:
        taken.append(trio.current_time() - start)
        return snapshot

    async def deliver(given: TelemetrySnapshot) -> None:
        assert given is snapshot
        number = len(delivered)
        delivered.append(trio.current_time() - start)
        await trio.sleep(busy[number] if number < len(busy) else 0)

    with trio.move_on_after(seconds):
        await run_ticker(window, take, deliver)
    return taken, delivered


async def test_the_first_tick_is_one_full_window_after_the_start(autojump_clock: trio.testing.MockClock) -> None:
    taken, delivered = await ticks_within(3.5, 1.0)
    assert taken == delivered == pytest.approx([1, 2, 3])


async def test_nothing_is_delivered_before_the_first_window_is_over(autojump_clock: trio.testing.MockClock) -> None:
    assert await ticks_within(0.9, 1.0) == ([], [])


async def test_missed_ticks_are_skipped_and_the_beat_is_kept(autojump_clock: trio.testing.MockClock) -> None:
    taken, _ = await ticks_within(7.5, 1.0, busy=(2.5, 0.5))
    assert taken == pytest.approx([1, 4, 5, 6, 7])


async def test_an_empty_snapshot_is_taken_but_not_delivered(autojump_clock: trio.testing.MockClock) -> None:
    taken, delivered = await ticks_within(3.5, 1.0, snapshot=EMPTY)
    assert taken == pytest.approx([1, 2, 3])
    assert delivered == []


async def test_window_zero_returns_at_once_and_takes_nothing(autojump_clock: trio.testing.MockClock) -> None:
    before = trio.current_time()
    with trio.testing.assert_checkpoints():
        assert await ticks_within(math.inf, 0) == ([], [])
    assert trio.current_time() == before


async def test_a_window_below_a_millisecond_is_raised_to_one(autojump_clock: trio.testing.MockClock) -> None:
    taken, _ = await ticks_within(0.0035, 1e-9)
    assert taken == pytest.approx([0.001, 0.002, 0.003])


async def test_it_runs_until_cancelled_also_during_a_delivery(autojump_clock: trio.testing.MockClock) -> None:
    taken, delivered = await ticks_within(5, 1.0, busy=(math.inf,))
    assert taken == delivered == pytest.approx([1])


async def test_what_delivery_raises_comes_out(autojump_clock: trio.testing.MockClock) -> None:
    async def deliver(snapshot: TelemetrySnapshot) -> None:
        raise LookupError

    with pytest.raises(LookupError):
        await run_ticker(1.0, lambda: FULL, deliver)
