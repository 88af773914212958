"""``rlmesh-trio replay``: what can be done with recordings."""

import click

from rlmesh_trio.cli.replay_export import export_command
from rlmesh_trio.cli.replay_files import canon_command, diff_command, verify_command
from rlmesh_trio.cli.replay_show import show_command

__all__ = ("replay_command",)


@click.group("replay", short_help="Show, check, compare and export recordings.")
def replay_command() -> None:
    """Show, check, compare and export recordings of runs (rlmesh-trio run --record FILE)."""


for _command in (show_command, verify_command, diff_command, canon_command, export_command):
    replay_command.add_command(_command)
