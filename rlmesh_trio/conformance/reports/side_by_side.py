"""Two traces side by side, lane by lane, or one alone: each answer as values and as bytes, the first difference marked.

Answers are put beside each other by the number of their request, as they are compared.
"""

from collections.abc import Iterator, Sequence
from itertools import zip_longest
from typing import TypeVar

import attrs

from rlmesh_trio.conformance.printing import place_text, value_text
from rlmesh_trio.conformance.reports.hexdump import hex_lines
from rlmesh_trio.conformance.reports.markup import Markup, element
from rlmesh_trio.conformance.scripts import Row
from rlmesh_trio.conformance.traces import Answer, Trace
from rlmesh_trio.contract import LeafSpec, ValueSpace
from rlmesh_trio.spaces.bits import leaf_spot
from rlmesh_trio.spaces.leaf_values import leaf_name, leaf_value

__all__ = ("side_by_side",)

T = TypeVar("T")

_BEFORE = 12
_AFTER = 6
_OTHER_LANES = 7
_FAR_APART = 1_000_000


def side_by_side(
    traces: Sequence[Trace], labels: Sequence[str], observations: ValueSpace | None, first: tuple[int, int] | None
) -> Markup:
    """One or two *traces* under their *labels*. *first* is the op (of the first trace) and the lane to mark."""
    lane = first[1] if first else 0
    lanes = traces[0].script.lanes
    shown = _Sides(tuple(traces), tuple(labels), observations, first)
    others = [other for other in range(lanes) if other != lane][:_OTHER_LANES]
    folded = [element("details", element("summary", f"lane {other}"), shown.table(other)) for other in others]
    return element("div", shown.table(lane), *folded)


@attrs.frozen(eq=False)
class _Sides:
    traces: tuple[Trace, ...]
    labels: tuple[str, ...]
    observations: ValueSpace | None
    first: tuple[int, int] | None

    def table(self, lane: int) -> Markup:
        """The answers that concern *lane*."""
        pairs = [pair for pair in zip_longest(*[trace.answers for trace in self.traces]) if _concerns(pair, lane)]
        at = next((n for n, pair in enumerate(pairs) if self._is_first(pair, lane)), None)
        start, end = (0, _BEFORE + _AFTER) if at is None else (max(0, at - _BEFORE), at + _AFTER)
        if end >= len(pairs) - 1:
            end = len(pairs)
        named = self.traces[0].script.lanes > 1
        head = element("tr", element("th", f"lane {lane}" if named else "", scope="col"), *map(_head, self.labels))
        rows = [self._row(pair, lane, n == at) for n, pair in enumerate(pairs)][start:end]
        columns = len(self.traces) + 1
        if start:
            rows.insert(0, _elided(start, "before", columns))
        if end < len(pairs):
            rows.append(_elided(len(pairs) - end, "after", columns))
        table = element("table", element("thead", head), element("tbody", *rows), *self._lost())
        return element("div", table, class_="sides", tabindex=0)

    def _is_first(self, pair: Sequence[Answer | None], lane: int) -> bool:
        return self.first is not None and lane == self.first[1] and pair[0] is not None and pair[0].op == self.first[0]

    def _row(self, pair: Sequence[Answer | None], lane: int, is_first: bool) -> Markup:
        answers = [_Part.of(answer, lane) for answer in pair]
        differs = len(answers) > 1 and any(answer != answers[0] for answer in answers[1:])
        infos = len({answer.infos for answer in answers if answer}) > 1
        mark = (
            "first difference"
            if is_first and (differs or infos)
            else "here"
            if is_first
            else "differs"
            if differs
            else ""
        )
        places = [
            place_text(trace.script, answer.op) for trace, answer in zip(self.traces, pair, strict=True) if answer
        ]
        names = list(dict.fromkeys(places))
        head = [element("span", " / ".join(names))]
        head += [element("span", mark, class_="badge")] if mark else []
        cells = [self._cell(answers, side, bits=is_first) for side in range(len(answers))]
        kind = "first" if is_first else "differs" if differs else None
        return element("tr", element("th", *head, scope="row"), *cells, class_=kind)

    def _cell(self, answers: Sequence["_Part | None"], side: int, *, bits: bool) -> Markup:
        own = answers[side]
        if own is None:
            return element("td", element("span", "no answer", class_="muted"))
        other = answers[1 - side] if len(answers) > 1 else None
        facts = [
            _fact(name, text, other is not None and other.texts().get(name) != text)
            for name, text in own.texts().items()
        ]
        leaves = () if self.observations is None else self.observations.leaves
        values: list[Markup] = []
        raw: list[Markup] = []
        for spec, leaf, there in _leaves(leaves, own.row, other.row if other else None):
            name = leaf_name("obs", spec.path)
            text = _value(spec, leaf, there if bits else None)
            values.append(_fact(name, text, there is not None and there != leaf))
            raw += [element("span", name, class_="muted"), hex_lines(leaf, there)]
        if raw:
            raw = [element("details", element("summary", "raw bytes"), element("pre", *_spaced(raw)))]
        return element("td", element("dl", *values, *facts), *raw, *_infos(own, other if bits else None))

    def _lost(self) -> list[Markup]:
        ends = [trace.lost for trace in self.traces]
        if not any(ends):
            return []
        cells = [element("td", f"session lost: {end.code} {end.message}" if end else "") for end in ends]
        return [element("tfoot", element("tr", element("th", "end", scope="row"), *cells))]


