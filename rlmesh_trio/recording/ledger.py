"""The books of a recording: which episode each row of a tick belongs to, when episodes end, and the roots. Pure.

An episode's root covers its own values alone: seed, options, first observation, and by step the action, the digests of
observation and infos, the reward's bits and the flags; then its end. No lane, id, number or time goes in, so equal runs
have equal roots whatever their lanes and timing. The run's root covers the episodes' roots in order of ordinals.
"""

import struct
from collections import deque
from hashlib import blake2b
from typing import Final

import attrs

from rlmesh_trio.messages import EnvReply, Metadata
from rlmesh_trio.recording.digests import Digester, lane_infos, sorted_infos
from rlmesh_trio.recording.records import DIGEST_BYTES, EndKind, Episode, EpisodeEntry, Footer, Header, Kept, Tick
from rlmesh_trio.recording.rows import lane_reset
from rlmesh_trio.spaces.metadata import plain_metadata
from rlmesh_trio.wire.metadata import encode_metadata

__all__ = ("Ledger",)

_TERMINATED, _TRUNCATED, _HAS_FLAGS, _HAS_REWARD = 1, 2, 4, 8
_ENDED = _TERMINATED | _TRUNCATED
_step_head: Final = struct.Struct("<cBdII").pack
_begin_head: Final = struct.Struct("<cBqII").pack
_end_facts: Final = struct.Struct("<cQd").pack
_entry: Final = struct.Struct("<Q").pack


@attrs.define(eq=False)
class _Open:
    """An episode under way. ``error`` is the code of the newest answer's error, ``asked`` whether one is missing."""

    ordinal: int
    attempt: int
    episode_id: str
    seed: int | None
    options: Metadata | None
    lane: int
    first_tick: int
    last_tick: int
    hash: "blake2b"
    steps: int = 0
    cumulative_reward: float = 0.0
    error: str = ""
    unanswered: bool = False
    newest: deque[tuple[Tick, int]] | None = None


