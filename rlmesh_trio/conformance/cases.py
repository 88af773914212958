"""What a case is made of: the scripts in it, wherever they stand, and how large it is."""

from collections.abc import Iterator, Mapping
from typing import Any, cast

import attrs

from rlmesh_trio.conformance.scripts import Script

__all__ = ("ops_in", "scripts_in")


def scripts_in(case: Any) -> tuple[Script, ...]:
    """The scripts in *case*, in order: itself, or those in its tuples, lists, mappings and attrs classes."""
    return tuple(part for part in _parts(case) if isinstance(part, Script))


def ops_in(case: Any) -> int:
    """The size of *case*: the ops of its scripts, or, where it has none, the values in it."""
    parts = list(_parts(case))
    scripts = [part for part in parts if isinstance(part, Script)]
    return sum(len(script.ops) for script in scripts) if scripts else len(parts)


def _parts(case: Any) -> Iterator[Any]:
    """Everything in *case* that holds nothing else, scripts among it."""
    if isinstance(case, Script):
        yield case
    elif isinstance(case, (tuple, list)):
        for part in cast("tuple[Any, ...]", case):
            yield from _parts(part)
    elif isinstance(case, Mapping):
        for part in cast("Mapping[Any, Any]", case).values():
            yield from _parts(part)
    elif attrs.has(cast("type[Any]", type(case))):
        for field in attrs.fields(cast("type[Any]", type(case))):
            yield from _parts(getattr(case, field.name))
    elif case is not None:
        yield case
