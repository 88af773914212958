"""How a run that was not completed can go on, told with its failure."""

import shlex

import attrs

from rlmesh_trio.cli.run_job import Outcome, RunJob
from rlmesh_trio.errors import InvalidSpec

__all__ = ("how_to_go_on",)


def how_to_go_on(job: RunJob, outcome: Outcome, report_file: str | None) -> str:
    """What to do next, in a few words; empty when nothing was finished, or nothing that *job* left can be resumed.

    *report_file* is where the report was written, if it was.
    """
    journal = None if outcome.lacks_lines else job.journal
    recording = None if outcome.lacks_recording else job.record
    file = recording or journal or report_file
    return f"the same command with --resume {shlex.quote(file)} goes on" if file and _resumable(job, outcome) else ""


def _resumable(job: RunJob, outcome: Outcome) -> bool:
    if outcome.run is None:
        return False
    episodes = outcome.run.report.episodes
    try:
        attrs.evolve(outcome.run.spec, finished=episodes).validate()
    except InvalidSpec:
        return False
    return 0 < len(episodes) < job.asked
