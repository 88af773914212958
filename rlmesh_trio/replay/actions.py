"""Recorded actions into a live env: the env alone decides whether the same comes out."""

import os
from collections.abc import Sequence
from itertools import islice

from rlmesh_trio.recording.reader import Recording
from rlmesh_trio.recording.records import CASE, Footer
from rlmesh_trio.recording.writer import RecordingWriter
from rlmesh_trio.replay.asking import RecordedEnv
from rlmesh_trio.replay.episode_play import EpisodePlay
from rlmesh_trio.replay.errors import NotReplayable
from rlmesh_trio.replay.live import (
    Live,
    lanes_in_lockstep,
    open_recorded_env,
    ordinals_of,
    recorded_lanes,
    refuse_own_file,
    replay_header,
)
from rlmesh_trio.replay.tick_play import TickPlay

__all__ = ("play_actions",)


async def play_actions(
    recording: Recording,
    live: Live,
    out: str | os.PathLike[str],
    *,
    episodes: Sequence[int] | None = None,
    until: int | None = None,
    level: str = "full",
    force: bool = False,
) -> Footer:
    """Play the recorded actions on the live env, and write what it answers to *out*, a recording to compare.

    Episodes that hang on nothing but their reset are played by themselves: dealt to all lanes the env has, or in the
    order of *episodes* on one. A run that repeats only lane by lane (``by=lane``), one of a vector on a vector, and
    what a failed conformance case was answered, are played request by request, on an env of the same width; *episodes*
    then says which are of interest, and the play ends behind the last of them. None is played past the step *until*;
    0 is the reset.

    An env error, and an answer that does not come within ``live.limits``, are recorded, and end the episode.

    Raises, the first two before anything is reset, :exc:`ContractChanged` for an env that is not the recorded one,
    unless *force*; :exc:`NotReplayable` for another width where lanes count, or an unknown episode;
    :exc:`~rlmesh_trio.errors.EnvRpcError` when the connection is lost, what was written being kept; and
    :exc:`~rlmesh_trio.recording.RecordingError` when either file cannot be read or written.
    """
    header = recording.header
    ordinals = ordinals_of(recording, episodes)
    open_env = live.env_for("playing recorded actions")
    refuse_own_file(recording, out)
    by_lane = header.seed_rule == "by=lane" or CASE in header.settings
    lanes = recorded_lanes(header) if by_lane else None
    async with open_recorded_env(recording, open_env, lanes, same_width=by_lane, force=force) as env:
        width = env.contract.num_envs
        in_lockstep = width > 1 and not env.subset_step
        if in_lockstep and not by_lane and not (width == header.contract.num_envs == lanes_in_lockstep(header)):
            raise NotReplayable(
                f"this env moves its {width} lanes together, which the recorded one did not: play on lanes"
            )
        with RecordingWriter(out, replay_header(header, env), level) as writer:
            asked = RecordedEnv(env, writer, live.limits)
            if by_lane or in_lockstep:
                wanted = None if episodes is None and until is None else ordinals
                await TickPlay(recording, asked, writer, live.ended).play(_last_tick(recording, wanted, until))
            else:
                play = EpisodePlay(recording, asked, writer, live.ended, until=until)
                await play.play(ordinals, 1 if episodes is not None else width, named=width > 1)
            return writer.finish()


def _last_tick(recording: Recording, ordinals: Sequence[int] | None, until: int | None) -> int | None:
    """The tick behind which nothing is of interest; ``None`` when all is."""
    if ordinals is None:
        return None
    if until is None:
        return max((recording.entries[ordinal].last_tick for ordinal in ordinals), default=0)
    steps = [list(islice(recording.rows(ordinal), until + 1))[-1].tick for ordinal in ordinals]
    return max(steps, default=0)
