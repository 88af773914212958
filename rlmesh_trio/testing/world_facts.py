"""What the checks of a simulated world's run go by: who heard what, what was left, and how operations came out."""

from typing import Final, Literal

from rlmesh_trio.errors import EnvRpcError, ModelRpcError, OperationTimeout, RouteCancelled
from rlmesh_trio.events import EpisodeStarted, Event
from rlmesh_trio.recovery import Recovery
from rlmesh_trio.report import Report
from rlmesh_trio.testing.recording import events_of
from rlmesh_trio.testing.world_mishaps import Call
from rlmesh_trio.testing.world_plan import NOTICES, Trouble
from rlmesh_trio.testing.world_run import Outcome

__all__ = (
    "EPSILON",
    "Failure",
    "episode_ids",
    "failure_of",
    "heard",
    "is_calm",
    "is_harmless",
    "left_report",
    "policy_after",
    "policy_of",
    "signature",
)

EPSILON: Final = 1e-6
_HARMLESS: Final = {"slow", "stale_completion"}
_HARMLESS_PARTS: Final = {"evict", "release", "close", *NOTICES}

Failure = Literal["error", "timeout", "lost"]


def heard(outcome: Outcome) -> list[Event]:
    """Every event of the session, if anybody listened to its end; else none."""
    if outcome.events is not None:
        return outcome.events
    if outcome.read is not None and outcome.world.session.reader_stays is None:
        return outcome.read
    return []


def episode_ids(outcome: Outcome) -> dict[int, str]:
    """The ids of the announced episodes by their index, each the last it was started under."""
    return {event.episode_index: event.episode_id for event in events_of(EpisodeStarted, heard(outcome))}


def left_report(outcome: Outcome) -> Report | None:
    """The report, or that of the error."""
    return outcome.report or getattr(outcome.error, "report", None)


def is_harmless(trouble: Trouble) -> bool:
    """Whether no episode and no outcome depends on *trouble*."""
    return trouble.kind in _HARMLESS or trouble.part in _HARMLESS_PARTS


def is_calm(outcome: Outcome) -> bool:
    """Whether nothing happened that may change the episodes: no loss, no cancellation, harmless troubles only."""
    return (
        outcome.cancelled_at is None
        and not any(line.losses for line in outcome.lines)
        and all(is_harmless(struck.trouble) for struck in outcome.struck)
    )


def failure_of(outcome: Outcome, call: Call) -> Failure | None:
    """How an operation of the env failed, if it did so by itself.

    ``lost`` is a lost connection that can be made anew. What is cut short because others failed has no failure.
    """
    plan = outcome.world.session
    limit = {"reset": plan.reset_limit, "step": plan.step_limit}.get(call.part)
    if limit is None:
        return None
    if call.result == "failed":
        return "lost" if call.code == "CONNECTION" and outcome.world.network.reconnects is not None else "error"
    is_late = call.result == "cancelled" and call.ended - call.started >= limit - EPSILON
    return "timeout" if is_late else None


def policy_after(outcome: Outcome, failure: Failure) -> Recovery:
    """The policy that says what follows *failure*."""
    plan = outcome.world.session
    return plan.on_timeout if failure == "timeout" else plan.on_env_error


def policy_of(outcome: Outcome) -> Recovery | None:
    """The policy that the session's own error was subject to; ``None`` for an error that no policy governs."""
    match outcome.error:
        case EnvRpcError():
            return outcome.world.session.on_env_error
        case OperationTimeout(operation="env.reset" | "env.step"):
            return outcome.world.session.on_timeout
        case _:
            return None


def signature(error: Exception | None) -> str:
    """An error's kind, with what tells it from others of its class; ``success`` for none."""
    match error:
        case None:
            return "success"
        case EnvRpcError():
            return f"EnvRpcError {error.operation} {error.code}"
        case ModelRpcError():
            return f"ModelRpcError {error.code}"
        case OperationTimeout():
            return f"OperationTimeout {error.operation} {error.timeout:g}"
        case RouteCancelled():
            return f"RouteCancelled {error.reason}"
        case _:
            return type(error).__name__
