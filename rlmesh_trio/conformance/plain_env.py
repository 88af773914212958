"""The env and the data of a plain script: the line that imports it, how it is made, and scripts as lists of Python."""

import inspect
from collections.abc import Callable, Iterator
from typing import Any, Self, cast

import attrs
from gymnasium.vector.utils import concatenate, create_empty_array

from rlmesh_trio.conformance.plain_values import literal
from rlmesh_trio.conformance.rows import member_of
from rlmesh_trio.conformance.scripts import Op, Reset, Row, Script, Step, Wait
from rlmesh_trio.contract import AutoresetMode, EnvContract, ValueSpace
from rlmesh_trio.endpoints.loading import load_object
from rlmesh_trio.errors import ConnectError, SpaceError

__all__ = ("NoPlainScript", "PlainEnv", "data_lines", "of_one_lane", "play_lines")

_WIDE = 100
_OWN = (AutoresetMode.DISABLED, AutoresetMode.UNSPECIFIED)


class NoPlainScript(Exception):
    """A failure that plain gymnasium does not show, and why."""


@attrs.frozen
class PlainEnv:
    """How the env is made: the line that imports it, how often it is there, and whether that is one vector env.

    ``first`` is the lane that the first of them is.
    """

    imported: str
    lanes: int
    vector: bool
    takes_lane: bool
    actions: ValueSpace | None
    first: int = 0

    @classmethod
    def of(cls, source: object, contract: EnvContract, lanes: int) -> Self:
        """The env of *contract*, which *source*, served on *lanes* lanes, is. Raises :exc:`NoPlainScript`."""
        imported, takes_lane = _imported(source)
        vector = contract.num_envs != lanes or contract.autoreset_mode not in _OWN
        return cls(imported, contract.num_envs, vector, takes_lane, contract.action_space)

    @property
    def apart(self) -> bool:
        """Whether there is an env for each lane."""
        return self.lanes > 1 and not self.vector

    @property
    def one(self) -> str:
        """The expression for one env."""
        return f"make(lane={self.first})" if self.takes_lane and not self.vector else "make()"

    def several(self, lanes: str) -> str:
        """The expression for the envs of so many *lanes*."""
        return f"[make({'lane=lane' if self.takes_lane else ''}) for lane in range({lanes})]"

    @property
    def made(self) -> str:
        """The line that makes all there is."""
        return f"envs = {self.several(str(self.lanes))}" if self.apart else f"env = {self.one}"

    def of_lane(self, lane: int) -> Self:
        """The env of one lane alone."""
        return attrs.evolve(self, lanes=1, vector=False, first=lane)


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


def play_lines(env: PlainEnv, script: str) -> Iterator[str]:
    """The head of a loop over the list *script*, which leaves in ``answer`` what each operation returned."""
    yield f"for lane, op, given in {script}:" if env.apart else f"for op, given in {script}:"
    if env.apart:
        yield "    env = envs[lane]"
    yield '    answer = env.reset(**given) if op == "reset" else env.step(given)'


def of_one_lane(script: Script, lane: int) -> Script:
    """What *script* asks of *lane*, as a script of one lane."""
    ops: list[Op] = []
    for op in script.ops:
        if isinstance(op, Wait):
            ops.append(op)
        elif lane in script.lanes_of(op):
            place = script.lanes_of(op).index(lane)
            if isinstance(op, Reset):
                ops.append(attrs.evolve(op, seeds=op.seeds[place : place + 1], lanes=()))
            else:
                ops.append(Step(op.actions[place : place + 1]))
    return Script(1, tuple(ops))


def data_lines(name: str, script: Script, env: PlainEnv) -> Iterator[str]:
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


def _entries(op: Op, script: Script, env: PlainEnv) -> Iterator[str]:
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


def _entry(env: PlainEnv, lane: int, op: str, given: str) -> str:
    return f'({lane}, "{op}", {given})' if env.apart else f'("{op}", {given})'


def _reset_arguments(seed: object, op: Reset) -> str:
    given = {"seed": seed} if seed is not None else {}
    return literal({**given, **({"options": dict(op.options)} if op.options else {})})


def _of_vector(op: Reset | Step, script: Script, env: PlainEnv) -> str:
    if op.lanes:
        raise NoPlainScript("it needs lanes of a vector env to be asked apart")
    if isinstance(op, Reset):
        return _entry(env, 0, "reset", _reset_arguments(list(op.seeds) or None, op))
    members = [_action(env, row) for row in op.actions]
    space: Any = None if env.actions is None else env.actions.space
    batch = concatenate(space, members, create_empty_array(space, script.lanes))
    return _entry(env, 0, "step", literal(batch))


def _action(env: PlainEnv, row: Row) -> Any:
    if env.actions is None:
        raise NoPlainScript("the env has no action space")
    try:
        return member_of(env.actions, row)
    except SpaceError as fault:
        raise NoPlainScript("its actions are bytes that stand for no value") from fault
