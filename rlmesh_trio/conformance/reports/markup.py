"""HTML made of elements: every text in it is escaped, unless it is markup already.

::

    element("p", "1 < 2", element("b", "so"), class_="plain")   # <p class="plain">1 &lt; 2<b>so</b></p>
"""

import html
from collections.abc import Iterable

from rlmesh_trio.conformance.reports.texts import harmless

__all__ = ("Attribute", "Markup", "element", "joined")

_EMPTY = ("br", "input", "meta", "hr", "col")

Attribute = str | int | bool | None


class Markup(str):
    """Text that is HTML already."""

    __slots__ = ()


def joined(children: Iterable[str]) -> Markup:
    """*children* one after the other, plain texts escaped."""
    return Markup("".join([child if isinstance(child, Markup) else html.escape(harmless(child)) for child in children]))


def element(name: str, /, *children: str, **attributes: Attribute) -> Markup:
    """An element. A trailing ``_`` of an attribute's name is dropped, other ``_`` are hyphens.

    ``None`` and false leave an attribute out, true gives it no value.
    """
    told: list[str] = []
    for key, value in attributes.items():
        hyphened = key.rstrip("_").replace("_", "-")
        if value is True:
            told.append(f" {hyphened}")
        elif value is not None and value is not False:
            told.append(f' {hyphened}="{html.escape(harmless(str(value)))}"')
    opening = f"<{name}{''.join(told)}>"
    return Markup(opening if name in _EMPTY else f"{opening}{joined(children)}</{name}>")
