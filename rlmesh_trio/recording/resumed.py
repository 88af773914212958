"""Going on from a recording: what its run finished, and a recording that begins with all that it holds."""

import os
import time

import attrs

from rlmesh_trio.recording.appearing import appearing
from rlmesh_trio.recording.reader import Recording, open_recording
from rlmesh_trio.recording.records import Header, Mishap
from rlmesh_trio.recording.writer import RecordingWriter
from rlmesh_trio.report import EpisodeSummary, Incident

__all__ = ("Recorded", "continue_recording", "read_recorded")


@attrs.frozen
class Recorded:
    """What a run left in its recording: the episodes it counted as finished, and what it recovered from, in order."""

    header: Header
    episodes: tuple[EpisodeSummary, ...]
    incidents: tuple[Incident, ...]


def read_recorded(path: str | os.PathLike[str]) -> Recorded:
    """What the recording at *path* tells of its run, also one that a killed process left.

    Raises :exc:`RecordingError` for a file that cannot be read to its end or to where it was cut off.
    """
    episodes: dict[int, EpisodeSummary] = {}
    incidents: list[Incident] = []
    with open_recording(path) as recording:
        for decision in recording.decisions():
            match decision.what:
                case EpisodeSummary() as summary:
                    episodes[summary.episode_index] = summary
                case Mishap(kind=("retry" | "quarantine" | "reconnect") as kind) as told:
                    incidents.append(
                        Incident(
                            kind,
                            told.lane,
                            told.ordinal or None,
                            told.episode_id or None,
                            told.attempt,
                            told.error,
                            told.message,
                        )
                    )
                case _:
                    pass
        return Recorded(recording.header, tuple(episodes.values()), tuple(incidents))


def continue_recording(
    earlier: str | os.PathLike[str], path: str | os.PathLike[str], header: Header, *, chunk_seconds: float | None = None
) -> RecordingWriter:
    """A writer to *path* whose recording holds what the one at *earlier* does, its episodes under way broken off.

    *path* may be *earlier* itself. It appears whole, in place of what was there: a crash meanwhile loses nothing.
    Raises :exc:`RecordingError` when either file cannot be read or written.
    """
    with open_recording(earlier) as recording, appearing(path, header, chunk_seconds=chunk_seconds) as writer:
        writer.copy(recording)
        writer.break_off()
        writer.record_decision(time.time_ns(), Mishap("resumed", 0, 0, "", _elsewhere(recording, header)))
    return writer


def _elsewhere(recording: Recording, header: Header) -> str:
    """In what the machine differs that recorded the part before."""
    before, now = recording.header.machine, header.machine
    return ", ".join(
        f"{name} was {before.get(name, 'not set')}"
        for name in sorted(before.keys() | now)
        if before.get(name) != now.get(name)
    )
