"""What must hold of every run of a simulated world, whatever went wrong in it: each check yields what is broken.

The promises about the report are in :mod:`rlmesh_trio.testing.world_books`, those about events and about what the model
saw in :mod:`rlmesh_trio.testing.world_events`, and those about recovering in :mod:`rlmesh_trio.testing.world_recovery`.
"""

from collections.abc import Iterable, Iterator
from typing import Final

from rlmesh_trio.errors import (
    EnvRpcError,
    HookError,
    ModelRouteMismatch,
    ModelRpcError,
    OperationTimeout,
    ProtocolError,
    RouteCancelled,
)
from rlmesh_trio.testing.world_books import report_violations
from rlmesh_trio.testing.world_events import event_violations, model_violations
from rlmesh_trio.testing.world_facts import (
    EPSILON,
    failure_of,
    is_harmless,
    policy_after,
    policy_of,
    signature,
)
from rlmesh_trio.testing.world_mishaps import Call
from rlmesh_trio.testing.world_plan import NOTICES, SLOW, TRANSFORMS, SessionPlan, Trouble
from rlmesh_trio.testing.world_recovery import recovery_violations
from rlmesh_trio.testing.world_run import Outcome

__all__ = ("violations",)

_OPERATIONS: Final = ("reset", "step", "predict_group", "reconnect")


def violations(outcome: Outcome) -> list[str]:
    """Every promise that *outcome* breaks, in words; none is as it must be."""
    if outcome.hang is not None:
        return [f"it does not end: {outcome.hang}"]
    peers = [*outcome.env.breaches, *outcome.model.breaches]
    if outcome.scheduler is not None:
        peers += outcome.scheduler.breaches
    checks = (_leaks, _limits, _ending, _outcome)
    checks = (*checks, report_violations, event_violations, model_violations, recovery_violations)
    return [*peers, *(text for check in checks for text in check(outcome))]


def _leaks(outcome: Outcome) -> Iterator[str]:
    if outcome.after.exceeds(outcome.before):
        yield f"something is left over: {outcome.before} became {outcome.after}"


def _limits(outcome: Outcome) -> Iterator[str]:
    """Each call of a peer is answered, or given up, within its limit."""
    plan = outcome.world.session
    limits = {
        "reset": plan.reset_limit,
        "step": plan.step_limit,
        "predict_group": plan.predict_limit + plan.close_limit,
        "evict": plan.predict_limit,
        "release": plan.close_limit,
        "close": plan.close_limit,
        "reconnect": plan.connect_limit,
    }
    for call in (*outcome.env.calls, *outcome.model.calls):
        if call.result == "under way":
            yield f"{call} was never given up"
        elif call.ended - call.started > limits[call.part] + EPSILON:
            yield f"{call} took longer than {limits[call.part]:g} s"


def _ending(outcome: Outcome) -> Iterator[str]:
    """The session stops at once when it fails, ends within its close limits, and lets go what it holds."""
    plan = outcome.world.session
    env, model = outcome.env.calls, outcome.model.calls
    if [call.part for call in model].count("release") != 1:
        yield "the model is not released once"
    closes = [call.part for call in env].count("close")
    if closes != plan.close_env:
        yield f"close_env is {plan.close_env}, and the env was closed {closes} times"
    late = [line for line in outcome.log if line.startswith("a listener did not return")]
    if late and not any(struck.trouble.part in NOTICES for struck in outcome.struck):
        yield "the ending waited for a reader"
    if outcome.error is None:
        return
    operations = [call for call in (*env, *model) if call.part in _OPERATIONS]
    broke_at = _broke_at(outcome)
    if broke_at is None:
        moments = [call.ended for call in operations] + [struck.at for struck in outcome.struck]
        broke_at, parts = max([*moments, outcome.cancelled_at or 0.0]) + _hesitation(outcome), 4
    else:
        yield from _goes_on(outcome, broke_at)
        parts = 5
    ended_at = outcome.ended_at or 0.0
    if ended_at > broke_at + parts * plan.close_limit + EPSILON:
        yield f"the ending took from {broke_at:g} to {ended_at:g} s"


def _hesitation(outcome: Outcome) -> float:
    """How long a failure may take to be final: ended episodes are told of first, and a reconnect may rest last."""
    policy, plan = policy_of(outcome), outcome.world.session
    if policy is None or policy.action == "fail":
        return 0.0
    return outcome.world.env.lanes * (plan.hook.longest + plan.reader.longest) + SLOW + plan.connect_limit


def _goes_on(outcome: Outcome, broke_at: float) -> Iterator[str]:
    """What goes on after the session broke: nothing but a predict in flight, for as long as its grace."""
    grace = outcome.world.session.close_limit
    for call in (*outcome.env.calls, *outcome.model.calls):
        if call.part in _OPERATIONS and call.started > broke_at + EPSILON:
            yield f"{call} begins although the session broke at {broke_at:g}"
        allowed = broke_at + (grace if call.part == "predict_group" else 0.0) + EPSILON
        if call.part in (*_OPERATIONS, "evict") and call.started < broke_at and call.ended > allowed:
            yield f"{call} goes on although the session broke at {broke_at:g}"


