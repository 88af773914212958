"""What must hold of the events of a simulated world's run, and of what its model was asked and told."""

from collections import Counter, defaultdict
from collections.abc import Iterator
from itertools import groupby, pairwise, takewhile
from math import inf

import attrs

from rlmesh_trio.events import (
    ActionReceived,
    EpisodeCompleted,
    EpisodeStarted,
    Event,
    IncidentHappened,
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
from rlmesh_trio.testing.world_expected import finished_earlier
from rlmesh_trio.testing.world_facts import heard, left_report
from rlmesh_trio.testing.world_model import Asked
from rlmesh_trio.testing.world_run import Outcome
from rlmesh_trio.testing.world_toy import ToyObservation

__all__ = ("event_violations", "model_violations")


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
    plan = outcome.world.session
    indices, wanted = {event.episode_index for event in started}, set(range(1, (plan.budget or 0) + 1))
    if plan.budget is not None and not indices <= wanted - set(plan.finished):
        yield f"episodes are started as {sorted(indices)} of {plan.budget} without {plan.finished}"
    if outcome.report is not None and indices != wanted - set(plan.finished):
        yield f"only episodes {sorted(indices)} are started of {plan.budget} without {plan.finished}"
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
    yield from _starts_again(outcome, events)
    for event in started:
        played = outcome.env.played[event.episode_id]
        if (event.seed, event.started_from_auto_reset) != (played.seed, played.rolled or _came_later(outcome, event)):
            yield f"{event} was {played}"
        if played.trial != (event.trial_index if outcome.world.env.declares_trials else None):
            yield f"{event} was reset as {played}"
    report = left_report(outcome)
    if report is None or plan.budget is None:
        return
    summaries = {summary.episode_index: summary for summary in report.episodes}
    for event in completed:
        summary = summaries.get(event.episode_index)
        if summary is None or any(getattr(event, name) != value for name, value in attrs.asdict(summary).items()):
            yield f"{event} is reported as {summary}"
    if outcome.error is None and len(completed) != len(report.episodes) - len(plan.finished):
        yield f"{len(completed)} completions are told of {len(report.episodes)} without {len(plan.finished)}"


def _starts_again(outcome: Outcome, events: list[Event]) -> Iterator[str]:
    """An episode has one id at a time. It gets another where it was given up, and keeps its seed and trial then.

    A vector is seeded as a whole or not at all, so an episode may lose its seed there; and another lane that restarts
    itself has no seed to give it.
    """
    playing: dict[int, EpisodeStarted] = {}
    given_up: set[str | None] = set()
    completed: set[int] = set()
    world = outcome.world
    keeps_seeds = world.seeds_by_slot or world.groups == world.env.lanes
    any_seed = not world.owns_resets and world.drives_lanes
    for event in events:
        if not given_up.isdisjoint(_ids_of(event)):
            yield f"{event} is told of an episode that was given up"
        if isinstance(event, IncidentHappened):
            given_up.add(event.incident.episode_id)
            if event.incident.episode_index in completed:
                yield f"{event.incident} is about an episode that was completed"
        elif isinstance(event, EpisodeStarted):
            before = playing.get(event.episode_index)
            playing[event.episode_index] = event
            if before is None:
                continue
            if before.episode_id not in given_up:
                yield f"{event} begins beside {before}"
            seed_is_kept = event.seed == before.seed or (event.seed is None and not keeps_seeds)
            if not (seed_is_kept or any_seed) or event.trial_index != before.trial_index:
                yield f"{event} begins {before} again"
        elif isinstance(event, EpisodeCompleted):
            completed.add(event.episode_index)
            if playing[event.episode_index].episode_id != event.episode_id:
                yield f"{event} completes {playing[event.episode_index]}"


def _ids_of(event: Event) -> set[str]:
    match event:
        case ObservationEmitted():
            return set(event.episode_ids)
        case EpisodeStarted() | EpisodeCompleted() | StepCompleted():
            return {event.episode_id}
        case _:
            return set()


def _came_later(outcome: Outcome, event: EpisodeStarted) -> bool:
    """Whether the episode's lane had been reset before."""
    lane = outcome.env.played[event.episode_id].lane
    resets = [call for call in outcome.env.calls if call.part == "reset" and lane in call.lanes]
    before = takewhile(lambda call: event.episode_id not in call.episode_ids, resets)
    return any(call.result == "answered" for call in before)


def _steps(outcome: Outcome, events: list[Event]) -> Iterator[str]:
    """Each group observes, acts and steps in turn; what is told of a step is consistent."""
    groups: defaultdict[int | None, list[str]] = defaultdict(list)
    for event in events:
        if isinstance(event, ObservationEmitted | ActionReceived | StepCompleted | EpisodeStarted):
            groups[event.route.lane].append(type(event).__name__)
        elif isinstance(event, IncidentHappened) and event.incident.kind != "reconnect":
            groups[event.route.lane].append(event.incident.kind)
    follows = {
        ("EpisodeStarted", "ObservationEmitted"),
        ("EpisodeStarted", "EpisodeStarted"),
        ("ObservationEmitted", "ActionReceived"),
        ("ActionReceived", "StepCompleted"),
        ("StepCompleted", "ObservationEmitted"),
        ("StepCompleted", "EpisodeStarted"),
        ("retry", "EpisodeStarted"),
    }
    if not outcome.world.owns_resets:  # What restarts a lane may fail although no episode is left to begin.
        follows |= {("ObservationEmitted", "EpisodeStarted"), ("ActionReceived", "EpisodeStarted")}
    for lane, kinds in groups.items():
        for pair in set(pairwise(kinds)) - follows:
            if pair[1] not in ("retry", "quarantine"):
                yield f"in group {lane} {pair} follow each other"
    for event in events_of(StepCompleted, events):
        ended = [a or b for a, b in zip(event.terminated, event.truncated, strict=True)]
        if any(roll and end for roll, end in zip(event.autoreset_roll, ended, strict=True)):
            yield f"{event} both restarts and ends a lane"
        if (event.infos is None) != any(event.autoreset_roll):
            yield f"{event} withholds its infos wrongly"
    report, told = outcome.report, len(events_of(StepCompleted, events))
    earlier = sum(episode.step_count for episode in finished_earlier(outcome.world))
    if report is not None and told + earlier != report.total_steps:
        yield f"{told} steps are told of {report.total_steps}, {earlier} of them earlier ones"
    cold = [event.route.lane for event in events_of(LogEmitted, events) if event.message.startswith("env reset comp")]
    started = {event.route.lane for event in events_of(EpisodeStarted, events)}
    if len(cold) != len(set(cold)) or started - set(cold):
        yield f"cold starts are told of for groups {cold} of {sorted(started, key=str)}"


def model_violations(outcome: Outcome) -> Iterator[str]:
    """Every broken promise about what the model is asked, and which episodes are ended on it."""
    yield from _evictions(outcome)
    slots = {event.episode_id: event.episode_index for event in events_of(EpisodeStarted, heard(outcome))}
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
    sure, abandoned_at = not outcome.lines[1].losses, inf
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
    """Each observation leaves its group at most once, in order; between two resets none is left out.

    They are numbered by the steps taken: the first after a step that failed has the number of the last before it.
    """
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
        if numbers != sorted(numbers) or len(set(left)) != len(left) or -1 in numbers:
            yield f"observations leave their group as {left}"
        strangers = [asked for asked in requests for row in asked.request.history if _is_strange(outcome, asked, row)]
        yield from (f"{asked} brings observations of other episodes along" for asked in strangers)
        for (before, earlier), (after, later) in pairwise(left):
            if (before == after or outcome.env.played[after].rolled) and later != earlier + 1:
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
