"""The journal of a run: a header, then one JSON line for each finished episode, on disk before the next one begins.

What a killed process loses is the episodes in flight. Its last line may then be cut short: a reader drops it, and
whoever goes on with the file cuts it off. Every other line is whole, or the file is refused.
"""

import os
from collections.abc import Sequence
from types import TracebackType
from typing import Any, Final, Literal, Self

import attrs

from rlmesh_trio.errors import InvalidSpec
from rlmesh_trio.events import EpisodeCompleted, IncidentHappened, SessionEnded, SessionFailed
from rlmesh_trio.hooks import Hooks
from rlmesh_trio.observers.identity import refuse_other_run, run_facts
from rlmesh_trio.observers.line_file import LineFile
from rlmesh_trio.observers.records import as_object, decode_record, json_line, parse_object, read_file
from rlmesh_trio.report import EpisodeSummary, Incident
from rlmesh_trio.spec import SessionSpec

__all__ = (
    "JOURNAL_VERSION",
    "Journal",
    "JournalEnding",
    "JournalHeader",
    "JournalHooks",
    "parse_journal",
    "read_journal",
)

JOURNAL_VERSION: Final = 1
_EPISODE_FIELDS: Final = tuple(field.name for field in attrs.fields(EpisodeSummary))


@attrs.frozen
class JournalHeader:
    """Which run it is. ``run`` holds the facts that a run which goes on with it must share, by name.

    A run that went on with more episodes has left its own facts there.
    """

    schema_version: int
    session_id: str
    env_id: str
    num_envs: int
    run: dict[str, Any]


@attrs.frozen
class JournalEnding:
    """How the run ended. ``total_steps`` counts group steps, and is ``None`` for one that failed."""

    kind: Literal["ended", "failed"]
    reason: str
    total_steps: int | None
    total_episodes: int


@attrs.frozen
class Journal:
    """A journal read back. Episodes stand in the order they finished; a run that was killed has no ``ending``."""

    header: JournalHeader
    episodes: tuple[EpisodeSummary, ...]
    incidents: tuple[Incident, ...]
    ending: JournalEnding | None


class JournalHooks(Hooks):
    """Writes the journal of one run to *path*; a context manager that closes the file.

    A new or empty file gets a header and what is known of the run already: *incidents*, and the ``finished`` episodes
    of *spec*. So does a journal without an episode. Any other one is continued, if it is of the same run.
    Raises :exc:`InvalidSpec`, before anything is written, for a file that cannot be written, is no journal, is of
    another run, is being written by one, or holds episodes that are not among the ``finished`` ones.

    A line is written inside the hook: one write, some 10 us, which survives a kill of the process. Once a second at
    most it is also synced to the disk, which survives a crash of the machine and may take milliseconds. A line that
    cannot be written, for want of space say, fails nothing: it is tried again with each later one, and in the end.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        spec: SessionSpec,
        *,
        execution_horizon: int = 1,
        prefetch_lead: int = 0,
        incidents: Sequence[Incident] = (),
    ) -> None:
        self.path = os.fspath(path)
        facts = run_facts(spec, execution_horizon=execution_horizon, prefetch_lead=prefetch_lead)
        header = JournalHeader(JOURNAL_VERSION, spec.session_id, spec.env_id, spec.num_envs, facts)
        self._file = LineFile(self.path, "journal")
        try:
            self._begin(self._file.read(), header, spec.finished, incidents)
        except BaseException:
            self._file.close()
            raise

    def _begin(
        self, data: bytes, header: JournalHeader, finished: Sequence[EpisodeSummary], incidents: Sequence[Incident]
    ) -> None:
        journal = parse_journal(self.path, data) if data else None
        held: set[int] = set()
        if journal is None or not journal.episodes:
            kept = 0
            opening = [{"kind": "header"} | attrs.asdict(header, recurse=False), *map(attrs.asdict, incidents)]
        else:
            refuse_other_run(self.path, journal.header.run, header.run)
            held = {summary.episode_index for summary in journal.episodes}
            if held - {summary.episode_index for summary in finished}:
                raise InvalidSpec(
                    f"journal {self.path} holds {len(held)} finished episodes of this run already: resume from it, or "
                    "name another file"
                )
            kept = data.rfind(b"\n") + 1
            opening = [{"kind": "resumed", "env_id": header.env_id, "run": header.run}]
        missing = [summary for summary in finished if summary.episode_index not in held]
        self._episodes = len(held) + len(missing)
        opening += ({"kind": "episode"} | attrs.asdict(summary) for summary in missing)
        self._file.begin(kept, b"".join(map(json_line, opening)))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the file; what was written stays."""
        self._file.close()

    @property
    def failure(self) -> OSError | None:
        """Why lines are missing in the file, if some are."""
        return self._file.failure

    async def episode_completed(self, event: EpisodeCompleted) -> None:
        """Write one episode."""
        self._episodes += 1
        self._file.append(json_line({"kind": "episode"} | {name: getattr(event, name) for name in _EPISODE_FIELDS}))

    async def incident_happened(self, event: IncidentHappened) -> None:
        """Write what the session recovered from."""
        self._file.append(json_line(attrs.asdict(event.incident)))

    async def session_ended(self, event: SessionEnded) -> None:
        """Write how it ended."""
        self._end(JournalEnding("ended", event.reason, event.total_steps, event.total_episodes))

    async def session_failed(self, event: SessionFailed) -> None:
        """Write how it ended."""
        self._end(JournalEnding("failed", event.reason, None, self._episodes))

    def _end(self, ending: JournalEnding) -> None:
        self._file.append(json_line(attrs.asdict(ending)), sync=True)


