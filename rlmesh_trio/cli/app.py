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
from rlmesh_trio.cli.standard_streams import drop_unsaid, ensure_streams, is_unwritable, tell

__all__ = ("main",)


@click.group("rlmesh-trio", context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, message="%(prog)s %(version)s")
@click.pass_context
def _app(context: click.Context) -> None:
    """Drive reinforcement-learning envs with models, in this process or over rlmesh-wire-v1.

    Results go to standard output, progress and errors to standard error.
    """
    if os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb":
        context.color = False


_app.add_command(run_command)
_app.add_command(inspect_command)
_app.add_command(conform_command)
_app.add_command(replay_command)
_app.add_command(serve_command)


def main(args: Sequence[str] | None = None) -> NoReturn:
    """Run the program with *args* (default: those of the process) and exit."""
    ensure_streams()
    status = _status_of(args)
    drop_unsaid()
    sys.exit(status)


def _status_of(args: Sequence[str] | None) -> int:
    try:
        return _app.main(args, prog_name="rlmesh-trio", standalone_mode=False) or 0
    except click.exceptions.NoArgsIsHelpError as no_arguments:
        tell(no_arguments.format_message())
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
        return FAILED
    except OSError as failure:
        if not is_unwritable(failure):
            raise
        complain(click.ClickException(f"standard output could not be written: {failure.strerror}"))
        return FAILED
