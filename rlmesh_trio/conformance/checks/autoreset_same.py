"""The part of the family ``autoreset`` about ``SAME_STEP``: what ended is in ``final_obs`` and ``final_info``.

The step that ends an episode shows the first observation of the next one.
"""

from collections.abc import Sequence

import attrs

from rlmesh_trio.conformance.ending_scripts import ending_example, ending_scripts, held_actions
from rlmesh_trio.conformance.episodes import played, step_place
from rlmesh_trio.conformance.final_observations import final_entries, final_mask, final_row
from rlmesh_trio.conformance.infos import compared_infos, info_spot
from rlmesh_trio.conformance.lane_cases import RedrawnCase, redrawn_cases
from rlmesh_trio.conformance.leaf_bounds import bounds_of
from rlmesh_trio.conformance.live_lanes import ended_lanes
from rlmesh_trio.conformance.printing import place_text, value_text
from rlmesh_trio.conformance.registry import Facts, Lab, check
from rlmesh_trio.conformance.scripts import Reset, Script, Step
from rlmesh_trio.conformance.traces import Answer, Trace
from rlmesh_trio.conformance.verdicts import Evidence
from rlmesh_trio.contract import AutoresetMode, ValueSpace
from rlmesh_trio.messages import Metadata
from rlmesh_trio.recording.digests import lane_infos

__all__ = ("final_lane", "final_obs", "same_info")

_RULE = 'edition 2026.06 "Autoreset", gymnasium AutoresetMode'


def _same_step(facts: Facts) -> str | None:
    return None if facts.contract.autoreset_mode == AutoresetMode.SAME_STEP else "needs autoreset mode SAME_STEP"


def _several_same_step(facts: Facts) -> str | None:
    return _same_step(facts) or (None if facts.contract.num_envs >= 2 else "needs num_envs >= 2")


@check(
    "autoreset.same.final-obs",
    severity="must",
    requirement="final_obs and its mask are there for exactly the lanes that ended, each in the observation space.",
    rule=_RULE,
    cases=ending_scripts,
    example=ending_example,
    applies=_same_step,
    soak=True,
)
async def final_obs(lab: Lab, script: Script) -> Evidence | None:
    """Nothing of an episode is lost because the lane restarts at once."""
    trace = await lab.play(script)
    space = lab.facts.contract.observation_space
    for answer in trace.answers:
        if answer.refusal is not None or isinstance(script.ops[answer.op], Reset):
            continue
        ended = ended_lanes(answer)
        wanted = tuple([lane in ended for lane in answer.lanes])
        mask, entries = final_mask(answer, "final_obs"), final_entries(answer)
        there = tuple([entry is not None for entry in entries])
        nothing = (False,) * len(wanted)
        for name, got in (("_final_obs", mask), ("final_obs", there)):
            if (got or nothing) != wanted:
                what = f"{name} has {_lanes_told(answer.lanes, got)}" if got else f"no {name} in the infos"
                line = f"{place_text(script, answer.op)}: {_lanes_told(answer.lanes, wanted)} ended, {what}"
                lane = next((lane for lane, is_in in zip(answer.lanes, wanted, strict=True) if is_in), answer.lanes[0])
                meaning = "the last observations of episodes cannot be had, or there are some that are none"
                return Evidence((line,), f"{name} of other lanes", meaning, traces=(trace,), first=(answer.op, lane))
        for lane, entry in zip(answer.lanes, entries, strict=False):
            wrong = None if entry is None or space is None else _outside(space, entry, lab.facts)
            if wrong:
                line = f"{step_place(script, answer.op, lane)}: final_obs {value_text(entry)}: {wrong}"
                meaning = "what is kept as last observation is none"
                return Evidence((line,), "final_obs outside", meaning, traces=(trace,), first=(answer.op, lane))
    return None


def _lanes_told(lanes: Sequence[int], mask: Sequence[bool]) -> str:
    chosen = [str(lane) for lane, is_in in zip(lanes, mask, strict=False) if is_in]
    return f"lane{'s' if len(chosen) > 1 else ''} {', '.join(chosen)}" if chosen else "no lane"


def _outside(space: ValueSpace, entry: object, facts: Facts) -> str | None:
    """Why *entry* is no observation; ``None`` when it is one."""
    row = final_row(space, entry)
    if row is None:
        return "not of the observation's structure"
    if facts.bounds == "warn":
        return None
    for bounds, leaf in zip(bounds_of(space), row, strict=True):
        outside = bounds.first_outside(leaf)
        if outside is not None:
            return f"{bounds.name('obs')} {outside.why}"
    return None


