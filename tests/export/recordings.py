"""Recordings to export: each way an episode can end, and observations of each kind of leaf."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from gymnasium import spaces

from rlmesh_trio.messages import Leaves
from rlmesh_trio.recording import Header, Recording, Row
from rlmesh_trio.spaces import codec_for
from rlmesh_trio.spec import ValueSpace
from tests.recording.plays import Op, contract_of, episodes, recorded, space_of

SEEN = spaces.Dict(
    {
        "a key": spaces.Tuple((spaces.MultiBinary(3), spaces.MultiDiscrete([3, 4]))),
        "camera": spaces.Box(0, 255, (32, 35, 3), np.uint8),
        "half": spaces.Box(-1, 1, (2, 3), np.float16),
        "note": spaces.Text(8, min_length=0),
        "place": spaces.Box(-np.inf, np.inf, (2,), np.float32),
        "room": spaces.Discrete(5),
    }
)
TERMINATED, TRUNCATED = 1, 2


def seen(path: Path, level: str = "full", *, lanes: int = 2, count: int = 3, steps: int = 4) -> Path:
    """Episodes that the env truncates, on lanes that take turns."""
    ops = episodes(lanes, count, steps, observation=SEEN)
    recorded(path, ops, Header(contract=contract_of(lanes, SEEN)), level)
    return path


def of_each_end(path: Path, level: str = "full") -> Path:
    """Episodes 1 terminated, 2 truncated, 3 capped, 4 an error, 5 without a step, 6 interrupted; of one step, 4 of two.

    The observation of a reset is ``[ordinal, 0]``, that of a step ``[ordinal, step]``.
    """
    ops: list[Op] = []
    for ordinal in range(1, 7):
        ops.append(begun(ordinal))
        if ordinal == 4:
            ops += [stepped(4, 1), Op((0,), refused="BUSY", actions=(2,)), stepped(4, 2)]
            ops.append(Op((0,), refused="CONNECTION", actions=(1,)))
        elif ordinal != 5:
            flag = {1: TERMINATED, 2: TRUNCATED}.get(ordinal, 0)
            ops.append(stepped(ordinal, 1, flag=flag, capped=ordinal == 3))
    recorded(path, ops, Header(contract=contract_of(1)), level)
    return path


def begun(ordinal: int) -> Op:
    return Op((0,), (place(ordinal, 0),), (ordinal,), (ordinal + 40,), True)


def stepped(ordinal: int, step: int, *, flag: int = 0, capped: bool = False) -> Op:
    return Op((0,), (place(ordinal, step),), actions=(step,), rewards=(0.5 * step,), flags=(flag,), capped=capped)


def restarted(path: Path) -> Path:
    """Two episodes; the env restarts the lane in the step that ends the first, and shows the second's observation."""
    ops = [begun(1), stepped(1, 1)]
    ops.append(Op((0,), (place(2, 0),), begins=(2,), actions=(2,), rewards=(1.0,), flags=(TERMINATED,)))
    ops += [stepped(2, 1, flag=TERMINATED)]
    recorded(path, ops, Header(contract=contract_of(1)), "full")
    return path


def place(ordinal: int, step: int) -> Any:
    return np.array([ordinal, step], np.float32)


def steps_of(recording: Recording, ordinal: int) -> tuple[Row, list[Row]]:
    """The row that begins an episode, and its answered steps."""
    first, *rest = recording.rows(ordinal)
    return first, [row for row in rest if row.answered and row.error is None]


def member(space: ValueSpace, leaves: Leaves | None) -> Any:
    assert leaves is not None
    return codec_for(space).unpack_row(leaves, 1, 0)


def members(recording: Recording, rows: Sequence[Row]) -> list[Any]:
    space = space_of(recording.header.contract)
    return [member(space, row.observation) for row in rows]
