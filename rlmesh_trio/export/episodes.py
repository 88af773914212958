"""The episodes of a recording as data sets want them: which are exported, and each as transitions."""

import base64
import contextlib
import os
from collections.abc import Generator, Iterator, Mapping, Sequence
from importlib.metadata import version
from typing import Any, Final

import attrs

from rlmesh_trio.contract import ValueSpace
from rlmesh_trio.errors import ProtocolError
from rlmesh_trio.export.errors import ExportError
from rlmesh_trio.messages import Leaves, Metadata, MetaValue
from rlmesh_trio.observers.records import plain
from rlmesh_trio.recording import EpisodeEntry, Recording, Row, open_recording
from rlmesh_trio.spaces.metadata import plain_metadata

__all__ = (
    "Exported",
    "Played",
    "Source",
    "Transition",
    "is_step",
    "open_source",
    "plain_infos",
    "run_facts_of",
    "seed_of",
)

_BROKEN_OFF: Final = frozenset(("interrupted", "error"))
_CUT_OFF: Final = _BROKEN_OFF | {"capped"}


@attrs.frozen
class Exported:
    """What an export came to. ``remarks`` are one line each: what was left out, and what the format had no word for."""

    episodes: int
    steps: int
    remarks: tuple[str, ...]


@attrs.frozen(kw_only=True, eq=False)
class Transition:
    """One step that was answered. ``before`` is the observation acted on, ``after`` the one the env answered with.

    ``after`` is ``None`` where the recording has none of this episode's own: the env restarted the lane in that step.
    ``truncated`` is also true of the last step of an episode that the env did not end.
    """

    before: Leaves
    action: Leaves
    reward: float
    terminated: bool
    truncated: bool
    after: Leaves | None
    infos: Metadata | None


@attrs.frozen(eq=False)
class Played:
    """One episode. ``first`` is its reset."""

    entry: EpisodeEntry
    first: Row
    _recording: Recording

    @property
    def seed(self) -> int | None:
        """What it was reset with; ``None`` for an episode that nobody seeded."""
        return seed_of(self.first)

    def transitions(self) -> Iterator[Transition]:
        """Its steps in order, one at a time; requests that failed or were never answered are none.

        Raises :exc:`ExportError` where an observation is missing before the end.
        """
        before, waiting = _own(self.first.observation), None
        for number, row in enumerate(filter(is_step, self._recording.rows(self.entry.ordinal)), 1):
            if waiting is not None:
                yield waiting
            if before is None:
                why = f"episode {self.entry.ordinal} has no observation before its step {number}"
                raise ExportError(self._recording.path, why)
            after = _own(row.observation)
            waiting = Transition(
                before=before,
                action=_own(row.action) or (),
                reward=row.reward or 0.0,
                terminated=bool(row.terminated),
                truncated=bool(row.truncated),
                after=after,
                infos=row.infos,
            )
            before = after
        if waiting is not None:
            yield attrs.evolve(waiting, truncated=waiting.truncated or self.entry.end in _CUT_OFF)


@attrs.frozen(eq=False)
class Source:
    """An open recording and the episodes of it that are exported, in order of ordinals."""

    recording: Recording
    entries: tuple[EpisodeEntry, ...]
    observation_space: ValueSpace
    action_space: ValueSpace
    remarks: list[str] = attrs.field(factory=list[str])

    def played(self) -> Iterator[Played]:
        """The episodes with at least one step. In the end remarks are made of the others, and of those cut off.

        Raises :exc:`ExportError` when there was none.
        """
        empty: list[int] = []
        cut: list[int] = []
        for entry in self.entries:
            rows = self.recording.rows(entry.ordinal)
            first = next(rows)
            if next(filter(is_step, rows), None) is None:
                empty.append(entry.ordinal)
                continue
            if entry.end in _BROKEN_OFF:
                cut.append(entry.ordinal)
            yield Played(entry, first, self.recording)
        if empty:
            self.remarks.append(f"left out: {_counted(empty)} without a step")
        if cut:
            self.remarks.append(f"told as truncated: {_counted(cut)} that an interruption or an error cut off")
        if len(empty) == len(self.entries):
            raise self.without_episodes()

    def without_episodes(self) -> ExportError:
        """The error of a recording of which nothing can be exported."""
        return ExportError(self.recording.path, "; ".join(["it holds no episode to export", *self.remarks]))


