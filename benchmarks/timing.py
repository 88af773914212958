"""The model both drivers ask, and the clock both are measured with: the same on either side."""

import resource
import time

import attrs

from benchmarks.jobs import Sample

__all__ = ("Forwards", "Stopwatch")


@attrs.define
class Forwards:
    """Counts forwards, and makes each take *pause* seconds."""

    pause: float
    count: int = 0
    seconds: float = 0.0

    def think(self) -> None:
        self.count += 1
        if self.pause:
            before = time.perf_counter()
            time.sleep(self.pause)
            self.seconds += time.perf_counter() - before


class Stopwatch:
    """Wall clock and CPU time of this process since it was made."""

    def __init__(self) -> None:
        self.cpu = cpu_seconds()
        self.wall = time.perf_counter()

    def sample(self, steps: int, forwards: Forwards) -> Sample:
        """What *steps* lane steps took."""
        seconds = time.perf_counter() - self.wall
        return Sample(steps, seconds, cpu_seconds() - self.cpu, forwards.count, forwards.seconds)


def cpu_seconds() -> float:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime
