"""Plain scripts of what shows in one play: what is looked at after each operation, and what is an end with 1."""

from collections.abc import Iterator
from typing import Any

import attrs

from rlmesh_trio.conformance.members import corner_rows
from rlmesh_trio.conformance.moves import Move
from rlmesh_trio.conformance.plain_env import NoPlainScript, PlainEnv, data_lines, of_one_lane, play_lines
from rlmesh_trio.conformance.plain_values import literal
from rlmesh_trio.conformance.rows import member_of
from rlmesh_trio.conformance.scripts import Script, Step
from rlmesh_trio.conformance.verdicts import Evidence, Finding

__all__ = ("RAISES", "WATCHED", "Watch", "always_done", "pictures", "printed", "time_limit", "watched")

RAISES = ("space.member-accepted", "life.options-unknown")
"""The checks whose script ends with the exception that the env raises."""


@attrs.frozen
class Watch:
    """What stands in the loop over a script, before it, and behind it."""

    inside: tuple[str, ...] = ()
    before: tuple[str, ...] = ()
    after: tuple[str, ...] = ()


def _when(broken: str, told: str, *before: str) -> Watch:
    return Watch((f"if {broken}:", f'    sys.exit(f"{{op}}: {told}")'), before)


_OUTSIDE = _when(
    "answer[0] not in env.observation_space", "the observation {answer[0]!r} is not in {env.observation_space}"
)
_PAIR = "isinstance(answer, tuple) and len(answer) == 2 and isinstance(answer[1], dict)"
_FIVE = "isinstance(answer, tuple) and len(answer) == 5 and isinstance(answer[4], dict)"
_FLAGS = "all(isinstance(flag, (bool, np.bool_)) for flag in answer[2:4])"
_REAL = "isinstance(answer[1], (int, float, np.integer, np.floating))"
_LEAVES = (
    'def leaves(space, value, name="obs"):',
    '    parts = getattr(space, "spaces", None)',
    "    if parts is None:",
    "        yield name, space, value",
    "    else:",
    "        for key in parts if isinstance(parts, dict) else range(len(parts)):",
    '            yield from leaves(parts[key], value[key], f"{name}.{key}")',
    "def fits(space, value):",
    '    if type(space).__name__ == "Discrete":',
    '        return np.asarray(value).dtype.kind in "iu"',
    '    return isinstance(value, str) if space.dtype is str else getattr(value, "dtype", None) == space.dtype',
)
_ODD = (
    'def odd(value, name="info"):',
    "    if isinstance(value, dict):",
    '        yield from (f"{name} has the key {key!r}" for key in value if not isinstance(key, str))',
    "        for key, part in value.items():",
    '            yield from odd(part, f"{name}.{key}")',
    "    elif isinstance(value, (list, tuple)):",
    "        for number, part in enumerate(value):",
    '            yield from odd(part, f"{name}[{number}]")',
    '    elif isinstance(value, np.ndarray) and value.dtype.kind == "O":',
    "        yield from odd(value.tolist(), name)",
    "    elif isinstance(value, (np.ndarray, np.generic)):",
    '        yield from [f"{name} is of {value.dtype}"] if value.dtype.kind not in "biufUS" else []',
    "    elif isinstance(value, int) and not -2**63 <= value < 2**63:",
    '        yield f"{name} is an int beyond 64 bits"',
    '    elif not isinstance(value, (int, float, str, bytes, type(None))) and not hasattr(value, "value"):',
    '        yield f"{name} is {value!r}"',
)
_LANES = 'lanes = getattr(env, "num_envs", 1)'
_ENDED = 'ended = answer[2] | answer[3] if op == "step" else np.zeros(lanes, bool)'
_NONE = "np.zeros(lanes, bool)"
WATCHED: dict[str, Watch] = {
    "space.obs-structure": _OUTSIDE,
    "space.obs-contained": _OUTSIDE,
    "space.obs-no-nan": _when('"nan" in repr(answer[0])', "NaN in the observation {answer[0]!r}"),
    "value.reward-finite": _when('op == "step" and not np.all(np.isfinite(answer[1]))', "the reward is {answer[1]!r}"),
    "value.mask-honest": Watch(
        (
            "seen = answer[0] if isinstance(answer[0], dict) else {}",
            'mask = answer[-1].get("action_mask", seen.get("action_mask"))',
            'over = op == "step" and (answer[2] or answer[3])',
            "if mask is not None and not over and not np.any(mask):",
            '    sys.exit(f"{op}: the episode goes on, and action_mask = {mask!r} allows nothing")',
        )
    ),
    "py.reset-pair": _when(f'op == "reset" and not ({_PAIR})', "reset() returned {answer!r}"),
    "py.step-five": _when(f'op == "step" and not ({_FIVE})', "step() returned {answer!r}"),
    "py.flag-types": _when(f'op == "step" and not {_FLAGS}', "the flags are {answer[2:4]!r}"),
    "py.reward-type": _when(f'op == "step" and not {_REAL}', "the reward is {answer[1]!r}"),
    "py.obs-dtype": Watch(
        (
            "for name, space, value in leaves(env.observation_space, answer[0]):",
            "    if not fits(space, value):",
            "        dtype = getattr(value, 'dtype', type(value))",
            '        sys.exit(f"{op}: {name} is {value!r}, {dtype}, declared is {space}")',
        ),
        _LEAVES,
    ),
    "py.info-plain": Watch(
        ("for told in odd(answer[-1]):", '    sys.exit(f"{op}: {told}")'),
        _ODD,
    ),
    "py.no-alias": Watch(
        ("kept.append((answer[0], repr(answer[0])))",),
        ("kept = []",),
        (
            "for number, (now, then) in enumerate(kept):",
            "    if repr(now) != then:",
            '        sys.exit(f"what op {number} handed out was {then} and is {now!r}")',
        ),
    ),
    "autoreset.next.quiet": Watch(
        (
            'loud = ended & np.any(answer[1:4], axis=0) if op == "step" else ended & False',
            "if loud.any():",
            '    sys.exit(f"the step that restarts lanes {np.flatnonzero(loud)} has {answer[1:4]!r}")',
            _ENDED,
        ),
        (_LANES, f"ended = {_NONE}"),
    ),
    "autoreset.next.not-stuck": Watch(
        (
            "for lane in range(lanes):",
            '    if op == "reset":',
            "        steps[lane], own[lane] = 0, False",
            "    elif ended[lane]:",
            "        steps[lane], own[lane] = 0, True",
            "    else:",
            "        steps[lane] += 1",
            "        if own[lane] and (answer[2] | answer[3])[lane]:",
            "            lengths[lane].append(steps[lane])",
            _ENDED,
        ),
        (_LANES, f"ended = {_NONE}", "steps, own, lengths = [0] * lanes, [False] * lanes, [[] for _ in range(lanes)]"),
        (
            "for lane, seen in enumerate(lengths):",
            "    if len(seen) > 2 and set(seen) == {1}:",
            '        sys.exit(f"lane {lane}: {len(seen)} episodes that the env began by itself, of 1 step each")',
        ),
    ),
    "autoreset.same.final-obs": Watch(
        (
            _ENDED,
            f'mask = np.asarray(answer[-1].get("_final_obs", {_NONE}), bool)',
            'there = [part is not None for part in answer[-1].get("final_obs", [None] * lanes)]',
            "if (mask != ended).any() or (np.array(there) != ended).any():",
            '    sys.exit(f"{op}: ended {ended}, _final_obs {mask}, final_obs there {there}")',
            "for lane in np.flatnonzero(ended):",
            '    if answer[-1]["final_obs"][lane] not in env.single_observation_space:',
            "        sys.exit(f\"{op}: final_obs of lane {lane} is {answer[-1]['final_obs'][lane]!r}\")",
        ),
        (_LANES,),
    ),
    "autoreset.same.info": Watch(
        (
            _ENDED,
            'mask = answer[-1].get("_final_info")',
            "if mask is not None and (np.asarray(mask, bool) != ended).any():",
            '    sys.exit(f"{op}: ended {ended}, _final_info {mask}")',
        ),
        (_LANES,),
    ),
}
"""What is looked at, by check."""


