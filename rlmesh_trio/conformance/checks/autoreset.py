"""The family ``autoreset``, save for ``SAME_STEP``: a lane whose episode has ended restarts as the mode says.

Under ``NEXT_STEP`` the step after an end, the *roll*, restarts the lane: its action is ignored, it has no reward and no
flags. Under ``DISABLED`` nothing restarts but by a reset.
"""

from collections.abc import Sequence

import attrs
from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

from rlmesh_trio.conformance.comparing import confirmed, difference_evidence
from rlmesh_trio.conformance.ending_scripts import ending_example, ending_scripts
from rlmesh_trio.conformance.episodes import Episode, Roll, played, step_place
from rlmesh_trio.conformance.live_lanes import ended_lanes
from rlmesh_trio.conformance.members import corner_rows
from rlmesh_trio.conformance.printing import place_text, row_text, value_text
from rlmesh_trio.conformance.registry import Facts, Lab, check
from rlmesh_trio.conformance.scripts import Op, Reset, Row, Script, Step
from rlmesh_trio.conformance.single_twin import twin_rows
from rlmesh_trio.conformance.strategies import action_space, actions
from rlmesh_trio.conformance.traces import Trace
from rlmesh_trio.conformance.verdicts import Evidence
from rlmesh_trio.contract import AutoresetMode

__all__ = ("action_ignored", "disabled_waits", "not_stuck", "quiet", "terminal_kept")

_RULE = 'edition 2026.06 "Autoreset", gymnasium AutoresetMode'
_FRESH_STARTS = 24
_BY_CHANCE = 1e-6


def _next_step(facts: Facts) -> str | None:
    return None if facts.contract.autoreset_mode == AutoresetMode.NEXT_STEP else "needs autoreset mode NEXT_STEP"


def _disabled(facts: Facts) -> str | None:
    return None if facts.contract.autoreset_mode == AutoresetMode.DISABLED else "needs autoreset mode DISABLED"


def _next_step_with_twin(facts: Facts) -> str | None:
    if facts.local or _next_step(facts):
        return _next_step(facts)
    return "needs a factory, of which single envs can be had here; autoreset.next.action-ignored tells the most of it"


_IgnoredCase = tuple[Script, tuple[Row, ...]]
"""A script, and actions to put in the place of those that should be ignored."""


def _ignored_cases(facts: Facts) -> SearchStrategy[_IgnoredCase]:
    others = st.lists(actions(action_space(facts)), min_size=1, max_size=3).map(tuple)
    return st.tuples(ending_scripts(facts), others)


@check(
    "autoreset.next.action-ignored",
    severity="must",
    requirement="The action of the step after an end has no effect on anything.",
    rule=_RULE,
    cases=_ignored_cases,
    example=lambda facts: (ending_example(facts), corner_rows(action_space(facts))),
    applies=_next_step,
    compares=True,
)
async def action_ignored(lab: Lab, case: _IgnoredCase) -> Evidence | None:
    """A lane that restarts is not stepped."""
    script, others = case
    a = await lab.play(script)
    rolls = played(a, lab.facts).rolls
    changed = script
    for roll in rolls:
        changed = _with_action(changed, roll, others)
    if changed == script:
        return None
    b = await lab.play(changed)
    difference = await confirmed(a, b, lambda: lab.play(script), lab.facts)
    if difference is None or difference.info_only:
        return None
    first = next((roll for roll in rolls if roll.lane == difference.lane), rolls[0])
    told = [
        row_text(_action(played_script, first), lab.facts.contract.action_space) for played_script in (script, changed)
    ]
    place = step_place(script, first.answer.op, first.lane)
    line = f"{place} restarts the lane; its action is {told[0]} in A, {told[1]} in B"
    meaning = "the lane was restarted before, in the step that ended the episode, or is stepped besides"
    shown = difference_evidence(difference, a, b, ("A", "B"), meaning, line)
    return attrs.evolve(shown, signature=f"ignored action shows in {difference.part}")


def _with_action(script: Script, roll: Roll, others: Sequence[Row]) -> Script:
    """*script* with another action for the step that *roll* is, where there is one among *others*."""
    step = script.ops[roll.answer.op]
    assert isinstance(step, Step)
    other = next((row for row in others if row != step.actions[roll.position]), None)
    if other is None:
        return script
    rows = (*step.actions[: roll.position], other, *step.actions[roll.position + 1 :])
    ops: tuple[Op, ...] = (*script.ops[: roll.answer.op], Step(rows, step.lanes), *script.ops[roll.answer.op + 1 :])
    return attrs.evolve(script, ops=ops)


def _action(script: Script, roll: Roll) -> Row:
    step = script.ops[roll.answer.op]
    assert isinstance(step, Step)
    return step.actions[roll.position]


@check(
    "autoreset.next.quiet",
    severity="must",
    requirement="The step after an end has reward 0 and neither flag.",
    rule=_RULE,
    cases=ending_scripts,
    example=ending_example,
    applies=_next_step,
    after=("autoreset.next.action-ignored",),
    soak=True,
)
async def quiet(lab: Lab, script: Script) -> Evidence | None:
    """A restart is no transition."""
    trace = await lab.play(script)
    for roll in played(trace, lab.facts).rolls:
        answer, position = roll.answer, roll.position
        for name, values in (
            ("reward", answer.rewards),
            ("terminated", answer.terminated),
            ("truncated", answer.truncated),
        ):
            if position < len(values) and values[position] != 0:
                place = step_place(script, answer.op, roll.lane)
                return Evidence(
                    (f"{place} restarts the lane: {name} is {value_text(values[position])}",),
                    f"{name} of a restarting step",
                    "what ended the episode before is told once more, or counted for the next one",
                    traces=(trace,),
                    first=(answer.op, roll.lane),
                )
    return None


