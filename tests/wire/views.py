"""One comparable form for what google reads and what our decoders return: the facts of a reply, nothing else."""

from collections.abc import Mapping, Sequence
from typing import Any

from rlmesh_trio.errors import EndpointError
from rlmesh_trio.messages import EnvReply, EpisodeRecord, Leaves, Metadata, MetaValue, Phases, PredictReply
from rlmesh_trio.wire import strict
from rlmesh_trio.wire.hot_env import decode_env_join
from rlmesh_trio.wire.hot_model import decode_model_join
from tests.wire.oracle import generated, plain_float, plain_generated, plain_google

__all__ = (
    "ENV_REPLY",
    "MODEL_REPLY",
    "google_env_reply",
    "google_metadata",
    "google_model_reply",
    "metadata_of_google",
    "our_env_reply",
    "our_metadata",
    "our_model_reply",
)

ENV_REPLY = "rlmesh.env.v1.JoinResponse"
MODEL_REPLY = "rlmesh.model.v1.JoinResponse"

_RAW_MESSAGES = {
    "render": "rlmesh.env.v1.RenderResponse",
    "close": "rlmesh.env.v1.CloseEnvsResponse",
    "configure": "rlmesh.env.v1.ConfigureEnvResponse",
}
_RAW_MODEL_MESSAGES = {
    "resolve_adapter": "rlmesh.model.v1.ResolveAdapterResponse",
    "release_adapter": "rlmesh.model.v1.ReleaseAdapterResponse",
    "reset_adapter": "rlmesh.model.v1.ResetAdapterResponse",
    "close": "rlmesh.model.v1.CloseParticipantResponse",
}
_KINDS: dict[type[object], str] = {bool: "bool", int: "integer", str: "text", bytes: "bytes", type(None): "none"}
_COUNTS = ("lane_skew_ns", "held_episodes", "held_state_bytes")
_TIMES = ("decode_ns", "user_ns", "encode_ns", "queue_ns", "adapter_ns", "in_flight", *_COUNTS)


def our_metadata(metadata: Metadata | None) -> Any:
    return None if metadata is None else _our_value(metadata)


def _our_value(value: MetaValue) -> tuple[str, Any]:
    """A value with its kind, so that 1, 1.0 and true differ."""
    if isinstance(value, Mapping):
        return "map", {key: _our_value(item) for key, item in value.items()}
    if isinstance(value, float):
        return "number", plain_float(value)
    if isinstance(value, Sequence) and not isinstance(value, str | bytes):
        return "list", [_our_value(item) for item in value]
    return _KINDS[type(value)], value


def google_metadata(message: Any) -> Any:
    return "map", {key: _google_value(message.entries[key]) for key in message.entries}


def _google_value(message: Any) -> tuple[str, Any]:
    kind = message.WhichOneof("kind")
    if kind is None:
        return "none", None
    value = getattr(message, kind)
    if kind == "map":
        return google_metadata(value)
    if kind == "list":
        return "list", [_google_value(item) for item in value.items]
    return kind, plain_float(value) if kind == "number" else value


def metadata_of_google(message: Any) -> dict[str, Any]:
    """The plain Python mapping of a google metadata map."""
    return {key: _python_value(message.entries[key]) for key in message.entries}


def _python_value(message: Any) -> Any:
    kind = message.WhichOneof("kind")
    if kind is None:
        return None
    value = getattr(message, kind)
    if kind == "map":
        return metadata_of_google(value)
    return [_python_value(item) for item in value.items] if kind == "list" else value


def _our_leaves(leaves: Leaves | None) -> Any:
    return None if leaves is None else [bytes(leaf) for leaf in leaves]


def _google_leaves(message: Any, name: str) -> Any:
    return list(getattr(message, name).leaves) if message.HasField(name) else None


def _our_episode(episode: EpisodeRecord) -> dict[str, Any]:
    return {
        **{name: getattr(episode, name) for name in EpisodeRecord.__match_args__},
        "cumulative_reward": plain_float(episode.cumulative_reward),
        "final_info": our_metadata(episode.final_info),
    }


def _google_episode(message: Any) -> dict[str, Any]:
    return {
        **{name: getattr(message, name) for name in EpisodeRecord.__match_args__},
        "seed": message.seed if message.HasField("seed") else None,
        "cumulative_reward": plain_float(message.cumulative_reward),
        "final_info": google_metadata(message.final_info) if message.HasField("final_info") else None,
    }


def _our_phases(phases: Phases | None) -> Any:
    return None if phases is None else {name: getattr(phases, name) for name in _TIMES}


def _google_phases(message: Any) -> Any:
    known = {field.name for field in message.DESCRIPTOR.fields} & set(_TIMES)
    if not any(message.HasField(name) for name in known):
        return None
    absent = {name: None if name in _COUNTS else 0 for name in _TIMES}
    return absent | {name: getattr(message, name) for name in known if message.HasField(name)}