@contextlib.contextmanager
def open_source(path: str | os.PathLike[str], *, everything: bool, observations_for: str = "") -> Generator[Source]:
    """Open the recording at *path* for an export; *everything* takes episodes that ended in an error too.

    *observations_for* names who needs the observations themselves, if somebody does. Raises :exc:`RecordingError` for a
    file that is no recording, :exc:`ExportError` for one that holds no episode to export, or not what is needed.
    """
    with open_recording(path) as recording:
        header, contract = recording.header, recording.header.contract
        if observations_for and header.level != "full":
            raise ExportError(
                recording.path,
                f"its level is {header.level}, and {observations_for} needs the observations: record the run with "
                "--record-level full",
            )
        if contract.observation_space is None or contract.action_space is None:
            raise ExportError(recording.path, "its env declares no spaces, so that its values cannot be read")
        entries = [recording.entries[ordinal] for ordinal in sorted(recording.entries)]
        failed = [] if everything else [entry.ordinal for entry in entries if entry.end == "error"]
        kept = tuple(entry for entry in entries if entry.ordinal not in failed)
        source = Source(recording, kept, contract.observation_space, contract.action_space)
        if recording.damage:
            source.remarks.append(f"the recording is not whole: {recording.damage}")
        if failed:
            source.remarks.append(f"left out: {_counted(failed)} that ended in an error; --all exports them too")
        if not kept:
            raise source.without_episodes()
        yield source


def seed_of(first: Row) -> int | None:
    """What the episode that begins with the row *first* was reset with, if somebody seeded it."""
    return next(iter(first.reset.seeds), None) if first.reset is not None else None


def is_step(row: Row) -> bool:
    """Whether *row* is a step that was answered."""
    return row.reset is None and row.error is None and row.answered


def _own(leaves: Leaves | None) -> Leaves | None:
    """*leaves* copied: a view of one lane's row keeps the rows of all lanes."""
    return None if leaves is None else [bytes(leaf) for leaf in leaves]


def _counted(ordinals: Sequence[int]) -> str:
    named = ", ".join(map(str, ordinals[:10])) + (", …" if len(ordinals) > 10 else "")
    return f"episode {named}" if len(ordinals) == 1 else f"{len(ordinals)} episodes ({named})"


def plain_infos(infos: Metadata | None) -> dict[str, MetaValue]:
    """*infos* in plain types; empty for infos that nobody can read."""
    try:
        return plain_metadata(infos or {})
    except ProtocolError:
        return {}


def run_facts_of(recording: Recording) -> dict[str, Any]:
    """What an export tells of the run, as JSON can hold it: settings, contract, machine and run root."""
    header, contract, footer = recording.header, recording.header.contract, recording.footer
    facts: Mapping[str, Any] = {
        "exported_by": f"rlmesh_trio {version('rlmesh_trio')}",
        "run_root": footer.run_root.hex() if footer is not None else None,
        "ticks": footer.ticks if footer is not None else None,
        "level": header.level,
        "workflow_edition": header.workflow_edition,
        "base_seed": header.base_seed,
        "seed_rule": header.seed_rule,
        "unstable_leaves": header.unstable_leaves,
        "ignored_infos": header.ignored_infos,
        "tolerance": header.tolerance,
        "settings": header.settings,
        "env_address": header.env_address,
        "machine": header.machine,
        "env": {
            "id": contract.env_id,
            "num_envs": contract.num_envs,
            "autoreset_mode": int(contract.autoreset_mode),
            "render_mode": contract.render_mode,
            "observation_space": str(contract.observation_space and contract.observation_space.space),
            "action_space": str(contract.action_space and contract.action_space.space),
            "spec_base64": base64.b64encode(contract.encoded_spec).decode(),
        },
    }
    return plain(facts)
