"""Pairs of recordings of an env with three leaves, one of them with something planted in it."""

from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from itertools import zip_longest
from pathlib import Path
from typing import Any

import attrs
import numpy as np
from gymnasium import spaces

from rlmesh_trio.recording import Header, Recording, open_recording
from rlmesh_trio.replay.comparing import compare
from rlmesh_trio.replay.findings import Comparison, Divergence
from tests.recording.plays import Op, contract_of, recorded

WALKER = spaces.Dict(
    {
        "qpos": spaces.Box(-np.inf, np.inf, (9,), np.float32),
        "qvel": spaces.Box(-np.inf, np.inf, (9,), np.float32),
        "room": spaces.Discrete(5),
    }
)


def seen(ordinal: int, step: int) -> dict[str, Any]:
    drawn = np.random.default_rng((ordinal, step))
    return {
        "qpos": drawn.normal(size=9).astype(np.float32),
        "qvel": drawn.normal(size=9).astype(np.float32),
        "room": np.int64(drawn.integers(5)),
    }


def episode(ordinal: int, steps: int, *, lane: int = 0, seed: int | None = None) -> list[Op]:
    """The reset and the steps of one episode; step ``n`` is at place ``n``, and the last one truncates."""
    seeds = (1000 + ordinal if seed is None else seed,)
    begun = Op((lane,), (seen(ordinal, 0),), (ordinal,), seeds, is_reset=True, infos={"mass": 1.5})
    return [begun, *(_step(ordinal, step, lane, flag=2 if step == steps else 0) for step in range(1, steps + 1))]


def _step(ordinal: int, step: int, lane: int, flag: int) -> Op:
    return Op(
        (lane,),
        (seen(ordinal, step),),
        actions=(step % 3,),
        rewards=(0.25 * step,),
        flags=(flag,),
        infos={"height": 0.5 * step, "touching": step % 2 == 0, "forces": [0.5, float(step)]},
    )


def run(count: int = 3, steps: int = 5) -> list[list[Op]]:
    return [episode(ordinal, steps) for ordinal in range(1, count + 1)]


def dealt(lanes: int, count: int, steps: int) -> list[Op]:
    """The same episodes dealt to *lanes*, which are stepped in turn."""
    by_lane = [
        [op for ordinal in range(lane + 1, count + 1, lanes) for op in episode(ordinal, steps, lane=lane)]
        for lane in range(lanes)
    ]
    return [op for turn in zip_longest(*by_lane) for op in turn if op is not None]


def changed(op: Op, leaf: str, change: Callable[[Any], Any]) -> Op:
    """*op* with one leaf of its observation changed."""
    row = op.rows[0]
    return attrs.evolve(op, rows=({**row, leaf: change(row[leaf])},))


def nudged(ulps: int, *index: int) -> Callable[[Any], Any]:
    """Moves one element by so many floats."""

    def change(values: Any) -> Any:
        moved = values.copy()
        target = np.float32(np.inf if ulps > 0 else -np.inf)
        for _ in range(abs(ulps)):
            moved[index] = np.nextafter(moved[index], target)
        return moved

    return change


def header(lanes: int = 1, **fields: Any) -> Header:
    return Header(contract=contract_of(lanes, WALKER), **fields)


@contextmanager
def opened(
    folder: Path,
    before: Sequence[Sequence[Op]],
    after: Sequence[Sequence[Op]],
    *,
    level: str = "full",
    fields: dict[str, Any] | None = None,
    now: Header | None = None,
) -> Generator[tuple[Recording, Recording]]:
    """Both runs recorded and open; *fields* are of both headers, *now* is the second one's whole header."""
    mine = header(**(fields or {}))
    recorded(folder / "a.mcap", [op for ops in before for op in ops], mine, level)
    recorded(folder / "b.mcap", [op for ops in after for op in ops], now or mine, level)
    with open_recording(folder / "a.mcap") as first, open_recording(folder / "b.mcap") as second:
        yield first, second


def compared(
    folder: Path, before: Sequence[Sequence[Op]], after: Sequence[Sequence[Op]], *, level: str = "full", **given: Any
) -> Comparison:
    recording = {name: given.pop(name) for name in ("fields", "now") if name in given}
    with opened(folder, before, after, level=level, **recording) as (first, second):
        return compare(first, second, **given)


def planted(folder: Path, place: tuple[int, int], plant: Callable[[Op], Op], **given: Any) -> Divergence:
    """The only divergence of a run from itself with *plant* done to the step of an episode, both by *place*."""
    steps = given.pop("steps", 5)
    after = run(steps=steps)
    after[place[0] - 1][place[1]] = plant(after[place[0] - 1][place[1]])
    (found,) = compared(folder, run(steps=steps), after, **given).divergences
    return found
