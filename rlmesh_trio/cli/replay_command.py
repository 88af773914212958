"""``rlmesh-trio replay``: what can be done with recordings."""

import click

from rlmesh_trio.cli.default_command import DefaultGroup
from rlmesh_trio.cli.replay_export import export_command
from rlmesh_trio.cli.replay_files import canon_command, diff_command, verify_command
from rlmesh_trio.cli.replay_run import run_command
from rlmesh_trio.cli.replay_show import show_command

__all__ = ("replay_command",)


@click.group(
    "replay",
    cls=DefaultGroup,
    short_help="Play recordings again; show, check, compare and export them.",
    no_args_is_help=True,
)
def replay_command() -> None:
    """Play recordings of runs again (rlmesh-trio run --record FILE), or do something else with them."""


for _command in (run_command, show_command, verify_command, diff_command, canon_command, export_command):
    replay_command.add_command(_command)
