"""A session: one nursery, a task per lane group, the batcher, and one ending on every path."""

import logging
import time
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from functools import partial
from typing import cast

import trio
import uuid_utils

from rlmesh_trio.endpoints.env import Env
from rlmesh_trio.endpoints.model import Model
from rlmesh_trio.engine.announcer import Announcer
from rlmesh_trio.engine.batcher import Batcher
from rlmesh_trio.engine.chunks import ChunkBuffer
from rlmesh_trio.engine.crew import Crew
from rlmesh_trio.engine.ending import end_session
from rlmesh_trio.engine.incidents import Incidents
from rlmesh_trio.engine.lane_group import LaneGroup, SessionParts
from rlmesh_trio.engine.listeners import Listeners
from rlmesh_trio.engine.meters import EnvMeter
from rlmesh_trio.engine.patience import PatientBatcher, is_patient
from rlmesh_trio.engine.reconnecting import Reconnector
from rlmesh_trio.engine.recoveries import Recoveries
from rlmesh_trio.engine.relay import Relay, RelayPolicy
from rlmesh_trio.engine.rescue import Rescue
from rlmesh_trio.engine.route import LaneSlot
from rlmesh_trio.engine.route import Route as RouteBooks
from rlmesh_trio.engine.schedulers import EagerScheduler, Scheduler
from rlmesh_trio.engine.seeds import check_finished_seeds
from rlmesh_trio.engine.streams import EventStream
from rlmesh_trio.engine.watchdog import Watchdog
from rlmesh_trio.errors import EngineInternalError, InvalidSpec, RouteCancelled, SessionError
from rlmesh_trio.events import RelayAdvised, Route, SessionStarted, TelemetryTaken
from rlmesh_trio.hooks import Hooks
from rlmesh_trio.report import Report, TelemetrySnapshot
from rlmesh_trio.spec import SessionSpec, declares_reset_option
from rlmesh_trio.telemetry.aggregate import Telemetry
from rlmesh_trio.telemetry.ticker import run_ticker

__all__ = ("DEFAULT_CANCEL_REASON", "Session", "new_episode_id", "open_session", "run_session")

logger = logging.getLogger("rlmesh_trio")

DEFAULT_CANCEL_REASON = "cancelled by caller"


def new_episode_id() -> str:
    """A fresh UUIDv7 in hyphenated text."""
    return str(uuid_utils.uuid7())


