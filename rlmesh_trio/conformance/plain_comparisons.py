"""Plain scripts of relations between two plays: both are played on new envs, and must be equal to the last bit."""

from collections.abc import Iterator
from typing import Any

import attrs

from rlmesh_trio.conformance.plain_env import NoPlainScript, PlainEnv, data_lines, of_one_lane
from rlmesh_trio.conformance.scripts import Script, Wait
from rlmesh_trio.conformance.verdicts import Evidence, Finding

__all__ = ("COMPARED", "comparison", "copies", "terminal_twin", "without_effect")

COMPARED = (
    "seed.reset-repeatable",
    "seed.trace-repeatable",
    "seed.followup-repeatable",
    "seed.history-independent",
    "seed.timing-independent",
    "lanes.solo-equal",
    "lanes.permute",
    "lanes.width-equal",
    "lanes.partial-reset-local",
    "autoreset.next.action-ignored",
    "autoreset.same.final-lane",
    "life.options-effective",
)
"""The checks that :func:`comparison` is for."""

_RUNS = 5
_TO_THE_LAST_BIT = 'np.set_printoptions(threshold=sys.maxsize, floatmode="unique")'
_LANE_OF_A_VECTOR = (
    "def of(part, lane):",
    "    if isinstance(part, dict):",
    "        return {key: of(value, lane) for key, value in part.items()}",
    "    if isinstance(part, tuple):",
    "        return tuple(of(value, lane) for value in part)",
    "    return part[lane]",
)
_OP = '        answer = env.reset(**given) if op == "reset" else env.step(given)'


@attrs.frozen
class _Kept:
    """What of each answer is compared: the condition, if any, and the expression."""

    when: str
    what: str


def comparison(finding: Finding, evidence: Evidence, env: PlainEnv) -> Iterator[str]:
    """The lines of a script for one of the checks :data:`COMPARED`."""
    a, b = _both(finding, evidence)
    of_lanes = finding.check.startswith("lanes.") or finding.check == "autoreset.same.final-lane"
    kept = _kept(finding, evidence, env, of_lanes=of_lanes)
    # The widths of two scripts may differ: each has as many envs as it needs.
    own_width = env.apart or a.lanes != b.lanes
    if own_width:
        env = attrs.evolve(env, lanes=max(a.lanes, b.lanes))
    yield from data_lines("A", a, env)
    if a != b:
        yield from data_lines("B", b, env)
    yield _TO_THE_LAST_BIT
    if of_lanes and env.vector and "of(" in kept.what:
        yield from _LANE_OF_A_VECTOR
    given = [*(["lanes"] if own_width else []), *(["kept"] if of_lanes else [])]
    yield f"def play({', '.join(['script', *given])}):"
    yield f"    {'envs' if env.apart else 'env'}, answers = {env.several('lanes') if env.apart else env.one}, []"
    yield from _loop(env, kept, waits=any(isinstance(op, Wait) for op in (*a.ops, *b.ops)))
    yield f"for _ in range({_RUNS}):"
    lanes = [[lane] if of_lanes else [] for lane in _lane_pair(finding, evidence)]
    widths = [[script.lanes] if own_width else [] for script in (a, b)]
    names = "A", "A" if a == b else "B"
    plays = [
        f"play({', '.join(map(str, [name, *width, *lane]))})"
        for name, width, lane in zip(names, widths, lanes, strict=True)
    ]
    tail = "[-len(a):]" if finding.check == "seed.history-independent" else ""
    yield f"    a, b = {', '.join(plays)}"
    yield f"    for number, (one, other) in enumerate(zip(a, b{tail})):"
    yield "        if one != other:"
    yield '            sys.exit(f"answer {number}: {one}\\nand then: {other}")'


def _loop(env: PlainEnv, kept: _Kept, *, waits: bool) -> Iterator[str]:
    yield "    for lane, op, given in script:" if env.apart else "    for op, given in script:"
    if env.apart:
        yield "        env = envs[lane]"
    if waits:
        yield '        if op == "wait":'
        yield "            time.sleep(given)"
        yield "            continue"
    yield _OP
    if kept.when:
        yield f"        if {kept.when}:"
    yield f"        {'    ' if kept.when else ''}answers.append(repr({kept.what}))"
    yield "    return answers"


