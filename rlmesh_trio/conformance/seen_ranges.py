"""What was seen of each leaf of the observations, beside what is declared: told as a table, and never judged."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from rlmesh_trio.conformance.leaf_bounds import LeafBounds, bounds_of
from rlmesh_trio.conformance.live_lanes import moments
from rlmesh_trio.conformance.registry import Facts
from rlmesh_trio.conformance.traces import Trace
from rlmesh_trio.spaces.leaf_values import leaf_value

__all__ = ("SeenRanges", "ranges_seen")

_KEY = "ranges"
_FEW = 8
_MOST_VALUES = 64
_SHOWN_VALUES = 12
_MOST_LINES = 40
_COUNTED = ("discrete", "multi_discrete", "multi_binary")

_Array = npt.NDArray[Any]


def ranges_seen(facts: Facts) -> "SeenRanges":
    """What was seen of the target so far, to be added to."""
    found = facts.told.get(_KEY)
    if not isinstance(found, SeenRanges):
        found = facts.told[_KEY] = SeenRanges(facts)
    return found


class SeenRanges:
    """The least and the greatest value of every element, over the traces that were noted."""

    def __init__(self, facts: Facts) -> None:
        self._facts = facts
        space = facts.contract.observation_space
        self._leaves = [] if space is None else [_SeenLeaf(bounds) for bounds in bounds_of(space)]
        self._last: Trace | None = None

    def note(self, trace: Trace) -> None:
        """Add the observations of live lanes in *trace*."""
        if trace is self._last:
            return
        self._last = trace
        for moment in moments(trace, self._facts):
            for lane in moment.lanes:
                for leaf, raw in zip(self._leaves, moment.of(lane, moment.answer.observation) or (), strict=False):
                    leaf.note(raw)

    def table(self) -> tuple[str, ...]:
        """A line a leaf, or an element, where a few of them have bounds of their own; none where nothing was seen."""
        if not any(leaf.seen for leaf in self._leaves):
            return ()
        cells = [row for leaf in self._leaves for row in leaf.rows()]
        shown = cells[:_MOST_LINES]
        widths = [max((len(row[column]) for row in shown), default=0) for column in range(3)]
        lines = ["   ".join([f"{cell:<{width}}" for cell, width in zip(row, widths, strict=False)]) for row in shown]
        lines = [f"{line}   {row[3]}".rstrip() for line, row in zip(lines, shown, strict=True)]
        more = len(cells) - len(shown)
        return (*lines, *([f"and {more} more"] if more else []))


_Cells = tuple[str, str, str, str]


class _SeenLeaf:
    def __init__(self, bounds: LeafBounds) -> None:
        self._bounds = bounds
        self._least: _Array | None = None
        self._greatest: _Array | None = None
        counted = bounds.spec.kind in _COUNTED and bounds.low.size <= _FEW
        self._values: list[set[int]] | None = [set() for _ in range(bounds.low.size)] if counted else None

    @property
    def seen(self) -> bool:
        """Whether there was a value."""
        return self._least is not None

    def note(self, raw: bytes) -> None:
        value = leaf_value(self._bounds.spec, raw)
        if value is None:
            return
        array = np.array(len(value)) if isinstance(value, str) else value
        if self._least is None or self._greatest is None:
            self._least, self._greatest = array.copy(), array.copy()
        else:
            self._least, self._greatest = np.fmin(self._least, array), np.fmax(self._greatest, array)
        if self._values is not None:
            for seen, number in zip(self._values, array.ravel().tolist(), strict=True):
                seen.add(number)

    def rows(self) -> Iterator[_Cells]:
        """Name, declared, seen, remarks."""
        name = self._bounds.name("obs")
        low, high, least, greatest = self._bounds.low, self._bounds.high, self._least, self._greatest
        if least is None or greatest is None or not least.size:
            yield name, _span("declared", low, high), "nothing seen", ""
            return
        if self._bounds.spec.kind == "text":
            yield name, _span("declared", low, high), f"{_span('seen', least, greatest)} characters", ""
            return
        if low.size > _FEW or (not self._values and _is_uniform(low) and _is_uniform(high)):
            still = int((least == greatest).sum())
            remark = "" if not still else f"{still} of {low.size} elements never moved" if low.size > 1 else _STILL
            yield name, _span("declared", low, high), _span("seen", least, greatest), remark
            return
        for place in np.ndindex(low.shape):
            own = name + "".join(f"[{i}]" for i in place)
            cells = _span("declared", low[place], high[place]), _span("seen", least[place], greatest[place])
            yield own, *cells, self._remark(place)

    def _remark(self, place: tuple[int, ...]) -> str:
        assert self._least is not None
        assert self._greatest is not None
        low, high = self._bounds.low[place].item(), self._bounds.high[place].item()
        if self._least[place] == self._greatest[place] and low != high:
            return _STILL
        if self._values is None:
            return ""
        seen = self._values[int(np.ravel_multi_index(place, self._bounds.low.shape)) if place else 0]
        count = int(high) - int(low) + 1
        if count > _MOST_VALUES:
            return "" if len(seen) == count else f"{len(seen)} of {count} values"
        missing = [str(number) for number in range(int(low), int(high) + 1) if number not in seen]
        more = len(missing) - _SHOWN_VALUES
        told = ", ".join(missing[:_SHOWN_VALUES]) + (f" and {more} more" if more > 0 else "")
        return f"never {told}" if missing else ""


_STILL = "never moved"


def _span(word: str, low: Any, high: Any) -> str:
    return f"{word} {_number(np.min(low))} to {_number(np.max(high))}"


def _number(value: Any) -> str:
    return f"{float(value):.6g}" if value.dtype.kind == "f" else str(int(value))


def _is_uniform(bound: _Array) -> bool:
    return bool((bound == bound.flat[0]).all())
