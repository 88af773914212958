"""What must hold of a simulated world whose session recovers: nothing is silent, and nothing goes on for ever.

Nor is anything that was given up touched again. Each check yields what is broken.
"""

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Final

from rlmesh_trio.events import IncidentHappened
from rlmesh_trio.report import Incident
from rlmesh_trio.testing.recording import events_of
from rlmesh_trio.testing.world_facts import (
    EPSILON,
    Failure,
    failure_of,
    heard,
    left_report,
    policy_after,
    policy_of,
    signature,
)
from rlmesh_trio.testing.world_mishaps import Call
from rlmesh_trio.testing.world_run import Outcome

__all__ = ("recovery_violations",)

_FIRST_PAUSE: Final = 0.1
_LONGEST_PAUSE: Final = 5.0
_ERRORS: Final[dict[Failure, str]] = {"error": "EnvRpcError", "lost": "EnvRpcError", "timeout": "OperationTimeout"}


def recovery_violations(outcome: Outcome) -> Iterator[str]:
    """Every broken promise about recovering."""
    report = left_report(outcome)
    if report is None:
        return
    for check in (_told, _attempts, _reconnects, _causes, _taken_out):
        yield from check(outcome, report.incidents)
    yield from _given_up(outcome)
    yield from _final(outcome, report.incidents)


def _told(outcome: Outcome, incidents: Sequence[Incident]) -> Iterator[str]:
    """Every incident of the report is an event and a line of the log."""
    if (events := heard(outcome)) and [e.incident for e in events_of(IncidentHappened, events)] != list(incidents):
        yield f"the incidents told of are not those of the report: {incidents}"
    lines = [line for line in outcome.log if line.startswith(("retry of", "quarantine of", "reconnected to the env"))]
    if len(lines) != len(incidents):
        yield f"{len(lines)} incidents are logged of {len(incidents)}"


def _attempts(outcome: Outcome, incidents: Sequence[Incident]) -> Iterator[str]:
    """Attempts are counted per episode and bounded, an id is given up once, and one lane is always left."""
    plan = outcome.world.session
    restarts: Counter[int | None] = Counter()
    for incident in incidents:
        if incident.kind == "reconnect":
            continue
        restarts[incident.episode_index] += 1
        if incident.attempt != restarts[incident.episode_index]:
            yield f"{incident} is start {restarts[incident.episode_index]} of its episode"
        policy = plan.on_timeout if incident.error == "OperationTimeout" else plan.on_env_error
        if incident.kind == "retry" and incident.attempt > policy.attempts:
            yield f"{incident} goes beyond {policy}, attempts={policy.attempts}"
        if policy.action == "fail" or (incident.kind == "quarantine" and policy.action != "quarantine"):
            yield f"{incident} under {policy}"
    given_up = [incident.episode_id for incident in incidents if incident.kind != "reconnect"]
    if len(set(given_up)) != len(given_up):
        yield f"an id is given up twice: {given_up}"
    out = [incident.env_index for incident in incidents if incident.kind == "quarantine"]
    if len(set(out)) != len(out) or len(out) >= max(2, outcome.world.groups):
        yield f"lanes {out} of {outcome.world.groups} are taken out"


def _reconnects(outcome: Outcome, incidents: Sequence[Incident]) -> Iterator[str]:
    """After each loss comes one row of tries, with growing pauses and within the limit, and nothing else meanwhile."""
    rows: list[list[Call]] = []
    for call in outcome.env.calls:
        if call.part == "reconnect":
            if not rows or rows[-1][-1].result == "answered":
                rows.append([])
            rows[-1].append(call)
    if rows and outcome.world.session.on_env_error.action == "fail":
        yield "an env is reconnected although env errors shall fail the session"
    told = [incident.attempt for incident in incidents if incident.kind == "reconnect"]
    if told != [len(row) for row in rows if row[-1].result == "answered"]:
        yield f"reconnects are told of as {told}, and tried as {rows}"
    blamed = [
        struck for struck in outcome.struck if struck.trouble.kind == "fail" and struck.trouble.code == "CONNECTION"
    ]
    if len(rows) > len(outcome.lines[0].losses) + len(blamed):
        yield f"{len(rows)} reconnects for {len(outcome.lines[0].losses)} losses"
    for row in rows:
        gaps = [after.started - before.ended for before, after in pairwise(row)]
        if any(abs(gap - _pause(tried)) > EPSILON for tried, gap in enumerate(gaps)):
            yield f"reconnects are tried at intervals {gaps}"
        begun, ended = row[0].started, row[-1].ended
        if ended - begun > outcome.world.session.connect_limit + EPSILON:
            yield f"reconnecting took from {begun:g} to {ended:g} s"
        for call in outcome.env.calls:
            if call.part in ("reset", "step") and begun + EPSILON < call.started < ended - EPSILON:
                yield f"{call} is asked of an env that is being reconnected"


def _pause(before: int) -> float:
    return min(_FIRST_PAUSE * 2.0**before, _LONGEST_PAUSE)


