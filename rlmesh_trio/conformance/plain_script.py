"""A failure as a script of a few lines that needs gymnasium and the env, and nothing of this package.

It makes the env, plays what was shrunk, and exits with 1 and the difference when the fault shows. Faults that only a
server can have, and those of envs that cannot be named in a line of code, have none; then there is a reason.
"""

import inspect
from collections.abc import Callable, Iterator
from typing import Any, cast

import attrs
from gymnasium.vector.utils import concatenate, create_empty_array

from rlmesh_trio.conformance.plain_values import literal
from rlmesh_trio.conformance.rows import member_of
from rlmesh_trio.conformance.scripts import Op, Reset, Row, Script, Step, Wait
from rlmesh_trio.conformance.verdicts import Evidence, Finding
from rlmesh_trio.contract import AutoresetMode, EnvContract, ValueSpace
from rlmesh_trio.endpoints.loading import load_object
from rlmesh_trio.errors import ConnectError, SpaceError

__all__ = ("NoPlainScript", "plain_script")

_RUNS = 5
_WIDE = 100
_COMPARED = (
    "seed.reset-repeatable",
    "seed.trace-repeatable",
    "seed.followup-repeatable",
    "seed.history-independent",
    "seed.timing-independent",
    "lanes.solo-equal",
    "lanes.permute",
    "lanes.width-equal",
    "lanes.partial-reset-local",
)
_OUTSIDE = ("answer[0] not in env.observation_space", "the observation {answer[0]!r} is not in {env.observation_space}")
_PAIR = "isinstance(answer, tuple) and len(answer) == 2 and isinstance(answer[1], dict)"
_FIVE = "isinstance(answer, tuple) and len(answer) == 5 and isinstance(answer[4], dict)"
_FLAGS = "all(isinstance(flag, (bool, np.bool_)) for flag in answer[2:4])"
_REAL = "isinstance(answer[1], (int, float, np.integer, np.floating))"
_JUDGED = {
    "space.obs-structure": _OUTSIDE,
    "space.obs-contained": _OUTSIDE,
    "space.obs-no-nan": ('"nan" in repr(answer[0])', "NaN in the observation {answer[0]!r}"),
    "value.reward-finite": ('op == "step" and not np.isfinite(answer[1])', "the reward is {answer[1]!r}"),
    "py.reset-pair": (f'op == "reset" and not ({_PAIR})', "reset() returned {answer!r}"),
    "py.step-five": (f'op == "step" and not ({_FIVE})', "step() returned {answer!r}"),
    "py.flag-types": (f'op == "step" and not {_FLAGS}', "the flags are {answer[2:4]!r}"),
    "py.reward-type": (f'op == "step" and not {_REAL}', "the reward is {answer[1]!r}"),
}
_RAISES = "space.member-accepted"
_ALIAS = "py.no-alias"
_CLOSES = "py.close-twice"


class NoPlainScript(Exception):
    """A failure that plain gymnasium does not show, and why."""


@attrs.frozen
class _Env:
    """How the env is made: the line that imports it, how often it is there, and whether that is one vector env."""

    imported: str
    lanes: int
    vector: bool
    takes_lane: bool
    actions: ValueSpace | None

    @property
    def apart(self) -> bool:
        """Whether there is an env for each lane."""
        return self.lanes > 1 and not self.vector

    @property
    def made(self) -> str:
        """The expression for all of its lanes."""
        return f"[make({'lane=lane' if self.takes_lane else ''}) for lane in range({self.lanes})]"


