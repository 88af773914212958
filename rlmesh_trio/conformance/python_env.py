"""A script played on the env itself, without codec or server, so that what it returns is seen as it is.

A scalar env plays the part of lane 0, and is not stepped past the end of its episode; a vector env plays all of it.
Runs where the env lives, synchronously.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, cast

import attrs
import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.vector import VectorEnv

from rlmesh_trio.conformance.registry import Facts
from rlmesh_trio.conformance.scripts import Reset, Script, Step
from rlmesh_trio.endpoints.loading import AnyEnv
from rlmesh_trio.spaces import codec_for
from rlmesh_trio.spaces.convert import key_path

__all__ = ("Leaf", "Returned", "leaves_of", "returned_values")


Leaf = tuple[str, gymnasium.Space[Any], Any]
"""The path of a leaf, its space, and its value."""


@attrs.frozen
class Returned:
    """What the op at place ``op`` of the script returned, whatever it is; ``failure`` when it raised instead.

    ``values`` are the parts of a tuple; none where it was no tuple.
    """

    op: int
    is_reset: bool
    value: Any
    failure: Exception | None = None

    @property
    def values(self) -> tuple[Any, ...]:
        """The parts of what was returned."""
        value: object = self.value
        return cast("tuple[Any, ...]", value) if isinstance(value, tuple) else ()

    @property
    def is_sound(self) -> bool:
        """Whether it has as many parts as a reset, or a step, has to have."""
        return len(self.values) == (2 if self.is_reset else 5)

    @property
    def ends(self) -> bool:
        """Whether one of its flags is set."""
        return not self.is_reset and any(bool(np.any(flag)) for flag in self.values[2:-1])


def returned_values(env: AnyEnv, script: Script, facts: Facts) -> Iterator[Returned]:
    """Play *script* on *env*, whose action space is that of *facts*, op by op; ends with the first that raises."""
    is_vector = isinstance(env, VectorEnv)
    over = False
    for place, op in enumerate(script.ops):
        lanes = () if not isinstance(op, (Reset, Step)) else script.lanes_of(op)
        if not isinstance(op, (Reset, Step)) or (not is_vector and 0 not in lanes):
            continue
        if isinstance(op, Step) and over:
            continue
        try:
            value = _reset(env, op, lanes, facts) if isinstance(op, Reset) else _step(env, op, lanes, facts)
        except Exception as failure:
            yield Returned(place, isinstance(op, Reset), None, failure)
            return
        returned = Returned(place, isinstance(op, Reset), value)
        yield returned
        over = not is_vector and returned.ends


def _reset(env: Any, op: Reset, lanes: Sequence[int], facts: Facts) -> Any:
    arguments: dict[str, Any] = {}
    options = {**dict(facts.options), **(op.options or {})}
    if options:
        arguments["options"] = options
    if op.seeds:
        arguments["seed"] = list(op.seeds) if isinstance(env, VectorEnv) else op.seeds[lanes.index(0)]
    return cast("Any", env).reset(**arguments)


def _step(env: Any, op: Step, lanes: Sequence[int], facts: Facts) -> Any:
    space = facts.contract.action_space
    assert space is not None
    codec = codec_for(space)
    if not isinstance(env, VectorEnv):
        return env.step(codec.unpack_row(op.actions[lanes.index(0)], 1, 0))
    rows = len(op.actions)
    batch = codec.unpack_batch(codec.concatenate(op.actions, [1] * rows), rows)
    return cast("Any", env).step(batch)


def leaves_of(space: gymnasium.Space[Any], value: Any, path: str = "$") -> Iterator[Leaf]:
    """The leaves of *value* by *space*; what is not nested as declared is left out."""
    if isinstance(space, spaces.Dict) and isinstance(value, Mapping):
        children: Mapping[str, gymnasium.Space[Any]] = cast("Any", space).spaces
        for key, child in children.items():
            if key in value:
                yield from leaves_of(child, cast("Mapping[str, Any]", value)[key], key_path(path, str(key)))
    elif isinstance(space, spaces.Tuple) and isinstance(value, (tuple, list)):
        members: Sequence[gymnasium.Space[Any]] = cast("Any", space).spaces
        for number, (child, part) in enumerate(zip(members, cast("Sequence[Any]", value), strict=False)):
            yield from leaves_of(child, part, f"{path}[{number}]")
    elif not isinstance(space, (spaces.Dict, spaces.Tuple)):
        yield path, space, value
