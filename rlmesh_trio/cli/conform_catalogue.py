"""``rlmesh-trio conform list`` and ``conform show``: the checks there are, and what one of them demands."""

import difflib
import inspect
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

import click

from rlmesh_trio.cli.complaints import complain
from rlmesh_trio.cli.exit_status import NOT_STARTED
from rlmesh_trio.conformance.settings import Settings
from rlmesh_trio.errors import InvalidSpec, SessionError

if TYPE_CHECKING:
    from rlmesh_trio.conformance.registry import Check

__all__ = ("list_command", "show_command")

_WIDTH = 100
_MEANS = {
    "must": "a failure fails the run",
    "should": "a failure is a warning, and fails a run with --strict",
    "note": "told, never failed",
}
_modules = click.option("--checks", "modules", metavar="MODULE", multiple=True, help="A module of your own, too.")


@click.command("list")
@click.argument("patterns", metavar="[CHECK]…", nargs=-1)
@_modules
def list_command(patterns: Sequence[str], modules: Sequence[str]) -> int:
    """List the checks, or those of a family, or of a pattern: id, severity, requirement."""
    try:
        checks = _known(modules)
        from rlmesh_trio.conformance.blame import in_order
        from rlmesh_trio.conformance.catalogue import refuse_unknown

        wanted = Settings(only=tuple(patterns))
        refuse_unknown(wanted, checks)
    except SessionError as refusal:
        complain(refusal)
        return NOT_STARTED
    shown = [check for check in in_order(checks.values()) if wanted.selects(check.id)]
    width = max(len(check.id) for check in shown)
    for check in shown:
        click.echo(f"{check.id:<{width}}  {check.severity:<6}  {check.requirement}")
    return 0


@click.command("show")
@click.argument("id", metavar="CHECK")
@_modules
def show_command(id: str, modules: Sequence[str]) -> int:
    """Explain one check: what it demands, by which rule, and what makes it moot."""
    try:
        checks = _known(modules)
        if id not in checks:
            close = difflib.get_close_matches(id, checks, n=3, cutoff=0.5)
            hint = f" (did you mean {', '.join(close)}?)" if close else ""
            raise InvalidSpec(f"there is no check {id!r}{hint}; rlmesh-trio conform list shows all")
    except SessionError as refusal:
        complain(refusal)
        return NOT_STARTED
    click.echo("\n".join(_explained(checks[id])))
    return 0


def _known(modules: Sequence[str]) -> "Mapping[str, Check]":
    from rlmesh_trio.conformance.catalogue import load_checks

    return load_checks(modules)


def _explained(check: "Check") -> Iterator[str]:
    from rlmesh_trio.conformance.blame import blockers_of

    yield f"{check.id}   {check.severity}: {_MEANS[check.severity]}"
    told = {
        "requires": check.requirement,
        "rule": check.rule,
        "judged": inspect.getdoc(check.judge) or "",
        "not tried when": ", ".join(f"{id} failed" for id in blockers_of(check)),
        "how": "; ".join(_manner(check)),
        "source": f"{check.judge.__module__}.{getattr(check.judge, '__name__', '')}",
    }
    for label, text in told.items():
        if text:
            yield from textwrap.wrap(
                " ".join(text.split()),
                _WIDTH,
                initial_indent=f"  {label + ':':<16}",
                subsequent_indent=" " * 18,
                break_on_hyphens=False,
            )
    yield f"  {'alone:':<16}rlmesh-trio conform TARGET --only {check.id}"


def _manner(check: "Check") -> Iterator[str]:
    yield "an example first, then a search" if check.example else "a search"
    if check.compares:
        yield "two runs are compared, so the env's traces have to repeat"
    if check.soak:
        yield "long random play is judged too"
    if check.needs_own_session:
        yield "in a session of its own"