def _causes(outcome: Outcome, incidents: Sequence[Incident]) -> Iterator[str]:
    """Every failure has its incident before the lane goes on, and every incident its failure."""
    world, calls = outcome.world, [call for call in outcome.env.calls if call.part in ("reset", "step")]
    if world.resets_named_lanes:
        yield from _causes_in_lockstep(outcome, incidents, calls)
        return
    by_id: defaultdict[str | None, list[Incident]] = defaultdict(list)
    for incident in incidents:
        by_id[incident.episode_id].append(incident)
    following: dict[int, Call] = {}
    own: set[str] = set()
    stood_up = [call.ended for call in outcome.env.calls if call.part == "reconnect" and call.result == "answered"]
    for call in reversed(calls):
        later = [following[lane] for lane in call.lanes if lane in following]
        following.update(dict.fromkeys(call.lanes, call))
        failure = failure_of(outcome, call)
        if failure is None or failure == "lost" or _is_tied(outcome, call):
            continue
        own.update(call.episode_ids)
        found = [incident for id_ in call.episode_ids for incident in by_id[id_]]
        if not found and world.owns_resets and (later or outcome.error is None):
            yield f"nothing is told of {call}"
        policy = policy_after(outcome, failure)
        for incident in found:
            if (incident.kind, incident.error) != (policy.action, _ERRORS[failure]):
                yield f"{incident} is told of {call}, under {policy}"
            soonest = call.ended + _pause(incident.attempt - 1) - EPSILON
            if incident.kind == "retry" and len(call.lanes) == 1 and later and later[0].started < soonest:
                yield f"{later[0]} follows {call} too soon for {incident}"
        for after in later:
            is_aftermath = after.part == "reset" and failure_of(outcome, after) == "lost"
            is_aftermath &= not any(call.ended - EPSILON < at < after.started + EPSILON for at in stood_up)
            if is_aftermath and any(map(by_id.get, after.episode_ids)):
                yield f"{after} counts as a failure of its own, though {call} had cost the connection"
    stood_again = 0
    lost: Counter[int | None] = Counter()
    for incident in incidents:
        if incident.kind == "reconnect":
            stood_again += 1
        elif incident.episode_id not in own and not _is_tied_id(outcome, incident.episode_id):
            lost[incident.env_index] += 1
            if lost[incident.env_index] > stood_again or (incident.kind, incident.error) != ("retry", "EnvRpcError"):
                yield f"nothing explains {incident}"


def _causes_in_lockstep(outcome: Outcome, incidents: Sequence[Incident], calls: Sequence[Call]) -> Iterator[str]:
    """The same, by number: all lanes of a vector are started again when an operation on some of them fails."""
    own = [call for call in calls if failure_of(outcome, call) in ("error", "timeout")]
    reconnects = sum(incident.kind == "reconnect" for incident in incidents)
    restarts = Counter(incident.episode_index for incident in incidents if incident.kind != "reconnect")
    if restarts and max(restarts.values()) > len(own) + reconnects:
        yield f"{restarts} for {len(own)} failures and {reconnects} reconnects"
    if restarts.total() < sum(call is not calls[-1] and not _is_tied(outcome, call) for call in own):
        yield f"{restarts} for {len(own)} failures"


def _is_tied(outcome: Outcome, call: Call) -> bool:
    """Whether the connection was lost just when *call* ended, so that either may count as its failure."""
    return any(
        abs(other.ended - call.ended) < EPSILON and failure_of(outcome, other) == "lost" for other in outcome.env.calls
    )


def _is_tied_id(outcome: Outcome, episode_id: str | None) -> bool:
    return any(episode_id in call.episode_ids and _is_tied(outcome, call) for call in outcome.env.calls)


def _taken_out(outcome: Outcome, incidents: Sequence[Incident]) -> Iterator[str]:
    """A lane that was taken out is not touched again."""
    for incident in incidents:
        if incident.kind == "quarantine":
            touched = [call.episode_ids for call in outcome.env.calls if incident.env_index in call.lanes]
            if not touched or incident.episode_id not in touched[-1]:
                yield f"{incident}, and then its lane plays {touched[-1:]}"


def _given_up(outcome: Outcome) -> Iterator[str]:
    """The model is not asked about an episode whose operation has failed or was cut short."""
    over = {
        id_: call.ended
        for call in outcome.env.calls
        for id_ in call.episode_ids
        if call.part in ("reset", "step") and call.result != "answered"
    }
    for call in outcome.model.calls if over else ():
        for id_ in call.episode_ids:
            if call.part == "predict_group" and call.started > over.get(id_, call.started) + EPSILON:
                yield f"{call} asks about {id_}, which was given up at {over[id_]:g}"


def _final(outcome: Outcome, incidents: Sequence[Incident]) -> Iterator[str]:
    """A failure that could have been recovered from says why it was not, and that is so."""
    policy = policy_of(outcome)
    if policy is None or policy.action == "fail":
        return
    notes = [note for note in getattr(outcome.error, "__notes__", ()) if not note.startswith("also: ")]
    (why, *_) = notes or [""]
    world, restarts = outcome.world, Counter(incident.episode_index for incident in incidents)
    tries = [call for call in outcome.env.calls if call.part == "reconnect"]
    if "as often as the policy allows" in why:
        explained = max(restarts.values(), default=0) >= policy.attempts
    elif "no other lane is left" in why:
        out = sum(incident.kind == "quarantine" for incident in incidents)
        explained = policy.action == "quarantine" and out == world.groups - 1
    elif "could not be reconnected within" in why:
        took = (outcome.ended_at or 0.0) - min((call.ended for call in outcome.env.calls if call.code), default=0.0)
        explained = bool(tries) and tries[-1].result != "answered" and took >= world.session.connect_limit - EPSILON
    elif "could not be reconnected: " in why:
        explained = bool(tries) and world.network.reconnects is not None and world.network.reconnects.stranger
    else:
        explained = False
    if not explained:
        yield f"it failed with {signature(outcome.error)} under {policy} because {why or 'of nothing it tells'}"
