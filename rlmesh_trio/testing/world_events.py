"""What must hold of the events of a simulated world's run, and of what its model was asked and told."""

from collections import Counter, defaultdict
from collections.abc import Iterator
from itertools import groupby, pairwise
from math import inf

import attrs

from rlmesh_trio.events import (
    ActionReceived,
    EpisodeCompleted,
    EpisodeStarted,
    Event,
    LogEmitted,
    ObservationEmitted,
    SessionEnded,
    SessionFailed,
    SessionStarted,
    StepCompleted,
    TelemetryTaken,
)
from rlmesh_trio.messages import HistoryRow
from rlmesh_trio.testing.recording import events_of, numbered
from rlmesh_trio.testing.world_peers import Asked
from rlmesh_trio.testing.world_run import Outcome
from rlmesh_trio.testing.world_toy import ToyObservation

__all__ = ("episode_ids", "event_violations", "heard", "model_violations")


def heard(outcome: Outcome) -> list[Event]:
    """Every event of the session, if anybody listened to its end; else none."""
    if outcome.events is not None:
        return outcome.events
    if outcome.read is not None and outcome.world.session.reader_stays is None:
        return outcome.read
    return []


def episode_ids(outcome: Outcome) -> dict[int, str]:
    """The ids of the announced episodes by their index."""
    return {event.episode_index: event.episode_id for event in events_of(EpisodeStarted, heard(outcome))}


def event_violations(outcome: Outcome) -> Iterator[str]:
    """Every broken promise about the events."""
    yield from _readers(outcome)
    if events := heard(outcome):
        yield from _session_story(outcome, events)
        yield from _episode_stories(outcome, events)
        yield from _steps(outcome, events)


def _readers(outcome: Outcome) -> Iterator[str]:
    """A reader gets what the hooks get, from the first event to the last unless it leaves."""
    read, told, stays = outcome.read, outcome.events, outcome.world.session.reader_stays
    if read is None or told is None:
        return
    if any(one is not other for one, other in zip(read, told, strict=False)):
        yield "the reader gets other events than the hooks"
    if len(read) != min(len(told), stays or len(told)):
        yield f"the reader got {len(read)} events of {len(told)}, staying for {stays}"


def _session_story(outcome: Outcome, events: list[Event]) -> Iterator[str]:
    counts = Counter(type(event).__name__ for event in events)
    first, last = events[0], events[-1]
    if not isinstance(first, SessionStarted) or counts["SessionStarted"] != 1:
        yield f"the session does not begin with its one start: {counts}"
    if not isinstance(last, SessionEnded if outcome.error is None else SessionFailed):
        yield f"the last event is {last}"
    elif last.reason != outcome.model.reason:
        yield f"the model is released for {outcome.model.reason!r}, and the session over for {last.reason!r}"
    if counts["SessionEnded"] + counts["SessionFailed"] != 1:
        yield f"the session does not end once: {counts}"
    if outcome.error is not None and str(outcome.error) != outcome.model.reason:
        yield f"the model is released for {outcome.model.reason!r} after {outcome.error}"
    horizons = Counter(event.snapshot.horizon for event in events_of(TelemetryTaken, events))
    if horizons["session"] != 1 or (horizons["window"] and not outcome.world.session.window):
        yield f"telemetry was told as {horizons}"
    if isinstance(last, SessionEnded) and outcome.report is not None:
        totals = outcome.report.total_steps, outcome.report.total_episodes
        if (last.total_steps, last.total_episodes) != totals:
            yield f"{last} against {totals} reported"


