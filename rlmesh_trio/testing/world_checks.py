"""What must hold of every run of a simulated world, whatever went wrong in it: each check yields what is broken.

The promises about events and about what the model saw are in :mod:`rlmesh_trio.testing.world_events`.
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
from rlmesh_trio.report import EpisodeSummary, Report
from rlmesh_trio.testing.world_events import episode_ids, event_violations, model_violations
from rlmesh_trio.testing.world_expected import ExpectedEpisode, expected, is_determined
from rlmesh_trio.testing.world_mishaps import Call
from rlmesh_trio.testing.world_plan import NOTICES, TRANSFORMS, SessionPlan, Trouble
from rlmesh_trio.testing.world_run import Outcome

__all__ = ("is_calm", "left_report", "signature", "violations")

_EPSILON: Final = 1e-6
_OPERATIONS: Final = ("reset", "step", "predict_group")
_HARMLESS: Final = {"slow", "stale_completion"}
_HARMLESS_PARTS: Final = {"evict", "release", "close", *NOTICES}


def violations(outcome: Outcome) -> list[str]:
    """Every promise that *outcome* breaks, in words; none is as it must be."""
    if outcome.hang is not None:
        return [f"it does not end: {outcome.hang}"]
    peers = [*outcome.env.breaches, *outcome.model.breaches]
    if outcome.scheduler is not None:
        peers += outcome.scheduler.breaches
    checks = (_leaks, _limits, _ending, _outcome, _books, _calm_report, event_violations, model_violations)
    return [*peers, *(text for check in checks for text in check(outcome))]


def is_calm(outcome: Outcome) -> bool:
    """Whether nothing happened that may change the episodes: no loss, no cancellation, harmless troubles only."""
    return (
        outcome.cancelled_at is None
        and all(line.lost_since is None for line in outcome.lines)
        and all(_is_harmless(struck.trouble) for struck in outcome.struck)
    )


def left_report(outcome: Outcome) -> Report | None:
    """The report, or that of the error."""
    return outcome.report or getattr(outcome.error, "report", None)


def _is_harmless(trouble: Trouble) -> bool:
    return trouble.kind in _HARMLESS or trouble.part in _HARMLESS_PARTS


def _leaks(outcome: Outcome) -> Iterator[str]:
    if outcome.before != outcome.after:
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
    }
    for call in (*outcome.env.calls, *outcome.model.calls):
        if call.result == "under way":
            yield f"{call} was never given up"
        elif call.ended - call.started > limits[call.part] + _EPSILON:
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
        broke_at, parts = max([*moments, outcome.cancelled_at or 0.0]), 4
    else:
        yield from _goes_on(outcome, broke_at)
        parts = 5
    ended_at = outcome.ended_at or 0.0
    if ended_at > broke_at + parts * plan.close_limit + _EPSILON:
        yield f"the ending took from {broke_at:g} to {ended_at:g} s"


def _goes_on(outcome: Outcome, broke_at: float) -> Iterator[str]:
    """What goes on after the session broke: nothing but a predict in flight, for as long as its grace."""
    grace = outcome.world.session.close_limit
    for call in (*outcome.env.calls, *outcome.model.calls):
        if call.part in _OPERATIONS and call.started > broke_at + _EPSILON:
            yield f"{call} begins although the session broke at {broke_at:g}"
        allowed = broke_at + (grace if call.part == "predict_group" else 0.0) + _EPSILON
        if call.part in (*_OPERATIONS, "evict") and call.started < broke_at and call.ended > allowed:
            yield f"{call} goes on although the session broke at {broke_at:g}"


def _broke_at(outcome: Outcome) -> float | None:
    """When the session failed, where that can be told from its error."""
    plan, env, model = outcome.world.session, outcome.env.calls, outcome.model.calls
    limits = {"env.reset": plan.reset_limit, "env.step": plan.step_limit, "model.predict": plan.predict_limit}
    match outcome.error:
        case RouteCancelled():
            return outcome.cancelled_at
        case EnvRpcError():
            return _first(call.ended for call in env if call.result == "failed" and call.part != "close")
        case ModelRpcError() | ModelRouteMismatch():
            return _first(call.ended for call in model if call.part == "predict_group" and _is_bad(call))
        case OperationTimeout() as late:
            limit = limits[late.operation or ""] - _EPSILON
            return _first(call.ended for call in (*env, *model) if call.ended - call.started >= limit)
        case HookError():
            parts = ("scheduler", *TRANSFORMS)
            return _first(struck.at for struck in outcome.struck if struck.trouble.part in parts)
        case ProtocolError() if not outcome.world.resets_named_lanes:
            return _first(call.ended for call in model if call.part == "predict_group" and _is_bad(call))
        case _:
            return None


def _first(moments: Iterable[float]) -> float | None:
    return min(moments, default=None)


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


def _outcome(outcome: Outcome) -> Iterator[str]:
    """The error is that of something that went wrong, and nothing that must fail a session leaves it a success."""
    world = outcome.world
    possible: set[str] = set()
    for struck in outcome.struck:
        possible |= _blamed_on(struck.trouble, world.session)
        if world.resets_named_lanes and struck.trouble.kind in ("misshapen_observation", "no_observation"):
            possible.add("ProtocolError")
    env_line, model_line = outcome.lines
    if env_line.lost_since is not None:
        possible |= {"EnvRpcError env.reset CONNECTION", "EnvRpcError env.step CONNECTION"}
    if model_line.lost_since is not None:
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
            if needed and (_is_bad(call) or call.result == "cancelled"):
                yield f"it succeeded although {call} was not answered"
        for struck in outcome.struck:
            if _blamed_on(struck.trouble, world.session) == {"HookError"}:
                yield f"it succeeded although {struck} came due"


def _is_not_the_first(outcome: Outcome) -> Iterator[str]:
    """The first failure is the outcome, whatever fails later."""
    broke_at = _broke_at(outcome)
    if broke_at is None:
        return
    failed = _first(call.ended for call in outcome.env.calls if call.result == "failed" and call.part != "close")
    earlier = [moment for moment in (failed, outcome.cancelled_at) if moment is not None and moment < broke_at]
    if earlier:
        yield f"it failed with {signature(outcome.error)} at {broke_at:g}, after another failure at {min(earlier):g}"


def _is_bad(call: Call) -> bool:
    return call.result == "failed" or call.wrong


def _blamed_on(trouble: Trouble, plan: SessionPlan) -> set[str]:
    """The signatures of the errors that *trouble* can come out as."""
    if _is_harmless(trouble):
        return set()
    limits = {"reset": plan.reset_limit, "step": plan.step_limit}
    match trouble.part, trouble.kind:
        case "reset" | "step", "misshapen_observation" | "no_observation":
            return {"ModelRpcError INVALID_ARGUMENT"}
        case "reset" | "step", "hang":
            return {f"OperationTimeout env.{trouble.part} {limits[trouble.part]:g}"}
        case "reset" | "step", "fail" | "crash":
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
    return trouble.code if trouble.kind == "fail" else "INTERNAL"


def _books(outcome: Outcome) -> Iterator[str]:
    """The report, also a partial one, counts what the env answered and holds what it played."""
    report = left_report(outcome)
    if report is None:
        yield f"{type(outcome.error).__name__} carries no report"
        return
    world = outcome.world
    answered = [call for call in outcome.env.calls if call.part == "step" and call.result == "answered"]
    if report.total_steps != len(answered):
        yield f"{report.total_steps} steps are reported and {len(answered)} were answered"
    if outcome.world.session.budget is None:
        if report.episodes:
            yield "an unbounded run has summaries"
        return
    if report.total_episodes != len(report.episodes) or report.total_episodes > outcome.world.session.budget:
        yield f"{report.total_episodes} episodes of {outcome.world.session.budget}, {len(report.episodes)} summaries"
    if len({summary.episode_index for summary in report.episodes}) != len(report.episodes):
        yield "two episodes have one index"
    ids = episode_ids(outcome)
    ends = {id_: call.ended for call in answered for id_ in call.episode_ids}
    finished = [ends[ids[summary.episode_index]] for summary in report.episodes if summary.episode_index in ids]
    if outcome.error is None and not world.drives_lanes and finished and max(finished) != answered[-1].ended:
        yield "a step was taken after the last episode's end"
    if finished != sorted(finished) and not _is_held_up(outcome):
        yield "the episodes are not in the order they finished"
    for summary in report.episodes:
        if summary.episode_index in ids:
            yield from _as_played(outcome, summary, ids[summary.episode_index], answered)


def _is_held_up(outcome: Outcome) -> bool:
    """Whether a listener may hold a group up between the end of an episode and its being counted."""
    plan = outcome.world.session
    reading = plan.listening in ("stream", "both") and plan.reader.longest > 0
    return reading or plan.hook.longest > 0 or any(struck.trouble.part in NOTICES for struck in outcome.struck)


def _as_played(outcome: Outcome, summary: EpisodeSummary, episode_id: str, answered: list[Call]) -> Iterator[str]:
    played, plan = outcome.env.played[episode_id], outcome.world.session
    if (summary.env_index, summary.seed, summary.step_count) != (played.lane, played.seed, len(played.steps)):
        yield f"{summary} was played as {played}"
    if summary.predict_ms is None or summary.step_ms is None:
        yield f"{summary} has no timings"
    if plan.time_cap is None:
        return
    started = max(c.ended for c in outcome.env.calls if c.part == "reset" and episode_id in c.episode_ids)
    late = [call.ended - started >= plan.time_cap for call in answered if episode_id in call.episode_ids]
    if any(late[:-1]) or (not summary.terminated and not late[-1] and not _ends_by_itself(outcome, summary)):
        yield f"{summary} ends at another step than its time cap says"


def _ends_by_itself(outcome: Outcome, summary: EpisodeSummary) -> bool:
    return summary.step_count == outcome.world.session.step_cap or outcome.world.env.longest is not None


def _calm_report(outcome: Outcome) -> Iterator[str]:
    """Where nothing went wrong the session succeeds, with the episodes of the naive model."""
    world, report = outcome.world, outcome.report
    if not is_calm(outcome):
        return
    if report is None:
        yield f"nothing went wrong, and it failed: {signature(outcome.error)} {outcome.error}"
        return
    summaries = sorted(report.episodes, key=lambda summary: summary.episode_index)
    dealt = [summary.env_index for summary in summaries]
    if world.drives_lanes and len(set(dealt)) != min(world.env.lanes, len(dealt)):
        yield f"not every lane played: {dealt}"
    if is_determined(world):
        found = tuple(_found(summary) for summary in summaries)
        wanted = expected(world, dealt)
        if len(found) != len(wanted):
            yield f"{len(found)} episodes are reported of {len(wanted)}"
        yield from (f"{one} should be {other}" for one, other in zip(found, wanted, strict=False) if one != other)
    yield from _telemetry(outcome, report)


def _found(summary: EpisodeSummary) -> ExpectedEpisode:
    return ExpectedEpisode(
        summary.episode_index,
        summary.env_index,
        summary.seed,
        summary.trial_index,
        summary.step_count,
        summary.cumulative_reward,
        summary.terminated,
        summary.truncated,
        summary.success,
    )


def _telemetry(outcome: Outcome, report: Report) -> Iterator[str]:
    """The session's telemetry counts every answered operation."""
    rows = report.telemetry.rows if report.telemetry is not None else ()
    counts = {row.op: row.count for row in rows if row.metric == "rpc.total"}
    answered = [call.part for call in (*outcome.env.calls, *outcome.model.calls) if call.result == "answered"]
    for op, part in (("env.reset", "reset"), ("env.step", "step"), ("model.predict", "predict_group")):
        if counts.get(op, 0) != answered.count(part):
            yield f"telemetry counts {counts.get(op, 0)} {op}, and {answered.count(part)} were answered"
