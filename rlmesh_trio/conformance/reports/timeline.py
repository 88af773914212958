"""A script as a timeline: a column an op, a row a lane; ends, refusals and the first difference where they are."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby

import attrs

from rlmesh_trio.conformance.printing import place_text, row_text, value_text
from rlmesh_trio.conformance.reports.markup import Markup, element
from rlmesh_trio.conformance.scripts import Reset, Script, Step, Wait
from rlmesh_trio.conformance.traces import Answer, Trace
from rlmesh_trio.contract import ValueSpace

__all__ = ("timeline",)

_MOST_COLUMNS = 48
_MOST_LANES = 8
_REPEATED = 3


@attrs.frozen
class _Column:
    """One op, or several equal ones in a row that have nothing to mark."""

    place: int
    times: int


def timeline(
    script: Script,
    actions: ValueSpace | None,
    *,
    trace: Trace | None = None,
    first: tuple[int, int] | None = None,
    moot: Sequence[int] = (),
) -> Markup:
    """The timeline of *script*. *trace* is what was answered to it; *first* marks an op and a lane, *moot* ops."""
    answers = {answer.op: answer for answer in trace.answers} if trace is not None else {}
    marked = {place for place, answer in answers.items() if _is_marked(answer)} | set(moot)
    columns = list(_columns(script, marked | ({first[0]} if first else set())))
    shown = _around(columns, first[0] if first else 0)
    lanes = _lanes(script, first[1] if first else 0)
    head = [element("th", "lane" if script.lanes > 1 else "", scope="col")]
    head += [_head(script, column, first, moot) for column in shown]
    rows = [element("tr", *head)]
    for lane in lanes:
        cells = [_cell(script, column, lane, actions, answers, first) for column in shown]
        rows.append(element("tr", element("th", str(lane) if script.lanes > 1 else "", scope="row"), *cells))
    left_out = [f"{len(columns) - len(shown)} more ops"] if len(shown) < len(columns) else []
    left_out += [f"{script.lanes - len(lanes)} more lanes"] if len(lanes) < script.lanes else []
    table = element("div", element("table", *rows), class_="timeline", tabindex=0)
    return element("div", table, element("p", f"not shown: {', '.join(left_out)}", class_="muted") if left_out else "")


def _is_marked(answer: Answer) -> bool:
    return answer.refusal is not None or any(answer.terminated) or any(answer.truncated)


def _columns(script: Script, marked: set[int]) -> Iterator[_Column]:
    def kind(place: int) -> tuple[object, ...]:
        return (place,) if place in marked else (-1, script.ops[place])

    for _, group in groupby(range(len(script.ops)), key=kind):
        places = list(group)
        if len(places) < _REPEATED:
            yield from [_Column(place, 1) for place in places]
        else:
            yield _Column(places[0], len(places))


def _around(columns: Sequence[_Column], place: int) -> Sequence[_Column]:
    """The columns around the one at *place*, most of them before it."""
    at = max([number for number, column in enumerate(columns) if column.place <= place], default=0)
    start = min(max(0, at - _MOST_COLUMNS * 3 // 4), max(0, len(columns) - _MOST_COLUMNS))
    return columns[start : start + _MOST_COLUMNS]


def _lanes(script: Script, lane: int) -> list[int]:
    others = [other for other in range(script.lanes) if other != lane][: _MOST_LANES - 1]
    return sorted([lane, *others]) if lane < script.lanes else others


def _head(script: Script, column: _Column, first: tuple[int, int] | None, moot: Sequence[int]) -> Markup:
    name = place_text(script, column.place)
    text = name.partition(" after ")[0] + (f" x{column.times}" if column.times > 1 else "")
    classes = ["first"] if first is not None and column.place == first[0] else []
    classes += ["moot"] if column.place in moot else []
    why = f"{name}: any other seed or action does as well" if column.place in moot else name
    return element("th", text, scope="col", class_=" ".join(classes) or None, title=why)


def _cell(
    script: Script,
    column: _Column,
    lane: int,
    actions: ValueSpace | None,
    answers: Mapping[int, Answer],
    first: tuple[int, int] | None,
) -> Markup:
    op = script.ops[column.place]
    if isinstance(op, Wait):
        return element("td", f"{op.seconds:g} s", class_="wait")
    lanes = script.lanes_of(op)
    if lane not in lanes:
        return element("td", "", class_="idle")
    position = lanes.index(lane)
    kind = "reset" if isinstance(op, Reset) else "step"
    classes = [kind, *(["first"] if first == (column.place, lane) else [])]
    told = _reset_text(op, position) if isinstance(op, Reset) else _action_text(op, position, actions)
    ends = [element("span", end, class_="end") for end in _ends(answers.get(column.place), lane)]
    return element("td", element("span", told, class_="op"), *ends, class_=" ".join(classes))


def _reset_text(op: Reset, position: int) -> str:
    seed = f"seed {op.seeds[position]}" if position < len(op.seeds) else "no seed"
    return seed if op.options is None else f"{seed}, options {value_text(op.options)}"


def _action_text(op: Step, position: int, actions: ValueSpace | None) -> str:
    return row_text(op.actions[position], actions) if position < len(op.actions) else "no action"


def _ends(answer: Answer | None, lane: int) -> Iterator[str]:
    if answer is None or lane not in answer.lanes:
        return
    if answer.refusal is not None:
        yield answer.refusal.code
        return
    position = answer.lanes.index(lane)
    for name, flags in (("terminated", answer.terminated), ("truncated", answer.truncated)):
        if position < len(flags) and flags[position]:
            yield name
