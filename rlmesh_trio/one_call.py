"""From two places to a running session: connect the env, check that the two fit, resolve the model, run.

An earlier run's file is read before that, and its episodes are part of what is checked; journal and recording are begun
after.
What is refused is refused in that order, as one typed error, and nothing was reset.
"""

import logging
import os
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from functools import partial
from typing import Any, Protocol

import attrs
import trio

from rlmesh_trio.endpoints.env import Env
from rlmesh_trio.endpoints.local_model import open_local_model
from rlmesh_trio.endpoints.model import Model
from rlmesh_trio.endpoints.remote_env import connect_env
from rlmesh_trio.engine.schedulers import Scheduler
from rlmesh_trio.engine.seeds import check_finished_seeds
from rlmesh_trio.engine.session import Session, open_session
from rlmesh_trio.errors import HandshakeError, InvalidSpec, SessionError
from rlmesh_trio.events import EnvConnected, ModelConnected, Route
from rlmesh_trio.hooks import Hooks
from rlmesh_trio.observers.group import HookGroup
from rlmesh_trio.observers.identity import run_facts
from rlmesh_trio.observers.journal import JournalHooks
from rlmesh_trio.observers.line_file import check_place
from rlmesh_trio.recording.headers import header_of
from rlmesh_trio.recording.recorder import Recorder
from rlmesh_trio.recording.records import Header
from rlmesh_trio.recording.wanted import Record
from rlmesh_trio.recovery import Recovery
from rlmesh_trio.report import Incident, Report
from rlmesh_trio.resume import Finished, read_finished
from rlmesh_trio.spec import DescribedEnv, Limits, SessionSpec, check_horizon

__all__ = ("ResolvableModel", "Run", "RunnableEnv", "open_run", "run_local")

logger = logging.getLogger("rlmesh_trio")


class RunnableEnv(Env, DescribedEnv, Protocol):
    """An open env that also describes itself: a local or a remote one."""


class ResolvableModel(Model, Protocol):
    """An open model that has yet to be told its route: a local or a remote one."""

    async def resolve(self, spec: SessionSpec, *, execution_horizon: int = 1) -> None:
        """Take on the route of *spec*, playing at most *execution_horizon* frames of a chunk."""
        ...


@attrs.frozen(eq=False)
class Run:
    """A session at work, and what it goes on from.

    ``facts`` are what decides which episodes it plays, by name. Its report is the session's, and holds besides what the
    earlier run recovered from (``incidents_before``). ``journal`` and ``recorder`` are ``None`` when none is written;
    the recording is finished, and has its roots, when the block of :func:`open_run` is left.
    """

    session: Session
    spec: SessionSpec
    facts: Mapping[str, Any]
    incidents_before: tuple[Incident, ...]
    journal: JournalHooks | None
    recorder: Recorder | None = None

    @property
    def report(self) -> Report:
        """What was finished so far; the outcome once the session has ended."""
        report = self.session.report
        return attrs.evolve(report, incidents=(*self.incidents_before, *report.incidents))

    async def wait(self) -> Report:
        """Run to the end and return the report; raises what failed the session, with the partial report on it."""
        try:
            await self.session.wait()
        except SessionError as failure:
            failure.report = self.report
            raise
        return self.report


