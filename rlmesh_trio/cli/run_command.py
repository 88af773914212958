"""``rlmesh-trio run``: drive an env with a model, and show what came of it."""

import contextlib
import os
import sys
from collections.abc import Generator, Mapping
from typing import Any, get_args

import click
import trio

from rlmesh_trio.cli.comparing_options import tolerance_option
from rlmesh_trio.cli.complaints import INTERRUPTED_TEXT, complain, show_traceback
from rlmesh_trio.cli.exit_status import FAILED
from rlmesh_trio.cli.going_on import how_to_go_on
from rlmesh_trio.cli.messages_shown import shown_messages
from rlmesh_trio.cli.output_file import JsonOutput
from rlmesh_trio.cli.parameters import (
    INT64,
    duration,
    journal,
    json_output,
    record_level,
    recording,
    recovery,
    resumed,
    seeds,
    token_option,
)
from rlmesh_trio.cli.report_json import json_text, report_document
from rlmesh_trio.cli.run_job import Outcome, RunJob, run_job
from rlmesh_trio.cli.summary import print_rows, recording_row, summary_rows
from rlmesh_trio.endpoints.local_env import Where
from rlmesh_trio.one_call import Run
from rlmesh_trio.spec import MAX_HORIZON

__all__ = ("run_command",)


@click.command("run", short_help="Run episodes of an env with a model.")
@click.argument("env", metavar="ENV")
@click.option(
    "--model",
    metavar="M",
    default="random",
    show_default=True,
    help="random, zero, a model server's address, or module:name.",
)
@token_option
@click.option(
    "--episodes",
    metavar="N",
    type=click.IntRange(1),
    help="How many episodes.  [default: as many as --seeds, else 10]",
)
@click.option(
    "--lanes", metavar="L", type=click.IntRange(1), help="Copies of a local env that run at once.  [default: 1]"
)
@click.option(
    "--where",
    metavar="W",
    type=click.Choice(get_args(Where)),
    help="Where a local env runs: inline, its lanes in turn; thread; or process, for envs that compute or crash.  "
    "[default: inline, or thread with a timeout]",
)
@click.option(
    "--merge-rows",
    is_flag=True,
    help="Ask a model server about all waiting lanes in one forward; for models that take batches and keep no state.",
)
@click.option("--seed", metavar="S", type=INT64, help="Derive the seed of every reset from this number.")
@click.option("--seeds", metavar="A,B,…", type=seeds, help="The seeds themselves, one per episode.")
@click.option(
    "--session-id",
    metavar="ID",
    default="local",
    show_default=True,
    help="A name for the run; the seeds that --seed gives depend on it too.",
)
@click.option(
    "--horizon",
    metavar="H",
    type=click.IntRange(1, MAX_HORIZON),
    default=1,
    show_default=True,
    help="Actions played of each prediction, before the model is asked again.",
)
@click.option(
    "--prefetch",
    metavar="P",
    type=click.IntRange(0, MAX_HORIZON),
    default=0,
    show_default=True,
    help="Ask for the next actions while this many are still to be played: they answer an observation that much older.",
)
@click.option(
    "--max-steps", metavar="N", type=click.IntRange(1, 2**63 - 1), help="Truncate episodes after this many steps."
)
@click.option("--max-seconds", metavar="X", type=duration, help="Truncate episodes after this time.")
@click.option("--step-timeout", metavar="X", type=duration, help="Limit of one step.  [default: 300s]")
@click.option("--reset-timeout", metavar="X", type=duration, help="Limit of one reset.  [default: 300s]")
@click.option("--predict-timeout", metavar="X", type=duration, help="Limit of one prediction.  [default: 300s]")
@click.option(
    "--on-env-error",
    metavar="P",
    type=recovery,
    default="fail",
    show_default=True,
    help="What follows a failed step or reset: fail, retry, retry:N (3) or quarantine.",
)
@click.option(
    "--on-timeout",
    metavar="P",
    type=recovery,
    default="fail",
    show_default=True,
    help="What follows a step or reset that took longer than its limit: one of the same.",
)
@click.option("--journal", metavar="FILE", type=journal, help="Write a line for each finished episode, at once.")
@click.option(
    "--resume",
    metavar="FILE",
    type=resumed,
    help="Play only the episodes that are missing in the journal, JSON report or recording of an earlier run.",
)
@click.option(
    "--record",
    metavar="FILE",
    type=recording,
    help="Record what was asked and answered, to be replayed and compared.  [needs rlmesh_trio[mcap]]",
)
@click.option(
    "--record-level",
    metavar="L",
    type=record_level,
    default="digest",
    show_default=True,
    help="What it holds of observations: digest, ring=K (also the last K of an episode that fails) or full.",
)
@click.option(
    "--ignore-leaf",
    "ignored_leaves",
    metavar="PATH",
    multiple=True,
    help="An observation leaf that differs in every run: the recording's roots leave it out. Repeatable.",
)
@click.option(
    "--ignore-info",
    "ignored_infos",
    metavar="KEY",
    multiple=True,
    help="The same for an info, as key or outer.inner. Repeatable.",
)
@tolerance_option(
    "How far values may differ from the recording's when it is compared: exact, ulp=N or abs=X,rel=Y; one leaf's with "
    "leaf:PATH= before it. Repeatable."
)
@click.option(
    "--fixed-batch",
    is_flag=True,
    help="Ask a policy of this process about as many rows as there are lanes every time: the number can change "
    "its answers' last bits.",
)
@click.option(
    "--seed-every-episode",
    is_flag=True,
    help="Where the env restarts finished lanes itself, reset them all the same, each with its episode's seed.",
)
@click.option(
    "--partial-reset",
    is_flag=True,
    help="Of a vector env that restarts no lanes itself, reset just those that are finished.",
)
@click.option("--close-env", is_flag=True, help="Close the env itself at the end, not just this session with it.")
@click.option(
    "--json", "report_output", metavar="FILE", type=json_output, help="Write the report as JSON; - is standard output."
)
@click.option("--quiet", is_flag=True, help="Print nothing but errors.")
@click.option("--debug", is_flag=True, help="Show tracebacks and everything that is logged.")
def run_command(report_output: JsonOutput | None, quiet: bool, debug: bool, **options: Any) -> int:
    """Run episodes of ENV with a model and show what came of them.

    ENV is a server's address (host:port, tcp://host:port, unix:///path), a gymnasium id (CartPole-v1), or
    module:factory: a function that makes an env, found in the working directory too.

    --model names a policy of your own as module:name. A function gets a batch of observations, one row per lane, and
    returns one action per row; a class may define predict for one row, predict_batch, predict_chunk or
    predict_chunk_batch.

    Durations are seconds, or a number with a unit: 250ms, 10s, 15m, 2h. An env or a policy of this process runs in a
    thread when you set its timeout, so that it can be left when it hangs. A server has 10 s to come up.

    After a failure, retry plays the episode again, at most N times. quarantine gives it to another lane and plays no
    more on the one that failed: use it, with --lanes, for envs of this process that may hang. A server that was lost
    has 60 s to come back.

    To go on with a run that stopped, give the same command with --resume FILE; where it has --journal or --record too,
    that file is continued. It must be the same run, but may ask for more --episodes.

    A recording holds every action, reward and flag, a digest of every observation, and one root for the whole run:
    equal runs have equal roots, whatever their lanes and timing.

    \b
    Examples:
      rlmesh-trio run CartPole-v1 --episodes 64 --lanes 8 --seed 7
      rlmesh-trio run localhost:5555 --model my_policy:Policy --json report.json
      rlmesh-trio run my_envs:make --model zero --seeds 1,2,3 --max-steps 500
      rlmesh-trio run localhost:5555 --journal run.jsonl --on-env-error retry
      rlmesh-trio run localhost:5555 --journal run.jsonl --resume run.jsonl
      rlmesh-trio run CartPole-v1 --episodes 100 --seed 7 --record run.mcap

    Exit status: 0 done; 1 the run failed; 2 nothing was started; 130 interrupted. Ctrl-C ends the run in order and
    reports what was finished; a second one ends it at once.
    """  # noqa: D301 - click wants the backspace itself
    job = RunJob(**options)
    _refuse_same_files(
        {"--json": report_output and report_output.file, "--journal": job.journal, "--record": job.record}
    )
    reports_on_stdout = report_output is not None and report_output.is_stdout
    with shown_messages(quiet=quiet, debug=debug) as messages, _kept_clean(reports_on_stdout):
        outcome = trio.run(lambda: run_job(job, show_progress=not quiet and sys.stderr.isatty()))
    if outcome.error is None:
        messages.show_held()
    status, report_file = outcome.status, None
    if outcome.run is not None:
        if report_output is not None and _written(report_output, outcome.run, outcome):
            report_file = report_output.file
        elif report_output is not None:
            status = max(status, FAILED)
        if not quiet and not reports_on_stdout:
            _show(job, outcome.run, outcome)
    if outcome.error is not None:
        if debug:
            show_traceback(outcome.error)
        complain(outcome.error, how_to_go_on(job, outcome, report_file))
    elif outcome.interrupted:
        complain(click.ClickException(INTERRUPTED_TEXT))
    return status


