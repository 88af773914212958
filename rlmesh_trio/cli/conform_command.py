"""``rlmesh-trio conform``: test env servers and env factories, and show the shortest scripts that break them."""

import contextlib
import sys
import time
import warnings
from collections.abc import Callable, Generator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import click
import trio

from rlmesh_trio.cli.complaints import told_failure
from rlmesh_trio.cli.conform_again import replay_command, try_command
from rlmesh_trio.cli.conform_catalogue import list_command, show_command
from rlmesh_trio.cli.conform_reports import report_options, reporting_from
from rlmesh_trio.cli.conform_settings import ProjectCommand, names, reset_option, settings_from, tolerance
from rlmesh_trio.cli.default_command import DEFAULT_COMMAND, DefaultGroup
from rlmesh_trio.cli.interruption import Interruption, watch_signals
from rlmesh_trio.cli.messages_shown import shown_messages
from rlmesh_trio.cli.parameters import duration, token_option
from rlmesh_trio.conformance.settings import Settings

if TYPE_CHECKING:
    from rlmesh_trio.conformance.outcome import Outcome
    from rlmesh_trio.conformance.registry import Check
    from rlmesh_trio.conformance.reports.material import Reproduction
    from rlmesh_trio.conformance.watching import Watcher

__all__ = ("conform_command",)

_WRITING = 0.5
"""How long files may still be written once the time of a run is over, in seconds."""


@click.group(
    "conform", cls=DefaultGroup, short_help="Test whether an env server keeps its contract.", no_args_is_help=True
)
def conform_command() -> None:
    """Test env servers, or do something with what was found."""


@conform_command.command(DEFAULT_COMMAND, cls=ProjectCommand, hidden=True)
@click.argument("targets", metavar="TARGET…", nargs=-1, required=True)
@click.option("--only", metavar="A,B", type=names, multiple=True, help="Only these families, checks or patterns.")
@click.option("--skip", metavar="A,B", type=names, multiple=True, help="All but these.")
@click.option("--checks", "modules", metavar="MODULE", multiple=True, help="A module of your own with @check in it.")
@click.option("--time", metavar="X", type=duration, help="How long to test each target.  [default: 60s]")
@click.option("--quick", is_flag=True, help="10 seconds.")
@click.option("--deep", is_flag=True, help="15 minutes.")
@click.option(
    "--examples",
    metavar="N",
    type=click.IntRange(1),
    help="Cases a check is tried on; without --time up to 15 minutes.  [default: by the time]",
)
@click.option(
    "--seed", metavar="N", type=click.IntRange(0, 2**63 - 1), help="What all cases follow from.  [default: drawn]"
)
@click.option("--max-fail", metavar="N", type=click.IntRange(1), help="Stop after so many failures.")
@click.option("--no-shrink", "shrink", is_flag=True, flag_value=False, default=True, help="Leave failures as found.")
@click.option(
    "--shrink-time",
    metavar="X",
    type=duration,
    help="To make one failure small.  [default: 20s, with --examples as long as it takes]",
)
@click.option("--strict", is_flag=True, help="A failed should fails the run too.")
@click.option("--strict-server", is_flag=True, help="Count faults that are known of the server's package.")
@token_option
@click.option("--lanes", metavar="L", type=click.IntRange(1), help="Copies of an env that is started here.")
@click.option("--nondeterministic", is_flag=True, help="The env need not repeat itself.")
@click.option(
    "--ignore-leaf",
    "ignored_leaves",
    metavar="PATH",
    type=names,
    multiple=True,
    help="A leaf that need not repeat itself (obs.camera).",
)
@click.option("--ignore-info", "ignored_infos", metavar="KEY", type=names, multiple=True, help="An info that need not.")
@click.option(
    "--tolerance", "ulps", metavar="ulp=N", type=tolerance, default="ulp=0", help="How far floats may differ."
)
@click.option("--max-steps", metavar="T", type=click.IntRange(1), help="The env's time limit, if it declares none.")
@click.option(
    "--bounds",
    type=click.Choice(("fail", "warn")),
    default="fail",
    show_default=True,
    help="What an observation out of its declared bounds is.",
)
@click.option("--options", metavar="K=V", type=reset_option, multiple=True, help="Sent with every reset.")
@click.option(
    "--step-timeout", metavar="X", type=duration, default="10s", show_default=True, help="Limit of one operation."
)
@click.option("--allow-shutdown", is_flag=True, help="The server may be shut down.")
@click.option("--database", metavar="DIR", type=click.Path(file_okay=False), help="Where found cases are kept.")
@report_options
@click.option("-v", "--verbose", count=True, help="Show scripts; twice: every request.")
@click.option("--debug", is_flag=True, help="Show tracebacks and everything that is logged.")
def _run_conform(targets: Sequence[str], modules: Sequence[str], verbose: int, debug: bool, **options: Any) -> int:
    """Test each TARGET and show the shortest scripts that break what an env has to keep.

    A TARGET is a server's address (host:port, tcp://host:port, unix:///path), or what is served here by a process of
    its own: a gymnasium id (CartPole-v1), or module:factory.

    Durations are seconds, or a number with a unit: 250ms, 10s, 15m, 2h. Options may stand in pyproject.toml, in
    [tool.rlmesh-trio.conform], under their long names.

    \b
    Examples:
      rlmesh-trio conform localhost:5555
      rlmesh-trio conform my_pkg.envs:make --lanes 4 --quick
      rlmesh-trio conform CartPole-v1 --only seed,lanes.* --seed 7
      rlmesh-trio conform localhost:5555 localhost:5556 --report html=out.html
      rlmesh-trio conform list
      rlmesh-trio conform show seed.history-independent
      rlmesh-trio conform try 'BLOB' localhost:5555
      rlmesh-trio conform replay .rlmesh-trio/fail/NAME.mcap localhost:5555

    Exit status: 0 nothing that must hold failed; 1 something did (with --strict also a should); 2 wrong usage, no
    connection, or nothing was tested; 3 the target was lost; 4 a fault of this program; 130 interrupted. Ctrl-C ends
    the run in order and reports what was found.
    """  # noqa: D301 - click wants the backspace itself
    reporting = reporting_from(options)
    settings = settings_from(options)
    began = time.monotonic()
    try:
        with shown_messages(quiet=False, debug=debug):
            from rlmesh_trio.conformance.catalogue import load_checks, refuse_unknown

            checks = load_checks(modules)
            refuse_unknown(settings, checks)
            with reporting.watched(_watcher(verbose), progress=not verbose) as watcher, _envs_kept_quiet():
                outcome = trio.run(_run, targets, settings, checks, watcher)
    except Exception as failure:
        return told_failure(failure, debug=debug)
    until = began + settings.time * len(targets) + _WRITING
    made = _reproductions(outcome, modules, left=lambda: until - time.monotonic(), told=verbose > 0)
    return reporting.finish(outcome, made, verbose=verbose > 0)


