"""``rlmesh-trio serve``: offer an env of this machine to clients, one after the other, until a signal."""

import contextlib
import functools
import sys
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from typing import Any, TextIO, cast, get_args

import click
import trio
from gymnasium.vector import AutoresetMode, SyncVectorEnv, VectorEnv

from rlmesh_trio.cli.complaints import complain, foreign_exit
from rlmesh_trio.cli.exit_status import INTERRUPTED, NOT_STARTED
from rlmesh_trio.cli.interruption import Interruption, watch_signals
from rlmesh_trio.cli.messages_shown import shown_messages
from rlmesh_trio.cli.parameters import token_option
from rlmesh_trio.endpoints.loading import EnvMaker, env_makers
from rlmesh_trio.endpoints.local_env import Where
from rlmesh_trio.errors import SessionError
from rlmesh_trio.serve import EnvServer, serve_env
from rlmesh_trio.transport.address import is_address

__all__ = ("serve_command",)

_MODES = {mode.name.lower().replace("_", "-"): mode for mode in AutoresetMode}


@click.command("serve", short_help="Serve an env to clients.")
@click.argument("env", metavar="ENV")
@click.option("--lanes", metavar="L", type=click.IntRange(1), default=1, show_default=True, help="Copies of the env.")
@click.option(
    "--autoreset",
    metavar="MODE",
    type=click.Choice(list(_MODES)),
    help="Serve the copies as one vector env that moves in lockstep: next-step, same-step or disabled.",
)
@click.option(
    "--address",
    metavar="A",
    default="127.0.0.1:0",
    show_default=True,
    help="host:port (0 for any that is free) or unix:///path.",
)
@token_option
@click.option(
    "--where",
    metavar="W",
    type=click.Choice(get_args(Where)),
    default="thread",
    show_default=True,
    help="inline for envs of microseconds, thread, or process for envs that compute or crash.",
)
@click.option("--allow-shutdown", is_flag=True, help="Let a client end the server.")
def serve_command(
    env: str, lanes: int, autoreset: str | None, address: str, token: str | None, where: Where, allow_shutdown: bool
) -> int:
    """Serve ENV, a gymnasium id or module:factory, to one client after the other, until Ctrl-C or SIGTERM.

    One line on standard output says where, as soon as clients may connect; what the env prints goes to standard error.
    """
    if is_address(env):
        raise click.UsageError(f"{env} is a server already: name a gymnasium id or module:factory")
    source: object = env
    if autoreset is not None:
        source, lanes = functools.partial(_vector, env_makers(env, lanes), _MODES[autoreset]), 1
    offer = functools.partial(
        serve_env, source, lanes=lanes, address=address, token=token, where=where, allow_shutdown=allow_shutdown
    )
    ready = sys.stdout
    try:
        with shown_messages(quiet=False, debug=False), contextlib.redirect_stdout(sys.stderr):
            return trio.run(_serve, offer, f"serving {env} at", ready)
    except SessionError as refusal:
        complain(refusal)
        return NOT_STARTED
    except SystemExit as ended:
        complain(foreign_exit(ended) or ended)
        return NOT_STARTED


async def _serve(offer: Callable[[], AbstractAsyncContextManager[EnvServer]], words: str, ready: TextIO) -> int:
    interruption = Interruption()
    failure: BaseException | None = None
    async with trio.open_nursery() as helpers:
        await helpers.start(watch_signals, interruption)
        try:
            with interruption.scope:
                async with offer() as server:
                    print(words, server.address, file=ready, flush=True)
                    await server.wait_shutdown()
        except (Exception, SystemExit) as error:
            failure = error
        helpers.cancel_scope.cancel(reason="the server is over")
    if failure is not None:
        raise failure
    return INTERRUPTED if interruption.happened else 0


def _vector(makers: list[EnvMaker], mode: AutoresetMode) -> VectorEnv[Any, Any, Any]:
    return SyncVectorEnv(cast("Any", makers), autoreset_mode=mode)
