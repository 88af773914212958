"""``rlmesh-trio replay FILE``: play a recording again and say whether the same happens."""

import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import click
import trio

from rlmesh_trio.cli.columns import folded, screen
from rlmesh_trio.cli.comparing_options import comparing_options
from rlmesh_trio.cli.complaints import INTERRUPTED_TEXT, complain, show_traceback
from rlmesh_trio.cli.default_command import DEFAULT_COMMAND
from rlmesh_trio.cli.exit_status import FAILED
from rlmesh_trio.cli.messages_shown import shown_messages
from rlmesh_trio.cli.output_file import JsonOutput
from rlmesh_trio.cli.parameters import duration, json_output, record_level, recording, token_option
from rlmesh_trio.cli.replay_files import open_whole, refuse
from rlmesh_trio.cli.report_json import json_text
from rlmesh_trio.errors import SessionError

if TYPE_CHECKING:
    from rlmesh_trio.cli.replay_job import Outcome
    from rlmesh_trio.recording import Recording

__all__ = ("run_command",)


@click.command(DEFAULT_COMMAND, hidden=True)
@click.argument("file", metavar="FILE")
@click.argument("env", metavar="[ENV]", required=False)
@click.option("--model", metavar="M", help="random, zero, a model server's address, or module:name.")
@token_option
@click.option(
    "--episode", "episodes", metavar="K", type=click.IntRange(1), multiple=True, help="Play only this one. Repeatable."
)
@click.option("--until", metavar="STEP", type=click.IntRange(0), help="Play no episode past this step; for ENV alone.")
@click.option(
    "--runs",
    metavar="N",
    type=click.IntRange(1),
    default=1,
    help="Play N times, and compare the plays with each other too.  [default: 1]",
)
@click.option("--blame", is_flag=True, help="If it differs, find out whether ENV or M is to blame.")
@click.option(
    "--bisect/--no-bisect",
    default=True,
    help="Find the earlier episodes without which the one that differs would not.  [default: yes]",
)
@click.option("--lanes", metavar="L", type=click.IntRange(1), help="Copies of a local ENV to play on.")
@click.option(
    "--level", metavar="L", type=record_level, help="What to record: digest, ring=K or full.  [default: as recorded]"
)
@comparing_options(recorded="as recorded", force="Play even if the env's contract or edition is not the recorded one.")
@click.option(
    "--record", metavar="OUT", type=recording, help="Keep the recording of the play, with --runs of the first."
)
@click.option("--merge-rows", is_flag=True, help="Ask a model server about all waiting lanes in one forward.")
@click.option("--fixed-batch", is_flag=True, help="Ask a policy of this process about as many rows every time.")
@click.option("--step-timeout", metavar="X", type=duration, help="Limit of one step.  [default: 300s]")
@click.option("--reset-timeout", metavar="X", type=duration, help="Limit of one reset.  [default: 300s]")
@click.option("--predict-timeout", metavar="X", type=duration, help="Limit of one prediction.  [default: 300s]")
@click.option(
    "--json",
    "document",
    metavar="[FILE]",
    type=json_output,
    is_flag=False,
    flag_value="-",
    help="Write what was found as JSON, without FILE to standard output.",
)
@click.option("--quiet", is_flag=True, help="Print nothing but errors.")
@click.option("--debug", is_flag=True, help="Show tracebacks and everything that is logged.")
def run_command(file: str, document: JsonOutput | None, quiet: bool, debug: bool, **options: Any) -> int:
    """Play the recording FILE again, and say whether the same happens; if not, where first, by how much, and why.

    \b
      replay FILE ENV --model M   the run: same seeds and settings, both live
      replay FILE ENV             the recorded actions into the env
      replay FILE --model M       the recorded observations into the model
                                  (run --record-level full)

    ENV and M are what they are to rlmesh-trio run. Episodes are compared to the last bit, whatever lanes they run on.
    Of the first episode that differs you see the first step that does. Where only digests were recorded, it is played
    twice up to that step, to show values. Then it is played alone, and if it is as recorded then, after as few of the
    earlier episodes as it takes to differ.

    --blame plays a run that differs in the two other ways as well. A model alone is asked in the recorded batches, and
    then row by row: that tells answers that depend on the batch from random ones.

    \b
    Examples:
      rlmesh-trio replay run.mcap CartPole-v1 --model my_policy:Policy --blame
      rlmesh-trio replay run.mcap localhost:5555 --episode 17 --until 212

    \b
    Other commands, each with --help of its own:
      rlmesh-trio replay show run.mcap
      rlmesh-trio replay diff a.mcap b.mcap
      rlmesh-trio replay verify run.mcap
      rlmesh-trio replay canon run.mcap out.mcap
      rlmesh-trio replay export run.mcap out.parquet --to parquet

    Exit status: 0 equal; 1 something differs, be it only the env's contract, or the play broke off; 2 nothing was
    compared; 130 interrupted. Ctrl-C ends the play in order, and what was compared by then is told.
    """  # noqa: D301 - click wants the backspace itself
    try:
        with open_whole(file) as recorded:
            _refuse_nothing_live(file, recorded, options)
            from rlmesh_trio.cli.replay_again import again_command
            from rlmesh_trio.cli.replay_job import ReplayJob, replay_job

            job = ReplayJob(**options)
            show_progress = not quiet and sys.stderr.isatty()
            with shown_messages(quiet=quiet, debug=debug):
                outcome = trio.run(lambda: replay_job(job, recorded, show_progress=show_progress))
            again = again_command(file, job, recorded, outcome.judgement)
    except SessionError as refusal:
        return refuse(refusal)
    return _told(outcome, again, document, quiet=quiet, debug=debug)