for _command in (list_command, show_command, try_command, replay_command):
    conform_command.add_command(_command)


async def _run(
    targets: Sequence[str], settings: Settings, checks: "Mapping[str, Check]", watcher: "Watcher"
) -> "Outcome":
    from rlmesh_trio.conformance.background import open_background
    from rlmesh_trio.conformance.runner import run_checks
    from rlmesh_trio.conformance.targets import target_for

    opened = [target_for(target, token=settings.token, lanes=settings.lanes) for target in targets]
    interruption = Interruption()
    async with open_background() as helpers:
        await helpers.start(watch_signals, interruption)
        return await run_checks(opened, settings, checks=checks, watcher=watcher, scope=interruption.scope)


@contextlib.contextmanager
def _envs_kept_quiet() -> Generator[None]:
    """Envs of this process do not write between the lines of a report, and what they warn of is the kit's doing."""
    with warnings.catch_warnings(), contextlib.redirect_stdout(sys.stderr):
        warnings.simplefilter("ignore", UserWarning)
        yield


def _reproductions(
    outcome: "Outcome", modules: Sequence[str], *, left: Callable[[], float], told: bool
) -> "Mapping[tuple[str, str], Reproduction]":
    """The ways to see each failure again; what could not be made, and why, is *told* on standard error."""
    from rlmesh_trio.conformance.reproductions import reproductions_of

    made = reproductions_of(outcome, modules=modules, left=left)
    for remark in made.remarks if told else ():
        click.echo(remark, err=True)
    return made.found


def _watcher(verbose: int) -> "Watcher":
    from rlmesh_trio.cli.conform_messages import Narrator

    return Narrator(verbose)
