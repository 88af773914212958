"""The family ``value``: rewards, warnings and masks of single answers, and what was seen of the observations in all."""

import math
import struct

from hypothesis.strategies import SearchStrategy

from rlmesh_trio.conformance.action_masks import MASKS_SEEN, Mask, MaskReader
from rlmesh_trio.conformance.live_lanes import Moment, ended_lanes, moments
from rlmesh_trio.conformance.near_members import slipped_example, slipped_scripts, sorts_of
from rlmesh_trio.conformance.printing import row_text
from rlmesh_trio.conformance.refused_observations import withheld
from rlmesh_trio.conformance.registry import Facts, Lab, check
from rlmesh_trio.conformance.scripts import Op, Script, Step
from rlmesh_trio.conformance.seen_ranges import ranges_seen
from rlmesh_trio.conformance.server_warnings import warnings_in
from rlmesh_trio.conformance.strategies import example_script, scripts
from rlmesh_trio.conformance.traces import Answer
from rlmesh_trio.conformance.verdicts import Evidence

__all__ = ("bounds_report", "mask_honest", "reward_finite", "warning_once")

_STEPS = 48
_FEWEST_SLIPS = 2
_MOST_SLIPS = 6


@check(
    "value.reward-finite",
    severity="must",
    requirement="Every reward is a finite number.",
    rule="gymnasium Env.step: the reward is a float; infinity and NaN are none that can be summed",
    cases=lambda facts: scripts(facts, steps=_STEPS, reseed=True),
    example=example_script,
    soak=True,
)
async def reward_finite(lab: Lab, script: Script) -> Evidence | None:
    """Look at every reward, and climb to large ones."""
    trace = await lab.play(script)
    space = lab.facts.contract.action_space
    largest = 0.0
    for moment in moments(trace, lab.facts):
        for lane in () if moment.is_reset else moment.lanes:
            reward = moment.of(lane, moment.answer.rewards)
            if reward is None:
                continue
            if not math.isfinite(reward):
                bits = struct.pack(">d", reward).hex()
                action = row_text(moment.action(lane), space)
                lines = (f"{moment.place(lane)}  reward = {reward}   (0x{bits})   for the action {action}",)
                meaning = "The reward divides by zero or takes a logarithm of it; one such reward spoils every sum."
                kind = "nan" if math.isnan(reward) else "infinite"
                return moment.evidence(lines, f"reward {kind}", meaning, lane=lane)
            largest = max(largest, abs(reward))
    lab.target(largest, "reward")
    return None


def _needs_server(facts: Facts) -> str | None:
    return None if facts.served else "needs a server: it is the server that warns"


