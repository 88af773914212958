"""Text for people: what an env or a server said is made harmless, long lines are folded, long things cut short."""

import re
import textwrap
from collections.abc import Sequence

__all__ = ("count", "elided", "folded", "harmless", "seconds_text")

# C0 and C1 controls would move the cursor or break XML; direction marks would disguise what stands there.
_CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff\ufffe\uffff]")


def harmless(text: str) -> str:
    """*text* with control characters written out: nothing in it acts on a terminal or breaks a document."""
    return _CONTROL.sub(lambda match: match[0].encode("unicode_escape", "surrogatepass").decode(), text.expandtabs(4))


def folded(text: str, width: int, *, indent: str = "", hang: str | None = None) -> list[str]:
    """*text* in lines of at most *width* characters, *indent* before the first and *hang* before the others.

    What fits stays as it is, inner spaces included. Words too long for a line are cut.
    """
    hang = indent if hang is None else hang
    lines: list[str] = []
    for line in harmless(text).split("\n"):
        before = hang if lines else indent
        if len(before) + len(line) <= width:
            lines.append((before + line).rstrip())
            continue
        lines += textwrap.wrap(line, width, initial_indent=before, subsequent_indent=hang, break_on_hyphens=False)
    return lines


def elided(lines: Sequence[str], most: int, what: str = "lines") -> list[str]:
    """The first of *lines*, at most *most*: if there are more, the last one says how many."""
    if len(lines) <= most:
        return list(lines)
    kept = max(0, most - 1)
    indent = re.match(" *", lines[kept])
    return [*lines[:kept], f"{indent[0] if indent else ''}… {len(lines) - kept:,} more {what}"]


def count(number: int, one: str, several: str = "") -> str:
    """*number* of something, as in ``1 op`` and ``2 ops``."""
    return f"{number:,} {one if number == 1 else several or f'{one}s'}"


def seconds_text(seconds: float) -> str:
    """A span of time, as in ``0.4 s``, ``12 s`` and ``3 min 20 s``."""
    if seconds < 10:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest} s" if minutes else f"{rest} s"
