"""What an earlier run finished, read from its journal, JSON report or recording: a later one plays only the rest."""

import os
from collections.abc import Mapping, Sequence
from typing import Any, Final, TypeVar, cast

import attrs

from rlmesh_trio.errors import InvalidSpec
from rlmesh_trio.observers.identity import refuse_other_run, run_facts
from rlmesh_trio.observers.journal import parse_journal
from rlmesh_trio.observers.records import as_object, decode_record, parse_object, read_file
from rlmesh_trio.recording.mcap_file import MCAP_MAGIC
from rlmesh_trio.recording.records import Header
from rlmesh_trio.recording.resumed import read_recorded
from rlmesh_trio.report import EpisodeSummary, Incident
from rlmesh_trio.spec import SessionSpec

__all__ = ("Finished", "read_finished", "read_report")

R = TypeVar("R", bound=attrs.AttrsInstance)

_REPORT_VERSION: Final = 1


@attrs.frozen
class Finished:
    """What an earlier run left in the file at ``path``: its finished episodes, by index, and what it recovered from.

    ``facts`` is every fact that decides which episodes are played. ``recording`` is the header, if it is a recording.
    """

    path: str
    facts: Mapping[str, Any]
    episodes: tuple[EpisodeSummary, ...]
    incidents: tuple[Incident, ...]
    recording: Header | None = None

    def check(self, spec: SessionSpec, *, execution_horizon: int = 1, prefetch_lead: int = 0) -> None:
        """Raise :exc:`InvalidSpec` that names the first fact in which a run of *spec* differs from the file's.

        *spec* may ask for more episodes.
        """
        facts = run_facts(spec, execution_horizon=execution_horizon, prefetch_lead=prefetch_lead)
        refuse_other_run(self.path, self.facts, facts)


def read_finished(path: str | os.PathLike[str]) -> Finished:
    """What the journal, JSON report or recording at *path* holds, told apart by what it begins with.

    Raises :exc:`InvalidSpec` for a file that cannot be read or is none of them, and for a line or an episode that is
    none; :exc:`~rlmesh_trio.recording.RecordingError` for a recording that is damaged before where it ends.
    """
    name = os.fspath(path)
    if _begins_a_recording(name):
        return _finished_in_recording(name)
    data = read_file(name, "the run to resume")
    if not data:
        raise InvalidSpec(f"{name} is empty: its run finished no episode, start it anew")
    if not _begins_a_journal(data):
        return _parse_report(name, data)
    journal = parse_journal(name, data)
    return Finished(name, journal.header.run, _by_index(journal.episodes), journal.incidents)


def _begins_a_recording(path: str) -> bool:
    try:
        with open(path, "rb") as stream:
            return stream.read(len(MCAP_MAGIC)) == MCAP_MAGIC
    except OSError:
        return False


def _finished_in_recording(path: str) -> Finished:
    recorded = read_recorded(path)
    if not recorded.header.settings:
        raise InvalidSpec(f"recording {path} does not say what run it is of, and cannot be resumed from")
    return Finished(path, recorded.header.settings, _by_index(recorded.episodes), recorded.incidents, recorded.header)


def read_report(path: str | os.PathLike[str]) -> Finished:
    """What the JSON report at *path* holds; raises :exc:`InvalidSpec` when it is none."""
    name = os.fspath(path)
    return _parse_report(name, read_file(name, "report"))


def _begins_a_journal(data: bytes) -> bool:
    try:
        return "kind" in parse_object(data.partition(b"\n")[0])
    except ValueError:
        return False


def _parse_report(path: str, data: bytes) -> Finished:
    try:
        facts, episodes, incidents = _report_parts(parse_object(data))
    except ValueError as error:
        raise InvalidSpec(f"{path} is neither a run's journal nor its JSON report: {error}") from error
    summaries = _records(EpisodeSummary, episodes, path, "episodes")
    return Finished(path, facts, _by_index(summaries), _records(Incident, incidents, path, "incidents"))


def _report_parts(report: dict[str, Any]) -> tuple[dict[str, Any], list[object], list[object]]:
    version, run, episodes, incidents = (
        report.get(name) for name in ("schema_version", "run", "episodes", "incidents")
    )
    if version != _REPORT_VERSION:
        raise ValueError(f"its schema_version is {version!r}; this build reads {_REPORT_VERSION}")
    match run, episodes, incidents:
        case dict(), list(), list():
            return cast("dict[str, Any]", run), cast("list[object]", episodes), cast("list[object]", incidents)
        case _:
            raise ValueError("it has no run, no episodes or no incidents")


def _records(kind: type[R], entries: Sequence[object], path: str, name: str) -> tuple[R, ...]:
    records: list[R] = []
    for number, fields in enumerate(entries, 1):
        try:
            records.append(decode_record(kind, as_object(fields)))
        except ValueError as error:
            raise InvalidSpec(f"report {path}, entry {number} of {name}: {error}") from error
    return tuple(records)


def _by_index(summaries: Sequence[EpisodeSummary]) -> tuple[EpisodeSummary, ...]:
    return tuple(sorted(summaries, key=lambda summary: summary.episode_index))
