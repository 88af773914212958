"""What must hold of the report that a simulated world's run left: each check yields what is broken."""

from collections.abc import Iterator

import attrs

from rlmesh_trio.report import EpisodeSummary, Report
from rlmesh_trio.testing.world_expected import ExpectedEpisode, expected, finished_earlier, is_determined, played_alone
from rlmesh_trio.testing.world_facts import episode_ids, is_calm, left_report, signature
from rlmesh_trio.testing.world_mishaps import Call
from rlmesh_trio.testing.world_plan import NOTICES
from rlmesh_trio.testing.world_run import Outcome

__all__ = ("report_violations",)


def report_violations(outcome: Outcome) -> Iterator[str]:
    """Every broken promise about the report."""
    yield from _books(outcome)
    yield from _calm_report(outcome)
    yield from _same_episodes(outcome)


def _books(outcome: Outcome) -> Iterator[str]:
    """The report, also a partial one, counts what the env answered and holds what it played."""
    report = left_report(outcome)
    if report is None:
        yield f"{type(outcome.error).__name__} carries no report"
        return
    world, earlier = outcome.world, finished_earlier(outcome.world)
    answered = [call for call in outcome.env.calls if call.part == "step" and call.result == "answered"]
    if report.total_steps != len(answered) + sum(episode.step_count for episode in earlier):
        yield f"{report.total_steps} steps are reported and {len(answered)} were answered"
    if tuple(report.episodes[: len(earlier)]) != earlier:
        yield f"the report does not begin with the {len(earlier)} episodes played earlier"
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
    played, world, plan = outcome.env.played[episode_id], outcome.world, outcome.world.session
    if (summary.env_index, summary.seed, summary.step_count) != (played.lane, played.seed, len(played.steps)):
        yield f"{summary} was played as {played}"
    if summary.predict_ms is None or summary.step_ms is None:
        yield f"{summary} has no timings"
    drives_one = world.groups == world.env.lanes and world.owns_resets
    if drives_one and is_determined(world) and not _is_falsified(outcome):
        wanted = played_alone(world, summary.episode_index - 1, played.lane, played.seed, played.token)
        if _found(summary) != wanted:
            yield f"{summary} should be {wanted}"
    if plan.time_cap is None:
        return
    started = max(_ns(c.ended) for c in outcome.env.calls if c.part == "reset" and episode_id in c.episode_ids)
    late = [(_ns(c.ended) - started) / 1e9 >= plan.time_cap for c in answered if episode_id in c.episode_ids]
    if any(late[:-1]) or (not summary.terminated and not late[-1] and not _ends_by_itself(outcome, summary)):
        yield f"{summary} ends at another step than its time cap says"


def _ns(seconds: float) -> int:
    """A time as the session's clock tells it."""
    return round(seconds * 1e9)


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
    summaries = [summary for summary in summaries if summary.episode_index not in world.session.finished]
    players = {summary.env_index for summary in summaries}
    if world.drives_lanes and len(players) != min(world.env.lanes, len(summaries)):
        yield f"not every lane played: {players}"
    if is_determined(world):
        found = tuple(_found(summary) for summary in summaries)
        wanted = expected(world, dealt)
        if len(found) != len(wanted):
            yield f"{len(found)} episodes are reported of {len(wanted)}"
        yield from (f"{one} should be {other}" for one, other in zip(found, wanted, strict=False) if one != other)
    yield from _telemetry(outcome, report)


def _same_episodes(outcome: Outcome) -> Iterator[str]:
    """Where every slot has its seed its episode is that of the naive model, whatever went wrong and was recovered from.

    In a vector the frames a lane gets hang on the others, unless each frame is predicted from what is seen just then.
    """
    world, report = outcome.world, left_report(outcome)
    stepwise = world.model.chunk == 1 and not world.session.prefetch_lead
    if report is None or not (world.seeds_by_slot and is_determined(world)) or _is_falsified(outcome):
        return
    if (world.env.longest is None and world.session.step_cap is None) or (world.resets_named_lanes and not stepwise):
        return
    wanted = {episode.index: episode for episode in expected(world)}
    for summary in report.episodes[len(world.session.finished) :]:
        found = _found(summary)
        if attrs.evolve(wanted.get(found.index, found), lane=found.lane) != found or found.index not in wanted:
            yield f"{summary} should be {wanted.get(found.index)}"


def _is_falsified(outcome: Outcome) -> bool:
    """Whether the env lied about a reward."""
    return any(struck.trouble.kind == "short_rewards" for struck in outcome.struck)


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
