"""``rlmesh-trio inspect``: what an env declares and how it would be driven, without resetting it."""

import attrs
import click
import trio

from rlmesh_trio.cli.complaints import complain, foreign_exit
from rlmesh_trio.cli.env_description import EnvDescription, description_of, print_description
from rlmesh_trio.cli.exit_status import NOT_STARTED
from rlmesh_trio.cli.messages_shown import shown_messages
from rlmesh_trio.cli.places import CONNECT_LIMIT, open_env
from rlmesh_trio.cli.report_json import json_text
from rlmesh_trio.endpoints.remote_env import describe_env
from rlmesh_trio.errors import SessionError
from rlmesh_trio.spec import Limits
from rlmesh_trio.transport.address import is_address

__all__ = ("inspect_command",)


@click.command("inspect", short_help="Show what an env declares.")
@click.argument("env", metavar="ENV")
@click.option(
    "--token", metavar="T", envvar="RLMESH_TRIO_TOKEN", show_envvar=True, help="What the env's server asks for."
)
@click.option("--json", "as_json", is_flag=True, help="Print it as JSON.")
def inspect_command(env: str, token: str | None, as_json: bool) -> int:
    """Show what ENV declares: its spaces, width, autoreset mode, metadata, and what its server says of itself.

    ENV is a server's address (host:port, tcp://host:port, unix:///path), a gymnasium id, or module:factory. It is
    never reset; a server may be at work with another client meanwhile.
    """
    try:
        with shown_messages(quiet=False, debug=False):
            description = trio.run(_describe, env, token)
    except SessionError as refusal:
        complain(refusal)
        return NOT_STARTED
    except SystemExit as ended:
        complain(foreign_exit(ended) or ended)
        return NOT_STARTED
    if as_json:
        click.echo(json_text(attrs.asdict(description)), nl=False)
    else:
        print_description(description)
    return 0


async def _describe(name: str, token: str | None) -> EnvDescription:
    limits = Limits(env_connect_timeout=CONNECT_LIMIT)
    if is_address(name):
        return description_of(name, await describe_env(name, token=token, limits=limits))
    async with open_env(name, token=None, lanes=None, bounded=False, limits=limits) as env:
        return description_of(name, env)