def _both(finding: Finding, evidence: Evidence) -> tuple[Script, Script]:
    scripts = tuple(trace.script for trace in evidence.traces) or finding.scripts
    if len(scripts) != 2:
        raise NoPlainScript("it is no difference between two runs")
    a, b = scripts
    if finding.check == "seed.history-independent":
        b = attrs.evolve(b, ops=(*finding.scripts[0].ops, *b.ops))
    if finding.check == "lanes.partial-reset-local":
        b = finding.scripts[0]
    return a, b


def _kept(finding: Finding, evidence: Evidence, env: PlainEnv, *, of_lanes: bool) -> _Kept:
    infos = "" if evidence.severity == "should" else "[:-1]"
    if finding.check == "autoreset.same.final-lane":
        return _Kept('op == "step" and (answer[2] | answer[3])[kept]', 'answer[4]["final_obs"][kept]')
    if of_lanes and env.vector:
        return _Kept("", "of(answer[:-1], kept)")
    return _Kept("lane == kept" if of_lanes and env.apart else "", f"answer{infos}")


def _lane_pair(finding: Finding, evidence: Evidence) -> tuple[int, int]:
    """The lane that is compared, in one script and in the other."""
    lane = evidence.first[1] if evidence.first else 0
    if finding.check == "lanes.permute":
        return lane, finding.case[2][lane]
    return lane, lane


def copies(finding: Finding, evidence: Evidence, env: PlainEnv) -> Iterator[str]:
    """The lines of a script that shows two lanes to be copies, also with their seeds swapped."""
    _, one, other = finding.case
    for name, script in zip("AB", _both(finding, evidence), strict=True):
        yield from data_lines(name, script, env)
    yield _TO_THE_LAST_BIT
    if env.vector:
        yield from _LANE_OF_A_VECTOR
    yield "def play(script, kept):"
    yield f"    {'envs' if env.apart else 'env'}, answers = {env.several(str(env.lanes)) if env.apart else env.one}, []"
    kept = _Kept("", "of(answer[:-1], kept)") if env.vector else _Kept("lane == kept", "answer[:-1]")
    yield from _loop(env, kept, waits=False)
    yield f"a, b = [[play(script, lane) for lane in ({one}, {other})] for script in (A, B)]"
    yield "if a[0] == a[1] != b[0] == b[1]:"
    yield f'    sys.exit(f"lanes {one} and {other} are copies, whoever has which seed: {{a[0]}}, and then {{b[0]}}")'


def terminal_twin(evidence: Evidence, env: PlainEnv) -> Iterator[str]:
    """The lines of a script that lays the end of a lane beside that of the same env without restarts."""
    if evidence.first is None or not evidence.traces:
        raise NoPlainScript("no run shows it")
    place, lane = evidence.first
    script = evidence.traces[0].script
    script = attrs.evolve(script, ops=script.ops[: place + 1])
    yield from data_lines("A", script, env)
    yield from data_lines("B", of_one_lane(script, lane), env.of_lane(lane))
    yield _TO_THE_LAST_BIT
    yield from _LANE_OF_A_VECTOR
    yield "def play(env, script):"
    yield "    for op, given in script:"
    yield _OP
    yield "    return answer[0]"
    yield f"shown, wanted = of(play(make(), A), {lane}), play(make().envs[{lane}], B)"
    yield "if repr(shown) != repr(wanted):"
    yield '    sys.exit(f"the end shows {shown!r}, the env by itself {wanted!r}")'


def without_effect(finding: Finding, evidence: Evidence, env: PlainEnv) -> Iterator[str]:
    """The lines of a script that shows a reset option to change nothing."""
    name: Any = finding.case[1]
    if env.vector or not evidence.traces:
        raise NoPlainScript("the options of a vector env are for all its lanes")
    yield from data_lines("SCRIPT", of_one_lane(evidence.traces[0].script, 0), env := env.of_lane(0))
    yield _TO_THE_LAST_BIT
    yield "def play(value):"
    yield f"    env, answers = {env.one}, []"
    yield "    for op, given in SCRIPT:"
    yield '        if op == "reset":'
    yield f'            given = {{**given, "options": {{{name!r}: value}}}}'
    yield _OP
    yield "        answers.append(repr(answer))"
    yield "    return answers"
    yield "plays = [play(value) for value in range(4)]"
    yield "if all(one == plays[0] for one in plays):"
    yield f'    sys.exit(f"{name} = 0, 1, 2, 3: always {{plays[0]}}")'
