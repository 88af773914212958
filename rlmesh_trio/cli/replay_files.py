"""``rlmesh-trio replay verify``, ``canon`` and ``diff``: what can be told of recordings by reading them."""

import contextlib
from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from rlmesh_trio.cli.comparing_options import comparing_options
from rlmesh_trio.cli.complaints import complain
from rlmesh_trio.cli.exit_status import FAILED, NOT_STARTED
from rlmesh_trio.cli.report_json import json_text
from rlmesh_trio.errors import SessionError
from rlmesh_trio.recording.errors import RecordingError

if TYPE_CHECKING:
    from rlmesh_trio.recording import Footer, Recording
    from rlmesh_trio.replay.tolerance import Tolerance

__all__ = ("canon_command", "diff_command", "open_whole", "refuse", "verify_command")


@click.command("verify")
@click.argument("file", metavar="FILE")
@click.option(
    "--repair", "out", metavar="OUT", help="Write what is whole of a broken FILE to OUT, as a whole recording."
)
def verify_command(file: str, out: str | None) -> int:
    """Check the recording FILE: every byte against the checksums, every value against its digest, and all roots.

    Each problem is one line, and the last line says how far the file is whole. A repaired file ends there, and the
    episodes that were under way are interrupted.

    Exit status: 0 whole; 1 not whole, be it repaired or not; 2 no recording at all, or OUT cannot be written.
    """
    from rlmesh_trio.recording import repair, verify

    try:
        found = verify(file)
        if not found.problems:
            click.echo(f"whole: {_extent(found.footer)}, run root {found.footer.run_root.hex()}")
            if out is not None:
                click.echo(f"nothing to repair: {out} was not written", err=True)
            return 0
        for problem in found.problems:
            click.echo(problem)
        click.echo(f"not whole: {_extent(found.footer)} can be read, up to a whole tick")
        if out is not None:
            footer = repair(file, out)
            click.echo(f"repaired: {out} has {_extent(footer)}, run root {footer.run_root.hex()}")
    except SessionError as refusal:
        complain(refusal)
        return NOT_STARTED
    return FAILED


def _extent(footer: "Footer") -> str:
    from rlmesh_trio.replay.told import counted

    return f"{counted(len(footer.episodes), 'episode')}, {counted(footer.ticks, 'tick')}"


@click.command("canon")
@click.argument("file", metavar="FILE")
@click.argument("out", metavar="OUT")
def canon_command(file: str, out: str) -> int:
    """Write the canonical form of the recording FILE to OUT, and print its run root.

    It has the episodes in order of their ordinals, as if one lane had played them all, without ids, times, earlier
    attempts and what else equal runs may do differently: equal runs have one file, byte for byte.

    Exit status: 0 written; 2 not, and why.
    """
    from rlmesh_trio.recording import canon

    try:
        open_whole(file).container.close()
        click.echo(canon(file, out).run_root.hex())
    except SessionError as refusal:
        return refuse(refusal)
    return 0


def open_whole(file: str) -> "Recording":
    """Open the recording *file*; raises :exc:`RecordingError` for a broken one, too."""
    from rlmesh_trio.recording import open_recording

    recording = open_recording(file)
    if recording.damage:
        recording.container.close()
        raise RecordingError(file, recording.damage)
    return recording


def refuse(refusal: SessionError) -> int:
    """Tell *refusal*, and how a broken recording is made whole if it is one; the exit status."""
    from rlmesh_trio.recording import open_recording

    advice = ""
    if isinstance(refusal, RecordingError):
        with contextlib.suppress(SessionError), open_recording(refusal.path, by_index=False) as recording:
            if recording.damage:
                advice = "rlmesh-trio replay verify FILE --repair OUT writes a whole one of what can be read"
    complain(refusal, advice)
    return NOT_STARTED


@click.command("diff")
@click.argument("recorded", metavar="A")
@click.argument("now", metavar="B")
@comparing_options(
    recorded="what A was recorded with", force="Compare the episodes even if the env's contract or edition differs."
)
@click.option("--json", "as_json", is_flag=True, help="Print what was found as JSON, all of it.")
def diff_command(
    recorded: str,
    now: str,
    tolerances: Sequence[str],
    ignored: Sequence[str],
    stats: bool,
    force: bool,
    as_json: bool,
) -> int:
    """Compare the recording B with the recording A: whether the same happened, and if not where first and by how much.

    Episodes are paired by their ordinals, whatever lanes they ran on, and compared to the last bit. Values are shown
    where both were recorded with observations (--record-level full). Flags, lengths and discrete leaves are exact
    whatever the tolerance. --stats tests whether returns or lengths are higher on one side (sign test).

    \b
    Examples:
      rlmesh-trio replay diff a.mcap b.mcap
      rlmesh-trio replay diff a.mcap b.mcap --tol ulp=4 --ignore info.score
      rlmesh-trio replay diff a.mcap b.mcap --tol leaf:obs.camera=abs=2

    Exit status: 0 equal, with --stats no sign of a difference; 1 something differs, be it only the env's contract, with
    --stats p below 0.01; 2 nothing was compared.
    """  # noqa: D301 - click wants the backspace itself
    if stats and (tolerances or ignored):
        raise click.UsageError("--stats compares no values: leave --tol and --ignore out")
    from rlmesh_trio.replay.tolerance import parse_tolerance

    try:
        tolerance = parse_tolerance(tolerances) if tolerances else None
        with open_whole(recorded) as before, open_whole(now) as after:
            if not force and (status := _contract_told(before, after, as_json=as_json)):
                return status
            if stats:
                return _stats_told(before, after, as_json=as_json)
            return _difference_told(before, after, tolerance, ignored, as_json=as_json)
    except SessionError as refusal:
        return refuse(refusal)


def _contract_told(before: "Recording", after: "Recording", *, as_json: bool) -> int:
    """Tell how contract and edition differ, if they do; the exit status then, else 0."""
    from rlmesh_trio.replay.contracts import header_differences
    from rlmesh_trio.replay.findings import Comparison
    from rlmesh_trio.replay.told import comparison_document, comparison_lines

    changed = Comparison(contract=header_differences(before.header, after.header))
    if changed.equal:
        return 0
    if as_json:
        click.echo(json_text(comparison_document(changed)), nl=False)
    else:
        click.echo("\n".join(comparison_lines(changed)))
        click.echo("--force compares the episodes all the same")
    return FAILED


def _difference_told(
    before: "Recording", after: "Recording", tolerance: "Tolerance | None", ignored: Sequence[str], *, as_json: bool
) -> int:
    from rlmesh_trio.replay.comparing import compare
    from rlmesh_trio.replay.told import comparison_document, comparison_lines

    comparison = compare(before, after, tolerance=tolerance, ignored=ignored)
    if as_json:
        click.echo(json_text(comparison_document(comparison)), nl=False)
    else:
        click.echo("\n".join(comparison_lines(comparison)))
    if not comparison.compared:
        return NOT_STARTED
    return 0 if comparison.equal else FAILED


def _stats_told(before: "Recording", after: "Recording", *, as_json: bool) -> int:
    from rlmesh_trio.replay.returns import compare_returns
    from rlmesh_trio.replay.told import returns_document, returns_lines

    compared = compare_returns(before, after)
    if as_json:
        click.echo(json_text(returns_document(compared)), nl=False)
    else:
        click.echo("\n".join(returns_lines(compared)))
    if not compared.pairs:
        return NOT_STARTED
    return FAILED if compared.differs else 0
