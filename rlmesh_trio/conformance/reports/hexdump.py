"""Bytes as hexadecimal rows, those that differ from another side's marked."""

from itertools import groupby

from rlmesh_trio.conformance.reports.markup import Markup, element, joined

__all__ = ("hex_lines",)

_A_ROW = 16
_MOST_ROWS = 16


def hex_lines(data: bytes, other: bytes | None = None) -> Markup:
    """*data* in rows of 16 bytes with their offsets, at most 16 rows: from just before where it leaves *other*."""
    rows = range(0, len(data), _A_ROW)
    at = (
        0
        if other is None
        else next((n for n, pair in enumerate(zip(data, other, strict=False)) if pair[0] != pair[1]), 0)
    )
    first = max(0, min(at // _A_ROW - 1, len(rows) - _MOST_ROWS))
    shown = rows[first : first + _MOST_ROWS]
    lines = [_row(data, other, start) for start in shown]
    if first:
        lines.insert(0, Markup(f"… {first * _A_ROW:,} bytes before"))
    rest = len(data) - (first + len(shown)) * _A_ROW
    if rest > 0:
        lines.append(Markup(f"… {rest:,} bytes more"))
    return joined([part for line in lines for part in (line, "\n")])


def _row(data: bytes, other: bytes | None, start: int) -> Markup:
    places = range(start, min(start + _A_ROW, len(data)))

    def differs(place: int) -> bool:
        return other is not None and data[place : place + 1] != other[place : place + 1]

    parts: list[Markup] = []
    for marked, group in groupby(places, key=differs):
        text = " ".join(f"{data[place]:02x}" for place in group)
        parts += [element("mark", text) if marked else Markup(text), Markup(" ")]
    return joined([f"{start:06x}  ", *parts[:-1]])
