"""The family ``space``: observations are what the observation space says, and actions what the action space says.

What a lane does behind the end of its episode, before a reset, is left alone. An observation that the server kept to
itself counts as what the server says of it. One fault is told once: NaN is not out of bounds besides, and an
observation that was refused is no action that was.
"""

import re

import attrs

from rlmesh_trio.conformance.action_masks import MaskReader
from rlmesh_trio.conformance.comparing import confirmed, difference_evidence
from rlmesh_trio.conformance.differences import without
from rlmesh_trio.conformance.leaf_bounds import LeafBounds, Outside, bounds_of
from rlmesh_trio.conformance.live_lanes import Moment, moments
from rlmesh_trio.conformance.near_members import Deviation, deviation_of, slipped_example, slipped_scripts, sorts_of
from rlmesh_trio.conformance.printing import row_text
from rlmesh_trio.conformance.refused_observations import Flaw, withheld
from rlmesh_trio.conformance.registry import Facts, Lab, check
from rlmesh_trio.conformance.scripts import Reset, Script
from rlmesh_trio.conformance.seen_ranges import ranges_seen
from rlmesh_trio.conformance.server_warnings import warnings_in
from rlmesh_trio.conformance.strategies import example_script, scripts
from rlmesh_trio.conformance.traces import Refusal, Trace
from rlmesh_trio.conformance.verdicts import Evidence
from rlmesh_trio.errors import SpaceError
from rlmesh_trio.spaces import codec_for
from rlmesh_trio.spaces.leaf_values import leaf_name

__all__ = (
    "member_accepted",
    "nonmember_refused",
    "obs_contained",
    "obs_no_nan",
    "obs_structure",
    "refusal_harmless",
)

_VALUES = 'edition 2026.06, "Value Conformance"'
_PAIRS = ("py.reset-pair", "py.step-five")
_STEPS = 48
_TARGETS = 8
_RAISED = re.compile(r"(?:reset|step) failed: (\w+)")


async def _played(lab: Lab, script: Script) -> Trace:
    trace = await lab.play(script)
    ranges_seen(lab.facts).note(trace)
    return trace


def _withheld_as(flaw: Flaw, moment: Moment, meaning: str) -> Evidence | None:
    """The evidence that the server withheld an observation for *flaw*."""
    found = withheld(moment.answer.refusal) if moment.whole else None
    if found is None or found.flaw != flaw:
        return None
    name = leaf_name("obs", found.path)
    lines = (f"{moment.place()}  {name}: {found.why}", "the server has refused to send this observation")
    return moment.evidence(lines, f"{name} {flaw}", meaning)


def _at(name: str, index: tuple[int, ...]) -> str:
    return name + "".join(f"[{i}]" for i in index)


@check(
    "space.obs-structure",
    severity="must",
    requirement="Observations have the declared leaves of lanes x elements x width bytes; masks and rewards fit.",
    rule='edition 2026.06, "Vectorization" and "Value Conformance"',
    cases=lambda facts: scripts(facts, steps=_STEPS, reseed=True),
    example=example_script,
    after=_PAIRS,
    soak=True,
)
async def obs_structure(lab: Lab, script: Script) -> Evidence | None:
    """Count leaves and bytes of every answer."""
    trace = await _played(lab, script)
    space = lab.facts.contract.observation_space
    assert space is not None
    meaning = "The env returns something else than it declares: another shape, another nesting, a key too few."
    for moment in moments(trace, lab.facts):
        answer = moment.answer
        evidence = _withheld_as("structure", moment, meaning)
        if evidence is not None:
            return evidence
        if answer.refusal is not None:
            continue
        try:
            codec_for(space).check_layout(answer.raw_leaves, len(answer.lanes))
        except SpaceError as wrong:
            name = leaf_name("obs", wrong.path)
            lines = (f"{moment.place()}  {name}: {wrong.why}",)
            return moment.evidence(lines, f"{name} structure", meaning, blame="server")
        widths = (("rewards", answer.rewards), ("terminated", answer.terminated), ("truncated", answer.truncated))
        for name, values in () if moment.is_reset else widths:
            if len(values) not in (0, len(answer.lanes)):
                lines = (f"{moment.place()}  {len(values)} {name} for {len(answer.lanes)} lanes",)
                return moment.evidence(lines, f"{name} width", "A client cannot tell whose they are.", blame="server")
    return None


@check(
    "space.obs-contained",
    severity="must",
    requirement="Every observation, of a reset, a step or an end, lies in the declared space.",
    rule="gymnasium Env.observation_space; " + _VALUES,
    cases=lambda facts: scripts(facts, steps=_STEPS, reseed=True),
    example=lambda facts: example_script(facts, steps=24),
    after=("space.obs-structure",),
    soak=True,
)
async def obs_contained(lab: Lab, script: Script) -> Evidence | None:
    """Compare every element with its bounds, and climb towards them."""
    trace = await _played(lab, script)
    facts = lab.facts
    space = facts.contract.observation_space
    assert space is not None
    leaves = bounds_of(space)
    meaning = "The declared bounds are too narrow, or a value is not clipped; learners scale and clip by them."
    for moment in moments(trace, facts):
        evidence = _withheld_as("outside", moment, meaning)
        if evidence is not None:
            return evidence
        for lane in moment.lanes:
            row = moment.row(lane)
            for bounds, leaf in zip(leaves, row, strict=False):
                outside = bounds.first_outside(leaf)
                if outside is not None:
                    return _left(moment, lane, bounds, outside, meaning, facts)
    _climb(lab, trace, leaves)
    return None