class Ledger:
    """Takes the ticks of a run in order and gives the episodes as they end.

    Holds a few dozen bytes for each, and at level ``ring`` the newest ticks of those under way.
    """

    def __init__(self, header: Header, digester: Digester) -> None:
        self.ticks = 0
        self._digester = digester
        self._ring = header.ring if header.level == "ring" else 0
        self._open: dict[int, _Open] = {}
        self._latest: dict[int, EpisodeEntry] = {}
        self._attempts: dict[int, int] = {}
        space = header.contract.observation_space
        paths = [leaf.path for leaf in space.leaves] if space is not None else []
        stable = [index for index, path in enumerate(paths) if path not in header.unstable_leaves]
        self._stable = None if len(stable) == len(paths) else stable

    def ordinal_on(self, lane: int) -> int:
        """The ordinal of the episode under way on *lane*; 0 when there is none that counts."""
        episode = self._open.get(lane)
        return 0 if episode is None else episode.ordinal

    def take(self, tick: Tick) -> list[Episode]:
        """Account *tick*, whose ``episodes`` are those of :meth:`ordinal_on`; the episodes that end with it."""
        self.ticks = tick.number
        if tick.reset is not None:
            return self._take_reset(tick)
        return self._take_step(tick)

    def _take_reset(self, tick: Tick) -> list[Episode]:
        ended: list[Episode] = []
        if tick.reply is None:
            for lane in tick.lanes:
                self._note_failure(lane, tick)
            return ended
        rows = len(tick.lanes)
        for row, lane in enumerate(tick.lanes):
            ended += self._close(lane)
            if tick.begins and tick.begins[row]:
                ended += self._begin(tick, row, rows)
        return ended

    def _take_step(self, tick: Tick) -> list[Episode]:
        reply, rows = tick.reply, len(tick.lanes)
        actions = self._digester.action_rows(tick.action, rows)
        if rows == 1 and reply is not None and not tick.begins:
            return self._advance(tick, reply, 0, actions[0], tick.observation_digests, tick.info_digests)
        ended: list[Episode] = []
        width = len(tick.observation_digests) // rows if rows else 0
        for row, lane in enumerate(tick.lanes):
            if reply is None:
                self._note_failure(lane, tick, actions[row])
                continue
            begins = tick.begins[row] if tick.begins else 0
            observed = b"" if begins else tick.observation_digests[row * width : (row + 1) * width]
            infos = tick.info_digests[row * DIGEST_BYTES : (row + 1) * DIGEST_BYTES]
            ended += self._advance(tick, reply, row, actions[row], observed, infos)
            if begins:
                ended += self._close(lane)
                ended += self._begin(tick, row, rows)
        return ended

    def _advance(
        self, tick: Tick, reply: EnvReply, row: int, action: bytes, observed: bytes, infos: bytes
    ) -> list[Episode]:
        """Count one step of the episode under way on the lane of *row*; that episode, if it ends with it."""
        episode = self._open.get(tick.lanes[row])
        if episode is None:
            return []
        rewards, terminated, truncated = reply.rewards, reply.terminated_mask, reply.truncated_mask
        flags, reward = 0, 0.0
        if row < len(rewards):
            flags, reward = _HAS_REWARD, rewards[row]
        if row < len(terminated):
            flags |= _HAS_FLAGS | _TERMINATED if terminated[row] else _HAS_FLAGS
        if row < len(truncated):
            flags |= _HAS_FLAGS | _TRUNCATED if truncated[row] else _HAS_FLAGS
        self._count(episode, tick.number, flags, reward, action, observed, infos)
        if episode.newest is not None:
            episode.newest.append((tick, row))
        end = self._end_by(episode, reply, flags) if flags & _ENDED or reply.completed else None
        return [] if end is None else [self._end(episode.lane, end)]

    def take_plain(self, number: int, lane: int, reward: float, action: bytes, observed: bytes, infos: bytes) -> int:
        """Account what :meth:`take` would, below level ``ring``: an answered step of one *lane* whose episode goes on.

        The last three are digests. The episode's ordinal, 0 when there is none that counts.
        """
        self.ticks = number
        episode = self._open.get(lane)
        if episode is None:
            return 0
        self._count(episode, number, _HAS_REWARD | _HAS_FLAGS, reward, action, observed, infos)
        return episode.ordinal

    def _count(
        self, episode: _Open, number: int, flags: int, reward: float, action: bytes, observed: bytes, infos: bytes
    ) -> None:
        if self._stable is not None:
            observed = self._in_root(observed)
        episode.last_tick = number
        episode.steps += 1
        episode.cumulative_reward += reward
        episode.error, episode.unanswered = "", False
        episode.hash.update(_step_head(b"S", flags, reward, len(action), len(observed)) + action + observed + infos)

    def _note_failure(self, lane: int, tick: Tick, action: bytes = b"") -> None:
        episode = self._open.get(lane)
        if episode is None:
            return
        episode.last_tick = tick.number
        if tick.error is None:
            episode.unanswered = True
            return
        code = episode.error = tick.error.code
        if tick.reset is None:
            episode.hash.update(b"E" + action + _entry(len(code)) + code.encode())

    def _end_by(self, episode: _Open, reply: EnvReply, flags: int) -> EndKind | None:
        """How the env says that *episode* ended with this answer: by its flags, or by a record of its id."""
        if flags & _TERMINATED:
            return "terminated"
        if flags & _TRUNCATED:
            return "truncated"
        for record in reply.completed:
            if record.episode_id and record.episode_id == episode.episode_id:
                return "terminated" if record.terminated else "truncated"
        return None

    def _begin(self, tick: Tick, row: int, rows: int) -> list[Episode]:
        """Open the episode of one row; an attempt at it that is under way elsewhere was given up, and ends."""
        lane, ordinal = tick.lanes[row], tick.begins[row]
        elsewhere = [other.lane for other in self._open.values() if other.ordinal == ordinal]
        ended = [episode for other in elsewhere for episode in self._close(other)]
        request = tick.reset or tick.target
        ids = request.episode_ids if request is not None else ()
        reset = lane_reset(tick.reset, row, rows)
        seed, options = next(iter(reset.seeds), None), reset.options
        attempt = self._attempts.get(ordinal, -1) + 1
        self._attempts[ordinal] = attempt
        width = len(tick.observation_digests) // rows
        observed = self._in_root(tick.observation_digests[row * width : (row + 1) * width])
        told = encode_metadata(sorted_infos(plain_metadata(options))) if options else b""
        root = blake2b(
            _begin_head(b"B", seed is not None, seed or 0, len(observed), len(told))
            + told
            + observed
            + tick.info_digests[row * DIGEST_BYTES : (row + 1) * DIGEST_BYTES],
            digest_size=DIGEST_BYTES,
        )
        self._open[lane] = _Open(
            ordinal,
            attempt,
            ids[row] if row < len(ids) else "",
            seed,
            options,
            lane,
            tick.number,
            tick.number,
            root,
            newest=deque([(tick, row)], maxlen=self._ring) if self._ring else None,
        )
        return ended

    def _in_root(self, digests: bytes) -> bytes:
        if self._stable is None:
            return digests
        return b"".join([digests[index * DIGEST_BYTES : (index + 1) * DIGEST_BYTES] for index in self._stable])

    def _kept(self, tick: Tick, row: int) -> Kept:
        rows, reply = len(tick.lanes), tick.reply
        assert reply is not None
        leaves = None
        if reply.observation is not None:
            leaves = tuple([bytes(leaf) for leaf in self._digester.observations.cut(reply.observation, rows)[row]])
        infos = plain_metadata(reply.infos or {})
        own = lane_infos(infos, row, rows) if rows > 1 else infos
        return Kept(tick=tick.number, observation=leaves, infos=own or None)

    def end(self, lane: int, ordinal: int, end: EndKind) -> list[Episode]:
        """End the episode of *ordinal* on *lane* as somebody else says, the driver who caps it say; if it has not."""
        if not ordinal or self.ordinal_on(lane) != ordinal:
            return []
        return [self._end(lane, end)]

    def follow(self, told: Episode) -> list[Episode]:
        """End the attempt that *told* tells of as it says, if it has not ended."""
        episode = self._open.get(told.lane)
        if episode is None or (episode.ordinal, episode.attempt) != (told.ordinal, told.attempt):
            return []
        return [self._end(told.lane, told.end)]

    def finish(self) -> list[Episode]:
        """The run is over: the episodes still under way, by lane."""
        return [episode for lane in sorted(self._open) for episode in self._close(lane)]

    def _close(self, lane: int) -> list[Episode]:
        """End what is under way on *lane*, from without: an error if its newest answer was one."""
        episode = self._open.get(lane)
        if episode is None:
            return []
        return [self._end(lane, "error" if episode.error else "interrupted")]

    def _end(self, lane: int, end: EndKind) -> Episode:
        gone = self._open.pop(lane)
        gone.hash.update(_end_facts(b"F", gone.steps, gone.cumulative_reward) + end.encode())
        failed = end == "error" or (end == "interrupted" and gone.unanswered)
        episode = Episode(
            ordinal=gone.ordinal,
            attempt=gone.attempt,
            episode_id=gone.episode_id,
            seed=gone.seed,
            options=gone.options,
            lane=lane,
            first_tick=gone.first_tick,
            last_tick=gone.last_tick,
            end=end,
            error_code=gone.error if end == "error" else "",
            steps=gone.steps,
            cumulative_reward=float(gone.cumulative_reward),
            root=gone.hash.digest(),
            kept=tuple(self._kept(*newest) for newest in gone.newest or ()) if failed else (),
        )
        self._latest[gone.ordinal] = episode.entry
        return episode

    def footer(self) -> Footer:
        """The run root and the last attempt of each episode that ended, in order of ordinals."""
        entries = tuple(self._latest[ordinal] for ordinal in sorted(self._latest))
        root = blake2b(digest_size=DIGEST_BYTES)
        for entry in entries:
            root.update(_entry(entry.ordinal) + entry.root)
        return Footer(root.digest(), self.ticks, entries)
