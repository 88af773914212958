"""One run of a simulated world, and everything it left."""

from __future__ import annotations

import logging
import os
import random
import threading
from collections.abc import Generator
from contextlib import contextmanager
from functools import partial
from math import inf
from typing import TYPE_CHECKING, Final, TypeAlias

import attrs
import trio

from rlmesh_trio.endpoints.env import Env
from rlmesh_trio.engine.session import Session
from rlmesh_trio.engine.streams import EventStream
from rlmesh_trio.errors import SessionError
from rlmesh_trio.events import Event
from rlmesh_trio.hooks import Hooks
from rlmesh_trio.report import Report
from rlmesh_trio.testing.schedule import Stalled, run_virtual
from rlmesh_trio.testing.world_env import ReconnectableEnv, SimulatedEnv, unix_ns
from rlmesh_trio.testing.world_hooks import (
    PATIENT,
    PLANS,
    PlannedHooks,
    PlannedPatience,
    PlannedScheduler,
    PlannedTransforms,
)
from rlmesh_trio.testing.world_mishaps import Line, Mishaps, Struck
from rlmesh_trio.testing.world_model import SimulatedModel

if TYPE_CHECKING:
    from collections.abc import Callable

    from rlmesh_trio.testing.world import World

__all__ = ("Census", "Outcome", "Watch", "run_world")

Watch: TypeAlias = "Callable[[Env, Hooks | None], tuple[Env, Hooks | None]]"

_FILES: Final = "/proc/self/fd"
_MOST_STEPS: Final = 30_000
_READING: Final = 100_000.0


@attrs.frozen
class Census:
    """How many trio tasks, open files (where ``/proc`` tells) and threads there are."""

    tasks: int = 0
    files: int = 0
    threads: int = 0

    @classmethod
    def take(cls) -> Census:
        """Count them now; only inside ``trio.run``."""
        files = len(os.listdir(_FILES)) if os.path.isdir(_FILES) else 0
        return cls(trio.lowlevel.current_statistics().tasks_living, files, threading.active_count())

    def exceeds(self, other: Census) -> bool:
        """Whether there are more of anything than in *other*. Fewer is no leak: trio ends threads that are idle."""
        return any(here > there for here, there in zip(attrs.astuple(self), attrs.astuple(other), strict=True))


@attrs.define(eq=False)
class Outcome:
    """What a run of ``world`` left. Times are virtual seconds since the start of the run; ``None``: it did not happen.

    ``report`` is that of success, else ``error`` is what failed the session. ``hang`` says that, and how, it did not
    end; then there is neither. ``events`` are the hooks', ``read`` those of the stream's reader.
    """

    world: World
    env: SimulatedEnv
    model: SimulatedModel
    scheduler: PlannedScheduler | None
    lines: tuple[Line, Line]
    events: list[Event] | None = None
    read: list[Event] | None = None
    struck: list[Struck] = attrs.field(factory=list[Struck])
    report: Report | None = None
    error: Exception | None = None
    hang: str | None = None
    cancelled_at: float | None = None
    ended_at: float | None = None
    steps: int = 0
    before: Census = Census()
    after: Census = Census()
    log: list[str] = attrs.field(factory=list[str])


def run_world(world: World, watch: Watch | None = None) -> Outcome:
    """Run *world* in virtual time, with its own task order.

    *watch* makes of the env and the hooks that the session would get those it gets.
    """
    source = random.Random(world.seed)
    mishaps = Mishaps(world.troubles)
    network, plan = world.network, world.session
    breaks = bool(network.env_lost_at or network.reconnects or any(trouble.kind == "die" for trouble in world.troubles))
    env_line = Line(network.env, network.env_lost_at, source, breaks=breaks)
    lost_at = () if network.model_lost_at is None else (network.model_lost_at,)
    model_line = Line(network.model, lost_at, source, breaks=bool(lost_at))
    if network.reconnects is None:
        env = SimulatedEnv(world.env, env_line, mishaps, source)
    else:
        env = ReconnectableEnv(world.env, env_line, mishaps, source, reconnects=network.reconnects)
    outcome = Outcome(
        world,
        env,
        SimulatedModel(world.model, model_line, mishaps, source),
        _scheduler(plan.scheduler, world.groups, mishaps),
        (env_line, model_line),
        struck=mishaps.struck,
    )
    hooks: PlannedHooks | None = None
    if plan.listening in ("hooks", "both"):
        hooks = (PlannedTransforms if plan.transforms else PlannedHooks)(plan.hook, mishaps, source)
        outcome.events = hooks.events
    with _logged(outcome.log):
        try:
            play = partial(_play, outcome, *(watch or _unwatched)(env, hooks), source)
            run_virtual(world.schedule, play, end=world.patience + _READING)
        except Stalled as stalled:
            outcome.hang = str(stalled)
    return outcome