def _left(moment: Moment, lane: int, bounds: LeafBounds, outside: Outside, meaning: str, facts: Facts) -> Evidence:
    name = bounds.name("obs")
    lines = (f"{moment.place(lane)}  {_at(name, outside.index)} = {outside.value}   {outside.why}",)
    evidence = moment.evidence(lines, f"{name} {outside.side}", meaning, lane=lane)
    lenient = facts.bounds == "warn" and bounds.spec.kind in ("box", "text")
    return attrs.evolve(evidence, severity="should") if lenient else evidence


def _climb(lab: Lab, trace: Trace, leaves: tuple[LeafBounds, ...]) -> None:
    """Tell the search how near the first leaves came to their bounds."""
    seen = [moment.row(lane) for moment in moments(trace, lab.facts) for lane in moment.lanes]
    for number, bounds in enumerate(leaves[:_TARGETS]):
        found = [near for row in seen if number < len(row) and (near := bounds.nearness(row[number])) is not None]
        if found:
            lab.target(max(found), bounds.name("obs"))


@check(
    "space.obs-no-nan",
    severity="must",
    requirement="No element of an observation is NaN.",
    rule=_VALUES + ': "NaN is never a member of any space"',
    cases=lambda facts: scripts(facts, steps=_STEPS, reseed=True),
    example=example_script,
    after=("space.obs-structure",),
    soak=True,
)
async def obs_no_nan(lab: Lab, script: Script) -> Evidence | None:
    """Look for NaN, and tell the action before it."""
    trace = await _played(lab, script)
    facts = lab.facts
    space = facts.contract.observation_space
    assert space is not None
    meaning = "Something divides by zero, or takes a root of what is negative; NaN spreads into a learner's weights."
    for moment in moments(trace, facts):
        evidence = _withheld_as("nan", moment, meaning)
        if evidence is not None:
            return attrs.evolve(evidence, lines=(*evidence.lines, *_action_before(moment, None, facts)))
        for lane in moment.lanes:
            row = moment.row(lane)
            for bounds, leaf in zip(bounds_of(space), row, strict=False):
                index = bounds.first_nan(leaf)
                if index is not None:
                    name = bounds.name("obs")
                    lines = (f"{moment.place(lane)}  {_at(name, index)} = nan", *_action_before(moment, lane, facts))
                    return moment.evidence(lines, f"{name} nan", meaning, lane=lane)
    return None


def _action_before(moment: Moment, lane: int | None, facts: Facts) -> tuple[str, ...]:
    """What led to *moment*, in a line."""
    if moment.is_reset:
        return ()
    lanes = moment.answer.lanes if lane is None else (lane,)
    told = [row_text(moment.action(each), facts.contract.action_space) for each in lanes]
    return (f"after the action {', '.join(told)}",)


@check(
    "space.member-accepted",
    severity="must",
    requirement="Resets, and all members of the action space that no mask forbids, are accepted in any state reached.",
    rule="gymnasium Env.step and Env.action_space",
    cases=lambda facts: scripts(facts, steps=_STEPS, reseed=True, unseeded=True),
    example=lambda facts: example_script(facts, steps=24),
    after=_PAIRS,
    soak=True,
)
async def member_accepted(lab: Lab, script: Script) -> Evidence | None:
    """Play on, until something is refused that may not be."""
    trace = await _played(lab, script)
    masks = MaskReader(lab.facts)
    masks.note(trace)
    before: dict[int, Moment] = {}
    steps = 0
    for moment in moments(trace, lab.facts):
        refusal = moment.answer.refusal
        if refusal is None:
            steps += not moment.is_reset
            before.update(dict.fromkeys(moment.answer.lanes, moment))
        elif moment.whole and withheld(refusal) is None and not _forbidden(moment, before, masks):
            return _refused(moment, refusal, lab.facts)
    lab.target(steps, "steps")
    return None


def _forbidden(moment: Moment, before: dict[int, Moment], masks: MaskReader) -> bool:
    """Whether a mask forbids what one of the lanes was asked to do."""
    for lane in () if moment.is_reset else moment.lanes:
        last = before.get(lane)
        mask = None if last is None else masks.of(last.answer, lane)
        if not masks.allows(mask, moment.action(lane)):
            return True
    return False


