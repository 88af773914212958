"""Whether a recording is as it was written and agrees with itself, and making a whole one of a broken one."""

import os

import attrs

from rlmesh_trio.errors import ProtocolError
from rlmesh_trio.recording.appearing import appearing
from rlmesh_trio.recording.errors import RecordingError
from rlmesh_trio.recording.reader import Entry, Recording, follow, open_recording
from rlmesh_trio.recording.records import Episode, Footer, Tick

__all__ = ("Verification", "repair", "verify")


@attrs.frozen
class Verification:
    """What a check found. ``problems`` is empty for a recording that is whole; each is one line.

    ``footer`` is what the ticks themselves amount to, as far as they could be read.
    """

    problems: tuple[str, ...]
    footer: Footer


def verify(path: str | os.PathLike[str]) -> Verification:
    """Check every byte against the checksums, every digest against its value (level ``full``), and all roots.

    Raises :exc:`RecordingError` for a file that cannot be opened as a recording at all.
    """
    try:
        recording = open_recording(path)
    except RecordingError:  # its last chunk may be broken, and what is before it whole
        recording = open_recording(path, by_index=False)
    with recording:
        return _Checker(recording).check()


class _Checker:
    """Follows a recording. ``untold`` are the episodes that its ticks ended and that no message has told of yet."""

    def __init__(self, recording: Recording) -> None:
        self._recording = recording
        self._ledger = recording.ledger()
        self._untold: list[Episode] = []
        self._problems = recording.container.check_bytes()

    def check(self) -> Verification:
        recording, ledger = self._recording, self._ledger
        try:
            for entry in recording:
                self._check_entry(entry)
        except RecordingError as error:
            self._problems.append(error.why)
        if recording.footer is None:
            self._problems.append(f"it has no footer that can be read; its ticks up to {ledger.ticks} are whole")
        else:
            self._expect_told()
        ledger.finish()
        footer = ledger.footer()
        if recording.footer not in (None, footer):
            self._problems.append("its footer is not what its ticks amount to")
        return Verification(tuple(dict.fromkeys(self._problems)), footer)

    def _check_entry(self, entry: Entry) -> None:
        if isinstance(entry, Tick):
            self._expect_told()
            if entry.number != self._ledger.ticks + 1:
                self._problems.append(f"tick {entry.number} comes where tick {self._ledger.ticks + 1} should")
            if self._recording.header.level == "full" and entry.reply is not None:
                self._check_digests(entry)
        self._untold += follow(self._ledger, entry)
        if isinstance(entry, Episode):
            self._check_episode(entry)

    def _expect_told(self) -> None:
        told = "the end of episode {} at tick {} is told by no message"
        self._problems += [told.format(episode.ordinal, episode.last_tick) for episode in self._untold]
        self._untold.clear()

    def _check_episode(self, told: Episode) -> None:
        for episode in self._untold:
            if (episode.ordinal, episode.attempt) == (told.ordinal, told.attempt):
                self._untold.remove(episode)
                if (episode.entry, episode.steps, episode.error_code) != (told.entry, told.steps, told.error_code):
                    self._problems.append(f"episode {told.ordinal} is not what its ticks amount to")
                return
        self._problems.append(f"episode {told.ordinal} ends where its ticks do not end it")

    def _check_digests(self, tick: Tick) -> None:
        reply, rows, digester = tick.reply, len(tick.lanes), self._recording.digester
        assert reply is not None
        try:
            observed = digester.observation_rows(reply.observation, rows)
            infos = digester.info_rows(reply.infos, rows)
        except ProtocolError as error:
            self._problems.append(f"tick {tick.number}: {error.why}")
            return
        if observed != tick.observation_digests:
            self._problems.append(f"tick {tick.number}: the observation is not what its digest is of")
        if infos != tick.info_digests:
            self._problems.append(f"tick {tick.number}: the infos are not what their digest is of")


def repair(path: str | os.PathLike[str], out: str | os.PathLike[str]) -> Footer:
    """Write what is whole of the recording at *path* to *out*, with an end: everything before the first broken chunk.

    Episodes under way there end as interrupted. Raises :exc:`RecordingError` when nothing is whole, and when *out*
    cannot be written or is *path* itself.
    """
    with open_recording(path, by_index=False) as recording:
        if os.path.exists(out) and os.path.samefile(path, out):
            raise RecordingError(os.fspath(out), "it cannot be repaired in place; name another file")
        with appearing(out, recording.header) as writer:
            writer.copy(recording)
            return writer.finish()