def _google_total(message: Any) -> int | None:
    return message.endpoint_total_ns if message.HasField("endpoint_total_ns") else None


def _our_error(error: EndpointError) -> Any:
    return "error", error.code, error.message, error.recoverable


def _google_error(message: Any) -> Any:
    field = message.DESCRIPTOR.fields_by_name["code"]
    value = field.enum_type.values_by_number.get(message.code)
    code = f"CODE_{message.code}" if value is None else value.name.partition("_ERROR_CODE_")[2]
    return "error", code, message.message, message.is_recoverable


def our_env_reply(data: bytes) -> Any:
    """What the hot codec reads, everything in it looked at."""
    request_id, arm, payload = decode_env_join(data)
    if isinstance(payload, EndpointError):
        return request_id, arm, _our_error(payload)
    if isinstance(payload, EnvReply):
        assert payload.response_bytes == len(data)
        return request_id, arm, _our_env_payload(payload)
    if arm == "none":
        return request_id, arm, payload
    return request_id, arm, plain_generated(strict.decode(generated(_RAW_MESSAGES[arm]), payload, what=arm))


def _our_env_payload(reply: EnvReply) -> Any:
    return {
        "observation": _our_leaves(reply.observation),
        "infos": our_metadata(reply.infos),
        "rewards": [plain_float(reward) for reward in reply.rewards],
        "masks": (reply.terminated_mask, reply.truncated_mask),
        "completed": [_our_episode(episode) for episode in reply.completed],
        "env_indices": list(reply.env_indices),
        "total": reply.endpoint_total_ns,
        "phases": _our_phases(reply.phases),
    }


def google_env_reply(message: Any) -> Any:
    arm = message.WhichOneof("kind") or "none"
    if arm == "none":
        return message.request_id, arm, b""
    payload = getattr(message, arm)
    if arm == "error":
        return message.request_id, arm, _google_error(payload)
    if arm in _RAW_MESSAGES:
        return message.request_id, arm, plain_google(payload)
    step = arm == "step"
    return (
        message.request_id,
        arm,
        {
            "observation": _google_leaves(payload, "observation"),
            "infos": google_metadata(payload.infos) if payload.HasField("infos") else None,
            "rewards": [plain_float(reward) for reward in payload.rewards] if step else [],
            "masks": (payload.terminated_mask, payload.truncated_mask) if step else (b"", b""),
            "completed": [_google_episode(episode) for episode in payload.completed_episodes] if step else [],
            "env_indices": list(payload.env_indices) if step else [],
            "total": _google_total(message),
            "phases": _google_phases(message),
        },
    )


def our_model_reply(data: bytes) -> Any:
    """What the hot codec reads, everything in it looked at."""
    request_id, arm, payload = decode_model_join(data)
    if isinstance(payload, EndpointError):
        return request_id, arm, _our_error(payload)
    if isinstance(payload, PredictReply):
        assert payload.response_bytes == len(data)
        return request_id, arm, [_our_predict(payload)]
    if isinstance(payload, list):
        return request_id, arm, [_our_predict(item) for item in payload]
    if arm == "none":
        return request_id, arm, payload
    return request_id, arm, plain_generated(strict.decode(generated(_RAW_MODEL_MESSAGES[arm]), payload, what=arm))


def _our_predict(reply: PredictReply | EndpointError) -> Any:
    if isinstance(reply, EndpointError):
        return _our_error(reply)
    return {
        "context": (reply.session_id, reply.env_id, reply.request_id),
        "actions": [_our_leaves(frame) for frame in reply.actions],
        "total": reply.endpoint_total_ns,
        "phases": _our_phases(reply.phases),
        "group_size": reply.group_size,
    }


def google_model_reply(message: Any) -> Any:
    arm = message.WhichOneof("kind") or "none"
    if arm == "none":
        return message.request_id, arm, b""
    payload = getattr(message, arm)
    if arm == "error":
        return message.request_id, arm, _google_error(payload)
    if arm in _RAW_MODEL_MESSAGES:
        return message.request_id, arm, plain_google(payload)
    timed = {"total": _google_total(message), "phases": _google_phases(message)}
    if arm == "predict":
        return message.request_id, arm, [_google_predict(payload) | timed]
    results = [_google_result(result) for result in payload.results]
    for result in results:
        if isinstance(result, dict):
            result.update(timed)
            break
    return message.request_id, arm, results


def _google_result(message: Any) -> dict[str, Any] | tuple[Any, ...]:
    outcome = message.WhichOneof("outcome")
    if outcome is None:
        return "error", "UNSPECIFIED", "the model answered this group with nothing", False
    return _google_predict(message.response) if outcome == "response" else _google_error(message.error)


def _google_predict(message: Any) -> dict[str, Any]:
    context = message.context
    return {
        "context": (context.session_id, context.env_id, context.request_id),
        "actions": [list(frame.leaves) for frame in message.actions],
        "total": None,
        "phases": None,
        "group_size": None,
    }