class Session:
    """One running session. Made by :func:`open_session`."""

    def __init__(
        self,
        spec: SessionSpec,
        env: Env,
        model: Model,
        *,
        hooks: Hooks | None = None,
        scheduler: Scheduler | None = None,
        prefetch_lead: int = 0,
        relay_policy: RelayPolicy | None = None,
        new_id: Callable[[], str] = new_episode_id,
        unix_ns: Callable[[], int] = time.time_ns,
    ) -> None:
        spaces = spec.validate()
        check_finished_seeds(spec)
        if prefetch_lead < 0:
            raise InvalidSpec(f"prefetch_lead must not be negative, not {prefetch_lead}")
        history = model.wants_history()
        if history and spec.resets_ended_lanes:
            cause = "partial_reset" if spec.partial_reset else "seed_every_episode in a lockstep vector"
            raise InvalidSpec(f"{cause} does not go with a model that wants observation history")
        self._spec = spec
        self._model = model
        self._failure: SessionError | None = None
        self._ended = trio.Event()
        self._told = False
        self._complete = False
        self._scope = trio.CancelScope()
        self._telemetry_report: TelemetrySnapshot | None = None
        self._source = Route(spec.env_id, spec.env_component_id, spec.model_component_id)

        listeners = Listeners(hooks)
        telemetry = Telemetry()
        watchdog = Watchdog()
        route = RouteBooks(spec, new_id=new_id, unix_ns=unix_ns)
        lanes = [LaneSlot(index) for index in range(spec.num_envs)]
        members = [[lane] for lane in lanes] if spec.drives_lanes else [lanes]
        eager = scheduler is None or type(scheduler) is EagerScheduler
        groups, fail = len(members), self._fail
        if is_patient(scheduler):
            batcher = PatientBatcher(spec, route, model, scheduler, watchdog, telemetry, groups=groups, fail=fail)
        else:
            impatient = None if eager else scheduler
            batcher = Batcher(spec, route, model, impatient, watchdog, telemetry, groups=groups, fail=fail)
        relay = Relay(model_ceiling=spec.model_ceiling, env_ceiling=spec.env_ceiling, policy=relay_policy)
        self._crew = crew = Crew(route, batcher, self._fail)
        self._incidents = incidents = Incidents(spec.session_id, listeners)
        limit, tell = spec.limits.env_connect_timeout, partial(incidents.add, self._source)
        reconnector = Reconnector(env, limit, crew.interrupt, tell)
        rescue = Rescue(route, crew, Recoveries(spec.on_env_error, spec.on_timeout), reconnector, incidents)
        self._parts = SessionParts(
            spec,
            route,
            env,
            batcher,
            relay,
            listeners,
            watchdog,
            telemetry,
            EnvMeter(telemetry, "env.reset", "env"),
            EnvMeter(telemetry, "env.step", "env"),
            set(),
            rescue,
        )
        self._groups: list[LaneGroup] = []
        for number, group_lanes in enumerate(members):
            source = Route(
                spec.env_id,
                spec.env_component_id,
                spec.model_component_id,
                group_lanes[0].env_index if spec.drives_lanes else None,
            )
            announcer = Announcer(spec.session_id, source, group_lanes, spaces, listeners, telemetry)
            buffer = ChunkBuffer(lead=prefetch_lead, history=history)
            self._groups.append(LaneGroup(self._parts, group_lanes, announcer, buffer, number))
        crew.groups.extend(self._groups)

    @property
    def report(self) -> Report:
        """What was finished so far; the outcome once the session has ended."""
        route = self._parts.route
        return Report(
            session_id=self._spec.session_id,
            env_id=self._spec.env_id,
            total_steps=route.total_steps,
            total_episodes=route.total_episodes,
            episodes=tuple(route.summaries),
            telemetry=self._telemetry_report,
            advisories=self._parts.relay.advisories,
            incidents=tuple(self._incidents.entries),
        )

    def cancel(self, reason: str = DEFAULT_CANCEL_REASON) -> None:
        """End the session in order; its outcome is :exc:`RouteCancelled` with *reason*.

        One that has failed or played its last episode keeps the outcome it has.
        """
        if self._complete or self._failure is not None:
            return
        step = max(lane.step for group in self._groups for lane in group.lanes)
        self._fail(RouteCancelled(self._spec.env_id, step, reason))

    async def wait(self) -> Report:
        """Run to the end and return the report; raises what failed the session, with the partial report on it."""
        await self._ended.wait()
        return self._outcome()

    def events(self) -> EventStream:
        """Every event from now on, as an async iterator that ends with the session and raises what failed it.

        A slow reader slows the session until it ends; no event is lost. Call it before the first await to see all.
        """
        token = trio.lowlevel.current_trio_token()
        return EventStream(self._parts.listeners.open_queue(), self._outcome, token)

    def _outcome(self) -> Report:
        self._told = True
        if self._failure is not None:
            raise self._failure
        return self.report

    def _fail(self, error: Exception) -> None:
        """The first failure wins and ends the session; later ones are noted on it."""
        if isinstance(error, SessionError):
            failure = error
        else:
            failure = EngineInternalError(f"{type(error).__name__}: {error}")
            failure.__cause__ = error
        if self._failure is None:
            self._failure = failure
        elif failure is not self._failure:
            self._failure.add_note(f"also: {failure}")
        self._parts.batcher.stop()
        self._scope.cancel(reason=str(self._failure))

    async def run(self) -> None:
        """Run from start to end. The outcome is kept for :meth:`wait`; only cancellation comes out of here."""
        try:
            async with trio.open_nursery() as services:
                services.start_soon(self._parts.batcher.run)
                try:
                    with self._scope:
                        await self._drive()
                        self._complete = self._failure is None
                except BaseException as interruption:
                    self._interrupted(interruption)
                    self._parts.batcher.stop()
                    raise
                finally:
                    self._parts.batcher.close(self._spec.limits.service_close_timeout)
        except Exception as crash:
            self._fail(crash)
        except BaseException as interruption:
            self._interrupted(interruption)
            raise
        finally:
            try:
                await end_session(self._parts, self._groups, self._model, lambda: self._failure, self._keep)
            finally:
                self._parts.listeners.finish()
                if self._failure is not None:
                    self._failure.report = self.report
                self._ended.set()

    def _interrupted(self, interruption: BaseException) -> None:
        """A cancellation from outside, or Ctrl-C, is the outcome from now on, whatever a predict in flight does yet."""
        if not isinstance(interruption, Exception):
            self.cancel(DEFAULT_CANCEL_REASON if _is_cancellation(interruption) else "interrupted")

    def _keep(self, snapshot: TelemetrySnapshot) -> None:
        self._telemetry_report = snapshot

    async def _drive(self) -> None:
        parts, spec = self._parts, self._spec
        if parts.listeners.session_started is not None:
            await parts.listeners.session_started(SessionStarted(spec.session_id, self._source, spec.env_id))
        option = spec.edition.trial_index_option
        if spec.trial_index_base and not declares_reset_option(spec.env_contract, option):
            logger.warning(
                "trial_index_base is set but the env contract declares no such reset option; the ordinal is recorded "
                "on the episode events and summaries but not delivered to the env (env_id=%s, option=%s)",
                spec.env_id,
                option,
            )
        try:
            advisory = parts.relay.to_model.check_contract(spec.env_contract)
        except Exception as refusal:
            self._fail(refusal)
            return
        if advisory is not None and parts.listeners.relay_advisory is not None:
            await parts.listeners.relay_advisory(RelayAdvised(spec.session_id, self._source, "env_to_model", advisory))
        async with trio.open_nursery() as helpers:
            helpers.start_soon(parts.watchdog.run)
            helpers.start_soon(
                run_ticker, spec.limits.telemetry_window, parts.telemetry.window_snapshot_and_flush, self._deliver
            )
            await self._crew.play()
            helpers.cancel_scope.cancel(reason="the groups are done")

    async def _deliver(self, snapshot: TelemetrySnapshot) -> None:
        notify = self._parts.listeners.on_telemetry
        if notify is not None:
            await notify(TelemetryTaken(self._spec.session_id, self._source, snapshot))

    @asynccontextmanager
    async def beside(self) -> AsyncGenerator[None]:
        """Run beside the block. Leaving the block ends the session; its failure is raised here unless told before."""
        await trio.lowlevel.checkpoint()
        failure: Exception | None = None
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self.run)
            try:
                yield
            except Exception as error:
                failure = error
            finally:
                if self._failure is None:
                    self._told = True
                    self.cancel()
        if failure is not None:
            raise failure
        if self._failure is not None and not self._told:
            raise self._failure


