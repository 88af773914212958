"""What the benchmark processes ask of each other and answer: a line of JSON each way."""

import json
import os
import sys
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Any, Literal

import attrs

__all__ = ("Job", "Mode", "Sample", "SchedulerName", "ServerPlan", "answer_lines")

Mode = Literal["run", "hooks", "journal", "stream", "record digest", "record full"]
SchedulerName = Literal["eager", "full batch", "adaptive"]


@attrs.frozen
class ServerPlan:
    """Which env to serve and how: *kind* is ``single``, ``lanes`` or ``vector``; *pause* is seconds per step."""

    kind: Literal["single", "lanes", "vector"] = "single"
    lanes: int = 1
    observation: str = "box4"
    length: int = 500
    pause: float = 0.0
    jitter: Literal["const", "exp"] = "const"
    unix: bool = False


@attrs.frozen
class Job:
    """One run of *episodes* on the server at *address*, with a model that takes *pause* seconds per forward.

    *step_cap* truncates episodes; only the peer's side is ever given one. *scheduler* is for our side alone.
    """

    address: str
    episodes: int
    mode: Mode = "run"
    batched: bool = False
    pause: float = 0.0
    step_cap: int | None = None
    scheduler: SchedulerName = "eager"


@attrs.frozen
class Sample:
    """What one run took: lane steps, seconds from before connecting to after closing, CPU seconds of the client."""

    steps: int
    seconds: float
    cpu_seconds: float
    forwards: int
    forward_seconds: float

    @property
    def rate(self) -> float:
        """Lane steps per second."""
        return self.steps / self.seconds

    @property
    def cpu_us(self) -> float:
        """Client CPU in microseconds per lane step."""
        return self.cpu_seconds / self.steps * 1e6


@contextmanager
def private_stdout() -> Generator[Callable[[Any], None]]:
    """Keep stdout for answers alone: libraries that print to it reach stderr instead."""
    with os.fdopen(os.dup(1), "w") as out:
        os.dup2(2, 1)

        def say(value: Any) -> None:
            out.write(json.dumps(value) + "\n")
            out.flush()

        yield say


def answer_lines(greeting: Any, answer: Callable[[Any], Any]) -> None:
    """Say *greeting*, then answer each line of stdin until it ends."""
    with private_stdout() as say:
        say(greeting)
        for line in sys.stdin:
            say(answer(json.loads(line)))
