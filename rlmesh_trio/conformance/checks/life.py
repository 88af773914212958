"""The family ``life``: how an episode begins and with which options, when it ends, and what comes after."""

from collections import Counter

import attrs
from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

from rlmesh_trio.conformance.comparing import difference_evidence
from rlmesh_trio.conformance.differences import first_difference
from rlmesh_trio.conformance.ending_scripts import ending_example, ending_scripts, held_actions
from rlmesh_trio.conformance.episodes import Episode, played, step_place
from rlmesh_trio.conformance.printing import value_text
from rlmesh_trio.conformance.registry import Facts, Lab, check
from rlmesh_trio.conformance.scripts import Op, Reset, Script, Step
from rlmesh_trio.conformance.strategies import example_script, lane_seeds, options, scripts
from rlmesh_trio.conformance.traces import Trace
from rlmesh_trio.conformance.verdicts import Evidence
from rlmesh_trio.contract import ENV_RESET_OPTIONS_KEY, AutoresetMode
from rlmesh_trio.messages import Metadata

__all__ = (
    "after_end",
    "limit_is_truncation",
    "options_effective",
    "options_unknown",
    "step_needs_reset",
    "time_limit_exact",
)

_LONGEST_LIMIT = 1000
_EPISODES = 20
_OTHER_RUNS = 4
_OPTION_VALUES = (0, 1, 2, 3)
_AFTER_END = "after the end"


def _served(facts: Facts) -> str | None:
    return None if facts.served else "needs a server: this env runs in the kit's own process"


def _limited(facts: Facts) -> str | None:
    if facts.limit is None:
        return "needs a declared time limit: max_episode_steps in the metadata, or --max-steps T"
    if facts.limit > _LONGEST_LIMIT:
        return f"needs a time limit of at most {_LONGEST_LIMIT} steps, not {facts.limit}"
    return None


def _waits(facts: Facts) -> str | None:
    return None if facts.contract.autoreset_mode == AutoresetMode.DISABLED else "needs autoreset mode DISABLED"


def _advertised(facts: Facts) -> tuple[str, ...]:
    """The reset options that the env declares."""
    declared = facts.contract.metadata.get(ENV_RESET_OPTIONS_KEY)
    names = (declared,) if isinstance(declared, str) else declared
    return tuple([name for name in names if isinstance(name, str)]) if isinstance(names, (list, tuple)) else ()


def _advertises(facts: Facts) -> str | None:
    return None if _advertised(facts) else f"needs reset options in the metadata, under {ENV_RESET_OPTIONS_KEY}"


def _without_first_reset(script: Script) -> Script:
    """*script* with a step before its first reset, and no more of them than that."""
    first = next(op for op in script.ops if isinstance(op, Step))
    return attrs.evolve(script, ops=(first, *script.ops))


@check(
    "life.step-needs-reset",
    severity="must",
    requirement="A step before the first reset is refused as NOT_READY, and the session goes on.",
    rule='edition 2026.06 "Reset": reset must precede the first step',
    cases=lambda facts: scripts(facts, steps=4, fewest=1).map(_without_first_reset),
    example=lambda facts: _without_first_reset(example_script(facts, steps=1)),
    applies=_served,
    needs_own_session=True,
)
async def step_needs_reset(lab: Lab, script: Script) -> Evidence | None:
    """There is nothing to step yet."""
    trace = await lab.play_fresh(script)
    if not trace.answers or isinstance(script.ops[trace.answers[0].op], Reset):
        return None
    refusal = trace.answers[0].refusal
    if refusal is None:
        line, signature = "is answered like any other", "a step before the first reset is taken"
    elif refusal.code != "NOT_READY":
        line, signature = f"{refusal.code}: {refusal.message}", f"refused as {refusal.code}"
    elif trace.lost is not None:
        line, signature = f"NOT_READY, and then {trace.lost.code}: {trace.lost.message}", "NOT_READY ends the session"
    else:
        return None
    meaning = "a client that forgets to reset goes on in the episode of the one before it, or meets an env half made"
    return Evidence((f"a step before the first reset: {line}",), signature, meaning, "server", (trace,), (0, 0))


def _to_the_limit(facts: Facts) -> SearchStrategy[Script]:
    steps = (facts.limit or 0) + 1
    return scripts(facts, steps=steps, fewest=steps)


def _held_to_the_limit(facts: Facts) -> Script:
    lanes = facts.contract.num_envs
    return Script(lanes, (Reset(tuple(range(lanes))), *held_actions(facts, (facts.limit or 0) + 1)))


