"""The family ``acct``: the records of episodes say what happened, once each. Whoever serves an env keeps them.

A record belongs to the episode whose id it has; one with an id that was never sent belongs to the episode that ended
on its lane in the same step. Episodes that an error may have changed are not looked at.
"""

import math
from collections.abc import Iterator

import attrs
from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

from rlmesh_trio.conformance.ending_scripts import ending_example, ending_scripts, held_actions
from rlmesh_trio.conformance.episodes import Episode, Played, played, step_place
from rlmesh_trio.conformance.infos import compared_infos, info_spot, infos_of_lane
from rlmesh_trio.conformance.registry import Facts, Lab, check
from rlmesh_trio.conformance.scripts import Reset, Script, Step
from rlmesh_trio.conformance.strategies import scripts
from rlmesh_trio.conformance.traces import Answer, Trace
from rlmesh_trio.conformance.verdicts import Evidence
from rlmesh_trio.contract import AutoresetMode
from rlmesh_trio.messages import EpisodeRecord

__all__ = ("cause_ids_seed", "final_info", "interrupted", "once", "steps_return")

_RULE = 'edition 2026.06 "Episodes": completed_episodes'
_RESETS = 150


def _not_same_step(facts: Facts) -> str | None:
    if facts.contract.autoreset_mode == AutoresetMode.SAME_STEP:
        return "needs another autoreset mode than SAME_STEP: there autoreset.same.info looks at final_info"
    return None


def _with_resets(facts: Facts) -> SearchStrategy[Script]:
    return ending_scripts(facts, resets=True)


def _example(facts: Facts) -> Script:
    return ending_example(facts, resets=True)


@attrs.frozen
class _Sent:
    """The ids that were sent in a trace, and its first step: with that, records of what was played before may come."""

    ids: frozenset[str]
    first_step: int

    @classmethod
    def of(cls, trace: Trace) -> "_Sent":
        steps = [answer.op for answer in trace.answers if _is_step(trace, answer)]
        return cls(
            frozenset([id for answer in trace.answers for id in answer.episode_ids if id]), min(steps, default=0)
        )

    def records(self, episode: Episode, answer: Answer) -> list[EpisodeRecord]:
        """The records of *episode* in *answer*."""
        named = [record for record in answer.completed if record.episode_id and record.episode_id == episode.id]
        others = [
            each for each in answer.completed if each.env_index == episode.lane and each.episode_id not in self.ids
        ]
        return named or (others[-1:] if answer.op == self.first_step else others)


def _recorded(trace: Trace, facts: Facts) -> Iterator[tuple[Episode, Answer, EpisodeRecord]]:
    """Each episode that ended and has a record, with the answer they both are in."""
    sent = _Sent.of(trace)
    for episode, answer in played(trace, facts).ended:
        for record in sent.records(episode, answer)[:1]:
            yield episode, answer, record


def _evidence(trace: Trace, place: int, lane: int, line: str, signature: str, meaning: str, *lines: str) -> Evidence:
    where = step_place(trace.script, place, lane)
    return Evidence((f"{where}: {line}", *lines), signature, meaning, "server", (trace,), (place, lane))


@check(
    "acct.once",
    severity="must",
    requirement="Each episode that ends has one record, in the answer to the step it ended with, under its lane.",
    rule=_RULE,
    cases=_with_resets,
    example=_example,
    after=("autoreset.next.quiet",),
    soak=True,
)
async def once(lab: Lab, script: Script) -> Evidence | None:
    """Ends and records are the same in number, time and place."""
    trace = await lab.play(script)
    books = played(trace, lab.facts)
    return _missing(trace, books) or _repeated(trace, books, lab.facts)


