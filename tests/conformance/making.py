"""Facts and traces made by hand, for tests of what judges them."""

from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

from rlmesh_trio.conformance.registry import Facts
from rlmesh_trio.conformance.rows import row_of
from rlmesh_trio.conformance.scripts import Op, Reset, Row, Script, Step
from rlmesh_trio.conformance.traces import Answer, Trace
from rlmesh_trio.contract import AutoresetMode
from rlmesh_trio.spaces import contract_from_gymnasium, space_from_gymnasium

__all__ = ("VECTOR", "facts_for", "row", "script_of", "trace_of")

VECTOR = spaces.Box(-np.inf, np.inf, (2,), np.float32)
_SPACE = space_from_gymnasium(VECTOR)


def facts_for(
    observations: gymnasium.Space[Any] = VECTOR,
    actions: gymnasium.Space[Any] | None = None,
    *,
    lanes: int = 1,
    mode: AutoresetMode = AutoresetMode.DISABLED,
    subset_step: bool = True,
    **told: Any,
) -> Facts:
    """The facts of an env in this process with these spaces."""
    contract = contract_from_gymnasium(
        observations,
        actions or spaces.Discrete(3),
        env_id="Made-v0",
        metadata={},
        num_envs=lanes,
        autoreset_mode=mode,
        render_mode="",
    )
    return Facts("made", contract, subset_step, frozenset(), factory=False, local=True, **told)


def row(*values: float) -> Row:
    """An observation of :data:`VECTOR`."""
    return row_of(_SPACE, np.array(values, np.float32))


def script_of(steps: int, *, lanes: int = 1) -> Script:
    """A seeded reset and so many steps with one action."""
    action = (np.int64(1).tobytes(),)
    ops: list[Op] = [Reset(tuple(range(lanes))), *[Step((action,) * lanes)] * steps]
    return Script(lanes, tuple(ops))


def trace_of(*answers: dict[str, Any], lanes: int = 1, script: Script | None = None) -> Trace:
    """The trace of a reset and steps that were answered so; rows, rewards and flags have defaults."""
    kept: list[Answer] = []
    for op, told in enumerate(answers):
        given: dict[str, Any] = {"lanes": tuple(range(lanes)), "episode_ids": tuple(f"e{i}" for i in range(lanes))}
        if "refusal" not in told:
            given["observation"] = (row(op, 0),) * lanes
            if op:
                given |= {"rewards": (1.0,) * lanes, "terminated": (False,) * lanes, "truncated": (False,) * lanes}
        kept.append(Answer(op, **{**given, **told}))
    return Trace(script or script_of(len(answers) - 1, lanes=lanes), tuple(kept))