@check(
    "life.time-limit-exact",
    severity="must",
    requirement="With a time limit of T steps no episode is longer, and one that is not over before ends at step T.",
    rule="gymnasium TimeLimit, and Env.step: truncated",
    cases=_to_the_limit,
    example=_held_to_the_limit,
    applies=_limited,
    after=("autoreset.next.quiet",),
)
async def time_limit_exact(lab: Lab, script: Script) -> Evidence | None:
    """The declared limit is the limit. A step T that ends by itself need not be truncated besides."""
    limit = lab.facts.limit or 0
    trace = await lab.play(script)
    episodes = played(trace, lab.facts).episodes
    for episode in episodes:
        if episode.length > limit:
            place = episode.places[limit - 1]
            return Evidence(
                (
                    f"{step_place(script, place, episode.lane)}: the episode has {limit} steps, its limit, and goes on",
                    f"it has {episode.length} steps when the script ends",
                ),
                "longer than the limit",
                "the time limit that is declared is not the one in force: one more, or none",
                traces=(trace,),
                first=(place, episode.lane),
            )
    cut = next((each for each in episodes if each.truncated and not each.terminated and each.length != limit), None)
    return None if cut is None else await _another_limit(lab, cut, limit)


async def _another_limit(lab: Lab, cut: Episode, limit: int) -> Evidence | None:
    """Whether other seeds and actions are cut at the step of *cut*, too: that is a limit, and not the declared one."""
    lanes = lab.facts.contract.num_envs
    for run in range(_OTHER_RUNS):
        given = tuple([100 * (run + 1) + lane for lane in range(lanes)])
        script = Script(lanes, (Reset(given), *held_actions(lab.facts, cut.length, ahead=run)))
        trace = await lab.play(script)
        first = {each.lane: each for each in reversed(played(trace, lab.facts).episodes)}
        if len(first) < lanes or any(each.length != cut.length or not each.truncated for each in first.values()):
            return None
    assert cut.last is not None
    return Evidence(
        (f"every episode is truncated at step {cut.length}; the limit is declared as {limit}",),
        "truncated at another step",
        "a wrapper cuts episodes earlier than the env declares",
        first=(cut.last.op, cut.lane),
        severity="should",
    )


_LimitCase = tuple[Script, tuple[int, ...]]


def _twenty(facts: Facts) -> SearchStrategy[_LimitCase]:
    return st.tuples(ending_scripts(facts), lane_seeds(_EPISODES, distinct=True))


@check(
    "life.limit-is-truncation",
    severity="should",
    requirement="Episodes that always end at one step, whatever is done, are truncated there, not terminated.",
    rule="gymnasium Env.step: truncated is for time limits, terminated for ends of the task",
    cases=_twenty,
    example=lambda facts: (ending_example(facts), tuple(range(_EPISODES))),
)
async def limit_is_truncation(lab: Lab, case: _LimitCase) -> Evidence | None:
    """A learner must not take the end of time for an end of the task. Without a declared limit it is only told."""
    script, seeds = case
    facts = lab.facts
    steps = [op for op in script.ops if isinstance(op, Step)]
    ends: Counter[int] = Counter()
    shown: Trace | None = None
    for number, seed in enumerate(seeds):
        given = tuple([(seed + lane) % 2**63 for lane in range(script.lanes)])
        turned = [*steps[number:], *steps[:number]] if number % 2 else held_actions(facts, len(steps), ahead=number)
        trace = await lab.play(attrs.evolve(script, ops=(Reset(given), *turned)))
        shown = shown or trace
        first = {each.lane: each for each in reversed(played(trace, facts).episodes)}
        if len(first) < script.lanes:
            return None
        for episode in first.values():
            if not episode.terminated or episode.truncated:
                return None
            ends[episode.length] += 1
        if len(ends) > 1 or 1 in ends:
            return None
    if shown is None:
        return None
    length = next(iter(ends))
    declared = facts.limit == length
    return Evidence(
        (
            f"{ends[length]} episodes of different seeds and actions: all terminated at step {length}, none truncated",
            "that is the declared time limit" if declared else "no time limit is declared",
        ),
        "a time limit is a termination",
        "learners take the value of the last state for zero"
        + ("" if declared else ", which is right where the task itself has a fixed length"),
        traces=(shown,),
        severity=None if declared else "note",
    )


_OptionCase = tuple[Script, str]


def _with_option(script: Script, facts: Facts, name: str, value: int) -> Script:
    """*script* with *value* for the option *name* in its reset, of lane 0 where lanes can be named."""
    reset, *rest = script.ops
    assert isinstance(reset, Reset)
    given: Metadata = {name: value}
    if script.lanes == 1:
        ops: tuple[Op, ...] = (attrs.evolve(reset, options=given), *rest)
    elif facts.subset_step:
        ops = (reset, Reset(reset.seeds[:1], given, (0,)), *rest)
    else:
        ops = (attrs.evolve(reset, options={name: [value] * script.lanes}), *rest)
    return attrs.evolve(script, ops=ops)