def _missing(trace: Trace, books: Played) -> Evidence | None:
    sent = _Sent.of(trace)
    for episode, answer in books.ended:
        records = sent.records(episode, answer)
        if len(records) == 1 and records[0].env_index == episode.lane:
            continue
        if len(records) > 1:
            line, signature = f"the episode ends, with {len(records)} records", "two records of one end"
        elif records:
            line, signature = f"the episode's record has lane {records[0].env_index}", "record of another lane"
        else:
            line, signature = "the episode ends, without a record", "no record"
            later = [each for each in trace.answers if sent.records(episode, each) and each.op > answer.op]
            if later and any(record.episode_id == episode.id for record in later[0].completed):
                where = step_place(trace.script, later[0].op, episode.lane)
                line = f"the episode ends, and its record comes with {where}"
        return _evidence(
            trace,
            answer.op,
            episode.lane,
            line,
            signature,
            "whoever counts records counts other episodes than there were",
        )
    return None


def _repeated(trace: Trace, books: Played, facts: Facts) -> Evidence | None:
    """A record that came before, or while its episode still runs."""
    waits = facts.contract.autoreset_mode == AutoresetMode.DISABLED
    known = {episode.id: episode for episode in books.episodes if episode.id}
    seen: set[str] = set()
    for answer in trace.answers:
        for record in answer.completed:
            episode = known.get(record.episode_id)
            if episode is None:
                continue
            ends = episode.last.op if episode.last is not None else episode.cut
            if record.episode_id in seen:
                # One that ends again without a reset was opened without one: another requirement.
                if waits and _flags(answer, episode.lane) and episode.last is not None:
                    continue
                signature, line = "one record twice", f"the record of episode {record.episode_id} comes again"
            elif ends is None or answer.op < ends:
                signature, line = "record of a running episode", "there is a record, and the episode goes on"
            else:
                seen.add(record.episode_id)
                continue
            meaning = "whoever counts records counts episodes that were not"
            return _evidence(trace, answer.op, episode.lane, line, signature, meaning)
    return None


def _flags(answer: Answer, lane: int) -> bool:
    if lane not in answer.lanes:
        return False
    position = answer.lanes.index(lane)
    return any(position < len(mask) and mask[position] for mask in (answer.terminated, answer.truncated))


@check(
    "acct.steps-return",
    severity="must",
    requirement="step_count is the number of steps, cumulative_reward the sum of the rewards in order, as float64.",
    rule=_RULE,
    cases=_with_resets,
    example=_example,
    after=("autoreset.next.quiet", "acct.once"),
    soak=True,
)
async def steps_return(lab: Lab, script: Script) -> Evidence | None:
    """The numbers of a record are those that a client gets by counting."""
    trace = await lab.play(script)
    for episode, answer, record in _recorded(trace, lab.facts):
        total = 0.0
        for reward in episode.rewards:
            total += reward
        if record.step_count != episode.length:
            line, signature = f"step_count is {record.step_count}, {episode.length} were taken", "step_count differs"
            meaning = "the server counts a reset, a roll or a refused action as a step, or forgets one"
        elif not (record.cumulative_reward == total or (math.isnan(total) and math.isnan(record.cumulative_reward))):
            line = (
                f"cumulative_reward is {record.cumulative_reward!r}, the {episode.length} rewards sum up to {total!r}"
            )
            signature = "cumulative_reward differs"
            meaning = "the server adds in another order or width, leaves rewards out, or adds those of another lane"
        else:
            continue
        return _evidence(trace, answer.op, episode.lane, line, signature, meaning)
    return None


@check(
    "acct.cause-ids-seed",
    severity="must",
    requirement="A record has the flags of the step that ended it, the episode id that was sent, and the seed, if any.",
    rule=_RULE,
    cases=_with_resets,
    example=_example,
    after=("autoreset.next.quiet", "acct.once"),
    soak=True,
)
async def cause_ids_seed(lab: Lab, script: Script) -> Evidence | None:
    """A record can be laid beside what was asked for."""
    trace = await lab.play(script)
    for episode, answer, record in _recorded(trace, lab.facts):
        fields = (
            ("terminated", episode.terminated, record.terminated),
            ("truncated", episode.truncated, record.truncated),
            ("episode_id", episode.id, record.episode_id),
            ("seed", episode.seed, record.seed),
        )
        for name, wanted, got in fields:
            if wanted != got:
                line = f"{name} of the record is {_told(got)}, not {_told(wanted)}"
                meaning = "the record cannot be matched with the episode it is about, or tells it wrongly"
                return _evidence(trace, answer.op, episode.lane, line, f"{name} differs", meaning)
    return None


