"""How a server says it spent its time on an operation: fields that stay bytes until many are read together.

A timing is a tag of one byte and a varint, in nanoseconds. Those of one reply lie side by side, each at most once.
"""

from collections.abc import Sequence
from typing import Literal

import numpy as np
from numpy.typing import NDArray

__all__ = ("ENV_TIMINGS", "EnvTiming", "read_timings")

EnvTiming = Literal[
    "endpoint.total", "endpoint.decode", "endpoint.user", "endpoint.encode", "lane.skew", "endpoint.queue"
]

# What an env server times, by tag, in the order in which the fields travel.
ENV_TIMINGS: dict[int, EnvTiming] = {
    0x30: "endpoint.total",
    0x58: "endpoint.decode",
    0x60: "endpoint.user",
    0x68: "endpoint.encode",
    0x70: "lane.skew",
    0x78: "endpoint.queue",
}


def read_timings(parts: Sequence[bytes]) -> tuple[NDArray[np.uint8], NDArray[np.uint64]]:
    """The tags of all timings in *parts*, in order, and the number behind each.

    Both have shape (timings,). *parts* hold whole timings and nothing else, which is not checked; as everywhere, a
    number is cut to 64 bits.
    """
    data = np.frombuffer(b"".join(parts), np.uint8)
    last = np.flatnonzero(data < 0x80)
    first = np.concatenate(([0], last + 1))[:-1]
    place = np.arange(data.size) - np.repeat(first, last - first + 1)
    digits = (data & 0x7F).astype(np.uint64) << (7 * place).astype(np.uint64)
    numbers = np.add.reduceat(digits, first)
    return numbers[0::2].astype(np.uint8), numbers[1::2]
