"""One lane's part of a tick, as if that lane were alone. Pure."""

from collections.abc import Iterator

import attrs

from rlmesh_trio.contract import TRIAL_INDEX_OPTION
from rlmesh_trio.errors import EndpointError, ProtocolError
from rlmesh_trio.messages import Leaves, Metadata, ResetRequest
from rlmesh_trio.recording.digests import Digester, lane_infos
from rlmesh_trio.recording.records import DIGEST_BYTES, EpisodeEntry, Tick
from rlmesh_trio.spaces.metadata import plain_metadata

__all__ = ("Row", "lane_reset", "rows_of")


@attrs.frozen(eq=False, kw_only=True)
class Row:
    """What one request did to one episode: the first began it and has ``reset``, the others have ``action``.

    An episode that the env began by itself has an empty reset. Observation and infos are there at level ``full`` only,
    digests always. ``reward`` and the flags are ``None`` where the env told none. ``error`` is set for an error answer,
    and ``answered`` false for one that never came.
    """

    tick: int
    lane: int
    reset: ResetRequest | None = None
    action: Leaves | None = None
    observation: Leaves | None = None
    observation_digests: bytes = b""
    infos: Metadata | None = None
    info_digest: bytes = b""
    reward: float | None = None
    terminated: bool | None = None
    truncated: bool | None = None
    error: EndpointError | None = None
    answered: bool = True

    @property
    def leaf_digests(self) -> tuple[bytes, ...]:
        """The digests of the observation's leaves, 16 bytes each; none where there is no observation of its own."""
        rows = self.observation_digests
        return tuple([rows[start : start + DIGEST_BYTES] for start in range(0, len(rows), DIGEST_BYTES)])


def rows_of(tick: Tick, entry: EpisodeEntry, digester: Digester) -> Iterator[Row]:
    """The rows of *tick* that belong to the attempt *entry* tells of.

    An observation with which the next episode begins is not the ended one's.
    """
    for row in range(len(tick.lanes)):
        begins = tick.begins[row] if tick.begins else 0
        if tick.episodes and tick.episodes[row] == entry.ordinal and tick.number != entry.first_tick:
            yield _step_row(tick, row, digester, shared=bool(begins))
        if begins == entry.ordinal and tick.number == entry.first_tick:
            yield _reset_row(tick, row, digester)


def _reset_row(tick: Tick, row: int, digester: Digester) -> Row:
    observation, observation_digests = _observation(tick, row, digester)
    infos, info_digest = _infos(tick, row)
    return Row(
        tick=tick.number,
        lane=tick.lanes[row],
        reset=lane_reset(tick.reset, row, len(tick.lanes)),
        observation=observation,
        observation_digests=observation_digests,
        infos=infos,
        info_digest=info_digest,
    )


def _step_row(tick: Tick, row: int, digester: Digester, *, shared: bool) -> Row:
    """One step; without the observation when it is *shared* with the next episode."""
    action = digester.actions.cut(tick.action, len(tick.lanes))[row]
    reply = tick.reply
    if reply is None:
        answered = tick.error is not None
        return Row(tick=tick.number, lane=tick.lanes[row], action=action, error=tick.error, answered=answered)
    terminated, truncated = reply.terminated_mask, reply.truncated_mask
    observation, observation_digests = (None, b"") if shared else _observation(tick, row, digester)
    infos, info_digest = _infos(tick, row)
    return Row(
        tick=tick.number,
        lane=tick.lanes[row],
        action=action,
        observation=observation,
        observation_digests=observation_digests,
        infos=infos,
        info_digest=info_digest,
        reward=reply.rewards[row] if row < len(reply.rewards) else None,
        terminated=bool(terminated[row]) if row < len(terminated) else None,
        truncated=bool(truncated[row]) if row < len(truncated) else None,
    )


def _observation(tick: Tick, row: int, digester: Digester) -> tuple[Leaves | None, bytes]:
    """One lane's leaves, if they were recorded, and their digests."""
    rows = len(tick.lanes)
    width = len(tick.observation_digests) // rows
    observation = None if tick.reply is None else tick.reply.observation
    leaves = None if observation is None else digester.observations.cut(observation, rows)[row]
    return leaves, tick.observation_digests[row * width : (row + 1) * width]


def _infos(tick: Tick, row: int) -> tuple[Metadata | None, bytes]:
    """One lane's infos, if they were recorded and can be read, and their digest."""
    rows = len(tick.lanes)
    infos: Metadata | None = None if tick.reply is None else tick.reply.infos
    if infos is not None and rows > 1:
        try:
            infos = lane_infos(plain_metadata(infos), row, rows)
        except ProtocolError:
            infos = None
    return infos, tick.info_digests[row * DIGEST_BYTES : (row + 1) * DIGEST_BYTES]


def lane_reset(reset: ResetRequest | None, row: int, rows: int) -> ResetRequest:
    """What one row's lane was reset with: its own seed and options, and of trial ordinals listed by lane its own."""
    if reset is None:
        return ResetRequest()
    options = plain_metadata(reset.options or {})
    trials = options.get(TRIAL_INDEX_OPTION)
    if isinstance(trials, list) and len(trials) == rows:
        options[TRIAL_INDEX_OPTION] = trials[row]
    return ResetRequest(seeds=reset.seeds[row : row + 1], options=options or None)