def _refused(moment: Moment, refusal: Refusal, facts: Facts) -> Evidence:
    raised = _RAISED.match(refusal.message)
    how = f"raises {raised[1]}" if raised else f"gives {refusal.code}"
    if isinstance(moment.op, Reset):
        what, told = "reset", f"with the seeds {list(moment.op.seeds)}" if moment.op.seeds else "without seeds"
    else:
        asked = [row_text(moment.action(lane), facts.contract.action_space) for lane in moment.lanes]
        what, told = "step", f"with the action {', '.join(asked)}"
    lines = (f"{moment.place()}  {told}", f"{refusal.code}: {refusal.message}")
    meaning = f"{what}() fails on something that the spaces admit: a state or a value that nobody thought of."
    return moment.evidence(lines, f"{what} {how}", meaning)


def _needs_deviations(facts: Facts) -> str | None:
    return None if sorts_of(facts) else "needs an action leaf that does not admit every value"


def _deviant(moment: Moment, facts: Facts) -> tuple[int, Deviation] | None:
    """The first lane, all being live, that was given no member of the action space, and why it is none."""
    space = facts.contract.action_space
    if moment.is_reset or not moment.whole or space is None:
        return None
    for lane in moment.lanes:
        deviation = deviation_of(moment.action(lane), space)
        if deviation is not None:
            return lane, deviation
    return None


@check(
    "space.nonmember-refused",
    severity="must",
    requirement="What is just no action gets INVALID_ACTION, recoverable; out of range a warning will do.",
    rule=_VALUES,
    cases=slipped_scripts,
    example=slipped_example,
    applies=_needs_deviations,
)
async def nonmember_refused(lab: Lab, script: Script) -> Evidence | None:
    """Put values into steps that are a unit or an ulp outside, or NaN, in two sessions: each is to be warned anew."""
    for _ in range(2):
        evidence = _unrefused(await lab.play_fresh(script), lab.facts)
        if evidence is not None:
            return evidence
    return None


def _unrefused(trace: Trace, facts: Facts) -> Evidence | None:
    """What in *trace*, which is all of a session, was neither refused as it should have been, nor warned of."""
    strayed: set[str] = set()
    warned: set[str] = set()
    for moment in moments(trace, facts):
        warned.update(path for kind, path in warnings_in(moment.answer) if kind == "action")
        found = _deviant(moment, facts)
        refusal = moment.answer.refusal
        if found is None or _is_refused(refusal):
            continue
        lane, deviation = found
        if refusal is not None and refusal.code == "TIMEOUT":
            return None
        if deviation.sort == "range":
            strayed.add(deviation.path)
            if refusal is not None and refusal.code != "INVALID_ACTION":
                return None  # it was passed on, and the env has raised
            # The form of the path in a warning is the server's own, so they are counted.
            if refusal is None and len(warned) >= len(strayed):
                continue
        return _taken(moment, lane, deviation)
    return None


def _is_refused(refusal: Refusal | None) -> bool:
    return refusal is not None and refusal.code == "INVALID_ACTION" and refusal.recoverable


def _taken(moment: Moment, lane: int, deviation: Deviation) -> Evidence:
    refusal = moment.answer.refusal
    name = leaf_name("action", deviation.path)
    if refusal is None:
        how = "passed on without a warning" if deviation.sort == "range" else "taken"
        answer = "the step was answered as any other"
    else:
        how = f"{refusal.code}{'' if refusal.recoverable else ', not recoverable'}"
        answer = f"{how}: {refusal.message}"
    lines = (f"{moment.place(lane)}  {name}: {deviation.why}", answer)
    meaning = "The server does not check actions, and the env gets what it has never declared."
    evidence = moment.evidence(lines, f"{deviation.kind} {deviation.sort} {how}", meaning, lane=lane, blame="server")
    silent = refusal is None and deviation.sort == "range"
    return attrs.evolve(evidence, severity="should") if silent else evidence


def _needs_refusals(facts: Facts) -> str | None:
    if "structural" in sorts_of(facts):
        return None
    return "needs an action leaf with values that every server refuses: floats, Discrete or MultiDiscrete"


@check(
    "space.refusal-harmless",
    severity="must",
    requirement="A script with refused actions slipped in has the trace of the script without them.",
    rule=_VALUES + ": the action is not delivered",
    cases=lambda facts: slipped_scripts(facts, "structural"),
    example=lambda facts: slipped_example(facts, "structural"),
    applies=_needs_refusals,
    after=("space.nonmember-refused",),
    compares=True,
)
async def refusal_harmless(lab: Lab, script: Script) -> Evidence | None:
    """Play the script with and without what is refused."""
    facts = lab.facts
    slipped = await lab.play(script)
    refused: list[int] = []
    for moment in moments(slipped, facts):
        if _deviant(moment, facts) is not None:
            if not _is_refused(moment.answer.refusal):
                return None
            refused.append(moment.answer.op)
    if not refused:
        return None
    bare = attrs.evolve(script, ops=tuple([op for place, op in enumerate(script.ops) if place not in refused]))
    plain, left = await lab.play(bare), without(slipped, refused)
    difference = await confirmed(plain, left, lambda: lab.play(bare), facts)
    if difference is None:
        return None
    meaning = "The server acts before it has checked the action: a lane has stepped, or an episode was counted."
    labels = ("without refusals", "with refusals")
    return attrs.evolve(difference_evidence(difference, plain, left, labels, meaning), blame="server")
