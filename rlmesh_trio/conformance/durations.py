"""Spans of time as people write them."""

import math
import re

from rlmesh_trio.errors import InvalidSpec

__all__ = ("parse_duration",)

_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "": 1.0}
_DURATION = re.compile(r"((?:\d+\.?\d*|\.\d+)(?:e[+-]?\d+)?)\s*([a-z]*)", re.ASCII | re.IGNORECASE)


def parse_duration(text: str) -> float:
    """Seconds, from ``10``, ``0.5``, ``250ms``, ``10s``, ``15m`` or ``2h``. Raises :exc:`InvalidSpec`."""
    match = _DURATION.fullmatch(text.strip())
    factor = _UNITS.get(match[2].lower()) if match else None
    if match is None or factor is None:
        raise InvalidSpec(f"{text!r} is no duration: write seconds, or a unit behind them (250ms, 10s, 15m, 2h)")
    seconds = float(match[1]) * factor
    if not 0 < seconds < math.inf:
        raise InvalidSpec(f"{text!r} must be longer than nothing and not endless")
    return seconds
