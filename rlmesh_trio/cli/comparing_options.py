"""The options that say how a comparison judges: ``--tol``, ``--ignore``, ``--stats`` and ``--force``."""

from collections.abc import Callable
from typing import Any, TypeVar

import click

from rlmesh_trio.errors import InvalidSpec

__all__ = ("comparing_options", "tolerance_option")

F = TypeVar("F", bound=Callable[..., Any])


def tolerance_option(told: str) -> Callable[[F], F]:
    """A command's ``tolerances``: texts, refused if :func:`parse_tolerance` does not take them. *told* is the help."""
    return click.option("--tol", "tolerances", metavar="T", multiple=True, callback=_checked, help=told)


def _checked(_context: click.Context, _option: click.Parameter, texts: tuple[str, ...]) -> tuple[str, ...]:
    from rlmesh_trio.replay.tolerance import parse_tolerance

    try:
        parse_tolerance(texts)
    except InvalidSpec as refusal:
        raise click.UsageError(f"--tol: {refusal.why}") from refusal
    return texts


def comparing_options(*, recorded: str, force: str) -> Callable[[F], F]:
    """A command's ``tolerances``, ``ignored``, ``stats`` and ``force``.

    *recorded* says what tolerance holds where none is given, *force* is the help of ``--force``.
    """
    options = (
        tolerance_option(
            f"How far values may differ: exact, ulp=N or abs=X,rel=Y; one leaf's with leaf:PATH= before it. Repeatable."
            f"  [default: {recorded}]"
        ),
        click.option(
            "--ignore",
            "ignored",
            metavar="PATH",
            multiple=True,
            help="Do not compare this: obs.camera, reward, info.x. Repeatable.",
        ),
        click.option(
            "--stats",
            is_flag=True,
            help="Compare returns and lengths alone, of peers that are random by nature.",
        ),
        click.option("--force", is_flag=True, help=force),
    )

    def decorated(command: F) -> F:
        for option in reversed(options):
            command = option(command)
        return command

    return decorated