def _episode_stories(outcome: Outcome, events: list[Event]) -> Iterator[str]:
    """Each announced episode starts first and completes last, once, and is reported as it was told."""
    started, completed = events_of(EpisodeStarted, events), events_of(EpisodeCompleted, events)
    indices = [event.episode_index for event in started]
    if len(set(indices)) != len(indices) or (outcome.report and sorted(indices) != list(range(1, len(indices) + 1))):
        yield f"episodes are started as {indices}"
    budget = outcome.world.session.budget
    if budget is not None and len(started) > budget:
        yield f"{len(started)} episodes are started, and {budget} wanted"
    known = {event.episode_id for event in started}
    stories: defaultdict[str, list[str]] = defaultdict(list)
    for line in numbered(event for event in events if _ids_of(event) <= known):
        kind, *numbers = line.split()
        for number in numbers:
            stories[number].append(kind)
    for story in stories.values():
        if story[0] != "started" or story.count("started") != 1 or "completed" in story[:-1]:
            yield f"an episode's story is {story}"
    if {event.episode_id for event in completed} - known:
        yield "an episode completes that was never started"
    for event in started:
        played = outcome.env.played[event.episode_id]
        if (event.seed, event.started_from_auto_reset) != (played.seed, played.rolled or _came_later(outcome, event)):
            yield f"{event} was {played}"
        if played.trial != (event.trial_index if outcome.world.env.declares_trials else None):
            yield f"{event} was reset as {played}"
    report = outcome.report or getattr(outcome.error, "report", None)
    if report is None or budget is None:
        return
    summaries = {summary.episode_index: summary for summary in report.episodes}
    for event in completed:
        summary = summaries.get(event.episode_index)
        if summary is None or any(getattr(event, name) != value for name, value in attrs.asdict(summary).items()):
            yield f"{event} is reported as {summary}"
    if outcome.error is None and len(completed) != len(report.episodes):
        yield f"{len(completed)} completions are told of {len(report.episodes)}"


def _ids_of(event: Event) -> set[str]:
    match event:
        case ObservationEmitted():
            return set(event.episode_ids)
        case EpisodeStarted() | EpisodeCompleted() | StepCompleted():
            return {event.episode_id}
        case _:
            return set()


def _came_later(outcome: Outcome, event: EpisodeStarted) -> bool:
    """Whether the episode's lane had played before."""
    played = outcome.env.played[event.episode_id]
    return any(other.lane == played.lane and other.serial < played.serial for other in outcome.env.played.values())


def _steps(outcome: Outcome, events: list[Event]) -> Iterator[str]:
    """Each group observes, acts and steps in turn; what is told of a step is consistent."""
    groups: defaultdict[int | None, list[str]] = defaultdict(list)
    for event in events:
        if isinstance(event, ObservationEmitted | ActionReceived | StepCompleted | EpisodeStarted):
            groups[event.route.lane].append(type(event).__name__)
    follows = {
        ("EpisodeStarted", "ObservationEmitted"),
        ("EpisodeStarted", "EpisodeStarted"),
        ("ObservationEmitted", "ActionReceived"),
        ("ActionReceived", "StepCompleted"),
        ("StepCompleted", "ObservationEmitted"),
        ("StepCompleted", "EpisodeStarted"),
    }
    for lane, kinds in groups.items():
        yield from (f"in group {lane} {pair} follow each other" for pair in set(pairwise(kinds)) - follows)
    for event in events_of(StepCompleted, events):
        ended = [a or b for a, b in zip(event.terminated, event.truncated, strict=True)]
        if any(roll and end for roll, end in zip(event.autoreset_roll, ended, strict=True)):
            yield f"{event} both restarts and ends a lane"
        if (event.infos is None) != any(event.autoreset_roll):
            yield f"{event} withholds its infos wrongly"
    report = outcome.report
    if report is not None and len(events_of(StepCompleted, events)) != report.total_steps:
        yield f"{len(events_of(StepCompleted, events))} steps are told of {report.total_steps}"
    cold = [event.route.lane for event in events_of(LogEmitted, events) if event.message.startswith("env reset comp")]
    if len(cold) != len(set(cold)) or set(groups) - set(cold):
        yield f"cold starts are told of for groups {cold} of {sorted(groups, key=str)}"