def _told(value: object) -> str:
    return "unset" if value is None else repr(value)


def _then_a_step(script: Script, facts: Facts) -> Script:
    return Script(script.lanes, (*script.ops, *held_actions(facts, 1)))


def _resets_in_a_row(facts: Facts, resets: int) -> Script:
    """So many resets of episodes that are cut short by them, and a step, with which their records are due."""
    lanes = facts.contract.num_envs
    given = [Reset(tuple([number + lane for lane in range(lanes)])) for number in range(resets + 1)]
    return _then_a_step(Script(lanes, tuple(given)), facts)


def _cut_short(facts: Facts) -> SearchStrategy[Script]:
    rows = st.integers(1, _RESETS).map(lambda resets: _resets_in_a_row(facts, resets))
    mixed = scripts(facts, steps=12, reseed=True, unseeded=True, partial=facts.subset_step)
    return st.one_of(rows, mixed.map(lambda script: _then_a_step(script, facts)))


@check(
    "acct.interrupted",
    severity="should",
    requirement="Each episode that a reset cuts short has a record, truncated, be it the last of 150 in a row.",
    rule=_RULE,
    cases=_cut_short,
    example=lambda facts: _resets_in_a_row(facts, _RESETS),
    after=("autoreset.next.quiet", "acct.once"),
)
async def interrupted(lab: Lab, script: Script) -> Evidence | None:
    """What a reset ends is not forgotten; its record may come with the reset, or with the next step of any lane."""
    trace = await lab.play(script)
    steps = [answer.op for answer in trace.answers if _is_step(trace, answer)]
    cut = [each for each in played(trace, lab.facts).episodes if each.cut is not None and each.id]
    due = [each for each in cut if each.cut is not None and any(step > each.cut for step in steps)]
    records = {record.episode_id: (answer, record) for answer in trace.answers for record in answer.completed}
    lost = [episode for episode in due if episode.id not in records]
    if lost:
        first = lost[0]
        place = first.cut or 0
        line = f"cuts an episode of {first.length} steps short, and no record of it comes"
        count = f"{len(lost)} of {len(due)} cut episodes have no record"
        return _evidence(
            trace, place, first.lane, line, "record lost", "episodes that were cut short are lost to every count", count
        )
    for episode in due:
        answer, record = records[episode.id]
        told = record.terminated, record.truncated, record.step_count
        if told != (False, True, episode.length):
            line = f"the record of an episode that a reset cut after {episode.length} steps says {_cause(record)}"
            return _evidence(trace, answer.op, episode.lane, line, "record is wrong", "a cut episode looks finished")
    return None


def _is_step(trace: Trace, answer: Answer) -> bool:
    return isinstance(trace.script.ops[answer.op], Step) and answer.refusal is None


def _cause(record: EpisodeRecord) -> str:
    flags = [name for name in ("terminated", "truncated") if getattr(record, name)]
    return f"{' and '.join(flags) or 'neither terminated nor truncated'} after {record.step_count} steps"


@check(
    "acct.final-info",
    severity="should",
    requirement="final_info of a record is the ended lane's own infos of its last step.",
    rule=_RULE,
    cases=_with_resets,
    example=_example,
    applies=_not_same_step,
    after=("autoreset.next.quiet", "acct.once"),
    soak=True,
)
async def final_info(lab: Lab, script: Script) -> Evidence | None:
    """The last infos are kept with the record."""
    facts = lab.facts
    trace = await lab.play(script)
    for episode, answer, record in _recorded(trace, facts):
        own = infos_of_lane(answer, answer.lanes.index(episode.lane), facts)
        pair = [compared_infos(infos, facts) for infos in (own, record.final_info or {})]
        found = info_spot(pair[0], pair[1], "final_info")
        if found is not None:
            path, spot = found
            line = f"{path} of the record is {spot.values[1]!r}, the step's infos say {spot.values[0]!r}"
            meaning = "the record has the infos of another step or lane, or none"
            return _evidence(trace, answer.op, episode.lane, line, f"{path} differs", meaning)
    return None
