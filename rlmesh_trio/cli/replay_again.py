"""Which command looks closer at what was found when a recording was played again."""

import shlex
from collections.abc import Iterator
from typing import Final

import attrs

from rlmesh_trio.cli.replay_job import ReplayJob
from rlmesh_trio.recording.reader import Recording
from rlmesh_trio.recording.records import CASE
from rlmesh_trio.replay.bisection import acts_otherwise
from rlmesh_trio.replay.findings import Divergence
from rlmesh_trio.replay.judging import Judgement
from rlmesh_trio.transport.address import is_address

__all__ = ("again_command",)


_MOST_EPISODES: Final = 16


@attrs.frozen
class _Again:
    """What a command plays."""

    env: str | None
    model: str | None
    episodes: tuple[int, ...] = ()
    until: int | None = None
    blame: bool = False


def again_command(file: str, job: ReplayJob, recording: Recording, found: Judgement) -> str:
    """The command that plays the first episode of *found* that differs, and as little else as it takes.

    Empty when there is none, and when it would be *job*'s own.
    """
    parts_at = None if found.played is None else found.played.parts_at
    if parts_at is None or job.stats:
        return ""
    if CASE in recording.header.settings:
        return shlex.join(["rlmesh-trio", "conform", "replay", file, job.env or "TARGET"])
    again = _again(job, recording, found, parts_at)
    if again in (None, _Again(job.env, job.model, job.episodes, job.until, job.blame)):
        return ""
    return shlex.join(["rlmesh-trio", "replay", file, *_words(again, job)])


def _again(job: ReplayJob, recording: Recording, found: Judgement, parts_at: Divergence) -> _Again | None:
    """What is to be played; ``None`` when the episode does not differ by itself, and what it hangs on is too much."""
    ordinal, cause, by_model = parts_at.ordinal, found.cause, acts_otherwise(parts_at)
    if cause is not None and cause.kind in ("after", "unknown"):
        if not 0 < len(cause.episodes) <= _MOST_EPISODES:
            return None
        return _Again(job.env, job.model if by_model else None, (*cause.episodes, ordinal))
    if not by_model:
        return _Again(job.env, None, (ordinal,), (parts_at.beyond or parts_at.first).step)
    if recording.header.level == "full" or job.env is None:
        return _Again(None, job.model, (ordinal,))
    return _Again(job.env, job.model, job.episodes, blame=True)


def _words(again: _Again, job: ReplayJob) -> Iterator[str]:
    """What stands behind the file."""
    if again.env is not None:
        yield again.env
    if again.model is not None:
        yield from ("--model", again.model)
        yield from (
            name for name, given in (("--merge-rows", job.merge_rows), ("--fixed-batch", job.fixed_batch)) if given
        )
    if again.env is not None and again.model is not None and not is_address(again.env):
        lanes = job.lanes if again.blame else 1  # What an episode hangs on was played on one lane.
        yield from () if lanes is None else ("--lanes", str(lanes))
    for ordinal in again.episodes:
        yield from ("--episode", str(ordinal))
    if again.until is not None:
        yield from ("--until", str(again.until), "--level", "full")
    if again.blame:
        yield "--blame"
    for name, given in (("--tol", job.tolerances), ("--ignore", job.ignored)):
        for each in given:
            yield from (name, each)
    if job.force:
        yield "--force"
