"""What ENV and MODEL on the command line stand for, and how each is opened."""

from contextlib import AbstractAsyncContextManager

import click

from rlmesh_trio.endpoints.local_env import Where, open_local_env
from rlmesh_trio.endpoints.local_model import open_local_model
from rlmesh_trio.endpoints.remote_env import connect_env
from rlmesh_trio.endpoints.remote_model import connect_model
from rlmesh_trio.one_call import ResolvableModel, RunnableEnv
from rlmesh_trio.spec import Limits
from rlmesh_trio.transport.address import is_address

__all__ = ("CONNECT_LIMIT", "RECONNECT_LIMIT", "limits_of", "open_env", "open_model")

# Somebody watches: a server that is not there is told of sooner than a harness would want. One that was there and is
# started again has to load its env first.
CONNECT_LIMIT = 10.0
RECONNECT_LIMIT = 60.0


def limits_of(*, step: float | None, reset: float | None, predict: float | None) -> Limits:
    """The limits with these of env steps, env resets and predicts in seconds, each by default the library's."""
    given = {"env_step_timeout": step, "env_reset_timeout": reset, "model_predict_timeout": predict}
    chosen = {name: seconds for name, seconds in given.items() if seconds is not None}
    return Limits(env_connect_timeout=CONNECT_LIMIT, model_connect_timeout=CONNECT_LIMIT, **chosen)


def open_env(
    name: str, *, token: str | None, lanes: int | None, bounded: bool, limits: Limits, where: Where | None = None
) -> AbstractAsyncContextManager[RunnableEnv]:
    """The env *name*. *bounded* asks that its steps and resets can be ended at their limit wherever it runs.

    Raises :exc:`click.UsageError` when *lanes*, or a place *where* to run, are asked of a server.
    """
    if is_address(name):
        if lanes is not None:
            raise click.UsageError(f"--lanes is for an env started here: the server at {name} has its own width")
        if where is not None:
            raise click.UsageError(f"--where is for an env started here: the server at {name} runs its own")
        return connect_env(name, token=token, limits=limits)
    return open_local_env(name, lanes=lanes or 1, where=where or ("thread" if bounded else "inline"))


def open_model(
    name: str, *, bounded: bool, merge_rows: bool, fixed_batch: bool, limits: Limits
) -> AbstractAsyncContextManager[ResolvableModel]:
    """The model *name*. *bounded* asks that its predicts can be ended at their limit wherever it runs.

    Raises :exc:`click.UsageError` when rows are to be merged for a policy that is no server's, and when batches are to
    be of one size for a server's.
    """
    if is_address(name):
        if fixed_batch:
            raise click.UsageError(
                f"--fixed-batch is for a policy run here: the server at {name} makes its own batches"
            )
        return connect_model(name, limits=limits, merge_rows=merge_rows)
    if merge_rows:
        raise click.UsageError(f"--merge-rows is for a model server: a policy run here, as {name}, is always batched")
    return open_local_model(name, where="thread" if bounded else "auto", fixed_batch=fixed_batch)
