"""What each operation leaves in telemetry."""

from rlmesh_trio.messages import EnvReply, Phases, PredictReply, PredictRequest
from rlmesh_trio.telemetry.aggregate import Component, Telemetry

__all__ = ("EnvMeter", "PredictMeter")


class _PhaseMeter:
    """The shared part: how an endpoint says it spent its time."""

    __slots__ = (
        "_adapter",
        "_decode",
        "_encode",
        "_held_bytes",
        "_held_episodes",
        "_in_flight",
        "_queue",
        "_request_bytes",
        "_response_bytes",
        "_skew",
        "_total",
        "_user",
        "rpc",
    )

    def __init__(self, telemetry: Telemetry, op: str, component: Component) -> None:
        self.rpc = telemetry.series(op, component, "rpc.total")
        self._total = telemetry.series(op, component, "endpoint.total")
        self._decode = telemetry.series(op, component, "endpoint.decode")
        self._user = telemetry.series(op, component, "endpoint.user")
        self._encode = telemetry.series(op, component, "endpoint.encode")
        self._queue = telemetry.series(op, component, "endpoint.queue")
        self._adapter = telemetry.series(op, component, "predict.adapter")
        self._in_flight = telemetry.series(op, component, "predict.in_flight")
        self._skew = telemetry.series(op, component, "lane.skew")
        self._held_episodes = telemetry.series(op, component, "held.episodes")
        self._held_bytes = telemetry.series(op, component, "held.bytes")
        self._request_bytes = telemetry.series(op, component, "request.bytes")
        self._response_bytes = telemetry.series(op, component, "response.bytes")

    def endpoint(self, total_ns: int | None, phases: Phases | None, request_bytes: int, response_bytes: int) -> None:
        """Take what the endpoint stamped, where :class:`~rlmesh_trio.messages.Phases` says it is a sample.

        A size of 0 says that nothing was encoded.
        """
        if request_bytes:
            self._request_bytes(request_bytes)
        if response_bytes:
            self._response_bytes(response_bytes)
        if total_ns is not None:
            self._total(total_ns)
        if phases is None:
            return
        if phases.decode_ns:
            self._decode(phases.decode_ns)
        if phases.user_ns:
            self._user(phases.user_ns)
        if phases.encode_ns:
            self._encode(phases.encode_ns)
        if phases.queue_ns:
            self._queue(phases.queue_ns)
        if phases.adapter_ns:
            self._adapter(phases.adapter_ns)
        if phases.in_flight:
            self._in_flight(phases.in_flight)
        if phases.lane_skew_ns is not None:
            self._skew(phases.lane_skew_ns)
        if phases.held_episodes is not None:
            self._held_episodes(phases.held_episodes)
        if phases.held_state_bytes is not None:
            self._held_bytes(phases.held_state_bytes)


class EnvMeter(_PhaseMeter):
    """Meters ``env.reset`` or ``env.step``."""

    __slots__ = ("_timings",)

    def __init__(self, telemetry: Telemetry, op: str, component: Component) -> None:
        super().__init__(telemetry, op, component)
        self._timings = telemetry.timings(op, component)

    def record(self, reply: EnvReply, elapsed_ns: int) -> None:
        """One successful operation. What a reply says it timed is as yet undecoded, or decoded, never both."""
        self.rpc(elapsed_ns)
        if reply.timings:
            self._timings(reply.timings)
            self._request_bytes(reply.request_bytes)
            self._response_bytes(reply.response_bytes)
        elif reply.response_bytes or reply.phases is not None or reply.endpoint_total_ns is not None:
            self.endpoint(reply.endpoint_total_ns, reply.phases, reply.request_bytes, reply.response_bytes)


class PredictMeter(_PhaseMeter):
    """Meters ``model.predict``: one sample a call, sizes those of its first request and reply."""

    __slots__ = ("_group_size", "_history_rows")

    def __init__(self, telemetry: Telemetry) -> None:
        super().__init__(telemetry, "model.predict", "model")
        self._group_size = telemetry.series("model.predict", "model", "group.size")
        self._history_rows = telemetry.series("model.predict", "model", "history.rows")

    def attached(self, request: PredictRequest) -> None:
        """A request with history was made; its rows count from here."""
        self._history_rows(len(request.history))

    def record(self, first: PredictReply | None, requests: int, elapsed_ns: int) -> None:
        """One finished call of *requests* requests; *first* is the first reply, if it succeeded."""
        self.rpc(elapsed_ns)
        if requests > 1:
            self._group_size(requests)
        if first is None:
            return
        if requests == 1 and first.group_size is not None:
            self._group_size(first.group_size)
        if first.response_bytes or first.phases is not None or first.endpoint_total_ns is not None:
            self.endpoint(first.endpoint_total_ns, first.phases, first.request_bytes, first.response_bytes)