def model_violations(outcome: Outcome) -> Iterator[str]:
    """Every broken promise about what the model is asked, and which episodes are ended on it."""
    yield from _evictions(outcome)
    slots = {id_: index for index, id_ in episode_ids(outcome).items()}
    for _, calls in groupby(outcome.model.asked, key=lambda asked: asked.call):
        together = list(calls)
        for asked in together:
            yield from _provenance(outcome, asked)
        order = [slots.get(asked.episode_ids[0], len(slots) + 1) for asked in together]
        if slots and not outcome.env.breaches and order != sorted(order):
            yield f"one call asks about slots in the order {order}"
    if outcome.world.model.history:
        yield from _history(outcome)


def _evictions(outcome: Outcome) -> Iterator[str]:
    """No episode is ended twice, nor asked about afterwards; each that was asked about is, unless something failed."""
    ended: set[str] = set()
    asked: set[str] = set()
    sure, abandoned_at = outcome.lines[1].lost_since is None, inf
    for call in outcome.model.calls:
        if call.part == "predict_group":
            if ended & set(call.episode_ids):
                yield f"the model is asked about {sorted(ended & set(call.episode_ids))}, which it was told have ended"
            asked.update(call.episode_ids)
            if call.result == "cancelled":
                sure, abandoned_at = False, min(abandoned_at, call.ended)
        elif call.part == "evict":
            if len(set(call.episode_ids)) != len(call.episode_ids) or ended & set(call.episode_ids):
                yield f"the model is told twice: {call}"
            ended.update(call.episode_ids)
            sure &= call.result == "answered"
            if call.started >= abandoned_at:
                yield f"the model is told of ends although a predict was abandoned at {abandoned_at:g}: {call}"
    if ended - asked:
        yield f"the model is told of {sorted(ended - asked)}, which it never heard of"
    if sure and asked - ended:
        yield f"the model is not told that {sorted(asked - ended)} have ended"


def _provenance(outcome: Outcome, asked: Asked) -> Iterator[str]:
    """A request's rows are of the episodes it names, with the seeds these were reset with."""
    steps = asked.request.episode_steps
    for row, step, info in zip(asked.rows, steps, asked.request.episode_info, strict=False):
        played = outcome.env.played.get(info.episode_id)
        if played is None or (row.serial, row.step, info.seed) != (played.serial, step, played.seed):
            yield f"{info} at step {step} is asked about with {row} of {played}"


def _history(outcome: Outcome) -> Iterator[str]:
    """Each observation leaves its group at most once, in order; between two resets none is left out."""
    groups: defaultdict[int, list[Asked]] = defaultdict(list)
    for asked in outcome.model.asked:
        played = outcome.env.played.get(asked.episode_ids[0])
        groups[played.lane if played is not None and outcome.world.drives_lanes else -1].append(asked)
    for requests in groups.values():
        left: list[tuple[str, int]] = []
        for asked in requests:
            left += [(row.episode_info[0].episode_id, row.step) for row in asked.request.history]
            left.append((asked.episode_ids[0], -1 if asked.request.step is None else asked.request.step))
        numbers = [step for _, step in left]
        if numbers != sorted(set(numbers)) or -1 in numbers:
            yield f"observations leave their group as {numbers}"
        strangers = [asked for asked in requests for row in asked.request.history if _is_strange(outcome, asked, row)]
        yield from (f"{asked} brings observations of other episodes along" for asked in strangers)
        for (before, earlier), (after, later) in pairwise(left):
            if (before == after or not outcome.world.owns_resets) and later != earlier + 1:
                yield f"observation {earlier} of {before} is followed by {later} of {after}"


def _is_strange(outcome: Outcome, asked: Asked, row: HistoryRow) -> bool:
    """Whether an observation that rides a request is another episode's than it says, or than it may be."""
    (info, *_) = row.episode_info
    if outcome.world.owns_resets and info.episode_id not in asked.episode_ids:
        return True
    played = outcome.env.played[info.episode_id]
    try:
        seen = [one for leaf in row.observation or () for one in ToyObservation.unpack_rows(leaf)]
    except ValueError:
        return False
    return bool(seen) and (seen[0].serial, info.seed) != (played.serial, played.seed)
