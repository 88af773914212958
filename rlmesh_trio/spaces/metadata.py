"""What an env says of itself, made sayable on the wire: lossy by design, and never a reason to fail.

The rules are rlmesh's own: numpy and torch arrays become lists, named tuples maps, tuples lists, keys text, an enum its
value (its name when that has no form). Everything else becomes its ``str()``, as do ints beyond 64 bits and whatever
nests too deep or holds itself.
"""

from collections.abc import Mapping
from enum import Enum
from typing import Any, cast

from rlmesh_trio.messages import MetaValue
from rlmesh_trio.wire.metadata import MAX_NESTING

__all__ = ("plain_metadata",)


def plain_metadata(values: Mapping[Any, Any]) -> dict[str, MetaValue]:
    """*values* in plain Python types that have a wire form; the result shares nothing with *values*."""
    return _plain_map(values, (id(values),))


def _plain_map(values: Mapping[Any, Any], holders: tuple[int, ...]) -> dict[str, MetaValue]:
    return {_text(key): _plain(value, holders) for key, value in values.items()}


def _plain(value: Any, holders: tuple[int, ...]) -> MetaValue:
    """*value* made plain; *holders* are the ids of the containers around it."""
    value = _unwrapped(value)
    match value:
        case None | bool() | float() | bytes():
            return value
        case int():
            return int(value) if -(1 << 63) <= value < 1 << 63 else str(value)
        case str():
            return _text(value)
        case Enum():
            inner = _unwrapped(value.value)
            sayable = inner is None or isinstance(inner, (bool, int, float, str, bytes, Mapping, list, tuple))
            return _plain(inner, holders) if sayable else value.name
        case Mapping() | list() | tuple() if len(holders) < MAX_NESTING and id(cast("object", value)) not in holders:
            inside = (*holders, id(cast("object", value)))
            if isinstance(value, Mapping):
                return _plain_map(cast("Mapping[Any, Any]", value), inside)
            return [_plain(item, inside) for item in cast("list[Any]", value)]
        case _:
            return _text(value)


def _unwrapped(value: Any) -> Any:
    for method in ("_asdict", "tolist"):
        unwrap = getattr(value, method, None)
        if callable(unwrap) and not isinstance(value, type):
            return unwrap()
    return value


def _text(value: object) -> str:
    """``str(value)``, with what has no UTF-8 form replaced."""
    return str.__str__(value if isinstance(value, str) else str(value)).encode(errors="replace").decode()
