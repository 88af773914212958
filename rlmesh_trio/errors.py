"""Every error a caller can see: one root, and below it one class per situation."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rlmesh_trio.report import EpisodeInFlight, Report

__all__ = (
    "ConnectError",
    "EndpointError",
    "EngineInternalError",
    "EnvRpcError",
    "HandshakeError",
    "HookError",
    "InvalidSpec",
    "ModelRouteMismatch",
    "ModelRpcError",
    "OperationTimeout",
    "ProtocolError",
    "RouteCancelled",
    "SessionError",
    "SpaceError",
    "format_duration",
)


class SessionError(Exception):
    """The root. ``recoverable`` is the peer's own word; ``report`` holds what was finished before a route failed.

    ``in_flight`` are the episodes a failed env operation was about.
    """

    recoverable: bool = False
    report: Report | None = None
    in_flight: tuple[EpisodeInFlight, ...] = ()
    operation: str | None = None


class InvalidSpec(SessionError):
    """The session spec breaks a rule; nothing was started."""

    def __init__(self, why: str) -> None:
        super().__init__(why)
        self.why = why

    def __str__(self) -> str:
        return f"invalid runtime session spec: {self.why}"


class OperationTimeout(SessionError):
    """One operation of the route outlived its limit (``timeout``, seconds)."""

    def __init__(self, route_id: str, component_id: str, operation: str, step: int, timeout: float) -> None:
        super().__init__(route_id, component_id, operation, step, timeout)
        self.route_id = route_id
        self.component_id = component_id
        self.operation = operation
        self.step = step
        self.timeout = timeout

    def __str__(self) -> str:
        return (
            f"{self.operation} timed out on route {self.route_id} component {self.component_id} "
            f"at runtime step {self.step} after {format_duration(self.timeout)}"
        )


class RouteCancelled(SessionError):
    """The session was cancelled with a reason: an ordinary failure outcome, not a propagated cancellation."""

    def __init__(self, route_id: str, step: int, reason: str) -> None:
        super().__init__(route_id, step, reason)
        self.route_id = route_id
        self.step = step
        self.reason = reason

    def __str__(self) -> str:
        return f"route {self.route_id} cancelled at runtime step {self.step}: {self.reason}"


class EndpointError(SessionError):
    """What an endpoint raises. ``code`` is the wire's code name, or ``CONNECTION`` when the peer was lost."""

    def __init__(self, code: str, message: str, recoverable: bool = False) -> None:
        super().__init__(code, message, recoverable)
        self.code = code
        self.message = message
        self.recoverable = recoverable

    def __str__(self) -> str:
        return self.message


class EnvRpcError(SessionError):
    """An env operation failed; the endpoint's own error is the cause."""

    def __init__(
        self, operation: str, step: int, message: str, recoverable: bool = False, code: str = "UNSPECIFIED"
    ) -> None:
        super().__init__(operation, step, message, recoverable, code)
        self.operation = operation
        self.step = step
        self.message = message
        self.recoverable = recoverable
        self.code = code

    def __str__(self) -> str:
        return (
            f"environment {self.operation} failed at runtime step {self.step}: {self.message}. "
            "If the source is 'transport error: connection closed', the environment server exited, crashed, or "
            "received SIGTERM before replying; inspect the server's own log"
        )


class ModelRpcError(SessionError):
    """A model request failed; the endpoint's own error is the cause."""

    operation = "model.predict"

    def __init__(self, component_id: str, message: str, recoverable: bool = False, code: str = "UNSPECIFIED") -> None:
        super().__init__(component_id, message, recoverable, code)
        self.component_id = component_id
        self.message = message
        self.recoverable = recoverable
        self.code = code

    def __str__(self) -> str:
        return f"model endpoint {self.component_id} request failed: {self.message}"


class ModelRouteMismatch(SessionError):
    """The model answered under another route's identity."""

    def __init__(self, component_id: str, request_id: str) -> None:
        super().__init__(component_id, request_id)
        self.component_id = component_id
        self.request_id = request_id

    def __str__(self) -> str:
        return f"model endpoint {self.component_id} returned mismatched route identity for request {self.request_id}"


class ProtocolError(SessionError):
    """A peer broke the protocol, or sent bytes that are not the message they claim to be."""

    def __init__(self, why: str) -> None:
        super().__init__(why)
        self.why = why

    def __str__(self) -> str:
        return f"protocol error: {self.why}"


class HookError(SessionError):
    """A transform hook or a scheduler raised; its own error is the cause."""

    def __init__(self, why: str) -> None:
        super().__init__(why)
        self.why = why

    def __str__(self) -> str:
        return f"runtime hook failed: {self.why}"


class ConnectError(SessionError):
    """No connection: unreachable, refused, or not up before the deadline."""


class HandshakeError(SessionError):
    """The peer is not one we can drive: not rlmesh, another generation or edition, token, contract, second client."""


class SpaceError(SessionError):
    """A space has no wire form, or a value does not fit its space; ``path`` names the leaf."""

    def __init__(self, path: str, why: str) -> None:
        super().__init__(path, why)
        self.path = path
        self.why = why

    def __str__(self) -> str:
        return f"{self.path}: {self.why}"


class EngineInternalError(SessionError):
    """A bug of the engine itself; the crash is the cause."""


def format_duration(seconds: float) -> str:
    """Print a duration compactly: ``5ms``, ``1.5s``, ``300s``."""
    if seconds >= 1:
        return f"{seconds:.12g}s"
    if seconds >= 0.001 or seconds == 0:
        return f"{seconds * 1000:.12g}ms"
    return f"{seconds * 1_000_000:.12g}us"
