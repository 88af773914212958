"""One line for what went wrong: what it is, and what to do about it where that is known."""

import sys
import traceback
from collections.abc import Generator
from contextlib import contextmanager
from typing import Protocol, cast

import click

from rlmesh_trio.cli.exit_status import KIT_FAULT, NOT_STARTED
from rlmesh_trio.cli.interruption import INTERRUPTED_REASON
from rlmesh_trio.cli.standard_streams import tell
from rlmesh_trio.errors import (
    EngineInternalError,
    EnvRpcError,
    InvalidSpec,
    OperationTimeout,
    RouteCancelled,
    SessionError,
    format_duration,
)

__all__ = ("INTERRUPTED_TEXT", "complain", "foreign_exit", "noted_failure", "show_traceback", "told_failure")

INTERRUPTED_TEXT = "interrupted (Ctrl-C or SIGTERM)"
_LIMIT_OPTIONS = {
    "env.step": "--step-timeout",
    "env.reset": "--reset-timeout",
    "model.predict": "--predict-timeout",
}


def _error_line(error: BaseException) -> str:
    """What to tell the user of *error*, in one line."""
    match error:
        case InvalidSpec():
            text = error.why
        case RouteCancelled(reason=reason) if reason == INTERRUPTED_REASON:
            text = INTERRUPTED_TEXT
        case OperationTimeout(operation=str(operation)) if operation in _LIMIT_OPTIONS:
            text = f"{operation} took longer than {format_duration(error.timeout)}"
            text += f" at step {error.step}{_of_episode(error)}; {_LIMIT_OPTIONS[operation]} sets this limit"
        case EnvRpcError():
            text = f"{error.operation} failed at step {error.step}{_of_episode(error)}: {error.message}"
            if error.code == "CONNECTION":
                text += "; the env's server is gone, look at its own log"
        case SessionError() if not isinstance(error, EngineInternalError):
            text = str(error)
        case click.UsageError():
            text = error.format_message()
            if error.ctx is not None:
                text += f" (see {error.ctx.command_path} --help)"
        case click.ClickException():
            text = error.format_message()
        case _:
            text = f"{type(error).__name__}: {error} (a bug of rlmesh-trio; --debug shows where)"
    return " ".join("; ".join([text, *_reasons(error)]).split()) or type(error).__name__


def _of_episode(error: SessionError) -> str:
    """Which episode *error* is about, if it is about one: what to look for, and how to play it again."""
    if len(error.in_flight) != 1:
        return ""
    (episode,) = error.in_flight
    seed = "no seed" if episode.seed is None else f"seed {episode.seed}"
    return f" of episode {episode.episode_index} (lane {episode.env_index}, {seed})"


def _reasons(error: BaseException) -> list[str]:
    """Why a policy did not help an env operation that failed. Notes on later failures are left out."""
    notes: list[str] = getattr(error, "__notes__", []) if isinstance(error, EnvRpcError | OperationTimeout) else []
    return [note for note in notes if not note.startswith("also: ")]


class _Outcome(Protocol):
    error: Exception | None


@contextmanager
def noted_failure(outcome: _Outcome) -> Generator[None]:
    """Note what fails the block as *outcome*'s ``error``, a ``sys.exit`` of the env's or the policy's code too.

    What is no failure (Ctrl-C, a cancellation) goes on out.
    """
    try:
        yield
    except Exception as error:
        outcome.error = error
    except BaseException as error:
        outcome.error = foreign_exit(error)
        if outcome.error is None:
            raise


def foreign_exit(error: BaseException) -> SessionError | None:
    """What to say when *error* is a ``sys.exit`` of the env's or the policy's code; ``None`` when it is not."""
    exits = isinstance(error, SystemExit)
    if isinstance(error, BaseExceptionGroup):
        exits = cast("BaseExceptionGroup[BaseException]", error).subgroup(SystemExit) is not None
    return SessionError("the code of the env or the policy called sys.exit()") if exits else None


def complain(error: BaseException, advice: str = "") -> None:
    """Print *error* to standard error, and what to do next if that is known: in one line."""
    tell(f"error: {_error_line(error)}{advice and f'; {advice}'}")


def show_traceback(error: BaseException) -> None:
    """Print where *error* came from to standard error, its causes included."""
    traceback.print_exception(error, file=sys.stderr)


def told_failure(failure: Exception, *, debug: bool) -> int:
    """Complain of what ended a conformance run, and return its exit status: what is no typed error is the kit's."""
    if isinstance(failure, SessionError):
        complain(failure)
        return NOT_STARTED
    if debug:
        show_traceback(failure)
    complain(failure)
    return KIT_FAULT