def _broke_at(outcome: Outcome) -> float | None:
    """When the session failed, where that can be told from its error."""
    plan, env, model = outcome.world.session, outcome.env.calls, outcome.model.calls
    limits = {"env.reset": plan.reset_limit, "env.step": plan.step_limit, "model.predict": plan.predict_limit}
    policy = policy_of(outcome)
    if policy is not None and policy.action != "fail":
        return None
    match outcome.error:
        case RouteCancelled():
            return outcome.cancelled_at
        case EnvRpcError():
            return _first(call.ended for call in env if failure_of(outcome, call) in ("error", "lost"))
        case ModelRpcError() | ModelRouteMismatch():
            return _first(call.ended for call in model if call.part == "predict_group" and _is_bad(call))
        case OperationTimeout() as late:
            calls, limit = env if policy is not None else model, limits[late.operation or ""] - EPSILON
            return _first(call.ended for call in calls if call.ended - call.started >= limit)
        case HookError():
            parts = ("scheduler", *TRANSFORMS)
            return _first(struck.at for struck in outcome.struck if struck.trouble.part in parts)
        case ProtocolError() if not outcome.world.resets_named_lanes:
            return _first(call.ended for call in model if call.part == "predict_group" and _is_bad(call))
        case _:
            return None


def _first(moments: Iterable[float]) -> float | None:
    return min(moments, default=None)


def _outcome(outcome: Outcome) -> Iterator[str]:
    """The error is that of something that went wrong, and nothing that must fail a session leaves it a success."""
    world = outcome.world
    possible: set[str] = set()
    for struck in outcome.struck:
        possible |= _blamed_on(struck.trouble, world.session)
        if world.resets_named_lanes and struck.trouble.kind in ("misshapen_observation", "no_observation"):
            possible.add("ProtocolError")
    env_line, model_line = outcome.lines
    if env_line.losses or any(call.part == "reconnect" for call in outcome.env.calls):
        possible |= {"EnvRpcError env.reset CONNECTION", "EnvRpcError env.step CONNECTION"}
    if model_line.losses:
        possible.add("ModelRpcError CONNECTION")
    if outcome.cancelled_at is not None:
        outside = world.cancellation is not None and world.cancellation.outside
        possible.add("RouteCancelled cancelled by caller" if outside else "RouteCancelled swept")
    found = signature(outcome.error)
    yield from _is_not_the_first(outcome)
    if outcome.error is not None and found not in possible:
        yield f"it failed with {found} ({outcome.error}), which nothing explains; possible: {sorted(possible)}"
    if outcome.error is None:
        if outcome.report is None or outcome.report.total_episodes != world.session.budget:
            yield f"it succeeded with other than {world.session.budget} episodes"
        last_step = max((call.ended for call in outcome.env.calls if call.part == "step"), default=0.0)
        for call in (*outcome.env.calls, *outcome.model.calls):
            needed = call.part in ("reset", "step") or (call.part == "predict_group" and call.ended < last_step)
            if needed and (_is_bad(call) or call.result == "cancelled") and not _is_recovered(outcome, call):
                yield f"it succeeded although {call} was not answered"
        for struck in outcome.struck:
            if _blamed_on(struck.trouble, world.session) == {"HookError"}:
                yield f"it succeeded although {struck} came due"


def _is_recovered(outcome: Outcome, call: Call) -> bool:
    """Whether the session may go on after *call* has failed, or was cut short by a lost connection."""
    if call.part not in ("reset", "step"):
        return False
    failure = failure_of(outcome, call)
    if failure is None and not any(other.part == "reconnect" for other in outcome.env.calls):
        return False
    return policy_after(outcome, failure or "lost").action != "fail"


def _is_not_the_first(outcome: Outcome) -> Iterator[str]:
    """The first failure is the outcome, whatever fails later."""
    broke_at = _broke_at(outcome)
    if broke_at is None:
        return
    failed = _first(
        call.ended
        for call in outcome.env.calls
        if failure_of(outcome, call) is not None and not _is_recovered(outcome, call)
    )
    earlier = [moment for moment in (failed, outcome.cancelled_at) if moment is not None and moment < broke_at]
    if earlier:
        yield f"it failed with {signature(outcome.error)} at {broke_at:g}, after another failure at {min(earlier):g}"


def _is_bad(call: Call) -> bool:
    return call.result == "failed" or call.wrong


def _blamed_on(trouble: Trouble, plan: SessionPlan) -> set[str]:
    """The signatures of the errors that *trouble* can come out as."""
    if is_harmless(trouble):
        return set()
    limits = {"reset": plan.reset_limit, "step": plan.step_limit}
    match trouble.part, trouble.kind:
        case "reset" | "step", "misshapen_observation" | "no_observation":
            return {"ModelRpcError INVALID_ARGUMENT"}
        case "reset" | "step", "hang":
            return {f"OperationTimeout env.{trouble.part} {limits[trouble.part]:g}"}
        case "reset" | "step", "fail" | "crash" | "die":
            return {f"EnvRpcError env.{trouble.part} {_code(trouble)}"}
        case "predict" | "predict_group", "fail" | "crash":
            return {f"ModelRpcError {_code(trouble)}"}
        case "predict" | "predict_group", "hang":
            return {f"OperationTimeout model.predict {plan.predict_limit:g}"}
        case "predict", "another_request":
            return {"ModelRouteMismatch"}
        case "predict", "misshapen_actions":
            return {"EnvRpcError env.step INVALID_ARGUMENT"}
        case _, "no_actions" | "too_few_results":
            return {"ProtocolError"}
        case _, "crash":
            return {"HookError"}
        case _:
            return set()


def _code(trouble: Trouble) -> str:
    return "INTERNAL" if trouble.kind == "crash" else trouble.code
