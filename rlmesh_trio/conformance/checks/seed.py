"""The family ``seed``: a seeded reset starts the same run again, whatever was played before and however fast.

Two plays of one script that differ may have two reasons: the env draws from something that the seed does not set, or
the first play left something behind. So the script is played a few times more, apart from everything: an env that
repeats itself then is one that remembers, which is for ``seed.history-independent`` to say.
"""

import attrs
from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

from rlmesh_trio.conformance.comparing import confirmed, difference_evidence
from rlmesh_trio.conformance.differences import Difference, first_difference, lane_fingerprint, without
from rlmesh_trio.conformance.registry import Facts, Lab, check
from rlmesh_trio.conformance.scripts import Op, Reset, Script, Step, Wait
from rlmesh_trio.conformance.strategies import example_script, resets, scripts, seeds, waits
from rlmesh_trio.conformance.traces import Trace
from rlmesh_trio.conformance.verdicts import Evidence

__all__ = (
    "followup_repeatable",
    "history_independent",
    "reset_repeatable",
    "seed_sensitive",
    "timing_independent",
    "trace_repeatable",
)

_RULE = 'edition 2026.06 "Reset", gymnasium Env.reset'
_RUNS = ("one run", "another")
_SEEDS = 16
_SENSITIVE_STEPS = 24
_REMEMBERS = "remembers"
_TIMES_BELIEVED = 3
_MORE_RUNS = 3


def _repeats(facts: Facts) -> str | None:
    return (
        "needs an env whose traces repeat: this one was declared nondeterministic" if facts.nondeterministic else None
    )


def _is_seeded(script: Script) -> bool:
    """Whether *script* begins with a seeded reset of every lane: without one it need not repeat."""
    first = script.ops[0] if script.ops else None
    return isinstance(first, Reset) and bool(first.seeds) and not first.lanes


async def _unrepeated(lab: Lab, script: Script, *, autoresets: bool = True) -> tuple[Trace, Trace, Difference] | None:
    """Two plays of *script* that differ, from one and the same start; ``None`` when there are none."""
    facts = lab.facts
    if not _is_seeded(script):
        return None
    first, second = await lab.play(script), await lab.play(script)
    if first_difference(first, second, facts, autoresets=autoresets) is None:
        return None
    # To start a server again takes its time: an env that was found to remember is not looked at for ever.
    if facts.factory and facts.told.get(_REMEMBERS, 0) >= _TIMES_BELIEVED:
        return None
    first = await lab.play_apart(script)
    for _ in range(_MORE_RUNS):
        other = await lab.play_apart(script)
        difference = first_difference(first, other, facts, autoresets=autoresets)
        if difference is not None:
            return first, other, difference
    facts.told[_REMEMBERS] = facts.told.get(_REMEMBERS, 0) + 1
    return None


def _only_reset(facts: Facts) -> Script:
    return Script(facts.contract.num_envs, example_script(facts, steps=0).ops)


def _only_resets(facts: Facts) -> SearchStrategy[Script]:
    return resets(facts).map(lambda reset: Script(facts.contract.num_envs, (reset,)))


@check(
    "seed.reset-repeatable",
    severity="must",
    requirement="Resetting twice with the same seed gives the same observation and infos.",
    rule=_RULE,
    cases=_only_resets,
    example=_only_reset,
    applies=_repeats,
)
async def reset_repeatable(lab: Lab, script: Script) -> Evidence | None:
    """The first observation follows from the seed."""
    found = await _unrepeated(lab, script)
    if found is None:
        return None
    a, b, difference = found
    meaning = "reset(seed) draws from a generator that the seed does not set, or from the clock"
    return difference_evidence(difference, a, b, _RUNS, meaning)


@check(
    "seed.trace-repeatable",
    severity="must",
    requirement="One script played twice gives one trace: observations, rewards, flags, infos and episode records.",
    rule=_RULE,
    cases=lambda facts: scripts(facts, reseed=True),
    example=example_script,
    applies=_repeats,
    after=("seed.reset-repeatable",),
    compares=True,
)
async def trace_repeatable(lab: Lab, script: Script) -> Evidence | None:
    """Steps after a seeded reset follow from seed and actions."""
    found = await _unrepeated(lab, script, autoresets=False)
    if found is None:
        return None
    a, b, difference = found
    meaning = (
        "step() draws from a generator that reset(seed) does not set, or uses the clock, threads or an order of sets"
    )
    return difference_evidence(difference, a, b, _RUNS, meaning)


def _with_followup(script: Script) -> Script:
    """*script* with a reset without seeds in it."""
    if any(isinstance(op, Reset) and not op.seeds for op in script.ops):
        return script
    last = [op for op in script.ops if isinstance(op, Step)][-1:]
    return attrs.evolve(script, ops=(*script.ops, Reset(), *last))


@check(
    "seed.followup-repeatable",
    severity="must",
    requirement="After a seeded reset, the episodes of later resets without a seed repeat as well.",
    rule=_RULE,
    cases=lambda facts: scripts(facts, steps=16, unseeded=True).map(_with_followup),
    example=lambda facts: _with_followup(example_script(facts, steps=3)),
    applies=_repeats,
    after=("seed.trace-repeatable",),
    compares=True,
)
async def followup_repeatable(lab: Lab, script: Script) -> Evidence | None:
    """A reset without a seed goes on with the generator that the last seed has set."""
    found = await _unrepeated(lab, script)
    if found is None:
        return None
    a, b, difference = found
    meaning = "reset() without a seed takes a fresh generator instead of going on with the seeded one"
    return difference_evidence(difference, a, b, _RUNS, meaning)


def _joined(before: Script, script: Script) -> Script:
    return Script(script.lanes, (*before.ops, *script.ops))


