"""Recorded actions played episode by episode: each begins with its own reset, wherever and whenever it is played.

Episodes are dealt to the lanes from one queue. One ends where the recording or the env ends it, or where the env fails;
the next begins with its reset all the same.
"""

from collections.abc import Callable, Iterable, Sequence

import attrs
import trio

from rlmesh_trio.engine.session import new_episode_id
from rlmesh_trio.recording.reader import Recording
from rlmesh_trio.recording.writer import RecordingWriter
from rlmesh_trio.replay.asking import RecordedEnv

__all__ = ("EpisodePlay",)


class EpisodePlay:
    """Plays the episodes of *recording* on *env*, whose answers *writer* records; none past the step *until*.

    *ended* is called when one is over.
    """

    def __init__(
        self,
        recording: Recording,
        env: RecordedEnv,
        writer: RecordingWriter,
        ended: Callable[[], None],
        *,
        until: int | None = None,
    ) -> None:
        self._recording = recording
        self._env = env
        self._writer = writer
        self._ended = ended
        self._until = until
        self._failure: Exception | None = None

    async def play(self, ordinals: Sequence[int], lanes: int, *, named: bool) -> None:
        """Play *ordinals* on the first *lanes* lanes, *named* in each request or not.

        Raises what ends the play: :exc:`EnvRpcError` for a lost connection, :exc:`RecordingError`.
        """
        queue = iter(ordinals)
        async with trio.open_nursery() as nursery:
            for lane in range(lanes):
                nursery.start_soon(self._lane, lane, queue, nursery.cancel_scope, named)
        if self._failure is not None:
            raise self._failure

    async def _lane(self, lane: int, queue: Iterable[int], others: trio.CancelScope, named: bool) -> None:
        try:
            for ordinal in queue:
                await self._episode(lane, ordinal, (lane,) if named else ())
                self._ended()
        except Exception as failure:
            self._failure = self._failure or failure
            others.cancel(reason="the play has ended")

    async def _episode(self, lane: int, ordinal: int, named: tuple[int, ...]) -> None:
        rows = self._recording.rows(ordinal)
        reset = next(rows).reset
        assert reset is not None
        ids = (new_episode_id(),)
        if await self._env.reset(attrs.evolve(reset, env_indices=named, episode_ids=ids), (ordinal,)) is None:
            return
        for step, row in enumerate(rows, 1):
            # What was never answered is not asked again: there is nothing to compare an answer with.
            if not row.answered or (self._until is not None and step > self._until):
                return
            reply = await self._env.step(row.action or (), named, ids, step)
            if reply is None or self._writer.ordinal_on(lane) != ordinal:
                return
        if self._recording.entries[ordinal].end == "capped":
            self._writer.record_end(lane, ordinal, "capped")