def plain_script(
    finding: Finding, source: object, contract: EnvContract, *, lanes: int = 1, requirement: str = ""
) -> str:
    """The script that shows *finding*, found on *source* served on *lanes* lanes.

    *source* is a gymnasium id, ``module:factory``, or a factory that a module holds. Raises :exc:`NoPlainScript`.
    """
    evidence = finding.evidence
    if evidence is None or evidence.blame == "server" or finding.check.partition(".")[0] in ("wire", "contract"):
        raise NoPlainScript("the fault is the server's, plain gymnasium has none")
    if finding.check not in (*_COMPARED, *_JUDGED, _RAISES, _ALIAS, _CLOSES):
        raise NoPlainScript(f"{finding.check} looks at what a server makes of the env")
    imported, takes_lane = _imported(source)
    vector = contract.num_envs != lanes or contract.autoreset_mode not in (
        AutoresetMode.DISABLED,
        AutoresetMode.UNSPECIFIED,
    )
    env = _Env(imported, contract.num_envs, vector, takes_lane, contract.action_space)
    body = list(_body(finding, evidence, env))
    needs_time = any(isinstance(op, Wait) for script in _scripts(finding, evidence) for op in script.ops)
    text = "\n".join(body)
    modules = ["sys", *(["time"] if needs_time else [])]
    head = [
        f"# {finding.check}: {' '.join((requirement or evidence.signature).split())}",
        "# Exits with 1 and prints the difference when the fault shows. Run it where the env can be imported.",
        f"import {', '.join(modules)}",
        *(["import numpy as np"] if "np." in text else []),
        'sys.path.insert(0, "")',
        env.imported,
    ]
    return "\n".join([*head, text, ""])


def _imported(source: object) -> tuple[str, bool]:
    """The line that defines ``make``, and whether it takes the lane."""
    if not isinstance(source, str):
        module, name = getattr(source, "__module__", ""), getattr(source, "__qualname__", "")
        if not callable(source) or not module or not name or "<" in name:
            raise NoPlainScript("the env has no name to import it by: give module:factory")
        source = f"{module}:{name}"
    module, colon, name = source.partition(":")
    if not colon or not all(part.isidentifier() for part in (*module.split("."), *name.split("."))):
        return f"import gymnasium; make = lambda: gymnasium.make({source!r})", False
    takes_lane = _takes_lane(source)
    if "." in name:
        return f"import {module}; make = {module}.{name}", takes_lane
    return f"from {module} import {name} as make", takes_lane


def _takes_lane(source: str) -> bool:
    try:
        return "lane" in inspect.signature(cast("Callable[..., object]", load_object(source))).parameters
    except (ConnectError, TypeError, ValueError):
        return False


def _scripts(finding: Finding, evidence: Evidence) -> tuple[Script, ...]:
    return tuple(trace.script for trace in evidence.traces) or finding.scripts


def _body(finding: Finding, evidence: Evidence, env: _Env) -> Iterator[str]:
    if finding.check == _CLOSES:
        yield from ("env = make()", "env.close()", "env.close()  # raises")
        return
    scripts = _scripts(finding, evidence)
    if not scripts:
        raise NoPlainScript("no script shows it")
    if finding.check in _COMPARED:
        yield from _comparison(finding, evidence, scripts, env)
        return
    yield from _data("SCRIPT", scripts[0], env)
    yield f"envs = {env.made}" if env.apart else "env = make()"
    if finding.check == _ALIAS:
        yield "kept = []"
    yield "for lane, op, given in SCRIPT:" if env.apart else "for op, given in SCRIPT:"
    if env.apart:
        yield "    env = envs[lane]"
    yield '    answer = env.reset(**given) if op == "reset" else env.step(given)'
    if finding.check == _ALIAS:
        yield "    kept.append((answer[0], repr(answer[0])))"
        yield "for number, (now, then) in enumerate(kept):"
        yield "    if repr(now) != then:"
        yield '        sys.exit(f"what op {number} handed out was {then} and is {now!r}")'
    elif finding.check in _JUDGED:
        broken, told = _JUDGED[finding.check]
        yield f"    if {broken}:"
        yield f'        sys.exit(f"{{op}}: {told}")'