def _redrawn_ends(facts: Facts) -> RedrawnCase:
    base = ending_example(facts)
    steps = held_actions(facts, len(base.ops) - 1, ahead=1)
    kept = [op.actions[0] for op in base.ops if isinstance(op, Step)]
    ops = [Step((row, *step.actions[1:])) for row, step in zip(kept, steps, strict=True)]
    reset = Reset((0, *[100 + lane for lane in range(1, base.lanes)]))
    return base, attrs.evolve(base, ops=(reset, *ops)), 0


@check(
    "autoreset.same.final-lane",
    severity="must",
    requirement="final_obs has for each lane what that lane saw last, and nothing of another.",
    rule=_RULE,
    cases=redrawn_cases,
    example=_redrawn_ends,
    applies=_several_same_step,
    after=("autoreset.same.final-obs", "lanes.solo-equal"),
    compares=True,
)
async def final_lane(lab: Lab, case: RedrawnCase) -> Evidence | None:
    """One lane's last observation stays what it is when all others are given other seeds and actions."""
    base, changed, kept = case
    a, b = await lab.play(base), await lab.play(changed)
    found = _other_final(a, b, kept)
    if found is None or _other_final(a, await lab.play(base), kept) is not None:
        return None
    place, entries = found
    other = _whose(a, place, kept, entries[0]), _whose(b, place, kept, entries[1])
    where = step_place(base, place, kept)
    lines = [
        f"{label}  {where}  final_obs = {value_text(entry)}{f', as lane {whose} had' if whose is not None else ''}"
        for label, entry, whose in zip("AB", entries, other, strict=True)
    ]
    return Evidence(
        (f"lane {kept} has one seed and one list of actions in A and B; B has others for other lanes", *lines),
        "final_obs of another lane",
        "entries are put together in another order than lanes",
        traces=(a, b),
        first=(place, kept),
    )


def _other_final(a: Trace, b: Trace, lane: int) -> tuple[int, tuple[object, object]] | None:
    """The first place where *lane* ended in both traces, and with another last observation."""
    for x, y in zip(a.answers, b.answers, strict=False):
        if x.op != y.op or x.refusal is not None or y.refusal is not None:
            return None
        if lane not in ended_lanes(x) or lane not in ended_lanes(y):
            if (lane in ended_lanes(x)) != (lane in ended_lanes(y)):
                return None
            continue
        entries = tuple([_entry(each, lane) for each in (x, y)])
        if entries[0] != entries[1]:
            return x.op, (entries[0], entries[1])
    return None


def _entry(answer: Answer, lane: int) -> object:
    entries = final_entries(answer)
    position = answer.lanes.index(lane)
    return entries[position] if position < len(entries) else None


def _whose(trace: Trace, place: int, lane: int, entry: object) -> int | None:
    """The other lane that got, in the same answer, what *lane* should have."""
    answer = next(each for each in trace.answers if each.op == place)
    same = [other for other in answer.lanes if other != lane and _entry(answer, other) == entry]
    return same[0] if same else None


@check(
    "autoreset.same.info",
    severity="should",
    requirement="final_info is there for exactly the lanes that ended, and says what their records say.",
    rule=_RULE,
    cases=ending_scripts,
    example=ending_example,
    applies=_same_step,
    after=("autoreset.same.final-obs", "acct.once"),
    soak=True,
)
async def same_info(lab: Lab, script: Script) -> Evidence | None:
    """The last infos are kept as the last observations are."""
    facts = lab.facts
    trace = await lab.play(script)
    for episode, answer in played(trace, facts).ended:
        ended = ended_lanes(answer)
        mask = final_mask(answer, "final_info")
        wanted = tuple([lane in ended for lane in answer.lanes])
        place = step_place(script, answer.op, episode.lane)
        if mask and mask != wanted:
            line = (
                f"{place}: {_lanes_told(answer.lanes, wanted)} ended, _final_info has {_lanes_told(answer.lanes, mask)}"
            )
            meaning = "the last infos of episodes cannot be had, or there are some that are none"
            return Evidence(
                (line,), "_final_info of other lanes", meaning, traces=(trace,), first=(answer.op, episode.lane)
            )
        own = compared_infos(_final_infos(answer, episode.lane), facts)
        records = [record for record in answer.completed if record.episode_id == episode.id]
        found = info_spot(own, compared_infos(records[0].final_info or {}, facts), "final_info") if records else None
        if found is not None:
            path, spot = found
            return Evidence(
                (f"{place}: {path} is {spot.values[0]!r}, and {spot.values[1]!r} in the episode's record",),
                f"{path} differs",
                "the record has the infos of the episode that has begun, or of another lane",
                blame="server",
                traces=(trace,),
                first=(answer.op, episode.lane),
            )
    return None


def _final_infos(answer: Answer, lane: int) -> Metadata:
    told = (answer.infos or {}).get("final_info")
    if not isinstance(told, dict):
        return {}
    return lane_infos(told, answer.lanes.index(lane), len(answer.lanes))