def _infos(own: "_Part", other: "_Part | None") -> list[Markup]:
    """The infos, folded; they are open where they are what differs from *other*."""
    opened = other is not None and own.infos != other.infos and own == other
    pre = element("pre", own.infos, class_="other" if opened else None)
    return [element("details", element("summary", "info"), pre, open_=opened)] if own.infos else []


def _head(label: str) -> Markup:
    return element("th", label, scope="col")


def _elided(number: int, where: str, columns: int) -> Markup:
    text = f"{number} more answer{'s' if number > 1 else ''} {where}"
    return element("tr", element("td", text, colspan=columns, class_="muted"))


def _concerns(pair: Sequence[Answer | None], lane: int) -> bool:
    return any(answer is not None and lane in answer.lanes for answer in pair)


def _spaced(parts: Sequence[Markup]) -> list[str]:
    return [text for part in parts for text in (part, "\n")]


@attrs.frozen
class _Part:
    """What one answer says of one lane. ``layout`` is the size of leaves that make no rows."""

    row: Row
    layout: str
    reward: str
    ends: str
    refusal: str
    records: str
    infos: str = attrs.field(eq=False)

    @classmethod
    def of(cls, answer: Answer | None, lane: int) -> "_Part | None":
        """The part of *lane* in *answer*."""
        if answer is None or lane not in answer.lanes:
            return None
        at = answer.lanes.index(lane)
        ends = [
            name
            for name, flags in (("terminated", answer.terminated), ("truncated", answer.truncated))
            if _at(flags, at)
        ]
        refusal = answer.refusal
        records = [
            f"{record.step_count} steps, return {record.cumulative_reward!r}"
            for record in answer.completed
            if record.env_index == lane
        ]
        reward = _at(answer.rewards, at)
        row = _at(answer.observation, at) or ()
        sizes = ", ".join(f"{len(leaf):,}" for leaf in answer.raw_leaves)
        return cls(
            row,
            f"no rows: leaves of {sizes} bytes" if answer.raw_leaves and not row else "",
            "" if reward is None else repr(reward),
            " and ".join(ends),
            "" if refusal is None else f"{refusal.code}: {refusal.message}",
            "; ".join(records),
            value_text(answer.infos) if answer.infos else "",
        )

    def texts(self) -> dict[str, str]:
        """Everything but the observation, by name, as far as there is any."""
        told = {
            "obs": self.layout,
            "reward": self.reward,
            "ends": self.ends,
            "refused": self.refusal,
            "record": self.records,
        }
        return {name: text for name, text in told.items() if text}


def _at(values: Sequence[T], place: int) -> T | None:
    return values[place] if place < len(values) else None


def _leaves(leaves: Sequence[LeafSpec], own: Row, other: Row | None) -> Iterator[tuple[LeafSpec, bytes, bytes | None]]:
    for number, (spec, leaf) in enumerate(zip(leaves, own, strict=False)):
        yield spec, leaf, _at(other or (), number)


def _fact(name: str, text: str, differs: bool) -> Markup:
    return element("div", element("dt", name), element("dd", text), class_="other" if differs else None)


def _value(spec: LeafSpec, leaf: bytes, there: bytes | None) -> str:
    """A leaf as a value, and below it the first element that is another *there*, with its bits."""
    value = leaf_value(spec, leaf)
    text = f"{len(leaf)} bytes" if value is None else value_text(value)
    if there is None or value is None or isinstance(value, str):
        return text
    spot = leaf_spot(spec, leaf, there)
    if spot is None:
        return text
    place = "".join(f"[{i}]" for i in spot.index)
    number = f"{place} = {value_text(value[spot.index])}" if value.size > 1 else ""
    apart = f"{spot.ulps:,} ulp apart" if spot.ulps is not None and spot.ulps <= _FAR_APART else ""
    return "\n".join([text, "  ".join(filter(None, (number, spot.bits[0], apart)))])