def _refuse_same_files(places: Mapping[str, str | None]) -> None:
    taken: dict[str, str] = {}
    for option, name in places.items():
        if name is not None:
            first = taken.setdefault(os.path.realpath(name), option)
            if first != option:
                raise click.UsageError(f"{first} and {option} name the same file")


def _written(output: JsonOutput, run: Run, outcome: Outcome) -> bool:
    resumed = len(run.spec.finished)
    document = report_document(
        run.report, outcome.wall_seconds, outcome.error, facts=run.facts, resumed=resumed, recorder=run.recorder
    )
    try:
        output.write(json_text(document))
    except OSError as failure:
        complain(click.ClickException(f"the report could not be written: {failure.strerror or failure}"))
        return False
    return True


def _show(job: RunJob, run: Run, outcome: Outcome) -> None:
    resumed = len(run.spec.finished)
    rows = summary_rows(run.report, outcome.wall_seconds, asked=job.asked, lanes=outcome.lanes, resumed=resumed)
    if run.recorder is not None:
        rows.append(recording_row(run.recorder))
    print_rows(f"{outcome.env_name} with {job.model}", rows)


@contextlib.contextmanager
def _kept_clean(reserved: bool) -> Generator[None]:
    """While standard output is *reserved* for the report, what envs and policies print goes to standard error."""
    if not reserved:
        yield
        return
    with contextlib.redirect_stdout(sys.stderr):
        yield
