"""Recorded actions played request by request, on the lanes and in the order of the recording.

That is how a run repeats whose episodes hang on what their lane played before. An env that fails where the recorded
one did not is not stepped again on those lanes until they are reset. Where an env does not restart a lane at the step
where the recorded one did, what it plays there is none of the recorded episodes.
"""

from collections.abc import Callable, Sequence

import attrs

from rlmesh_trio.contract import AutoresetMode
from rlmesh_trio.engine.session import new_episode_id
from rlmesh_trio.messages import EnvReply, ResetRequest
from rlmesh_trio.recording.reader import Recording
from rlmesh_trio.recording.records import Episode, Tick
from rlmesh_trio.recording.writer import RecordingWriter
from rlmesh_trio.replay.asking import RecordedEnv

__all__ = ("TickPlay",)


class TickPlay:
    """Plays the ticks of *recording* on *env*, of as many lanes, whose answers *writer* records.

    *ended* is called where a recorded episode is over.
    """

    def __init__(
        self, recording: Recording, env: RecordedEnv, writer: RecordingWriter, ended: Callable[[], None]
    ) -> None:
        self._recording = recording
        self._env = env
        self._writer = writer
        self._ended = ended
        contract = recording.header.contract
        self._everyone = tuple(range(max(1, contract.num_envs)))
        self._mode = contract.autoreset_mode
        self._ids: dict[int, str] = {}
        self._steps: dict[int, int] = {}
        self._over: set[int] = set()
        self._stopped: set[int] = set()

    async def play(self, last: int | None = None) -> None:
        """Play up to the tick *last*, that of the end by default.

        Raises what ends the play: :exc:`EnvRpcError` for a lost connection, :exc:`RecordingError`.
        """
        for entry in self._recording:
            if isinstance(entry, Tick):
                if last is not None and entry.number > last:
                    return
                # What was never answered is not asked again: there is nothing to compare an answer with.
                if entry.reply is not None or entry.error is not None:
                    await self._tick(entry)
            elif isinstance(entry, Episode):
                if entry.end == "capped":
                    self._writer.record_end(entry.lane, entry.ordinal, "capped")
                self._ended()

    async def _tick(self, tick: Tick) -> None:
        if tick.reset is not None:
            reply = await self._reset(tick, tick.reset)
        elif self._stopped.isdisjoint(tick.lanes):
            reply = await self._step(tick)
        else:
            return
        if reply is None and tick.reply is not None:
            self._stopped.update(tick.lanes)

    async def _reset(self, tick: Tick, reset: ResetRequest) -> EnvReply | None:
        ids = tuple(new_episode_id() for _ in tick.lanes)
        reply = await self._env.reset(attrs.evolve(reset, episode_ids=ids), tick.begins)
        if reply is not None:
            self._ids.update(zip(tick.lanes, ids, strict=True))
            self._steps.update((lane, 0) for lane in tick.lanes)
            self._over.difference_update(tick.lanes)
            self._stopped.difference_update(tick.lanes)
        return reply

    async def _step(self, tick: Tick) -> EnvReply | None:
        lanes = tick.lanes
        restarting = self._over & set(lanes) if self._mode != AutoresetMode.DISABLED else set[int]()
        ids = tuple([new_episode_id() if lane in restarting else self._ids.get(lane, "") for lane in lanes])
        covered = () if lanes == self._everyone else lanes
        named = covered if tick.target is None else tick.target.env_indices

        def begins(reply: EnvReply) -> Sequence[int]:
            restarted = _ended(reply, lanes) if self._mode == AutoresetMode.SAME_STEP else restarting
            return [o if lane in restarted else 0 for lane, o in zip(lanes, tick.begins, strict=False)]

        self._steps.update((lane, self._steps.get(lane, 0) + 1) for lane in lanes)
        reply = await self._env.step(tick.action, named, ids, self._steps[lanes[0]], begins)
        if reply is not None:
            self._ids.update(zip(lanes, ids, strict=True))
            self._steps.update((lane, 0) for lane in restarting)
            self._over = self._over.difference(lanes) | _ended(reply, lanes)
        return reply


def _ended(reply: EnvReply, lanes: Sequence[int]) -> set[int]:
    """The lanes whose episode a step ended."""
    flags = zip(lanes, reply.terminated_mask, reply.truncated_mask, strict=False)
    return {lane for lane, terminated, truncated in flags if terminated or truncated}
