"""The family ``lanes``: a lane is an env of its own, whatever the others do and however many there are.

Infos of a vector that moves in lockstep are not compared: gymnasium joins those of all lanes in arrays of one dtype,
that of the first lane that has any, so that a lane's own may be cut to whole numbers by another's.
"""

from collections.abc import Mapping

import attrs

from rlmesh_trio.conformance.comparing import confirmed, difference_evidence
from rlmesh_trio.conformance.differences import Difference, first_difference, lane_fingerprint, without
from rlmesh_trio.conformance.lane_cases import (
    BadResetCase,
    PartialCase,
    PermutedCase,
    RedrawnCase,
    SeedsCase,
    WidthCase,
    bad_reset_cases,
    bad_reset_example,
    of_width,
    partial_cases,
    partial_example,
    permuted_cases,
    permuted_example,
    redrawn_cases,
    redrawn_example,
    seeds_cases,
    seeds_example,
    width_cases,
    width_example,
)
from rlmesh_trio.conformance.printing import place_text
from rlmesh_trio.conformance.registry import Facts, Lab, check
from rlmesh_trio.conformance.scripts import Reset, Script, Step
from rlmesh_trio.conformance.traces import Answer, Trace
from rlmesh_trio.conformance.verdicts import Evidence

__all__ = (
    "partial_reset_args",
    "partial_reset_local",
    "permute",
    "seed_distinct",
    "solo_equal",
    "width_equal",
)

_RULE = 'edition 2026.06 "Lanes", gymnasium VectorEnv: sub-environments are independent'
_PARTIAL_RULE = 'edition 2026.06 "Reset": env_indices'


def _several(facts: Facts) -> str | None:
    return None if facts.contract.num_envs >= 2 else "needs num_envs >= 2"


def _several_seeded(facts: Facts) -> str | None:
    if facts.told.get("deterministic"):
        return "needs an env that seeds make a difference to: this one is deterministic"
    return _several(facts)


def _any_width(facts: Facts) -> str | None:
    if not (facts.local and facts.subset_step):
        return "needs a factory of single envs: a running server and a vector env have the width they have"
    return _several(facts)


async def _lane_difference(
    lab: Lab, base: Script, traces: tuple[Trace, Trace], lanes: Mapping[int, int]
) -> Difference | None:
    """Where the two traces, of which the first is that of *base*, part in the *lanes* mapped."""
    difference = await confirmed(*traces, lambda: lab.play(base), lab.facts, lanes=lanes)
    joined = difference is not None and difference.info_only and not lab.facts.subset_step
    return None if joined else difference


@check(
    "lanes.seed-distinct",
    severity="must",
    requirement="Lanes with different seeds are not copies of one another.",
    rule=_RULE,
    cases=seeds_cases,
    example=seeds_example,
    applies=_several_seeded,
    after=("seed.sensitive",),
    compares=True,
)
async def seed_distinct(lab: Lab, case: SeedsCase) -> Evidence | None:
    """Two lanes that are alike stay alike when their seeds change places, though they both become others: copies."""
    script, one, other = case
    first = await lab.play(script)
    alike = lane_fingerprint(first, one, lab.facts)
    if lane_fingerprint(first, other, lab.facts) != alike:
        return None
    swapped = await lab.play(_with_seeds_swapped(script, one, other))
    alike_again = lane_fingerprint(swapped, one, lab.facts)
    if lane_fingerprint(swapped, other, lab.facts) != alike_again or alike == alike_again:
        return None
    if lane_fingerprint(await lab.play(script), one, lab.facts) != alike:
        return None
    reset = script.ops[0]
    assert isinstance(reset, Reset)
    return Evidence(
        (
            f"lane {one} seeded {reset.seeds[one]} and lane {other} seeded {reset.seeds[other]}:"
            f" equal in {len(alike)} answers",
            "with the two seeds swapped: equal again, and both are other than before",
        ),
        "lanes are copies",
        "all lanes get the seed of one of them",
        traces=(first, swapped),
        first=(0, other),
    )