@check(
    "life.options-effective",
    severity="should",
    requirement="A reset option that the env advertises makes a difference, the same one each time.",
    rule=f"metadata {ENV_RESET_OPTIONS_KEY}, gymnasium Env.reset: options",
    cases=lambda facts: st.tuples(scripts(facts, steps=8), st.sampled_from(_advertised(facts))),
    example=lambda facts: (example_script(facts, steps=4), _advertised(facts)[0]),
    applies=_advertises,
    compares=True,
)
async def options_effective(lab: Lab, case: _OptionCase) -> Evidence | None:
    """What is advertised is there."""
    script, name = case
    facts = lab.facts
    if not (script.ops and isinstance(script.ops[0], Reset)):
        return None
    first: Trace | None = None
    for value in (*_OPTION_VALUES, _OPTION_VALUES[0]):
        trace = await lab.play(_with_option(script, facts, name, value))
        if any(answer.refusal is not None for answer in trace.answers):
            return None
        difference = None if first is None else first_difference(first, trace, facts)
        if first is not None and difference is not None:
            return await _repeats(lab, script, name, first)
        first = first or trace
    assert first is not None
    values = ", ".join(map(str, _OPTION_VALUES))
    return Evidence(
        (f"{name} = {values}: one trace of {len(first.answers)} answers",),
        f"{name} changes nothing",
        "the option is advertised and not looked at",
        traces=(first,),
        first=(0, 0),
    )


async def _repeats(lab: Lab, script: Script, name: str, first: Trace) -> Evidence | None:
    value = _OPTION_VALUES[0]
    again = await lab.play(_with_option(script, lab.facts, name, value))
    difference = first_difference(first, again, lab.facts)
    if difference is None:
        return None
    labels = f"{name}={value}", "again"
    shown = difference_evidence(difference, first, again, labels, "the option does something else each time")
    return attrs.evolve(shown, signature=f"{name} does not repeat", severity=None)


_UnknownCase = tuple[Script, Metadata]


@check(
    "life.options-unknown",
    severity="should",
    requirement="A reset option that the env does not know is ignored or refused, and the session goes on.",
    rule="gymnasium Env.reset: options",
    cases=lambda facts: st.tuples(scripts(facts, steps=2), options()),
    example=lambda facts: (example_script(facts, steps=1), {"xyz": 1}),
)
async def options_unknown(lab: Lab, case: _UnknownCase) -> Evidence | None:
    """A client may send the same options to envs of all kinds."""
    script, unknown = case
    if not (script.ops and isinstance(script.ops[0], Reset)):
        return None
    trace = await lab.play(attrs.evolve(script, ops=(attrs.evolve(script.ops[0], options=unknown), *script.ops)))
    lost = trace.lost
    if lost is None or trace.answers[-1].op != 0:
        return None
    plain = await lab.play(script)
    if plain.answers and plain.answers[0].refusal is not None:
        return None
    return Evidence(
        (f"reset with options {value_text(unknown)}: {lost.code}: {lost.message}", "the session is over"),
        f"an unknown option ends the session as {lost.code}",
        "reset() raises, or crashes, over an option it does not know",
        traces=(trace,),
        first=(0, 0),
    )


@check(
    "life.after-end",
    severity="note",
    requirement="What a step does after the end of an episode that nobody restarts is told: gymnasium leaves it open.",
    rule="gymnasium Env.step: behaviour after the end is undefined",
    cases=ending_scripts,
    example=ending_example,
    applies=_waits,
)
async def after_end(lab: Lab, script: Script) -> Evidence | None:
    """It refuses, repeats its last answer, or goes on."""
    facts = lab.facts
    if facts.told.get(_AFTER_END):
        return None
    trace = await lab.play(script)
    for episode, last in played(trace, facts).ended:
        later = [each for each in trace.answers if each.op > last.op and episode.lane in each.lanes]
        if not later or isinstance(script.ops[later[0].op], Reset):
            continue
        after, refusal = later[0], later[0].refusal
        places = last.lanes.index(episode.lane), after.lanes.index(episode.lane)
        if refusal is not None:
            does = f"refuses as {refusal.code}: {refusal.message}"
            kind = "refuses"
        elif last.observation[places[0] :][:1] == after.observation[places[1] :][:1] and _ends(
            after.op, trace, places[1]
        ):
            does = kind = "repeats the end"
        else:
            does = kind = "goes on"
        facts.told[_AFTER_END] = kind
        return Evidence(
            (f"{step_place(script, after.op, episode.lane)}, after the end of the episode: the env {does}",),
            f"after the end: {kind}",
            "do not rely on it: another env does something else",
            traces=(trace,),
            first=(after.op, episode.lane),
        )
    return None


def _ends(place: int, trace: Trace, position: int) -> bool:
    answer = next(each for each in trace.answers if each.op == place)
    return any(position < len(mask) and mask[position] for mask in (answer.terminated, answer.truncated))
