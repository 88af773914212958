"""Short names for what the tests of the engine ask again and again."""

from rlmesh_trio.report import TelemetryRow, TelemetrySnapshot
from rlmesh_trio.testing.recording import EpisodeNumbers as Numbers
from rlmesh_trio.testing.recording import RecordingHooks as Recorder
from rlmesh_trio.testing.recording import events_of as of
from rlmesh_trio.testing.recording import numbered

__all__ = ("Numbers", "Recorder", "numbered", "of", "row")


def row(snapshot: TelemetrySnapshot | None, op: str, metric: str) -> TelemetryRow | None:
    """The row of one series, if it has any sample."""
    assert snapshot is not None
    return next((row for row in snapshot.rows if (row.op, row.metric) == (op, metric)), None)
