"""Samples by operation, component and metric, kept over two horizons: since the last window, and since the start.

Taking a sample must cost next to nothing, so it is one append to a plain list: a number, or all that a served env
timed of one operation, as it travelled. The lists are moved into the reservoirs a batch at a time, by
:meth:`Telemetry.drain`.
"""

from collections.abc import Callable
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from rlmesh_trio.report import TelemetryRow, TelemetrySnapshot
from rlmesh_trio.telemetry.reservoir import Reservoir
from rlmesh_trio.wire.timings import ENV_TIMINGS, read_timings

__all__ = ("METRIC_KINDS", "Component", "Metric", "Telemetry")

Component = Literal["model", "env", "runner"]
Metric = Literal[
    "rpc.total",
    "endpoint.total",
    "endpoint.decode",
    "endpoint.user",
    "endpoint.encode",
    "endpoint.queue",
    "predict.adapter",
    "lane.skew",
    "predict.in_flight",
    "held.episodes",
    "held.bytes",
    "request.bytes",
    "response.bytes",
    "group.size",
    "history.rows",
]

METRIC_KINDS: dict[Metric, Literal["duration_ms", "bytes", "count"]] = {
    "rpc.total": "duration_ms",
    "endpoint.total": "duration_ms",
    "endpoint.decode": "duration_ms",
    "endpoint.user": "duration_ms",
    "endpoint.encode": "duration_ms",
    "endpoint.queue": "duration_ms",
    "predict.adapter": "duration_ms",
    "lane.skew": "duration_ms",
    "predict.in_flight": "count",
    "held.episodes": "count",
    "held.bytes": "bytes",
    "request.bytes": "bytes",
    "response.bytes": "bytes",
    "group.size": "count",
    "history.rows": "count",
}

_NS_PER_MS = 1_000_000
# Of what can be timed on the wire, that whose 0 is no sample, as it is in :class:`~rlmesh_trio.messages.Phases`.
_UNMEASURED_AT_ZERO: frozenset[Metric] = frozenset(
    ("endpoint.decode", "endpoint.user", "endpoint.encode", "endpoint.queue")
)


class _Series:
    """The samples not yet drained, and the two reservoirs they go to."""

    __slots__ = ("samples", "scale", "session", "window")

    def __init__(self, scale: int) -> None:
        self.samples: list[float] = []
        self.scale = scale
        self.window = Reservoir()
        self.session = Reservoir()

    def drain(self) -> None:
        if self.samples:
            values = np.array(self.samples, dtype=np.float64)
            self.samples.clear()
            self.extend(values)

    def extend(self, values: NDArray[np.float64]) -> None:
        scaled = values / self.scale
        self.window.extend(scaled)
        self.session.extend(scaled)


class Telemetry:
    """The telemetry of one session."""

    def __init__(self) -> None:
        self._series: dict[tuple[str, Component, Metric], _Series] = {}
        self._timings: dict[tuple[str, Component], list[bytes]] = {}

    def series(self, op: str, component: Component, metric: Metric) -> Callable[[float], None]:
        """The function that takes one sample of a series: nanoseconds for a duration, else bytes or a count.

        Asking again gives a function that feeds the same series. A series without samples is not reported.
        """
        return self._find(op, component, metric).samples.append

    def timings(self, op: str, component: Component) -> Callable[[bytes], None]:
        """The function that takes the timings of one reply of a served env: the bytes of its timing fields.

        They count in the series of that operation, where :data:`~rlmesh_trio.wire.timings.ENV_TIMINGS` says, as if
        they came after all samples not drained yet. Asking again gives a function that feeds the same series.
        """
        return self._timings.setdefault((op, component), []).append

    def drain(self) -> None:
        """Move the samples taken so far into the reservoirs, which bounds the memory they need."""
        for series in self._series.values():
            series.drain()
        for (op, component), parts in self._timings.items():
            if parts:
                self._read(op, component, parts)

    def window_snapshot_and_flush(self) -> TelemetrySnapshot:
        """Report the samples since the last such call, and begin the next window."""
        snapshot = self._snapshot("window")
        for series in self._series.values():
            series.window.flush()
        return snapshot

    def session_snapshot(self) -> TelemetrySnapshot:
        """Report all samples since the start."""
        return self._snapshot("session")

    def _find(self, op: str, component: Component, metric: Metric) -> _Series:
        key = (op, component, metric)
        found = self._series.get(key)
        if found is None:
            scale = _NS_PER_MS if METRIC_KINDS[metric] == "duration_ms" else 1
            found = self._series[key] = _Series(scale)
        return found

    def _read(self, op: str, component: Component, parts: list[bytes]) -> None:
        tags, values = read_timings(parts)
        parts.clear()
        for tag, metric in ENV_TIMINGS.items():
            measured = tags == tag
            if metric in _UNMEASURED_AT_ZERO:
                measured &= values > 0
            self._find(op, component, metric).extend(values[measured].astype(np.float64))

    def _snapshot(self, horizon: Literal["window", "session"]) -> TelemetrySnapshot:
        self.drain()
        rows: list[TelemetryRow] = []
        for (op, component, metric), series in sorted(self._series.items(), key=lambda item: item[0]):
            reservoir = series.window if horizon == "window" else series.session
            summary = reservoir.summary()
            if summary is not None:
                rows.append(TelemetryRow(op, component, metric, METRIC_KINDS[metric], *summary))
        return TelemetrySnapshot(horizon, tuple(rows))
