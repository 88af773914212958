"""What a person at a terminal sees while a run goes on: one line, redrawn a few times a second.

It listens to episodes and telemetry windows only, so a step costs nothing more for being watched.
"""

import sys
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Protocol, TextIO

import trio

from rlmesh_trio.events import EnvConnected, EpisodeCompleted, ModelConnected, SessionStarted, TelemetryTaken
from rlmesh_trio.hooks import Hooks
from rlmesh_trio.report import EpisodeSummary

__all__ = ("Drawable", "Progress", "draw_progress")

_REDRAW_SECONDS = 0.2
_RATE_SECONDS = 5.0
_PAUSE_SECONDS = 2.5


class Progress(Hooks):
    """Where a run of *total* episodes of *env* stands; *clock* gives seconds.

    ``lanes_per_step`` is how many lanes one env step moves: the width of a lockstep vector.
    """

    def __init__(self, env: str, total: int, clock: Callable[[], float] = time.monotonic) -> None:
        self.total = total
        self.done = 0
        self._done_before = 0
        self.stage = f"opening {env}"
        self._stage_passed = trio.Event()
        self.lanes_per_step = 1
        self._clock = clock
        self._started = clock()
        self._return_sum = 0.0
        self._successes = 0
        self._judged = 0
        self._steps = 0
        self._marks: deque[tuple[float, int]] = deque([(self._started, 0)])

    async def env_connected(self, event: EnvConnected) -> None:  # noqa: ARG002
        """The model is next."""
        self._enter("loading the model")

    async def model_connected(self, event: ModelConnected) -> None:  # noqa: ARG002
        """The route is next."""
        self._enter("preparing the model")

    async def session_started(self, event: SessionStarted) -> None:  # noqa: ARG002
        """The first episodes begin."""
        self._enter("")
        self._started = self._clock()
        self._marks = deque([(self._started, 0)])

    def resume(self, episodes: Sequence[EpisodeSummary]) -> None:
        """Count what an earlier run finished: in everything but the pace."""
        for episode in episodes:
            self._count(episode.cumulative_reward, episode.success)
        self._done_before = self.done

    async def episode_completed(self, event: EpisodeCompleted) -> None:
        """Count one episode."""
        self._count(event.cumulative_reward, event.success)

    def _count(self, reward: float, success: bool | None) -> None:
        self.done += 1
        self._return_sum += reward
        if success is not None:
            self._judged += 1
            self._successes += success

    async def on_telemetry(self, event: TelemetryTaken) -> None:
        """Count the steps of one window."""
        if event.snapshot.horizon != "window":
            return
        rows = event.snapshot.rows
        steps = sum(row.count for row in rows if (row.op, row.metric) == ("env.step", "rpc.total"))
        self._steps += steps * self.lanes_per_step
        self._marks.append((self._clock(), self._steps))

    async def next_look(self) -> None:
        """Return when the figures are worth another look: after a moment, or at once in a new stage."""
        with trio.move_on_after(_REDRAW_SECONDS):
            await self._stage_passed.wait()

    def _enter(self, stage: str) -> None:
        self.stage = stage
        self._stage_passed.set()
        self._stage_passed = trio.Event()

    def steps_per_second(self) -> float | None:
        """Lane steps a second over the last few seconds; ``None`` before there is a figure."""
        now, (latest, steps) = self._clock(), self._marks[-1]
        while len(self._marks) > 2 and self._marks[1][0] <= latest - _RATE_SECONDS:
            self._marks.popleft()
        since, before = self._marks[0]
        # Windows without steps are not reported: a pause shows by their absence.
        until = latest if now - latest < _PAUSE_SECONDS else now
        return (steps - before) / (until - since) if steps and until > since else None

    def seconds_left(self) -> float | None:
        """How long the rest takes at the pace so far; ``None`` before the first episode ended."""
        played = self.done - self._done_before
        if not played:
            return None
        return (self._clock() - self._started) / played * max(0, self.total - self.done)

    def line(self) -> str:
        """The figures in one line."""
        if self.stage:
            return f"{self.stage} …"
        parts = [f"{self.done:,}/{self.total:,} episodes"]
        rate = self.steps_per_second()
        if rate is not None:
            parts.append(f"{rate:,.0f} steps/s")
        if self.done:
            parts.append(f"return {self._return_sum / self.done:.4g}")
        if self._judged:
            parts.append(f"success {self._successes / self._judged:.0%}")
        left = self.seconds_left()
        if left is not None:
            parts.append(f"{_clock_text(left)} left")
        return "  ".join(parts)


class Drawable(Protocol):
    """What can be drawn: ``done`` of ``total``, and a line of text."""

    @property
    def done(self) -> int:
        """How much of ``total`` is done."""
        ...

    @property
    def total(self) -> int:
        """How much there is to do."""
        ...

    def line(self) -> str:
        """The figures in one line."""
        ...

    async def next_look(self) -> None:
        """Return when the figures are worth another look."""
        ...


async def draw_progress(progress: Drawable, stream: TextIO) -> None:
    """Draw *progress* on the terminal *stream* until cancelled, and leave no trace of it."""
    from rich.console import Console
    from rich.progress import BarColumn, TextColumn
    from rich.progress import Progress as Drawing
    from rich.table import Column

    drawing = Drawing(
        BarColumn(bar_width=12),
        TextColumn("{task.fields[line]}", markup=False, table_column=Column(no_wrap=True)),
        console=Console(file=stream),
        auto_refresh=False,
        transient=True,
        redirect_stdout=sys.stdout.isatty(),
    )
    task = drawing.add_task("", total=progress.total, line=progress.line())
    with drawing:
        while True:
            await progress.next_look()
            drawing.update(task, completed=progress.done, total=progress.total, line=progress.line())
            drawing.refresh()


def _clock_text(seconds: float) -> str:
    """Hours, minutes and seconds as on a clock: ``0:07``, ``12:30``, ``3:05:00``."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"
