"""Runs that repeat: a clock that jumps from deadline to deadline, and a task order that follows from a seed.

trio runs the tasks that are ready together in random order. :func:`seeded_schedule` seeds that order. It is the one
place that touches private names of trio, and refuses to start where they are not what they were.
"""

import gc
import math
import random
import signal
import sys
from collections.abc import Awaitable, Callable, Generator
from contextlib import contextmanager
from importlib import import_module
from types import FrameType
from typing import Any, Final, TypeVar

import attrs
import trio

from rlmesh_trio.errors import format_duration

__all__ = (
    "SchedulerUnknown",
    "Stalled",
    "TookTooLong",
    "VirtualClock",
    "real_time_limit",
    "run_virtual",
    "seeded_schedule",
)

T = TypeVar("T")

_SWITCH: Final = "_ALLOW_DETERMINISTIC_SCHEDULING"
_SOURCE: Final = "_r"
_BIRTH: Final = "_counter"


class SchedulerUnknown(Exception):
    """The installed trio orders its tasks in a way that is not known here, so no seed can fix it."""


class Stalled(Exception):
    """Virtual time came to its end, or every task waits and nothing will ever wake one."""


class TookTooLong(BaseException):
    """A run did not end in real time: it turns in circles while its virtual time stands still."""


class VirtualClock(trio.abc.Clock):
    """Starts at 0 and jumps to the next deadline whenever all tasks wait.

    Past *end* (seconds), and when all tasks wait without any deadline, :exc:`Stalled` breaks the run off. For runs
    without sockets and threads: what comes from outside does not hold this clock.
    """

    def __init__(self, end: float = math.inf) -> None:
        self._now = 0.0
        self._end = end
        self._idle = False

    def start_clock(self) -> None:
        """Nothing to start."""

    def current_time(self) -> float:
        """Seconds since the start of the run."""
        return self._now

    def deadline_to_sleep_time(self, deadline: float) -> float:
        """Jump to *deadline*; trio asks when no task can run."""
        if deadline == math.inf:
            if self._idle:
                raise Stalled(f"all tasks wait for each other at {self._now:g} s")
            self._idle = True  # What was handed in by run_sync_soon comes with the next look at the sockets.
            return 0
        self._idle = False
        if deadline > self._end:
            raise Stalled(f"still running after {self._end:g} s")
        self._now = max(self._now, deadline)
        return 0


@contextmanager
def seeded_schedule(seed: int) -> Generator[None]:
    """Make trio's task order a function of *seed* while the block runs; as it was afterwards.

    Put it around ``trio.run``, one at a time in a process. Raises :exc:`SchedulerUnknown` if this trio has not the
    private names this relies on.
    """
    internals: Any = import_module("trio._core._run")
    source = getattr(internals, _SOURCE, None)
    switch = getattr(internals, _SWITCH, None)
    if not isinstance(source, random.Random) or not isinstance(switch, bool) or not _numbers_tasks():
        raise SchedulerUnknown(f"trio {trio.__version__} does not order its tasks as expected; no seed can fix it")
    state = source.getstate()
    setattr(internals, _SWITCH, True)
    source.seed(seed)
    try:
        yield
    finally:
        source.setstate(state)
        setattr(internals, _SWITCH, switch)


def run_virtual(schedule: int, main: Callable[[], Awaitable[T]], *, end: float = math.inf) -> T:
    """``trio.run(main)`` in virtual time, with the task order of seed *schedule*.

    Raises what *main* raises, and :exc:`Stalled` when it is not done at *end* (seconds) or never will be.
    """
    try:
        with seeded_schedule(schedule):
            return trio.run(main, clock=VirtualClock(end))
    except trio.TrioInternalError as broken_off:
        if not isinstance(broken_off.__cause__, Stalled):
            raise
        why = str(broken_off.__cause__)
    _sweep_up()
    raise Stalled(why)


@contextmanager
def real_time_limit(seconds: float) -> Generator[None]:
    """Raise :exc:`TookTooLong` where the block is after *seconds* of real time. For the main thread, on POSIX."""

    def late(_number: int, _frame: FrameType | None) -> None:
        raise TookTooLong(f"not done in {format_duration(seconds)} of real time")

    before = signal.signal(signal.SIGALRM, late)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def _sweep_up() -> None:
    """Drop what a run that was broken off leaves: it cannot be closed in order, and need not say so."""
    hook = sys.unraisablehook
    sys.unraisablehook = lambda _: None
    try:
        gc.collect()
    finally:
        sys.unraisablehook = hook


def _numbers_tasks() -> bool:
    return _BIRTH in attrs.fields_dict(trio.lowlevel.Task)