async def run_local(
    policy: object,
    env_address: str,
    *,
    token: str | None = None,
    workflow_edition: str | None = None,
    max_episodes: int | None = None,
    base_seed: int | None = None,
    episode_seeds: tuple[int, ...] = (),
    trial_index_base: int | None = None,
    max_episode_steps: int | None = None,
    max_episode_seconds: float | None = None,
    close_env: bool = False,
    execution_horizon: int = 1,
    prefetch_lead: int = 0,
    session_id: str = "local",
    limits: Limits = Limits(),  # noqa: B008 - frozen
    on_env_error: Recovery = Recovery(),  # noqa: B008 - frozen
    on_timeout: Recovery = Recovery(),  # noqa: B008 - frozen
    journal: str | os.PathLike[str] | None = None,
    resume: str | os.PathLike[str] | None = None,
    record: str | os.PathLike[str] | None = None,
    record_level: str = "digest",
    hooks: Hooks | None = None,
    scheduler: Scheduler | None = None,
) -> Report:
    """Connect to the env at *env_address*, drive it with a policy in this process, and return the report.

    Raises :exc:`ConnectError` when the env cannot be reached or the policy cannot be had, :exc:`HandshakeError` for a
    server that cannot be driven, :exc:`InvalidSpec` for options that do not fit the env or each other, and for a file
    that cannot be resumed from or be the journal, :exc:`~rlmesh_trio.recording.RecordingError` for a recording that
    cannot be read or begun; then nothing was reset. What fails the session once it runs has a ``report`` that holds the
    episodes finished before.

    Args:
        policy: what :func:`~rlmesh_trio.open_local_model` takes.
        env_address: ``host:port``, ``tcp://host:port`` or ``unix:///path``.
        token: what the server asks for, if it asks.
        workflow_edition: the edition to agree on; by default the highest both know.
        max_episodes: how many episodes to start; ``None`` runs until cancelled.
        base_seed: derives the seed of every reset, together with *session_id*.
        episode_seeds: the seeds themselves, by episode; wins over *base_seed*.
        trial_index_base: the first trial ordinal.
        max_episode_steps: steps after which an episode is truncated.
        max_episode_seconds: seconds after which an episode is truncated.
        close_env: whether to close the env itself at the end.
        execution_horizon: how many frames of a chunk are played before the model is asked again, 1 to 1024.
        prefetch_lead: how many frames may be left when the next chunk is asked for; 0 waits until all are played.
        session_id: a label, and part of the seed hash.
        limits: how long each operation may take.
        on_env_error: what follows an env operation that failed.
        on_timeout: what follows an env operation that outlived its limit.
        journal: a file that gets one line for each finished episode.
        resume: the journal, JSON report or recording of an earlier run, whose episodes are not played again; may be
            *journal* or *record*.
        record: a file that gets the recording of the run (extra ``mcap``); going on from one, all that it holds too.
        record_level: what it holds: ``digest``, ``ring=K`` or ``full``, see :class:`~rlmesh_trio.recording.Record`.
        hooks: a listener; its ``env_connected`` and ``model_connected`` come before ``session_started``.
        scheduler: which waiting lanes are predicted together; by default all of them.

    """
    async with open_run(
        connect_env(env_address, token=token, edition=workflow_edition, limits=limits),
        open_local_model(policy),
        execution_horizon=execution_horizon,
        prefetch_lead=prefetch_lead,
        journal=journal,
        resume=resume,
        record=None if record is None else Record(record, record_level),
        hooks=hooks,
        scheduler=scheduler,
        max_episodes=max_episodes,
        base_seed=base_seed,
        episode_seeds=tuple(episode_seeds),
        trial_index_base=trial_index_base,
        max_episode_steps=max_episode_steps,
        max_episode_seconds=max_episode_seconds,
        close_env_on_end=close_env,
        session_id=session_id,
        limits=limits,
        on_env_error=on_env_error,
        on_timeout=on_timeout,
    ) as run:
        return await run.wait()


