"""The declared spaces and what was seen of them, as tables."""

from collections import Counter
from collections.abc import Iterator
from typing import Any

import gymnasium
import numpy.typing as npt
from gymnasium import spaces

from rlmesh_trio.conformance.printing import value_text
from rlmesh_trio.conformance.reports.markup import Markup, element
from rlmesh_trio.conformance.scripts import Row
from rlmesh_trio.contract import EnvContract, ValueSpace
from rlmesh_trio.spaces import OpenText, leaf_spaces
from rlmesh_trio.spaces.leaf_values import leaf_name, leaf_value

__all__ = ("action_coverage", "space_table")

_MOST_VALUES = 24


def space_table(contract: EnvContract) -> Markup:
    """A row a leaf of both spaces: path, kind, dtype, shape, and what it admits."""
    heads = ("leaf", "kind", "dtype", "shape", "values")
    rows = [element("tr", *[element("th", head, scope="col") for head in heads])]
    for role, space in (("obs", contract.observation_space), ("action", contract.action_space)):
        if space is None:
            rows.append(element("tr", element("th", role, scope="row"), element("td", "not declared", colspan=4)))
            continue
        for spec, leaf in leaf_spaces(space):
            cells = [spec.kind, spec.dtype, " by ".join(map(str, spec.shape)) or "scalar", _admitted(leaf)]
            name = element("th", leaf_name(role, spec.path), scope="row")
            rows.append(element("tr", name, *[element("td", cell) for cell in cells]))
    return element("table", *rows)


def _admitted(space: gymnasium.Space[Any]) -> str:
    match space:
        case spaces.Box():
            return f"{_shared(space.low)} to {_shared(space.high)}"
        case spaces.Discrete():
            return f"{space.start} to {space.start + space.n - 1}"
        case spaces.MultiDiscrete():
            return f"{value_text(space.start)} to {value_text(space.start + space.nvec - 1)}"
        case spaces.MultiBinary():
            return "0 or 1"
        case spaces.Text():
            alphabet = "any characters" if isinstance(space, OpenText) else f"of {len(space.character_set)} characters"
            return f"{space.min_length} to {space.max_length} {alphabet}"
        case _:
            return ""


def _shared(bound: npt.NDArray[Any]) -> str:
    """The one number in *bound*, or some of them."""
    return value_text(bound.flat[0] if bound.size and (bound == bound.flat[0]).all() else bound)


def action_coverage(space: ValueSpace, played: Counter[Row]) -> Markup:
    """What each leaf of the actions *played* was: the number of each value where there are few, else their range."""
    parts: list[Markup] = []
    for number, spec in enumerate(space.leaves):
        values: list[tuple[Any, int]] = []
        for row, times in played.items():
            value = leaf_value(spec, row[number]) if number < len(row) else None
            if value is not None:
                values.append((value, times))
        name = element("th", leaf_name("action", spec.path), scope="row")
        parts.append(element("tr", name, element("td", *_seen(values))))
    return element("table", *parts)


def _seen(values: list[tuple[Any, int]]) -> Iterator[str]:
    if not values:
        yield "none"
        return
    arrays: list[npt.NDArray[Any]] = [value for value, _ in values if not isinstance(value, str)]
    if not arrays or arrays[0].size == 1:
        counted: Counter[str] = Counter()
        for value, times in values:
            counted[value_text(value if isinstance(value, str) else value.item())] += times
        if len(counted) <= _MOST_VALUES:
            for text, times in sorted(counted.items()):
                yield element("span", f"{text} ", element("b", f"{times:,} times"), class_="count")
            return
    if arrays:
        low, high = min(array.min() for array in arrays), max(array.max() for array in arrays)
        yield f"{value_text(low)} to {value_text(high)}, "
    yield f"{len(values):,} different values"