def read_journal(path: str | os.PathLike[str]) -> Journal:
    """The journal at *path*. Raises :exc:`InvalidSpec` that names the line which is none of a journal."""
    name = os.fspath(path)
    return parse_journal(name, read_file(name, "journal"))


def parse_journal(path: str, data: bytes) -> Journal:
    """The journal in *data*; *path* names it in the :exc:`InvalidSpec` for a line that is none of a journal."""
    reading = _Reading()
    *lines, _torn = data.split(b"\n")
    for number, line in enumerate(lines, 1):
        try:
            reading.take(parse_object(line))
        except ValueError as error:
            raise InvalidSpec(f"journal {path}, line {number}: {error}") from error
    if reading.header is None:
        raise InvalidSpec(f"journal {path} has no whole line, and so no finished episode: delete it, and start anew")
    return Journal(reading.header, tuple(reading.episodes.values()), tuple(reading.incidents), reading.ending)


@attrs.define
class _Reading:
    """A journal read so far."""

    header: JournalHeader | None = None
    episodes: dict[int, EpisodeSummary] = attrs.field(factory=dict[int, EpisodeSummary])
    incidents: list[Incident] = attrs.field(factory=list[Incident])
    ending: JournalEnding | None = None

    def take(self, line: dict[str, Any]) -> None:
        """Add one line; raises :exc:`ValueError` for one that cannot stand here."""
        kind = line.get("kind")
        fields = {name: value for name, value in line.items() if name != "kind"}
        if self.header is None:
            self.header = _read_header(kind, fields)
            return
        match kind:
            case "episode":
                summary = decode_record(EpisodeSummary, fields)
                if summary.episode_index in self.episodes:
                    raise ValueError(f"an earlier line has episode {summary.episode_index} already")
                self.episodes[summary.episode_index] = summary
            case "retry" | "quarantine" | "reconnect":
                self.incidents.append(decode_record(Incident, line))
            case "resumed":
                self.header = attrs.evolve(self.header, run=_run_of(line))
                self.ending = None
            case "ended" | "failed":
                self.ending = decode_record(JournalEnding, line)
            case _:
                raise ValueError(f"a journal has no lines of kind {kind!r} here")


def _run_of(line: dict[str, Any]) -> dict[str, Any]:
    if "run" not in line:
        raise ValueError("it has no 'run'")
    return as_object(line["run"])


def _read_header(kind: object, fields: dict[str, Any]) -> JournalHeader:
    if kind != "header":
        raise ValueError("a journal begins with its header")
    if fields.get("schema_version") != JOURNAL_VERSION:
        raise ValueError(f"schema_version is {fields.get('schema_version')!r}; this build reads {JOURNAL_VERSION}")
    return decode_record(JournalHeader, fields)
