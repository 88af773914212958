"""The program: its commands, and how whatever they raise becomes one line and an exit status."""

import os
import sys
from collections.abc import Sequence
from typing import NoReturn

import click

from rlmesh_trio import __version__
from rlmesh_trio.cli.complaints import complain
from rlmesh_trio.cli.conform_command import conform_command
from rlmesh_trio.cli.exit_status import FAILED, INTERRUPTED, NOT_STARTED
from rlmesh_trio.cli.inspect_command import inspect_command
from rlmesh_trio.cli.replay_command import replay_command
from rlmesh_trio.cli.run_command import run_command
from rlmesh_trio.cli.serve_command import serve_command

__all__ = ("main",)


@click.group("rlmesh-trio", context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, message="%(prog)s %(version)s")
def _app() -> None:
    """Drive reinforcement-learning envs with models, in this process or over rlmesh-wire-v1.

    Results go to standard output, progress and errors to standard error.
    """


_app.add_command(run_command)
_app.add_command(inspect_command)
_app.add_command(conform_command)
_app.add_command(replay_command)
_app.add_command(serve_command)


def main(args: Sequence[str] | None = None) -> NoReturn:
    """Run the program with *args* (default: those of the process) and exit."""
    sys.exit(_status_of(args))


def _status_of(args: Sequence[str] | None) -> int:
    try:
        return _app.main(args, prog_name="rlmesh-trio", standalone_mode=False) or 0
    except click.exceptions.NoArgsIsHelpError as no_arguments:
        click.echo(no_arguments.format_message(), err=True)
        return NOT_STARTED
    except (KeyboardInterrupt, click.Abort):
        return INTERRUPTED
    except BaseExceptionGroup as group:
        if group.subgroup(KeyboardInterrupt) is None:
            raise
        return INTERRUPTED
    except click.ClickException as refusal:
        complain(refusal)
        return NOT_STARTED
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return FAILED
