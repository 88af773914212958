"""Records as JSON and back, exactly.

A float is written by its shortest exact text. JSON has no NaN and no infinities: such a number is the text ``"NaN"``,
``"Infinity"`` or ``"-Infinity"``, as in a report.
"""

import base64
import json
import math
from collections.abc import Callable, Mapping
from types import UnionType
from typing import Any, Literal, TypeVar, cast, get_args, get_origin

import attrs

from rlmesh_trio.errors import InvalidSpec

__all__ = ("as_object", "decode_record", "json_line", "parse_object", "plain", "read_file", "strict_json")

R = TypeVar("R", bound=attrs.AttrsInstance)

_encode = json.JSONEncoder(separators=(",", ":"), allow_nan=False).encode
_NOT_FINITE = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}


def read_file(name: str, what: str) -> bytes:
    """The whole content of the file *name*, which is a *what*; raises :exc:`InvalidSpec` when it cannot be read."""
    try:
        with open(name, "rb") as stream:
            return stream.read()
    except OSError as error:
        raise InvalidSpec(f"{what} {name} cannot be read: {error.strerror or error}") from error


def json_line(fields: dict[str, Any]) -> bytes:
    """*fields* as one line of strict JSON, its line feed included."""
    try:
        text = _encode(fields)
    except ValueError:  # A number that JSON has not, which is rare: looking for them takes longer than encoding.
        text = _encode(plain(fields))
    return text.encode() + b"\n"


def plain(value: Any) -> Any:
    """*value* as JSON reads it back: tuples are lists, keys, bytes (in base64) and numbers that JSON has not texts."""
    match value:
        case float() if not math.isfinite(value):
            return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
        case Mapping():
            return {str(key): plain(part) for key, part in cast("Mapping[Any, Any]", value).items()}
        case bytes():
            return base64.b64encode(value).decode()
        case list() | tuple():
            return [plain(part) for part in cast("list[Any]", value)]
        case _:
            return value


def strict_json(
    value: Any, *, indent: int | None = None, ensure_ascii: bool = True, default: Callable[[Any], Any] | None = None
) -> str:
    """*value* as JSON, as :func:`plain` has it; *default* makes of anything else what JSON has.

    Without *ensure_ascii* letters stand as they are, and a lone surrogate, which UTF-8 has not, is a question mark.
    """
    text = json.dumps(plain(value), indent=indent, allow_nan=False, ensure_ascii=ensure_ascii, default=default)
    return text.encode(errors="replace").decode()


def parse_object(data: bytes) -> dict[str, Any]:
    """The object that the UTF-8 JSON text *data* holds; raises :exc:`ValueError` when it holds none."""
    try:
        value = json.loads(data, parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"it is not JSON ({error})") from error
    return as_object(value)


def as_object(value: object) -> dict[str, Any]:
    """*value*, which JSON gave, if it is an object; raises :exc:`ValueError` otherwise."""
    if isinstance(value, dict):
        return cast("dict[str, Any]", value)
    raise ValueError("it is no JSON object")


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is no JSON number")


def decode_record(kind: type[R], fields: Mapping[str, Any]) -> R:
    """The record of class *kind* with these *fields*, all of them and no other.

    Raises :exc:`ValueError` that names the field which is missing, unknown or of another type.
    """
    known = {field.name: field for field in attrs.fields(kind)}
    if missing := [name for name in known if name not in fields]:
        raise ValueError(f"it has no {missing[0]!r}")
    if unknown := [name for name in fields if name not in known]:
        raise ValueError(f"it has an unknown {unknown[0]!r}")
    return kind(**{name: _decoded(name, fields[name], known[name].type) for name in known})


def _decoded(name: str, value: Any, declared: Any) -> Any:
    origin = get_origin(declared)
    choices = get_args(declared) if origin in (UnionType, Literal) else (origin or declared,)
    # A bool is an int to isinstance, and must not be one here.
    if type(value) in choices or value in choices:
        return value
    if float in choices:
        if isinstance(value, str) and value in _NOT_FINITE:
            return _NOT_FINITE[value]
        if type(value) is int and abs(value) <= 2**53:
            return float(value)
    raise ValueError(f"its {name!r} cannot be {value!r}")
