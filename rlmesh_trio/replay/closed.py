"""The recorded run once more: the same settings and seeds, with env and model live."""

import logging
import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import attrs

from rlmesh_trio.engine.seeds import slot_seed
from rlmesh_trio.errors import EnvRpcError
from rlmesh_trio.events import EpisodeCompleted
from rlmesh_trio.hooks import Hooks
from rlmesh_trio.observers.identity import UNDECISIVE
from rlmesh_trio.one_call import open_run
from rlmesh_trio.recording.reader import Recording
from rlmesh_trio.recording.records import Footer, Header
from rlmesh_trio.recording.wanted import Record
from rlmesh_trio.replay.errors import NotReplayable
from rlmesh_trio.replay.live import (
    Live,
    open_recorded_env,
    ordinals_of,
    other_width,
    recorded_lanes,
    refuse_own_file,
)
from rlmesh_trio.report import EpisodeSummary
from rlmesh_trio.spec import SessionSpec

__all__ = ("play_closed",)

logger = logging.getLogger("rlmesh_trio")

_SETTINGS = {field.name for field in attrs.fields(SessionSpec)} - UNDECISIVE - {"workflow_edition", "max_episodes"}
_CHUNKS = ("execution_horizon", "prefetch_lead")


async def play_closed(
    recording: Recording,
    live: Live,
    out: str | os.PathLike[str],
    *,
    episodes: Sequence[int] | None = None,
    level: str = "digest",
    lanes: int | None = None,
    force: bool = False,
) -> Footer:
    """Play the recorded run with the live env and model, and write the recording of it to *out*.

    Every fact that decides which episodes are played is the header's; each episode that the recording holds is played,
    or of these only *episodes*, lowest first. *lanes* may be others than recorded unless the run is ``by=lane``. A run
    that need not repeat, as :func:`~rlmesh_trio.recording.why_not_repeatable` tells, is played too.

    An env operation that fails ends the play, and *out* shows it.

    Raises, all but the last two before anything is reset, :exc:`ContractChanged` for an env that is not the recorded
    one, unless *force*; :exc:`NotReplayable` for a recording of no run, an unknown episode, other lanes under
    ``by=lane``, or single episodes of such a run; what :func:`~rlmesh_trio.one_call.open_run` does; the session's own
    error when the model failed, the env's connection was lost or an operation outlived its limit; and
    :exc:`~rlmesh_trio.recording.RecordingError` when either file cannot be read or written.
    """
    header = recording.header
    chunks, fields = _settings(recording)
    wanted = sorted(ordinals_of(recording, episodes))
    by_lane = header.seed_rule == "by=lane"
    if by_lane and episodes is not None:
        raise NotReplayable(
            "episodes of a run that repeats lane by lane (by=lane) hang on those before them: play all of them, or the "
            "recorded actions"
        )
    if by_lane and lanes not in (None, header.contract.num_envs):
        raise NotReplayable(other_width(header, lanes))
    open_env, open_model = live.env_for("playing a run again"), live.model_for("playing a run again")
    refuse_own_file(recording, out)
    lanes = recorded_lanes(header) if lanes is None else lanes
    async with open_run(
        open_recorded_env(recording, open_env, lanes, same_width=by_lane, force=force),
        open_model(),
        record=Record(out, level, header.unstable_leaves, header.ignored_infos, header.tolerance),
        limits=live.limits,
        hooks=_Ended(live.ended),
        **chunks,
        **fields,
        **_budget(header, fields, wanted),
    ) as run:
        recorder = run.recorder
        assert recorder is not None
        try:
            await run.wait()
        except EnvRpcError as failure:
            if failure.code == "CONNECTION":
                raise
            logger.warning("the play ends where the env fails: %s", failure)
    if recorder.failure is not None:
        raise recorder.failure
    assert recorder.footer is not None
    return recorder.footer


class _Ended(Hooks):
    """Calls *ended* after each episode."""

    def __init__(self, ended: Callable[[], None]) -> None:
        self._ended = ended

    async def episode_completed(self, event: EpisodeCompleted) -> None:  # noqa: ARG002
        self._ended()


def _settings(recording: Recording) -> tuple[dict[str, int], dict[str, Any]]:
    """How chunks are played, and the fields of the session's spec."""
    settings = recording.header.settings
    if not all(name in settings for name in _CHUNKS):
        raise NotReplayable(f"{recording.path} is of no run with a model: play its actions into the env alone")
    fields = {name: settings[name] for name in _SETTINGS if name in settings}
    fields["episode_seeds"] = tuple(settings.get("episode_seeds") or ())
    return {name: settings[name] for name in _CHUNKS}, fields


def _budget(header: Header, fields: Mapping[str, Any], wanted: Sequence[int]) -> dict[str, Any]:
    """The budget that starts *wanted*, and no other episode: their slots and seeds stay theirs."""
    if not wanted:
        raise NotReplayable("it holds no episode")
    spec = SessionSpec(env_contract=header.contract, **fields)
    others = sorted(set(range(1, wanted[-1] + 1)).difference(wanted))
    return {"max_episodes": wanted[-1], "finished": tuple(_left_out(spec, ordinal) for ordinal in others)}


def _left_out(spec: SessionSpec, ordinal: int) -> EpisodeSummary:
    """An episode that the session takes for finished. Nobody is told of it."""
    seed = slot_seed(spec, ordinal - 1)
    return EpisodeSummary(ordinal, 0, seed, None, 0, 0.0, False, False, 0, None, None, None)
