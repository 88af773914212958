"""From two places to a running session: connect the env, check that the two fit, resolve the model, run.

What is refused is refused in that order, as one typed error, and nothing was reset.
"""

import logging
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any, Protocol

from rlmesh_trio.endpoints.env import Env
from rlmesh_trio.endpoints.local_model import open_local_model
from rlmesh_trio.endpoints.model import Model
from rlmesh_trio.endpoints.remote_env import connect_env
from rlmesh_trio.engine.schedulers import Scheduler
from rlmesh_trio.engine.seeds import check_finished_seeds
from rlmesh_trio.engine.session import Session, open_session
from rlmesh_trio.errors import HandshakeError, InvalidSpec
from rlmesh_trio.events import EnvConnected, ModelConnected, Route
from rlmesh_trio.hooks import Hooks
from rlmesh_trio.report import Report
from rlmesh_trio.spec import DescribedEnv, Limits, SessionSpec, check_horizon

__all__ = ("ResolvableModel", "RunnableEnv", "open_run", "run_local")

logger = logging.getLogger("rlmesh_trio")


class RunnableEnv(Env, DescribedEnv, Protocol):
    """An open env that also describes itself: a local or a remote one."""


class ResolvableModel(Model, Protocol):
    """An open model that has yet to be told its route: a local or a remote one."""

    async def resolve(self, spec: SessionSpec, *, execution_horizon: int = 1) -> None:
        """Take on the route of *spec*, playing at most *execution_horizon* frames of a chunk."""
        ...


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
    hooks: Hooks | None = None,
    scheduler: Scheduler | None = None,
) -> Report:
    """Connect to the env at *env_address*, drive it with a policy in this process, and return the report.

    Raises :exc:`ConnectError` when the env cannot be reached or the policy cannot be had, :exc:`HandshakeError` for a
    server that cannot be driven, :exc:`InvalidSpec` for options that do not fit the env or each other; then nothing was
    reset. What fails the session once it runs has a ``report`` that holds the episodes finished before.

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
        hooks: a listener; its ``env_connected`` and ``model_connected`` come before ``session_started``.
        scheduler: which waiting lanes are predicted together; by default all of them.

    """
    async with open_run(
        connect_env(env_address, token=token, edition=workflow_edition, limits=limits),
        open_local_model(policy),
        execution_horizon=execution_horizon,
        prefetch_lead=prefetch_lead,
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
    ) as session:
        return await session.wait()


@asynccontextmanager
async def open_run(
    env: AbstractAsyncContextManager[RunnableEnv],
    model: AbstractAsyncContextManager[ResolvableModel],
    *,
    execution_horizon: int = 1,
    prefetch_lead: int = 0,
    hooks: Hooks | None = None,
    scheduler: Scheduler | None = None,
    **fields: Any,
) -> AsyncGenerator[Session]:
    """Open *env* and then *model*, and run a session of theirs beside the block; *fields* are the spec's own.

    Raises what opening the two raises, :exc:`HandshakeError` for an env without action space, :exc:`InvalidSpec` for
    options that do not fit, and what the model raises when it is told its route. Then the session exists.
    """
    async with env as opened_env:
        spec = SessionSpec.for_env(opened_env, **fields)
        source = Route(spec.env_id, spec.env_component_id, spec.model_component_id)
        if hooks is not None:
            await _announce(hooks.env_connected, EnvConnected(spec.session_id, source, spec.env_id))
        _refuse_misfits(spec, execution_horizon)
        async with model as opened_model:
            if hooks is not None:
                await _announce(hooks.model_connected, ModelConnected(spec.session_id, source))
            await opened_model.resolve(spec, execution_horizon=execution_horizon)
            async with open_session(
                spec, opened_env, opened_model, hooks=hooks, scheduler=scheduler, prefetch_lead=prefetch_lead
            ) as session:
                yield session


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
