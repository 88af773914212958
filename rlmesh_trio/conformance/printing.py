"""Scripts and values for people: ``reset(seed=0) step(2)``, ``obs.velocity[0] = 0.0917   (0x3dbbcd36)``."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any, cast

import numpy as np

from rlmesh_trio.conformance.differences import Difference
from rlmesh_trio.conformance.rows import member_of
from rlmesh_trio.conformance.scripts import Op, Reset, Row, Script, Step, Wait
from rlmesh_trio.contract import ValueSpace
from rlmesh_trio.errors import SpaceError

__all__ = ("difference_lines", "op_text", "place_text", "row_text", "script_text", "value_text")

_FEW = 8
_MOST_OPS = 24
_REPEATED = 3
_MANY_ULPS = 1_000_000
_FLOATS = {6: np.float16, 10: np.float32, 18: np.float64}


def script_text(script: Script, actions: ValueSpace | None) -> str:
    """*script* in one line; equal ops in a row are told once, as in ``step(1) x12``, and a long script in part."""
    told: list[str] = []
    for text, group in groupby(op_text(op, script, actions) for op in script.ops):
        times = len(list(group))
        told.extend([text] * times if times < _REPEATED else [f"{text} x{times}"])
    if len(told) > _MOST_OPS:
        half = _MOST_OPS // 2
        told[half:-half] = [f"... {len(told) - 2 * half} more ..."]
    return " ".join(told)


def op_text(op: Op, script: Script, actions: ValueSpace | None) -> str:
    """One op of *script* as a call; *actions* is the space its rows are read by."""
    match op:
        case Wait():
            return f"wait({op.seconds:g})"
        case Step():
            rows = [row_text(row, actions) for row in op.actions]
            return f"step({', '.join([_each(rows, script.lanes), *_lanes(op)])})"
        case Reset():
            arguments: list[str] = []
            if op.seeds:
                seeds = _each([str(seed) for seed in op.seeds], script.lanes)
                arguments.append(f"seed={seeds}" if script.lanes == 1 and len(op.seeds) == 1 else f"seeds={seeds}")
            if op.options is not None:
                arguments.append(f"options={value_text(op.options)}")
            return f"reset({', '.join([*arguments, *_lanes(op)])})"


def _lanes(op: Reset | Step) -> list[str]:
    return [f"lanes={list(op.lanes)}"] if op.lanes else []


def _each(texts: Sequence[str], lanes: int) -> str:
    """What there is for each lane; nothing but it, where there is one lane."""
    if lanes == 1 and len(texts) == 1:
        return texts[0]
    if len(texts) > _FEW and len(set(texts)) == 1:
        return f"[{texts[0]}] * {len(texts)}"
    return _listed(texts, len(texts))


def _listed(texts: Sequence[str], count: int) -> str:
    shown = texts if count <= _FEW else [*texts[: _FEW // 2], f"... {count} in all"]
    return f"[{', '.join(shown)}]"


def row_text(row: Row, space: ValueSpace | None) -> str:
    """A row as the value it is in *space*; as bytes, where it is none."""
    if space is not None:
        try:
            return value_text(member_of(space, row))
        except SpaceError:
            pass
    return f"<{' '.join([leaf.hex() if len(leaf) <= _FEW * 4 else f'{len(leaf)} bytes' for leaf in row])}>"


def value_text(value: object) -> str:
    """A value in few characters: plain numbers, arrays as lists, large ones in part."""
    match value:
        case np.ndarray():
            return _array_text(cast("np.ndarray[Any, Any]", value))
        case np.generic() | float():
            return str(cast("object", value))
        case Mapping():
            items = cast("Mapping[object, object]", value).items()
            return f"{{{', '.join([f'{key!r}: {value_text(part)}' for key, part in items])}}}"
        case tuple() if len(cast("tuple[object, ...]", value)) != 1:
            return f"({', '.join([value_text(part) for part in cast('tuple[object, ...]', value)])})"
        case list() | tuple():
            parts = cast("Sequence[object]", value)
            return _listed([value_text(part) for part in parts[:_FEW]], len(parts))
        case _:
            text = repr(value)
            return text if len(text) <= 80 else f"{text[:60]}... {len(text)} characters"


def _array_text(array: np.ndarray[Any, Any]) -> str:
    if array.size <= _FEW or array.ndim == 0:
        return _nested(array)
    flat = array.ravel()
    if (flat == flat[0]).all():
        return f"full({array.shape}, {flat[0]})"
    shape = "" if array.ndim == 1 else f", shape {array.shape}"
    return f"[{', '.join(map(str, flat[: _FEW // 2]))}, ... {array.size} in all{shape}]"


def _nested(array: np.ndarray[Any, Any]) -> str:
    return str(array[()]) if array.ndim == 0 else f"[{', '.join([_nested(part) for part in array])}]"


def place_text(script: Script, place: int) -> str:
    """What the op at *place* is called: ``reset``, ``step 2``, or ``reset 2``, ``step 1 after reset 2``."""
    before = script.ops[: place + 1]
    resets = [op for op in before if isinstance(op, Reset)]
    only = sum(isinstance(op, Reset) for op in script.ops) <= 1
    match script.ops[place]:
        case Wait():
            return "wait"
        case Reset():
            return "reset" if only else f"reset {len(resets)}"
        case Step():
            last = max((i for i, op in enumerate(before) if isinstance(op, Reset)), default=-1)
            number = sum(isinstance(op, Step) for op in before[last + 1 :])
            return f"step {number}" if only else f"step {number} after reset {len(resets)}"


def difference_lines(
    difference: Difference, scripts: tuple[Script, Script], labels: tuple[str, str]
) -> tuple[str, str]:
    """Both sides of *difference*, one line each, the second with how far they are apart.

    *labels* say what the two traces are, as in ``B alone`` and ``B after A``.
    """
    heads = [_head(difference, script, side) for side, script in enumerate(scripts)]
    what = difference.path + "".join(f"[{i}]" for i in difference.index)
    lines = [
        f"{label:<{max(map(len, labels))}}  {head:<{max(map(len, heads))}}  {what} = {_side(difference, side)}"
        for side, (label, head) in enumerate(zip(labels, heads, strict=True))
    ]
    before = sum(not isinstance(op, Wait) for op in scripts[0].ops[: difference.op])
    return lines[0], "   ".join([lines[1], "; ".join(_remarks(difference, before))]).rstrip()


def _head(difference: Difference, script: Script, side: int) -> str:
    place = place_text(script, difference.ops[side])
    return place if script.lanes == 1 else f"{place} lane {difference.lanes[side]}"


def _side(difference: Difference, side: int) -> str:
    value, bits = difference.values[side], difference.bits[side]
    if not isinstance(value, float) or len(bits) not in _FLOATS:
        return value_text(value)
    return f"{_FLOATS[len(bits)](value)!s:<10} ({bits})"


def _remarks(difference: Difference, before: int) -> Iterator[str]:
    if difference.info_only:
        yield "infos are all that differs"
        return
    if difference.ulps is not None:
        yield f"{difference.ulps} ulp apart" if difference.ulps <= _MANY_ULPS else "far apart"
    if before:
        yield "the reset is equal" if before == 1 else f"the {before} answers before are equal"