def watched(watch: Watch, script: Script, env: PlainEnv) -> Iterator[str]:
    """The lines of a script that plays *script* and looks at each answer as *watch* says."""
    yield from data_lines("SCRIPT", script, env)
    yield env.made
    yield from watch.before
    yield from play_lines(env, "SCRIPT")
    yield from (f"    {line}" for line in watch.inside)
    yield from watch.after


def printed(finding: Finding, evidence: Evidence, script: Script, env: PlainEnv) -> Iterator[str]:
    """The lines of a script that plays *script* and shows the answers, for a judge that is not known here."""
    yield f"# {finding.check} said of it: {' '.join(' '.join(evidence.lines[:2]).split())}"
    yield from watched(Watch(("print(op, given, answer, sep='  ')",)), script, env)


def time_limit(evidence: Evidence, script: Script, env: PlainEnv, limit: int | None) -> Iterator[str]:
    """The lines of a script whose episode is longer than its *limit*, or cut before."""
    if env.vector or limit is None:
        raise NoPlainScript("a vector env counts the steps of its lanes itself")
    lane = evidence.first[1] if evidence.first else 0
    watch = Watch(
        (
            'steps = 0 if op == "reset" else steps + 1',
            'over = op == "step" and (answer[2] or answer[3])',
            f"if steps >= {limit} and not over:",
            f'    sys.exit(f"the episode has {{steps}} steps and goes on; its limit is {limit}")',
            f"if over and answer[3] and not answer[2] and steps != {limit}:",
            f'    sys.exit(f"the episode is truncated at step {{steps}}; its limit is {limit}")',
            'steps = float("-inf") if over else steps',
        ),
        ("steps = 0",),
    )
    yield from watched(watch, of_one_lane(script, lane), env.of_lane(lane))