def _with_seeds_swapped(script: Script, one: int, other: int) -> Script:
    reset = script.ops[0]
    assert isinstance(reset, Reset)
    seeds = list(reset.seeds)
    seeds[one], seeds[other] = seeds[other], seeds[one]
    return attrs.evolve(script, ops=(attrs.evolve(reset, seeds=tuple(seeds)), *script.ops[1:]))


@check(
    "lanes.solo-equal",
    severity="must",
    requirement="A lane's trace depends on its own seed and actions alone: with all others redrawn, it stays.",
    rule=_RULE,
    cases=redrawn_cases,
    example=redrawn_example,
    applies=_several,
    after=("lanes.seed-distinct",),
    compares=True,
)
async def solo_equal(lab: Lab, case: RedrawnCase) -> Evidence | None:
    """Nothing goes from lane to lane."""
    base, changed, kept = case
    a, b = await lab.play(base), await lab.play(changed)
    difference = await _lane_difference(lab, base, (a, b), {kept: kept})
    if difference is None:
        return None
    others = sorted({lane for op, new in zip(base.ops, changed.ops, strict=True) for lane in _changed_lanes(op, new)})
    line = f"lane {kept} has one seed and one list of actions in A and B; B has others for {_lanes_text(others)}"
    meaning = "lanes share a generator, a buffer or a simulator"
    return difference_evidence(difference, a, b, ("A", "B"), meaning, line)


def _changed_lanes(op: object, new: object) -> list[int]:
    if isinstance(op, Reset) and isinstance(new, Reset):
        pairs = zip(op.seeds, new.seeds, strict=True)
        return [lane for lane, (before, after) in enumerate(pairs) if before != after]
    if isinstance(op, Step) and isinstance(new, Step):
        rows = zip(op.actions, new.actions, strict=True)
        return [lane for lane, (before, after) in enumerate(rows) if before != after]
    return []


def _lanes_text(lanes: list[int]) -> str:
    if len(lanes) == 1:
        return f"lane {lanes[0]}"
    return f"lanes {', '.join(map(str, lanes[:6]))}{', ...' if len(lanes) > 6 else ''}"


@check(
    "lanes.permute",
    severity="should",
    requirement="Seeds and actions in another order of lanes give the same traces in that order.",
    rule=_RULE,
    cases=permuted_cases,
    example=permuted_example,
    applies=_several,
    after=("lanes.seed-distinct", "lanes.solo-equal"),
    compares=True,
)
async def permute(lab: Lab, case: PermutedCase) -> Evidence | None:
    """One lane is as good as another."""
    base, permuted, order = case
    a, b = await lab.play(base), await lab.play(permuted)
    difference = await _lane_difference(lab, base, (a, b), dict(enumerate(order)))
    if difference is None:
        return None
    line = f"lane {difference.lanes[1]} of B has the seed and the actions of lane {difference.lanes[0]} of A"
    return difference_evidence(difference, a, b, ("A", "B"), "the env of a lane knows its number", line)


@check(
    "lanes.width-equal",
    severity="should",
    requirement="A lane behaves the same however many lanes there are.",
    rule=_RULE,
    cases=width_cases,
    example=width_example,
    applies=_any_width,
    after=("lanes.solo-equal",),
    compares=True,
)
async def width_equal(lab: Lab, case: WidthCase) -> Evidence | None:
    """Being one of many makes no difference."""
    narrow, wide = case
    facts = of_width(lab.facts, narrow.lanes)
    a = await lab.play_local(narrow, width=narrow.lanes)
    b = await lab.play_local(wide, width=wide.lanes)
    lanes = {lane: lane for lane in range(narrow.lanes)}
    difference = await confirmed(a, b, lambda: lab.play_local(narrow, width=narrow.lanes), facts, lanes=lanes)
    if difference is None:
        return None
    labels = f"{narrow.lanes} wide", f"{wide.lanes} wide"
    return difference_evidence(
        difference, a, b, labels, "the env of a lane knows how many there are, or shares with them"
    )


