"""A bounded, uniform sample of everything seen: Algorithm R over a xorshift64* generator that always starts alike.

The first values are kept until the reservoir is full. From then on the value seen as number *n* (from 1) draws one
output of the generator, and replaces the value at that output modulo *n* when there is one. Values come in batches,
and one batch gives exactly what the same values would give one at a time.
"""

import math
from functools import cache, lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

__all__ = ("CAPACITY", "Reservoir", "Summary")

CAPACITY = 8192

_INITIAL_STATE = 0x9E3779B97F4A7C15
_MULTIPLIER = np.uint64(0x2545F4914F6CDD1D)
_STRIDE = 1024


class Summary(NamedTuple):
    """How many values were ``seen``, and the mean and percentiles of those retained."""

    seen: int
    avg: float
    p50: float
    p95: float
    p99: float


class Reservoir:
    """At most *capacity* of the values seen since the last flush, each as likely to be here as any other."""

    __slots__ = ("_capacity", "_retained", "_seen", "_state")

    def __init__(self, capacity: int = CAPACITY) -> None:
        self._capacity = capacity
        self._retained: NDArray[np.float64] = np.empty(capacity)
        self._seen = 0
        self._state = _INITIAL_STATE

    @property
    def seen(self) -> int:
        """How many values came in since the last flush."""
        return self._seen

    @property
    def retained(self) -> NDArray[np.float64]:
        """The values kept, by slot: float64, at most *capacity* of them."""
        return self._retained[: self._seen]

    def extend(self, values: NDArray[np.float64]) -> None:
        """Take in *values* (one-dimensional), in order."""
        free = values[: max(0, self._capacity - self._seen)]
        self._retained[self._seen : self._seen + free.size] = free
        self._seen += free.size
        for start in range(free.size, values.size, _STRIDE):
            stretch = values[start : start + _STRIDE]
            chosen, slots, self._state = _replacements(self._state, self._seen, stretch.size, self._capacity)
            # A slot chosen twice keeps the later value: numpy assigns repeated indices in order.
            self._retained[slots] = stretch[chosen]
            self._seen += stretch.size

    def flush(self) -> None:
        """Forget the values and their count, but not how far the generator has come."""
        self._seen = 0

    def summary(self) -> Summary | None:
        """Summarise the values kept; ``None`` when there are none."""
        ordered = np.sort(self.retained)
        if not ordered.size:
            return None
        p50, p95, p99 = (float(ordered[math.ceil((ordered.size - 1) * share)]) for share in (0.5, 0.95, 0.99))
        return Summary(self._seen, float(ordered.mean()), p50, p95, p99)


@lru_cache(maxsize=64)
def _replacements(state: int, seen: int, count: int, capacity: int) -> tuple[NDArray[np.intp], NDArray[np.intp], int]:
    """Which of the next *count* values are kept, the slot of each, and the generator's state after them.

    Series sampled equally often ask the same question, so the answer is remembered.
    """
    bits = [bit for bit in range(64) if state >> bit & 1]
    states: NDArray[np.uint64] = np.bitwise_xor.reduce(_orbits()[bits, :count], axis=0)
    candidates = states * _MULTIPLIER % np.arange(seen + 1, seen + count + 1, dtype=np.uint64)
    chosen = np.flatnonzero(candidates < capacity)
    return chosen, candidates[chosen].astype(np.intp), int(states[-1])


@cache
def _orbits() -> NDArray[np.uint64]:
    """The next ``_STRIDE`` states after each one-bit state, shape (64, ``_STRIDE``).

    Shifts and xor are linear over bits, so the states after any state are the xor of those after each of its bits.
    """
    states = np.left_shift(np.uint64(1), np.arange(64, dtype=np.uint64))
    orbits = np.empty((64, _STRIDE), dtype=np.uint64)
    for step in range(_STRIDE):
        states ^= states >> np.uint64(12)
        states ^= states << np.uint64(25)
        states ^= states >> np.uint64(27)
        orbits[:, step] = states
    return orbits