def always_done(finding: Finding, env: PlainEnv, limit: int | None) -> Iterator[str]:
    """The lines of a script of episodes with different seeds, each of which is terminated at its *limit*."""
    if env.vector or limit is None:
        raise NoPlainScript("a vector env counts the steps of its lanes itself")
    script, seeds = finding.case
    alone = of_one_lane(script, 0)
    steps = Script(1, tuple([op for op in alone.ops if isinstance(op, Step)]))
    env = env.of_lane(0)
    yield f"SEEDS = {list(seeds)!r}"
    yield from data_lines("STEPS", steps, env)
    yield f"env, ends = {env.one}, []"
    yield "for number, seed in enumerate(SEEDS):"
    yield "    env.reset(seed=seed)"
    yield "    for steps in range(1, len(STEPS) + 1):"
    yield "        _, _, terminated, truncated, _ = env.step(STEPS[(number + steps) % len(STEPS)][1])"
    yield "        if terminated or truncated:"
    yield "            ends.append((steps, bool(terminated), bool(truncated)))"
    yield "            break"
    yield f"if len(ends) == len(SEEDS) and set(ends) == {{({limit}, True, False)}}:"
    yield f'    sys.exit(f"{{len(ends)}} episodes: all terminated at step {limit}, their time limit, none truncated")'


def pictures(finding: Finding, env: PlainEnv) -> Iterator[str]:
    """The lines of a script that asks for frames between steps."""
    space = env.actions
    if env.vector or space is None:
        raise NoPlainScript("the pictures of a vector env are made by whoever serves it")
    rows = corner_rows(space)
    case: Any = finding.case
    told: list[str] = []
    for move in map(Move.parse, case):
        given: Any = {"seed": 0} if move.what == "reset" else None
        if move.what == "step":
            given = member_of(space, rows[move.action % len(rows)])
        told.append(f'("{move.what}", {literal(given)})')
    yield f"MOVES = [{', '.join(told)}]"
    yield f"env, sizes = {env.of_lane(0).one}, set()"
    yield "for op, given in MOVES:"
    yield '    if op != "render":'
    yield '        env.reset(**given) if op == "reset" else env.step(given)'
    yield "        continue"
    yield "    frame = env.render()"
    yield "    if not isinstance(frame, np.ndarray) or frame.dtype != np.uint8 or frame.ndim not in (2, 3):"
    yield '        sys.exit(f"render() returned {frame!r}")'
    yield "    sizes.add(frame.shape[:2])"
    yield "if len(sizes) > 1:"
    yield '    sys.exit(f"frames of several sizes: {sizes}")'