def _scheduler(name: str, groups: int, mishaps: Mishaps) -> PlannedScheduler | None:
    if name in PATIENT:
        return PlannedPatience(PATIENT[name](), groups, mishaps)
    return PlannedScheduler(PLANS[name], groups, mishaps) if name in PLANS else None


def _unwatched(env: Env, hooks: Hooks | None) -> tuple[Env, Hooks | None]:
    return env, hooks


async def _play(outcome: Outcome, env: Env, hooks: Hooks | None, source: random.Random) -> None:
    world = outcome.world
    outcome.before = Census.take()
    session = Session(
        world.spec,
        env,
        outcome.model,
        hooks=hooks,
        scheduler=outcome.scheduler,
        prefetch_lead=world.session.prefetch_lead,
        new_id=_Ids(),
        unix_ns=unix_ns,
    )
    with trio.move_on_after(world.patience) as patience:
        async with trio.open_nursery() as readers:
            if world.session.listening in ("stream", "both"):
                readers.start_soon(_read, session.events(), outcome, source)
            await _run_and_cancel(session, outcome, patience)
    if patience.cancel_called:
        outcome.hang = f"still running after {outcome.steps} task steps and {trio.current_time():g} s"
        return
    try:
        outcome.report = await session.wait()
    except SessionError as error:
        outcome.error = error
    outcome.after = Census.take()


async def _run_and_cancel(session: Session, outcome: Outcome, patience: trio.CancelScope) -> None:
    """Run the session, and cancel it when its world says so."""
    planned = outcome.world.cancellation
    scope = trio.CancelScope()

    def cancel() -> None:
        outcome.cancelled_at = trio.current_time()
        if planned is not None and planned.outside:
            scope.cancel()
        else:
            session.cancel("swept")

    turns = _Turns(outcome, {_MOST_STEPS: patience.cancel})
    if planned is not None and planned.step is not None:
        turns.acts[planned.step] = cancel
    async with trio.open_nursery() as clockwork:
        if planned is not None and planned.at is not None:
            clockwork.start_soon(_later, planned.at, cancel)
        trio.lowlevel.add_instrument(turns)
        with scope:
            await session.run()
        outcome.ended_at = trio.current_time()
        patience.deadline = inf  # A reader may take as long as it likes to read what is left.
        trio.lowlevel.remove_instrument(turns)
        clockwork.cancel_scope.cancel()


async def _later(seconds: float, act: Callable[[], None]) -> None:
    await trio.sleep(seconds)
    act()


async def _read(stream: EventStream, outcome: Outcome, source: random.Random) -> None:
    """Read the session's events, as slowly and as long as planned."""
    plan = outcome.world.session
    outcome.read = events = list[Event]()
    try:
        async for event in stream:
            events.append(event)
            if plan.reader_stays is not None and len(events) >= plan.reader_stays:
                await stream.aclose()
                return
            if delay := plan.reader.pick(source):
                await trio.sleep(delay)
    except SessionError:
        return


class _Ids:
    """Episode ids in order of their making, so that runs can be compared."""

    def __init__(self) -> None:
        self._made = 0

    def __call__(self) -> str:
        self._made += 1
        return f"episode-{self._made}"


class _Turns(trio.abc.Instrument):
    """Counts task steps, and acts before some of them."""

    def __init__(self, outcome: Outcome, acts: dict[int, Callable[[], None]]) -> None:
        self._outcome = outcome
        self.acts = acts

    def before_task_step(self, task: trio.lowlevel.Task) -> None:  # noqa: ARG002
        """Count."""
        self._outcome.steps += 1
        if (act := self.acts.get(self._outcome.steps)) is not None:
            act()


class _Lines(logging.Handler):
    def __init__(self, lines: list[str]) -> None:
        super().__init__(logging.WARNING)
        self._lines = lines

    def emit(self, record: logging.LogRecord) -> None:
        self._lines.append(record.getMessage())


@contextmanager
def _logged(lines: list[str]) -> Generator[None]:
    """Collect what is logged meanwhile instead of printing it."""
    logger, handler = logging.getLogger("rlmesh_trio"), _Lines(lines)
    logger.addHandler(handler)
    propagate, logger.propagate = logger.propagate, False
    try:
        yield
    finally:
        logger.propagate = propagate
        logger.removeHandler(handler)
