"""Text that fits its lines: rows with a label, and tables whose last column takes what is left. No line is too long."""

import os
import shutil
import sys
import textwrap
from collections.abc import Sequence

import click

__all__ = ("TEXT_WIDTH", "clipped", "folded", "labelled", "printable", "screen", "table")

TEXT_WIDTH = 80
_INDENT = "  "


def screen() -> os.terminal_size:
    """Columns and lines of the terminal that standard output is; 80 and 24 where it is none."""
    return shutil.get_terminal_size((TEXT_WIDTH, 24)) if sys.stdout.isatty() else os.terminal_size((TEXT_WIDTH, 24))


def labelled(rows: Sequence[tuple[str, str]], width: int) -> list[str]:
    """*rows* of label and value, long values on several lines; an empty label belongs to the row before."""
    margin = max(len(label) for label, _ in rows)
    lines: list[str] = []
    for label, value in rows:
        told = textwrap.wrap(printable(value), max(20, width - margin - 4), break_on_hyphens=False) or [""]
        for place, part in enumerate(told):
            lines.append(
                f"{_INDENT}{click.style((label if not place else '').ljust(margin), bold=True)}  {part}".rstrip()
            )
    return lines


def table(headings: Sequence[str], rows: Sequence[Sequence[str]], width: int, *, left: Sequence[str]) -> list[str]:
    """*rows* below *headings*, numbers to the right and the columns named in *left* to the left.

    What does not fit *width* is cut off the last column.
    """
    plain = [[printable(cell) for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(headings, *plain, strict=True)]
    widths[-1] = 0
    leftward = [heading in left for heading in headings]
    lines = [clipped(_INDENT + "  ".join(map(_aligned, row, widths, leftward)), width) for row in (headings, *plain)]
    return [click.style(lines[0], bold=True), *lines[1:]]


def _aligned(cell: str, width: int, leftward: bool) -> str:
    return cell.ljust(width) if leftward else cell.rjust(width)


def clipped(text: str, width: int) -> str:
    """*text*, cut to *width* columns and marked where it was longer."""
    text = text.rstrip()
    return text if len(text) <= width else f"{text[: width - 1]}…"


def folded(line: str, width: int) -> list[str]:
    """*line* in lines of at most *width* columns, the later ones indented further than the first."""
    indent = " " * (len(line) - len(line.lstrip()))
    return textwrap.wrap(
        line, max(20, width), subsequent_indent=indent + _INDENT * 2, break_on_hyphens=False, drop_whitespace=True
    ) or [""]


def printable(text: str) -> str:
    """*text*, which may be anybody's, in one line and without what a terminal would obey."""
    return " ".join("".join(sign if sign.isprintable() or sign.isspace() else "�" for sign in text).split())
