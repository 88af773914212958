"""Recordings of runs: writing, reading, checking and mending them. Needs the extra ``mcap``."""

from rlmesh_trio.recording.canon import canon
from rlmesh_trio.recording.digests import SESSION_ENTRIES, Digester
from rlmesh_trio.recording.errors import RecordingError
from rlmesh_trio.recording.headers import header_of, machine_facts
from rlmesh_trio.recording.reader import Recording, open_recording
from rlmesh_trio.recording.recorder import Recorder
from rlmesh_trio.recording.records import (
    Batch,
    BatchRow,
    Decision,
    Episode,
    EpisodeEntry,
    Footer,
    Header,
    Kept,
    Mishap,
    Tick,
)
from rlmesh_trio.recording.repeatability import why_not_repeatable
from rlmesh_trio.recording.rows import Row
from rlmesh_trio.recording.verify import Verification, repair, verify
from rlmesh_trio.recording.wanted import Record
from rlmesh_trio.recording.writer import RecordingWriter

__all__ = (
    "SESSION_ENTRIES",
    "Batch",
    "BatchRow",
    "Decision",
    "Digester",
    "Episode",
    "EpisodeEntry",
    "Footer",
    "Header",
    "Kept",
    "Mishap",
    "Record",
    "Recorder",
    "Recording",
    "RecordingError",
    "RecordingWriter",
    "Row",
    "Tick",
    "Verification",
    "canon",
    "header_of",
    "machine_facts",
    "open_recording",
    "repair",
    "verify",
    "why_not_repeatable",
)
