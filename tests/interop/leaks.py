"""What this process holds: to be the same before and after."""

import os
import threading

import attrs
import trio

__all__ = ("Held", "held")


@attrs.frozen
class Held:
    """Living tasks of the trio run, open file descriptors, and threads apart from those trio keeps for later."""

    tasks: int
    descriptors: int
    threads: frozenset[str]


def held() -> Held:
    """Count now."""
    threads = frozenset(thread.name for thread in threading.enumerate() if not thread.name.startswith("Trio thread"))
    return Held(trio.lowlevel.current_statistics().tasks_living, len(os.listdir("/proc/self/fd")), threads)