def _rest(trace: Trace, before: Script) -> Trace | None:
    """What *trace* has of the script after *before*; ``None`` when the session did not live to see it."""
    started = not trace.answers or trace.answers[-1].op >= len(before.ops)
    return without(trace, range(len(before.ops))) if started else None


async def _alone(lab: Lab, script: Script) -> tuple[Trace, Trace]:
    """Two plays of *script*, each on an env that nothing was played on; kept, since they may cost a server's start."""
    kept: dict[Script, tuple[Trace, Trace]] = lab.facts.told.setdefault("alone", {})
    if script not in kept:
        kept[script] = await lab.play_apart(script), await lab.play_apart(script)
    return kept[script]


@check(
    "seed.history-independent",
    severity="must",
    requirement="A script that begins with a seeded reset plays the same after any other script as in a fresh session.",
    rule=_RULE,
    cases=lambda facts: st.tuples(scripts(facts, steps=16, unseeded=True), scripts(facts, steps=12)),
    example=lambda facts: (example_script(facts, steps=2), example_script(facts, steps=2)),
    applies=_repeats,
    compares=True,
)
async def history_independent(lab: Lab, case: tuple[Script, Script]) -> Evidence | None:
    """A reset leaves nothing of what was before."""
    before, script = case
    if not _is_seeded(script):
        return None
    joined = _joined(before, script)
    alone = await lab.play_fresh(script)
    after = _rest(await lab.play(joined), before)
    if after is None or first_difference(alone, after, lab.facts) is None:
        return None
    after = _rest(await lab.play_apart(joined), before)
    if after is None:
        return None
    alone, again = await _alone(lab, script)

    async def repeated() -> Trace:
        return again

    difference = await confirmed(alone, after, repeated, lab.facts)
    if difference is None:
        return None
    meaning = "something reset() does not clear acts on later transitions (caches, timers, filters)"
    if isinstance(script.ops[difference.op], Reset):
        meaning = "something reset() does not clear shows in the first observation (caches, counters, filters)"
    return difference_evidence(difference, alone, after, ("B alone", "B after A"), meaning)


def _paused(script: Script, pauses: list[tuple[int, Wait]]) -> Script:
    """*script* with each wait before the op at its place, counted around."""
    ops: list[Op] = list(script.ops)
    for place, wait in sorted(
        ((1 + place % max(1, len(ops) - 1), wait) for place, wait in pauses), key=lambda at: -at[0]
    ):
        ops.insert(place, wait)
    return attrs.evolve(script, ops=tuple(ops))


def _pauses(facts: Facts) -> SearchStrategy[Script]:
    places = st.lists(st.tuples(st.integers(0, 11), waits()), min_size=1, max_size=3)
    return st.builds(_paused, scripts(facts, steps=12, fewest=1), places)


def _one_pause(facts: Facts) -> Script:
    return _paused(example_script(facts, steps=3), [(0, Wait(0.3))])


@check(
    "seed.timing-independent",
    severity="should",
    requirement="Pauses between the requests of a script change nothing in its trace.",
    rule="gymnasium Env.step: a transition follows from state and action",
    cases=_pauses,
    example=_one_pause,
    applies=_repeats,
    compares=True,
)
async def timing_independent(lab: Lab, script: Script) -> Evidence | None:
    """The env's time is counted in steps."""
    if not _is_seeded(script):
        return None
    prompt = attrs.evolve(script, ops=tuple([op for op in script.ops if not isinstance(op, Wait)]))
    a, b = await lab.play(prompt), await lab.play(script)
    difference = await confirmed(a, b, lambda: lab.play(prompt), lab.facts)
    if difference is None:
        return None
    waited = sum(op.seconds for op in script.ops[: difference.ops[1]] if isinstance(op, Wait))
    meaning = "the env measures real time, or goes on between steps"
    return difference_evidence(difference, a, b, ("at once", f"{waited:g} s later"), meaning)


def _sixteen(facts: Facts) -> SearchStrategy[tuple[Script, tuple[int, ...]]]:
    drawn = st.lists(seeds(), min_size=_SEEDS, max_size=_SEEDS, unique=True).map(tuple)
    return st.tuples(scripts(facts, steps=2 * _SENSITIVE_STEPS, fewest=_SENSITIVE_STEPS), drawn)


@check(
    "seed.sensitive",
    severity="note",
    requirement="At least two of 16 seeds give different traces; an env without any is called deterministic.",
    rule="gymnasium Env.reset: the seed sets the env's generator",
    cases=_sixteen,
    example=lambda facts: (example_script(facts, steps=_SENSITIVE_STEPS), tuple(range(_SEEDS))),
    applies=_repeats,
)
async def seed_sensitive(lab: Lab, case: tuple[Script, tuple[int, ...]]) -> Evidence | None:
    """Seeds do something; whether they do is kept for the checks that need to know."""
    script, tried = case
    facts = lab.facts
    if facts.told.get("deterministic") is False or not _is_seeded(script):
        return None
    first: Trace | None = None
    for seed in tried:
        given = tuple([(seed + lane) % 2**63 for lane in range(script.lanes)])
        trace = await lab.play(attrs.evolve(script, ops=(Reset(given), *script.ops[1:])))
        first = first or trace
        seen = lane_fingerprint(trace, 0, facts)
        if not seen:
            return None
        if seen != lane_fingerprint(first, 0, facts):
            facts.told["deterministic"] = False
            return None
    assert first is not None
    facts.told["deterministic"] = True
    return Evidence(
        (f"{len(tried)} seeds, 1 trace of {len(lane_fingerprint(first, 0, facts))} answers",),
        "one trace for all seeds",
        "the env is deterministic: the other checks of seeds say little about it",
        traces=(first,),
    )
