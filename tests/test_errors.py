import copy
import pickle
from typing import Any

import pytest

from rlmesh_trio import errors
from rlmesh_trio.errors import (
    ConnectError,
    EndpointError,
    EngineInternalError,
    EnvRpcError,
    HandshakeError,
    HookError,
    InvalidSpec,
    ModelRouteMismatch,
    ModelRpcError,
    OperationTimeout,
    ProtocolError,
    RouteCancelled,
    SessionError,
    SpaceError,
    format_duration,
)
from rlmesh_trio.report import Report

EXAMPLES: list[tuple[SessionError, str, dict[str, Any]]] = [
    (SessionError("it failed"), "it failed", {"recoverable": False, "report": None, "operation": None}),
    (InvalidSpec("num_envs"), "invalid runtime session spec: num_envs", {"why": "num_envs", "recoverable": False}),
    (
        OperationTimeout("env-1", "local-env", "env.step", 12, 300),
        "env.step timed out on route env-1 component local-env at runtime step 12 after 300s",
        {
            "route_id": "env-1",
            "component_id": "local-env",
            "operation": "env.step",
            "step": 12,
            "timeout": 300,
            "recoverable": False,
        },
    ),
    (
        RouteCancelled("env-1", 3, "cancelled by caller"),
        "route env-1 cancelled at runtime step 3: cancelled by caller",
        {"route_id": "env-1", "step": 3, "reason": "cancelled by caller", "recoverable": False},
    ),
    (
        EndpointError("INTERNAL", "step failed: boom", True),
        "step failed: boom",
        {"code": "INTERNAL", "message": "step failed: boom", "recoverable": True},
    ),
    (
        EnvRpcError("env.step", 5, "boom", True, "INTERNAL"),
        "environment env.step failed at runtime step 5: boom. If the source is 'transport error: connection closed', "
        "the environment server exited, crashed, or received SIGTERM before replying; inspect the server's own log",
        {"operation": "env.step", "step": 5, "message": "boom", "recoverable": True, "code": "INTERNAL"},
    ),
    (
        ModelRpcError("local-model", "boom", True, "UNSUPPORTED"),
        "model endpoint local-model request failed: boom",
        {
            "component_id": "local-model",
            "operation": "model.predict",
            "message": "boom",
            "recoverable": True,
            "code": "UNSUPPORTED",
        },
    ),
    (
        ModelRouteMismatch("local-model", "env-1:step_observation:000002"),
        "model endpoint local-model returned mismatched route identity for request env-1:step_observation:000002",
        {"component_id": "local-model", "request_id": "env-1:step_observation:000002", "recoverable": False},
    ),
    (ProtocolError("stalled"), "protocol error: stalled", {"why": "stalled", "recoverable": False}),
    (HookError("boom"), "runtime hook failed: boom", {"why": "boom", "recoverable": False}),
    (ConnectError("nobody listens on localhost:1"), "nobody listens on localhost:1", {}),
    (HandshakeError("another generation"), "another generation", {}),
    (SpaceError("$.x", "no wire form"), "$.x: no wire form", {"path": "$.x", "why": "no wire form"}),
    (EngineInternalError("a bug"), "a bug", {}),
]

each_error = pytest.mark.parametrize(
    ("error", "text", "fields"), EXAMPLES, ids=[type(error).__name__ for error, _, _ in EXAMPLES]
)


def test_every_error_has_an_example_here() -> None:
    public = (getattr(errors, name) for name in errors.__all__)
    classes = {thing for thing in public if isinstance(thing, type)}
    assert {type(error) for error, _, _ in EXAMPLES} == classes
    assert all(issubclass(cls, SessionError) for cls in classes)


@each_error
def test_text_and_fields(error: SessionError, text: str, fields: dict[str, Any]) -> None:
    assert str(error) == text
    assert {name: getattr(error, name) for name in fields} == fields


@each_error
@pytest.mark.parametrize("way", ["pickle", "copy", "deepcopy"])
def test_a_round_trip_keeps_everything(error: SessionError, text: str, fields: dict[str, Any], way: str) -> None:
    original = copy.copy(error)
    original.report = Report("s", "e", 1, 0, [], None, [])
    original.add_note("then the env failed too")
    twin: SessionError = {
        "pickle": lambda: pickle.loads(pickle.dumps(original)),
        "copy": lambda: copy.copy(original),
        "deepcopy": lambda: copy.deepcopy(original),
    }[way]()
    assert twin is not original
    assert type(twin) is type(error)
    assert twin.args == error.args
    assert str(twin) == text
    assert {name: getattr(twin, name) for name in fields if name != "report"} == {
        name: value for name, value in fields.items() if name != "report"
    }
    assert twin.report == original.report
    assert twin.__notes__ == ["then the env failed too"]
    assert error.report is None, "a copy must not share state with its original"


@pytest.mark.parametrize(
    "error", [EndpointError("INTERNAL", "boom"), EnvRpcError("env.step", 1, "boom"), ModelRpcError("m", "boom")]
)
def test_a_peer_that_does_not_say_so_is_not_recoverable(error: SessionError) -> None:
    assert not error.recoverable


def test_an_rpc_error_without_code_says_so() -> None:
    assert EnvRpcError("env.step", 1, "boom").code == "UNSPECIFIED"
    assert ModelRpcError("m", "boom").code == "UNSPECIFIED"


def test_the_endpoints_own_error_is_reachable_as_the_cause() -> None:
    source = EndpointError("CONNECTION", "connection closed", recoverable=True)
    with pytest.raises(EnvRpcError) as caught:
        raise EnvRpcError("env.reset", 0, source.message, source.recoverable, source.code) from source
    assert caught.value.__cause__ is source
    assert (caught.value.recoverable, caught.value.code) == (True, "CONNECTION")


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (300, "300s"),
        (300.0, "300s"),
        (1.5, "1.5s"),
        (1, "1s"),
        (0.25, "250ms"),
        (0.005, "5ms"),
        (0.007, "7ms"),
        (0.0015, "1.5ms"),
        (0.0005, "500us"),
        (0, "0ms"),
        (86_400, "86400s"),
        (2_592_000, "2592000s"),
    ],
)
def test_durations_print_compactly(seconds: float, text: str) -> None:
    assert format_duration(seconds) == text