def _straying_scripts(facts: Facts) -> SearchStrategy[Script]:
    """Long scripts, with actions out of range where there are any."""
    if "range" in sorts_of(facts):
        return slipped_scripts(facts, "range", steps=_STEPS, fewest=_FEWEST_SLIPS, most=_MOST_SLIPS)
    return scripts(facts, steps=_STEPS, fewest=_STEPS // 2)


def _straying_example(facts: Facts) -> Script:
    if "range" not in sorts_of(facts):
        return example_script(facts, steps=_STEPS)
    script = slipped_example(facts, "range")
    strays = [op for op in script.ops if isinstance(op, Step)]
    return Script(script.lanes, (*script.ops, *strays))


@check(
    "value.warning-once",
    severity="should",
    requirement="The infos warn at most once in a session of one kind of value at one path.",
    rule='edition 2026.06, "Conformance warnings"',
    cases=_straying_scripts,
    example=_straying_example,
    applies=_needs_server,
    soak=True,
)
async def warning_once(lab: Lab, script: Script) -> Evidence | None:
    """Stray again and again, and read what the server says of it."""
    trace = await lab.play(script)
    told: dict[tuple[str, str], Moment] = {}
    for moment in moments(trace, lab.facts):
        for warning in warnings_in(moment.answer):
            if warning in told:
                kind, path = warning
                earlier = f"{told[warning].place()}  warns of the {kind} at {path}"
                meaning = "The server, or the env, repeats itself: infos grow, and who reads them is told nothing new."
                lines = (earlier, f"{moment.place()}  warns of it again")
                return moment.evidence(lines, f"{kind} warned of again", meaning, blame="server")
            told[warning] = moment
    return None


def _needs_masks(facts: Facts) -> str | None:
    if not MaskReader(facts).possible:
        return "needs an action space that masks are for: one Discrete, or one MultiDiscrete of one dimension"
    return None if facts.told.get(MASKS_SEEN) else "needs an action_mask in infos or observations: none was seen"


class _Follower:
    """Plays *script* without what the masks forbid: such a step is left out, or the lane in it where that can be."""

    def __init__(self, script: Script, masks: MaskReader, facts: Facts) -> None:
        self._script = script
        self._ops = iter(script.ops)
        self._masks = masks
        self._by_name = facts.subset_step and script.lanes > 1
        self._known: dict[int, Mask | None] = {}

    def choose(self, answer: Answer | None) -> Op | None:
        """The next op that the masks after *answer* allow."""
        if answer is not None and answer.refusal is None:
            self._known.update({lane: self._masks.of(answer, lane) for lane in answer.lanes})
        for op in self._ops:
            allowed = self._allowed(op) if isinstance(op, Step) else op
            if allowed is not None:
                return allowed
        return None

    def _allowed(self, step: Step) -> Step | None:
        pairs = zip(self._script.lanes_of(step), step.actions, strict=True)
        left = [(lane, row) for lane, row in pairs if self._masks.allows(self._known.get(lane), row)]
        if len(left) == len(step.actions):
            return step
        if not left or not self._by_name:
            return None
        return Step(tuple([row for _, row in left]), tuple([lane for lane, _ in left]))


@check(
    "value.mask-honest",
    severity="should",
    requirement="An action_mask allows some action before the end of an episode, and what it allows is accepted.",
    rule="gymnasium.spaces.Space.sample(mask): the mask says what may be sampled",
    cases=lambda facts: scripts(facts, steps=_STEPS),
    example=lambda facts: example_script(facts, steps=24),
    applies=_needs_masks,
    after=("space.member-accepted",),
)
async def mask_honest(lab: Lab, script: Script) -> Evidence | None:
    """Follow the masks as far as they lead."""
    masks = MaskReader(lab.facts)
    trace = await lab.improvise(_Follower(script, masks, lab.facts).choose)
    last: dict[int, Mask | None] = {}
    for moment in moments(trace, lab.facts):
        answer = moment.answer
        if answer.refusal is not None:
            masked = [lane for lane in moment.lanes if last.get(lane) is not None]
            if moment.whole and not moment.is_reset and masked and withheld(answer.refusal) is None:
                return _refused(moment, masked[0], last[masked[0]], lab.facts)
            continue
        over = ended_lanes(answer)
        for lane in answer.lanes:
            mask = last[lane] = None if lane in over else masks.of(answer, lane)
            if mask is not None and lane in moment.lanes and mask.is_empty:
                lines = (f"{moment.place(lane)}  action_mask = {mask}", "the episode goes on, and no action is allowed")
                meaning = "A policy that goes by the mask has nothing to choose from; sampling by it fails."
                return moment.evidence(lines, "no action is allowed", meaning, lane=lane)
    return None


def _refused(moment: Moment, lane: int, mask: Mask | None, facts: Facts) -> Evidence:
    refusal = moment.answer.refusal
    assert refusal is not None
    action = row_text(moment.action(lane), facts.contract.action_space)
    lines = (
        f"{moment.place(lane)}  action {action}, which action_mask = {mask} allows",
        f"{refusal.code}: {refusal.message}",
    )
    meaning = "The mask and step() do not agree on what is allowed."
    return moment.evidence(lines, f"an allowed action gives {refusal.code}", meaning, lane=lane)


@check(
    "space.bounds-report",
    severity="note",
    requirement="What was seen of each leaf of the observations stands beside what is declared.",
    rule="none: nothing is demanded",
    cases=lambda facts: scripts(facts, steps=_STEPS, reseed=True),
    example=lambda facts: example_script(facts, steps=24),
    soak=True,
)
async def bounds_report(lab: Lab, script: Script) -> Evidence | None:
    """Add what is seen to what was, and tell all of it."""
    seen = ranges_seen(lab.facts)
    seen.note(await lab.play(script))
    lines = seen.table()
    return (
        Evidence(lines, "bounds", "Leaves that never move, or stay far from their bounds, may be mistakes.")
        if lines
        else None
    )