@check(
    "autoreset.next.terminal-kept",
    severity="must",
    requirement="The step that ends an episode shows its last state, as the same env does that does not restart.",
    rule=_RULE,
    cases=ending_scripts,
    example=ending_example,
    applies=_next_step_with_twin,
    after=("autoreset.next.action-ignored", "twin.served-equals-local"),
    compares=True,
)
async def terminal_kept(lab: Lab, script: Script) -> Evidence | None:
    """The last observation is not that of the next episode. Lanes of which no single env can be had say nothing."""
    trace = await lab.play(script)
    for episode in _first_ended(trace, lab.facts):
        twin = await twin_rows(lab, trace, episode)
        if twin is None:
            continue
        assert episode.last is not None
        row = episode.last.observation[episode.last.lanes.index(episode.lane)]
        if row != twin[-1]:
            space = lab.facts.contract.observation_space
            place = step_place(script, episode.last.op, episode.lane)
            return Evidence(
                (
                    f"{place} ends the episode and shows  {row_text(row, space)}",
                    f"a single env, seeded and stepped alike, shows  {row_text(twin[-1], space)}",
                ),
                "terminal observation differs",
                "the ending step shows the first observation of the next episode already",
                traces=(trace,),
                first=(episode.last.op, episode.lane),
            )
    return None


def _first_ended(trace: Trace, facts: Facts) -> list[Episode]:
    """Of each lane the episode that the first op began, if it ended."""
    return [each for each in played(trace, facts).episodes if each.start == 0 and each.last is not None]


@check(
    "autoreset.next.not-stuck",
    severity="must",
    requirement="After it was restarted a lane runs an episode like any other, not one that ends with its first step.",
    rule=_RULE,
    cases=ending_scripts,
    example=ending_example,
    applies=_next_step,
    after=("autoreset.next.quiet",),
)
async def not_stuck(lab: Lab, script: Script) -> Evidence | None:
    """A restart clears what ended the episode. Where resets begin episodes of one step, too, that is the env."""
    trace = await lab.play(script)
    episodes = played(trace, lab.facts).episodes
    for lane in range(script.lanes):
        own = [each for each in episodes if each.lane == lane and each.last is not None and not each.by_reset]
        if (3 / (_FRESH_STARTS + 2)) ** len(own) > _BY_CHANCE or any(each.length > 1 for each in own):
            continue
        ended = await _short_starts(lab, script, own)
        # Rather too many than too few are taken to be short by nature.
        if ((ended + 3) / (_FRESH_STARTS + 2)) ** len(own) > _BY_CHANCE:
            continue
        last = own[0].last
        assert last is not None
        return Evidence(
            (
                f"lane {lane}: {len(own)} episodes that the env began by itself, of 1 step each",
                f"of {_FRESH_STARTS} that a reset began, {ended} end with their first step",
            ),
            "restarted episodes of one step",
            "a counter or flag that reset() clears is not cleared by the restart",
            traces=(trace,),
            first=(last.op, lane),
        )
    return None


async def _short_starts(lab: Lab, script: Script, stuck: Sequence[Episode]) -> int:
    """How many episodes that a reset begins end with their first step, the actions being those of the *stuck* ones."""
    ended = 0
    for number in range(_FRESH_STARTS):
        step = script.ops[stuck[number % len(stuck)].places[0]]
        given = tuple([number * script.lanes + lane for lane in range(script.lanes)])
        trace = await lab.play(attrs.evolve(script, ops=(Reset(given), step)))
        lane = stuck[0].lane
        ended += any(each.lane == lane and each.last is not None for each in played(trace, lab.facts).episodes)
    return ended


@check(
    "autoreset.disabled.waits",
    severity="should",
    requirement="Without autoreset no lane restarts by itself: no record is opened without a reset.",
    rule=_RULE,
    cases=ending_scripts,
    example=ending_example,
    applies=_disabled,
    soak=True,
)
async def disabled_waits(lab: Lab, script: Script) -> Evidence | None:
    """Steps after an end belong to no episode."""
    trace = await lab.play(script)
    books = played(trace, lab.facts)
    for episode, last in books.ended:
        begins = [each.start for each in books.episodes if each.lane == episode.lane and each.start > last.op]
        known = {each.id for each in books.episodes if each is not episode} | books.left_out
        until = begins[0] if begins else len(script.ops)
        for answer in trace.answers:
            if not last.op < answer.op < until or episode.lane not in ended_lanes(answer):
                continue
            extra = [
                each for each in answer.completed if each.env_index == episode.lane and each.episode_id not in known
            ]
            if extra:
                place = step_place(script, answer.op, episode.lane)
                ended = place_text(script, last.op)
                return Evidence(
                    (
                        f"{ended} ended the episode",
                        f"{place}, without a reset, has a record of {extra[0].step_count} steps",
                    ),
                    "record without a reset",
                    "the lane was restarted, or is counted as if it had been",
                    blame="server",
                    traces=(trace,),
                    first=(answer.op, episode.lane),
                )
    return None
