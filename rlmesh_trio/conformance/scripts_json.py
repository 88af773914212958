"""Scripts, and the cases of checks, as JSON and back: nothing lost, not even the bits of a NaN.

A script is ``{"lanes": 1, "ops": [{"reset": {"seeds": [0]}}, {"step": [["01"]]}, {"wait": 0.1}]}``: a step holds a row
for each lane, a row its leaves in hexadecimal. Defaults are left out. What JSON cannot say is an object of one key that
names its kind: ``{"tuple": [...]}``, ``{"map": [[key, value], ...]}``, ``{"bytes": "00ff"}``, ``{"float": "7ff8..."}``
(big-endian bits), ``{"script": {...}}``, ``{"op": {...}}``.
"""

import math
import struct
from collections.abc import Mapping, Sequence
from typing import Any, cast

from rlmesh_trio.conformance.scripts import Op, Reset, Row, Script, Step, Wait
from rlmesh_trio.messages import Metadata

__all__ = ("case_from_json", "case_to_json", "script_from_json", "script_to_json")

_READ_FAULTS = (AttributeError, KeyError, IndexError, TypeError, ValueError, struct.error)


def script_to_json(script: Script) -> dict[str, Any]:
    """*script* in values that :mod:`json` can write."""
    return {"lanes": script.lanes, "ops": [_op_to_json(op) for op in script.ops]}


def script_from_json(document: Any) -> Script:
    """The inverse of :func:`script_to_json`. Raises :exc:`ValueError` in one line for anything else."""
    try:
        return _script(document)
    except _READ_FAULTS as fault:
        raise ValueError(f"no script: {type(fault).__name__}: {fault}") from fault


def case_to_json(case: object) -> Any:
    """A case of a check: scripts and ops in tuples, lists and maps, with numbers, texts, bytes and ``None``.

    Raises :exc:`TypeError` for anything else.
    """
    match case:
        case None | bool() | int() | str():
            return case
        case float():
            return case if math.isfinite(case) else {"float": struct.pack(">d", case).hex()}
        case bytes():
            return {"bytes": case.hex()}
        case Script():
            return {"script": script_to_json(case)}
        case Reset() | Step() | Wait():
            return {"op": _op_to_json(case)}
        case tuple():
            return {"tuple": [case_to_json(part) for part in cast("tuple[object, ...]", case)]}
        case list():
            return [case_to_json(part) for part in cast("list[object]", case)]
        case Mapping():
            items = cast("Mapping[object, object]", case).items()
            return {"map": [[case_to_json(key), case_to_json(value)] for key, value in items]}
        case _:
            raise TypeError(f"a case cannot hold a {type(case).__name__}")


def case_from_json(document: Any) -> Any:
    """The inverse of :func:`case_to_json`. Raises :exc:`ValueError` in one line for anything else."""
    try:
        return _case(document)
    except _READ_FAULTS as fault:
        raise ValueError(f"no case: {type(fault).__name__}: {fault}") from fault


def _case(document: Any) -> Any:
    if isinstance(document, list):
        return [_case(part) for part in cast("list[Any]", document)]
    if not isinstance(document, dict):
        return document
    ((kind, value),) = cast("dict[str, Any]", document).items()
    match kind:
        case "float":
            return struct.unpack(">d", bytes.fromhex(value))[0]
        case "bytes":
            return bytes.fromhex(value)
        case "script":
            return _script(value)
        case "op":
            return _op(value)
        case "tuple":
            return tuple([_case(part) for part in value])
        case "map":
            return {_case(key): _case(part) for key, part in value}
        case _:
            raise ValueError(f"unknown kind {kind!r}")


def _op_to_json(op: Op) -> dict[str, Any]:
    if isinstance(op, Wait):
        return {"wait": op.seconds}
    if isinstance(op, Step):
        told: dict[str, Any] = {"step": [[leaf.hex() for leaf in row] for row in op.actions]}
        if op.lanes:
            told["lanes"] = list(op.lanes)
        return told
    reset: dict[str, Any] = {}
    if op.seeds:
        reset["seeds"] = list(op.seeds)
    if op.options is not None:
        reset["options"] = case_to_json(op.options)
    if op.lanes:
        reset["lanes"] = list(op.lanes)
    return {"reset": reset}


def _script(document: Any) -> Script:
    return Script(_whole(document["lanes"]), tuple([_op(op) for op in document["ops"]]))


def _op(document: Any) -> Op:
    if "wait" in document:
        return Wait(float(document["wait"]))
    if "step" in document:
        return Step(tuple([_row(row) for row in document["step"]]), _numbers(document.get("lanes", ())))
    reset = document["reset"]
    options = cast("Metadata | None", _case(reset["options"]) if "options" in reset else None)
    return Reset(_numbers(reset.get("seeds", ())), options, _numbers(reset.get("lanes", ())))


def _row(leaves: Any) -> Row:
    return tuple([bytes.fromhex(leaf) for leaf in leaves])


def _numbers(values: Sequence[Any]) -> tuple[int, ...]:
    return tuple([_whole(value) for value in values])


def _whole(value: Any) -> int:
    if type(value) is not int or value < 0:
        raise ValueError(f"{value!r} is no whole number from 0 on")
    return value
