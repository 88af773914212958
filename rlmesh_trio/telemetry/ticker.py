"""The ticker: a snapshot of each window, delivered while the session runs."""

import math
from collections.abc import Awaitable, Callable

import trio

from rlmesh_trio.report import TelemetrySnapshot

__all__ = ("SHORTEST_WINDOW", "run_ticker")

SHORTEST_WINDOW = 0.001


async def run_ticker(
    window: float, take: Callable[[], TelemetrySnapshot], deliver: Callable[[TelemetrySnapshot], Awaitable[None]]
) -> None:
    """Each *window* (seconds) *take* a snapshot and *deliver* it unless it has no rows, until cancelled.

    The first is due after one full window. Ticks fall on multiples of the window since the start; one that passes
    during a delivery is skipped. 0 means no live telemetry: it returns at once. A window below ``SHORTEST_WINDOW``
    is raised to it. *deliver* must not raise for a listener's sake: what it raises comes out of here.
    """
    if window <= 0:
        await trio.lowlevel.checkpoint()
        return
    period = max(window, SHORTEST_WINDOW)
    start = trio.current_time()
    tick = 1
    while True:
        await trio.sleep_until(start + tick * period)
        snapshot = take()
        if snapshot.rows:
            await deliver(snapshot)
        tick = max(tick + 1, math.ceil((trio.current_time() - start) / period))