@check(
    "lanes.partial-reset-local",
    severity="must",
    requirement="Resetting some lanes leaves the coming trace of every other as it was, or is refused as UNSUPPORTED.",
    rule=_PARTIAL_RULE,
    cases=partial_cases,
    example=partial_example,
    applies=_several,
    after=("lanes.solo-equal",),
    compares=True,
)
async def partial_reset_local(lab: Lab, case: PartialCase) -> Evidence | None:
    """A reset reaches the lanes it names."""
    script, place = case
    reset = script.ops[place]
    assert isinstance(reset, Reset)
    base = attrs.evolve(script, ops=script.ops[:place] + script.ops[place + 1 :])
    a, with_reset = await lab.play(base), await lab.play(script)
    answer = _answer_at(with_reset, place)
    if answer is None:
        return None
    if answer.refusal is not None:
        return _refused_reset(reset, answer, with_reset) if answer.refusal.code != "UNSUPPORTED" else None
    b = without(with_reset, {place})
    lanes = {lane: lane for lane in range(script.lanes) if lane not in reset.lanes}
    difference = await _lane_difference(lab, base, (a, b), lanes)
    if difference is None:
        return None
    touched = _lanes_text(list(reset.lanes))
    labels = "without", f"{touched} reset"
    return difference_evidence(difference, a, b, labels, f"a reset of {touched} restarts or disturbs other lanes")


def _answer_at(trace: Trace, place: int) -> Answer | None:
    return next((answer for answer in trace.answers if answer.op == place), None)


def _refused_reset(reset: Reset, answer: Answer, trace: Trace) -> Evidence:
    refusal = answer.refusal
    assert refusal is not None
    return Evidence(
        (f"reset of {_lanes_text(list(reset.lanes))}: {refusal.code}: {refusal.message}",),
        f"partial reset refused as {refusal.code}",
        "what cannot reset lanes by name says UNSUPPORTED",
        blame="server",
        traces=(trace,),
        first=(answer.op, reset.lanes[0]),
    )


@check(
    "lanes.partial-reset-args",
    severity="must",
    requirement="Lanes named twice, lanes not there and a wrong number of seeds are refused, and nothing restarts.",
    rule=_PARTIAL_RULE,
    cases=bad_reset_cases,
    example=bad_reset_example,
    applies=_several,
    compares=True,
)
async def partial_reset_args(lab: Lab, case: BadResetCase) -> Evidence | None:
    """A list of lanes is checked before anything happens."""
    base, reset, place = case
    script = attrs.evolve(base, ops=(*base.ops[:place], reset, *base.ops[place:]))
    a, with_reset = await lab.play(base), await lab.play(script)
    answer = _answer_at(with_reset, place)
    if answer is None:
        return None
    asked = f"lanes {list(reset.lanes)} with {len(reset.seeds)} seed{'' if len(reset.seeds) == 1 else 's'}"
    if answer.refusal is None:
        return Evidence(
            (f"{place_text(script, place)}: {asked} of {script.lanes} lanes: accepted",),
            "bad list of lanes accepted",
            "the server does not look at the lanes it is given",
            blame="server",
            traces=(with_reset,),
            first=(place, 0),
        )
    b = without(with_reset, {place})
    if first_difference(a, b, lab.facts) is None and with_reset.lost == a.lost:
        return None
    lost = f"{asked}: refused as {answer.refusal.code}"
    difference = await confirmed(a, b, lambda: lab.play(base), lab.facts)
    if difference is not None:
        shown = difference_evidence(difference, a, b, ("without", "refused"), "a refused reset restarts lanes", lost)
        return attrs.evolve(shown, blame="server")
    if with_reset.lost is None or a.lost is not None:
        return None
    return Evidence(
        (f"{lost}, and the session is over: {answer.refusal.message}",),
        "bad list of lanes ends the session",
        "a request that is wrong is no reason to end a session",
        blame="server",
        traces=(with_reset,),
        first=(place, 0),
    )
