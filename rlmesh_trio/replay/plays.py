"""One recording played again as often as it takes, each play a fresh file that is compared with it.

Env and model are opened anew for every play, so that nothing of an earlier play is left in them.
"""

import os
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Literal

import attrs

from rlmesh_trio.errors import SessionError
from rlmesh_trio.recording.errors import RecordingError
from rlmesh_trio.recording.reader import Recording, open_recording
from rlmesh_trio.replay.actions import play_actions
from rlmesh_trio.replay.closed import play_closed
from rlmesh_trio.replay.comparing import compare
from rlmesh_trio.replay.errors import ContractChanged
from rlmesh_trio.replay.findings import Comparison, Divergence
from rlmesh_trio.replay.live import Live
from rlmesh_trio.replay.observations import Batches, play_observations
from rlmesh_trio.replay.tolerance import Tolerance

__all__ = ("Mode", "Played", "Plays")

Mode = Literal["i", "ii", "iii"]
"""What is live: (i) env and model, (ii) the env alone, (iii) the model alone."""


@attrs.frozen(kw_only=True)
class Played:
    """One play: its recording at ``path``, and how it compares with the one it is of.

    One that was broken off, by ``failure`` or by whoever cancelled it, is not ``whole``: the comparison has the
    episodes that were begun.
    """

    mode: Mode
    path: str
    comparison: Comparison
    failure: SessionError | None = None
    whole: bool = True

    @property
    def differs(self) -> bool:
        """Whether what was compared is not equal."""
        return not self.comparison.equal

    @property
    def parts_at(self) -> Divergence | None:
        """The first episode that differs past the tolerance."""
        return next((each for each in self.comparison.divergences if each.beyond is not None), None)


@attrs.define(eq=False, kw_only=True)
class Plays:
    """Plays of *recording* with what is *live*, each a file in the empty *folder*.

    The first of them is written to *keep*, if that is named, which must not be there yet. *level* is by default
    ``full`` for a recording that is, else ``digest``. *lanes* are those of runs played whole. What is compared, and by
    which standard, is as in :func:`~rlmesh_trio.replay.comparing.compare`.
    """

    recording: Recording
    live: Live
    folder: str
    keep: str | None = None
    tolerance: Tolerance | None = None
    ignored: Sequence[str] = ()
    level: str | None = None
    lanes: int | None = None
    force: bool = False
    interrupted: Played | None = attrs.field(default=None, init=False)
    """The play that was cancelled, if one was and there is anything in it."""
    _count: int = attrs.field(default=0, init=False)

    async def closed(self, episodes: Sequence[int] | None = None, *, lanes: int | None = None) -> Played:
        """Mode (i), as :func:`play_closed`; what breaks it off before anything can be compared is raised."""

        async def play(out: str) -> None:
            wanted = self.lanes if lanes is None else lanes
            await play_closed(
                self.recording, self.live, out, episodes=episodes, level=self._level, lanes=wanted, force=self.force
            )

        return await self._played("i", play, episodes)

    async def actions(
        self, episodes: Sequence[int] | None = None, *, until: int | None = None, level: str | None = None
    ) -> Played:
        """Mode (ii), as :func:`play_actions`; what breaks it off before anything can be compared is raised."""

        async def play(out: str) -> None:
            await play_actions(
                self.recording,
                self.live,
                out,
                episodes=episodes,
                until=until,
                level=level or self._level,
                force=self.force,
            )

        return await self._played("ii", play, episodes)

    async def observations(
        self, episodes: Sequence[int] | None = None, *, batches: Batches = "recorded", source: str | None = None
    ) -> Played:
        """Mode (iii), as :func:`play_observations`, from the recording or another one of the same run, *source*.

        What breaks it off before anything can be compared is raised.
        """

        async def play(out: str) -> None:
            async with _opened(source, self.recording) as recording:
                await play_observations(recording, self.live, out, batches=batches, episodes=episodes, force=self.force)

        return await self._played("iii", play, episodes)

    def compare(self, before: str, after: str, episodes: Sequence[int] | None = None) -> Comparison:
        """Compare two plays."""
        with open_recording(before) as recorded, open_recording(after) as now:
            return compare(recorded, now, tolerance=self.tolerance, ignored=self.ignored, episodes=episodes)

    def discard(self, played: Played) -> None:
        """Remove the file of *played*, unless it is to be kept."""
        if played.path != self.keep:
            os.unlink(played.path)

    @property
    def _level(self) -> str:
        return self.level or ("full" if self.recording.header.level == "full" else "digest")

    async def _played(
        self, mode: Mode, play: Callable[[str], Awaitable[None]], episodes: Sequence[int] | None
    ) -> Played:
        self._count += 1
        path = os.path.join(self.folder, f"play-{self._count}.mcap")
        if self.keep is not None and self._count == 1:
            path = self.keep
        try:
            await play(path)
        except (ContractChanged, RecordingError):
            raise
        except SessionError as failure:
            broken = self._cut(mode, path, episodes)
            if broken is None:
                raise
            return attrs.evolve(broken, failure=failure)
        except BaseException:  # A cancellation comes alone, or in a group of them.
            self.interrupted = self._cut(mode, path, episodes)
            raise
        return Played(mode=mode, path=path, comparison=self._compared(path, episodes))

    def _cut(self, mode: Mode, path: str, episodes: Sequence[int] | None) -> Played | None:
        """A play that was broken off, if there is anything in it to compare."""
        try:
            with open_recording(path) as now:
                both = set(now.entries) & set(self.recording.entries if episodes is None else episodes)
                # That a connection was lost says nothing of the env.
                began = {each for each in both if now.episode(each).error_code != "CONNECTION"}
        except RecordingError:
            return None
        if not began:
            return None
        return Played(mode=mode, path=path, comparison=self._compared(path, sorted(began)), whole=False)

    def _compared(self, path: str, episodes: Sequence[int] | None) -> Comparison:
        with open_recording(path) as now:
            return compare(self.recording, now, tolerance=self.tolerance, ignored=self.ignored, episodes=episodes)


@asynccontextmanager
async def _opened(path: str | None, otherwise: Recording) -> AsyncGenerator[Recording]:
    """The recording at *path*, closed in the end, or the one that is open *otherwise*."""
    if path is None:
        yield otherwise
        return
    with open_recording(path) as recording:
        yield recording
