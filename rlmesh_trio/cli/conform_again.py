"""``rlmesh-trio conform try`` and ``conform replay``: one failing case again, from a blob or from a recording."""

import functools
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import click
import trio

from rlmesh_trio.cli.complaints import INTERRUPTED_TEXT, complain, told_failure
from rlmesh_trio.cli.conform_settings import names, reset_option, tolerance
from rlmesh_trio.cli.exit_status import FAILED, INTERRUPTED, NOT_STARTED
from rlmesh_trio.cli.interruption import Interruption, watch_signals
from rlmesh_trio.cli.messages_shown import shown_messages
from rlmesh_trio.cli.parameters import duration, token_option
from rlmesh_trio.conformance.settings import Settings

if TYPE_CHECKING:
    from rlmesh_trio.conformance.blob import Blob
    from rlmesh_trio.conformance.outcome import TargetOutcome
    from rlmesh_trio.conformance.registry import Check

__all__ = ("replay_command", "try_command")

F = TypeVar("F", bound=Callable[..., Any])

_LOST = 3
_RUNS = 5


def _again_options(command: F) -> F:
    options = (
        click.option("--checks", "modules", metavar="MODULE", multiple=True, help="The module of a check of your own."),
        click.option(
            "--runs",
            metavar="N",
            type=click.IntRange(1),
            default=_RUNS,
            show_default=True,
            help="Try so often, or until it fails: faults flicker.",
        ),
        token_option,
        click.option("--lanes", metavar="L", type=click.IntRange(1), help="Copies of an env that is started here."),
        click.option("--ignore-leaf", "ignored_leaves", metavar="PATH", type=names, multiple=True),
        click.option("--ignore-info", "ignored_infos", metavar="KEY", type=names, multiple=True),
        click.option("--tolerance", "ulps", metavar="ulp=N", type=tolerance, default="ulp=0"),
        click.option("--max-steps", metavar="T", type=click.IntRange(1), help="The env's time limit."),
        click.option("--bounds", type=click.Choice(("fail", "warn")), default="fail", show_default=True),
        click.option("--options", metavar="K=V", type=reset_option, multiple=True, help="Sent with every reset."),
        click.option("--step-timeout", metavar="X", type=duration, default="10s", show_default=True),
        click.option("--debug", is_flag=True, help="Show tracebacks and everything that is logged."),
    )
    return functools.reduce(lambda wrapped, option: option(wrapped), reversed(options), command)


@click.command("try")
@click.argument("blob", metavar="BLOB")
@click.argument("target", metavar="TARGET")
@_again_options
def try_command(blob: str, target: str, **options: Any) -> int:
    """Try the case of a BLOB, as reports show it, on TARGET, and judge it by its check.

    Exit status: 0 the case passes; 1 it fails, be it a must or a should; 2 a foreign blob, no connection, or the check
    does not apply; 3 the target was lost; 4 a fault of this program; 130 interrupted.
    """

    def read() -> "Blob":
        from rlmesh_trio.conformance.blob import decode_blob

        return decode_blob(blob)

    return _again(read, target, **options)


@click.command("replay")
@click.argument("file", metavar="FILE", type=click.Path(exists=True, dir_okay=False))
@click.argument("target", metavar="TARGET")
@_again_options
def replay_command(file: str, target: str, **options: Any) -> int:
    """Try the case that the recording FILE is of on TARGET, and judge it by its check.

    The exit status is that of try.
    """

    def read() -> "Blob":
        from rlmesh_trio.conformance.trace_recording import blob_in

        return blob_in(file)

    return _again(read, target, **options)


def _again(
    read: "Callable[[], Blob]", target: str, *, modules: Sequence[str], runs: int, debug: bool, **options: Any
) -> int:
    for several in ("ignored_leaves", "ignored_infos"):
        options[several] = tuple(name for listed in options[several] for name in listed)
    chosen: dict[str, Any] = {**options, "options": tuple(options["options"])}
    settings = Settings(**chosen)
    try:
        from rlmesh_trio.conformance.catalogue import load_checks
        from rlmesh_trio.conformance.lab import TargetLost

        try:
            with shown_messages(quiet=False, debug=debug):
                outcome = trio.run(_tried, read(), target, settings, load_checks(modules), runs)
        except TargetLost as lost:
            complain(click.ClickException(str(lost)))
            return _LOST
    except Exception as failure:
        return told_failure(failure, debug=debug)
    if outcome is None:
        complain(click.ClickException(INTERRUPTED_TEXT))
        return INTERRUPTED
    return _told(outcome)


async def _tried(
    blob: "Blob", named: str, settings: Settings, checks: "Mapping[str, Check]", runs: int
) -> "TargetOutcome | None":
    from rlmesh_trio.conformance.background import open_background
    from rlmesh_trio.conformance.retrial import check_of, retried
    from rlmesh_trio.conformance.targets import target_for

    check_of(blob, checks)
    target = target_for(named, token=settings.token, lanes=settings.lanes)
    interruption = Interruption()
    async with open_background() as helpers:
        await helpers.start(watch_signals, interruption)
        with interruption.scope:
            async with target.running():
                return await retried(blob, target, settings, checks, runs=runs)
    return None


def _told(outcome: "TargetOutcome") -> int:
    """Show what came of it, and return the exit status."""
    from rlmesh_trio.conformance.outcome import Outcome
    from rlmesh_trio.conformance.reports.material import Material
    from rlmesh_trio.conformance.reports.terminal import failure_block, wants_color

    (finding,) = outcome.findings
    if finding.verdict == "skip":
        complain(click.ClickException(f"{finding.check} does not apply to {outcome.name}: {finding.reason}"))
        return NOT_STARTED
    if finding.evidence is None:
        tries = f"{finding.tries} run{'' if finding.tries == 1 else 's'}"
        click.echo(f"PASS {finding.check}   {tries} on {outcome.name}")
        return 0
    material = Material(Outcome((outcome,), Settings()), times=False)
    text = "\n".join(failure_block(material, outcome, finding))
    click.echo(text if wants_color(sys.stdout) else click.unstyle(text))
    return 0 if finding.verdict == "note" else FAILED