def _refuse_nothing_live(file: str, recorded: "Recording", options: Mapping[str, Any]) -> None:
    """Say what is to be named when nothing is."""
    if options["env"] is not None or options["model"] is not None:
        return
    from rlmesh_trio.recording.records import CASE

    if CASE in recorded.header.settings:
        raise click.UsageError(
            f"{file} is of a failed conformance case: rlmesh-trio conform replay FILE TARGET tries it again, and with "
            "ENV its requests are played here"
        )
    raise click.UsageError(
        f"{file} is of {recorded.header.contract.env_id}: name what is to play it again, ENV and --model M for the "
        "run, ENV alone for its actions, or --model M alone for its observations"
    )


def _told(outcome: "Outcome", again: str, document: JsonOutput | None, *, quiet: bool, debug: bool) -> int:
    """Show *outcome* and the command to go on with; the exit status."""
    from rlmesh_trio.replay.judgement_told import judgement_document, judgement_lines

    status = outcome.status
    if document is not None:
        try:
            document.write(json_text(judgement_document(outcome.judgement) | {"next": again or None}))
        except OSError as failure:
            complain(click.ClickException(f"what was found could not be written: {failure.strerror or failure}"))
            status = max(status, FAILED)
    if not quiet and not (document is not None and document.is_stdout):
        _print(judgement_lines(outcome.judgement), again)
    if outcome.judgement.is_refused:
        complain(click.ClickException("it was not played: --force plays it all the same"))
    elif outcome.error is not None and not outcome.interrupted:
        if debug:
            show_traceback(outcome.error)
        complain(outcome.error)
    elif outcome.interrupted:
        complain(click.ClickException(INTERRUPTED_TEXT))
    return status


def _print(lines: Sequence[str], again: str) -> None:
    """Print *lines*, at a terminal none too long for it, but for the command, which has to be copied in one piece."""
    width = screen().columns if sys.stdout.isatty() else 0
    for line in lines:
        click.echo("\n".join(folded(line, width)) if width else line)
    if again:
        click.echo(f"next: {again}")