@asynccontextmanager
async def open_run(
    env: AbstractAsyncContextManager[RunnableEnv],
    model: AbstractAsyncContextManager[ResolvableModel],
    *,
    execution_horizon: int = 1,
    prefetch_lead: int = 0,
    journal: str | os.PathLike[str] | None = None,
    resume: str | os.PathLike[str] | None = None,
    record: Record | None = None,
    hooks: Hooks | None = None,
    scheduler: Scheduler | None = None,
    **fields: Any,
) -> AsyncGenerator[Run]:
    """Open *env* and then *model*, and run a session of theirs beside the block; *fields* are the spec's own.

    Raises what opening the two raises, :exc:`HandshakeError` for an env without action space, :exc:`InvalidSpec` for
    options and files that do not fit, :exc:`~rlmesh_trio.recording.RecordingError` for a recording that cannot be read
    or begun, and what the model raises when it is told its route. Then the session exists.

    A recording goes on where that of *resume* ends, if it is one; its episodes, and more besides, are then in it.
    """
    chunks = {"execution_horizon": execution_horizon, "prefetch_lead": prefetch_lead}
    earlier = None if resume is None else read_finished(resume)
    if journal is not None:
        check_place(os.fspath(journal), "journal")
    if record is not None:
        record.check(resume, None if earlier is None else earlier.recording)
    async with AsyncExitStack() as opened:
        opened_env = await opened.enter_async_context(env)
        spec = SessionSpec.for_env(opened_env, **fields)
        source = Route(spec.env_id, spec.env_component_id, spec.model_component_id)
        if hooks is not None:
            await _announce(hooks.env_connected, EnvConnected(spec.session_id, source, spec.env_id))
        if earlier is not None:
            earlier.check(spec, **chunks)
            spec = attrs.evolve(spec, finished=earlier.episodes)
        _refuse_misfits(spec, execution_horizon)
        if record is not None:
            record.leaves_in(spec.env_contract)
        incidents = () if earlier is None else earlier.incidents
        journaling = None
        if journal is not None:
            journaling = opened.enter_context(JournalHooks(journal, spec, **chunks, incidents=incidents))
        opened_model = await opened.enter_async_context(model)
        if hooks is not None:
            await _announce(hooks.model_connected, ModelConnected(spec.session_id, source))
        await opened_model.resolve(spec, execution_horizon=execution_horizon)
        recorder, played_env, asked_model = None, opened_env, opened_model
        if record is not None:
            header = _header(record, spec, opened_env, opened_model, chunks)
            recorder = opened.enter_context(await _begun(record, header, earlier))
            played_env, asked_model = recorder.wrap(opened_env), recorder.wrap_model(opened_model)
        listener = _together(journaling, None if recorder is None else recorder.hooks, hooks)
        running = open_session(
            spec, played_env, asked_model, hooks=listener, scheduler=scheduler, prefetch_lead=prefetch_lead
        )
        session = await opened.enter_async_context(running)
        yield Run(session, spec, run_facts(spec, **chunks), incidents, journaling, recorder)


def _together(*listeners: Hooks | None) -> Hooks | None:
    """The files come first: who is told of an episode may rely on its line."""
    members = [listener for listener in listeners if listener is not None]
    return HookGroup(*members) if len(members) > 1 else next(iter(members), None)


async def _begun(record: Record, header: Header, earlier: Finished | None) -> Recorder:
    begin = partial(Recorder, record.path, header, record.level)
    if earlier is None or earlier.recording is None:
        return begin()
    return await trio.to_thread.run_sync(partial(begin, earlier=earlier.path))


def _header(record: Record, spec: SessionSpec, env: object, model: object, chunks: Mapping[str, int]) -> Header:
    return header_of(
        spec,
        env,
        model,
        **chunks,
        unstable_leaves=record.leaves_in(spec.env_contract),
        ignored_infos=record.ignored_infos,
        tolerance=record.tolerance,
    )


def _refuse_misfits(spec: SessionSpec, execution_horizon: int) -> None:
    if spec.env_contract.action_space is None:
        raise HandshakeError("env contract has no action_space; a model cannot encode actions without it")
    check_horizon(execution_horizon)
    if execution_horizon > 1 and spec.num_envs > 1 and not spec.subset_step:
        raise InvalidSpec(
            f"execution_horizon={execution_horizon} cannot be combined with a lockstep vector env "
            f"(num_envs={spec.num_envs}): when one lane's episode ends, the frames buffered for all lanes are lost. "
            "Use num_envs=1, a lane endpoint, or execution_horizon=1."
        )
    spec.validate()
    check_finished_seeds(spec)


async def _announce(hook: Callable[[Any], Awaitable[None]], event: EnvConnected | ModelConnected) -> None:
    try:
        await hook(event)
    except Exception as error:
        logger.warning("runtime hook %s failed: %s", hook.__name__, error)
