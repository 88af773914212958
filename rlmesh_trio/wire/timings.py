"""How a server says it spent its time on an operation: fields that stay bytes until many are read together.

A timing is a tag of one byte and a varint, in nanoseconds. Those of one reply lie side by side, each at most once.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

__all__ = ("ENV_TIMINGS", "read_timings")

# By tag, in the order in which they travel; what is 0 in one of the middle ones was not measured.
ENV_TIMINGS = {
    0x30: "endpoint.total",
    0x58: "endpoint.decode",
    0x60: "endpoint.user",
    0x68: "endpoint.encode",
    0x70: "lane.skew",
    0x78: "endpoint.queue",
}


def read_timings(parts: Sequence[bytes]) -> tuple[NDArray[np.uint8], NDArray[np.uint64]]:
    """The tags and the values of all timings in *parts*, in order; *parts* are well formed."""
    data = np.frombuffer(b"".join(parts), np.uint8)
    last = np.flatnonzero(data < 128)
    first = np.concatenate((last[:1] * 0, last[:-1] + 1))
    place = np.arange(data.size) - np.repeat(first, last - first + 1)
    numbers = np.add.reduceat((data & 127).astype(np.uint64) << (7 * place).astype(np.uint64), first)
    return numbers[0::2].astype(np.uint8), numbers[1::2]