def _comparison(finding: Finding, evidence: Evidence, scripts: tuple[Script, ...], env: _Env) -> Iterator[str]:
    """Both scripts are played on new envs, and what is compared must be equal to the last bit."""
    if len(scripts) != 2:
        raise NoPlainScript("it is no difference between two runs")
    of_lanes = finding.check.startswith("lanes.")
    if of_lanes and env.vector:
        raise NoPlainScript("the lanes are one vector env's: play the scripts of the recording on it")
    a, b = scripts
    if finding.check == "seed.history-independent":
        before = finding.scripts[0]
        b = attrs.evolve(b, ops=(*before.ops, *b.ops))
    # The widths of two scripts may differ: there are as many envs as the wider one needs.
    env = attrs.evolve(env, lanes=max(a.lanes, b.lanes))
    yield from _data("A", a, env)
    if a != b:
        yield from _data("B", b, env)
    yield "np.set_printoptions(threshold=sys.maxsize, floatmode='unique')"
    kept = env.apart and of_lanes
    yield f"def play(script{', kept' if kept else ''}):"
    yield f"    {'envs' if env.apart else 'env'}, answers = {env.made if env.apart else 'make()'}, []"
    yield "    for lane, op, given in script:" if env.apart else "    for op, given in script:"
    if env.apart:
        yield "        env = envs[lane]"
    if any(isinstance(op, Wait) for op in (*a.ops, *b.ops)):
        yield '        if op == "wait":'
        yield "            time.sleep(given)"
        yield "            continue"
    yield '        answer = env.reset(**given) if op == "reset" else env.step(given)'
    if kept:
        yield "        if lane == kept:"
    infos = "" if evidence.severity == "should" else "[:-1]"
    yield f"        {'    ' if kept else ''}answers.append(repr(answer{infos}))"
    yield "    return answers"
    yield f"for _ in range({_RUNS}):"
    one, other = _lane_pair(finding, evidence) if kept else (None, None)
    plays = [f"play({name}{'' if lane is None else f', {lane}'})" for name, lane in _sides(a, b, one, other)]
    tail = "[-len(a):]" if finding.check == "seed.history-independent" else ""
    yield f"    a, b = {', '.join(plays)}"
    yield f"    for number, (one, other) in enumerate(zip(a, b{tail})):"
    yield "        if one != other:"
    yield '            sys.exit(f"answer {number}: {one}\\nand then: {other}")'


def _sides(a: Script, b: Script, one: int | None, other: int | None) -> tuple[tuple[str, int | None], ...]:
    return ("A", one), ("A" if a == b else "B", other)


def _lane_pair(finding: Finding, evidence: Evidence) -> tuple[int, int]:
    """The lane that is compared, in one script and in the other."""
    lane = evidence.first[1] if evidence.first else 0
    if finding.check == "lanes.permute":
        return lane, finding.case[2][lane]
    return lane, lane


def _data(name: str, script: Script, env: _Env) -> Iterator[str]:
    """*script* as a list of (operation, argument), with the lane before where each has an env of its own."""
    entries = [entry for op in script.ops for entry in _entries(op, script, env)]
    line = f"{name} = [{', '.join(entries)}]"
    if len(line) <= _WIDE:
        yield line
        return
    yield f"{name} = ["
    line = "   "
    for entry in entries:
        if len(line) + len(entry) > _WIDE and line.strip():
            yield line
            line = "   "
        line += f" {entry},"
    yield line
    yield "]"


def _entries(op: Op, script: Script, env: _Env) -> Iterator[str]:
    if isinstance(op, Wait):
        yield _entry(env, 0, "wait", repr(op.seconds))
    elif env.vector:
        yield _of_vector(op, script, env)
    elif isinstance(op, Reset):
        for lane, seed in zip(script.lanes_of(op), op.seeds or (None,) * len(script.lanes_of(op)), strict=True):
            yield _entry(env, lane, "reset", _reset_arguments(seed, op))
    else:
        for lane, row in zip(script.lanes_of(op), op.actions, strict=True):
            yield _entry(env, lane, "step", literal(_action(env, row)))


def _entry(env: _Env, lane: int, op: str, given: str) -> str:
    return f'({lane}, "{op}", {given})' if env.apart else f'("{op}", {given})'


def _reset_arguments(seed: object, op: Reset) -> str:
    given = {"seed": seed} if seed is not None else {}
    return literal({**given, **({"options": dict(op.options)} if op.options else {})})


def _of_vector(op: Reset | Step, script: Script, env: _Env) -> str:
    if op.lanes:
        raise NoPlainScript("it needs lanes of a vector env to be asked apart")
    if isinstance(op, Reset):
        return _entry(env, 0, "reset", _reset_arguments(list(op.seeds) or None, op))
    space: Any = None if env.actions is None else env.actions.space
    if space is None:
        raise NoPlainScript("the env has no action space")
    members = [_action(env, row) for row in op.actions]
    batch = concatenate(space, members, create_empty_array(space, script.lanes))
    return _entry(env, 0, "step", literal(batch))


def _action(env: _Env, row: Row) -> Any:
    if env.actions is None:
        raise NoPlainScript("the env has no action space")
    try:
        return member_of(env.actions, row)
    except SpaceError as fault:
        raise NoPlainScript("its actions are bytes that stand for no value") from fault