def _is_cancellation(error: BaseException) -> bool:
    if isinstance(error, BaseExceptionGroup):
        return all(_is_cancellation(inner) for inner in cast("BaseExceptionGroup[BaseException]", error).exceptions)
    return isinstance(error, trio.Cancelled)


async def run_session(
    spec: SessionSpec,
    env: Env,
    model: Model,
    *,
    hooks: Hooks | None = None,
    scheduler: Scheduler | None = None,
    prefetch_lead: int = 0,
    relay_policy: RelayPolicy | None = None,
) -> Report:
    """Run one session to its end and return the report.

    *prefetch_lead* is how many frames of a chunk may be left when the next is asked for (0: none). Raises
    :exc:`InvalidSpec` before anything is started; otherwise the one typed error that failed the route, whose
    ``report`` holds every episode finished before it. The caller's own cancellation ends the session in order and
    then goes on out.
    """
    session = Session(
        spec,
        env,
        model,
        hooks=hooks,
        scheduler=scheduler,
        prefetch_lead=prefetch_lead,
        relay_policy=relay_policy,
    )
    await session.run()
    return await session.wait()


@asynccontextmanager
async def open_session(
    spec: SessionSpec,
    env: Env,
    model: Model,
    *,
    hooks: Hooks | None = None,
    scheduler: Scheduler | None = None,
    prefetch_lead: int = 0,
    relay_policy: RelayPolicy | None = None,
) -> AsyncGenerator[Session]:
    """Run a session beside the body of the block. Takes and refuses what :func:`run_session` does.

    A failed route raises its error out of ``session.events()`` or ``session.wait()``, or at the end of the block if
    nobody asked. Leaving the block early ends the session and raises nothing for it. The body's own exception comes
    out as it was raised.
    """
    session = Session(
        spec,
        env,
        model,
        hooks=hooks,
        scheduler=scheduler,
        prefetch_lead=prefetch_lead,
        relay_policy=relay_policy,
    )
    async with session.beside():
        yield session
