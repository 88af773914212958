"""The report as JSON, described by ``docs/report.schema.json``.

JSON has no NaN and no infinities: such a number is written as the text ``"NaN"``, ``"Infinity"`` or ``"-Infinity"``.
Bytes, which only an env's metadata may hold, are written in base64.
"""

from collections.abc import Mapping
from typing import Any

import attrs

from rlmesh_trio.cli.statistics import steps_per_second
from rlmesh_trio.errors import SessionError
from rlmesh_trio.observers.records import strict_json
from rlmesh_trio.recording.recorder import Recorder
from rlmesh_trio.report import Report

__all__ = ("SCHEMA_VERSION", "json_text", "report_document")

SCHEMA_VERSION = 1


def report_document(
    report: Report,
    wall_seconds: float,
    error: Exception | None,
    *,
    facts: Mapping[str, Any],
    resumed: int,
    recorder: Recorder | None = None,
) -> dict[str, Any]:
    """The document of one run; *error* is what failed it. Episodes are sorted by their index.

    *facts* decide which episodes are played; the first *resumed* of them are an earlier run's. *recorder* has finished
    the recording.
    """
    telemetry = report.telemetry
    document: dict[str, Any] = {
        "schema_version": SCHEMA_VERSION,
        "session_id": report.session_id,
        "env_id": report.env_id,
        "run": facts,
        "total_steps": report.total_steps,
        "total_episodes": report.total_episodes,
        "resumed_episodes": resumed,
        "wall_seconds": wall_seconds,
        "steps_per_second": steps_per_second(report.episodes[resumed:], wall_seconds),
        "episodes": [attrs.asdict(summary) for summary in sorted(report.episodes, key=lambda one: one.episode_index)],
        "telemetry": None if telemetry is None else attrs.asdict(telemetry),
        "advisories": [attrs.asdict(advisory) for advisory in report.advisories],
        "incidents": [attrs.asdict(incident) for incident in report.incidents],
    }
    if recorder is not None:
        footer = recorder.footer
        document["recording"] = {"path": recorder.path, "run_root": None if footer is None else footer.run_root.hex()}
    if error is not None:
        document["error"] = _error(error)
    return document


def _error(error: Exception) -> dict[str, Any]:
    told: dict[str, Any] = {"type": type(error).__name__, "message": str(error), "recoverable": False}
    if isinstance(error, SessionError):
        told["recoverable"] = error.recoverable
        if error.operation is not None:
            told["operation"] = error.operation
        if error.in_flight:
            told["in_flight"] = [attrs.asdict(episode) for episode in error.in_flight]
    return told


def json_text(document: dict[str, Any]) -> str:
    """*document* as strict JSON, one line feed at its end."""
    return strict_json(document, indent=2) + "\n"
