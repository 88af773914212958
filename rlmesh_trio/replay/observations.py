"""Recorded observations into a live model: the model alone decides whether the same actions come out."""

import logging
import os
from collections.abc import Callable, Collection, Sequence
from itertools import groupby
from typing import Literal

import attrs
import uuid_utils

from rlmesh_trio.editions import CURRENT_EDITION, edition_rank
from rlmesh_trio.engine.session import new_episode_id
from rlmesh_trio.errors import ModelRpcError
from rlmesh_trio.messages import HistoryRow, Leaves, PredictReply, PredictRequest
from rlmesh_trio.recording.reader import Recording
from rlmesh_trio.recording.records import Batch, Decision, Episode, Footer, Header, Tick
from rlmesh_trio.recording.writer import RecordingWriter
from rlmesh_trio.replay.asked_model import AskedModel
from rlmesh_trio.replay.errors import ContractChanged, NotReplayable
from rlmesh_trio.replay.findings import FieldDifference
from rlmesh_trio.replay.groups import Group, Groups, Shown
from rlmesh_trio.replay.live import Live, lanes_in_lockstep, ordinals_of, refuse_own_file, replay_header
from rlmesh_trio.spaces import codec_for
from rlmesh_trio.spec import SessionSpec

__all__ = ("Batches", "play_observations")

logger = logging.getLogger("rlmesh_trio")

Batches = Literal["recorded", "single"]

_CHUNKS = (("execution_horizon", 1), ("prefetch_lead", 0))


async def play_observations(
    recording: Recording,
    live: Live,
    out: str | os.PathLike[str],
    *,
    batches: Batches = "recorded",
    episodes: Sequence[int] | None = None,
    force: bool = False,
) -> Footer:
    """Ask the live model about the recorded observations, in their order, and write to *out* what it does now.

    *out* holds the recorded episodes, or of these only *episodes*, with the actions that the model gives now: nothing
    but actions can differ. With *batches* ``recorded`` each call has the rows of a recorded one, in their order, and
    calls in which none of *episodes* has a row are left out; ``single`` asks for every row by itself. So does, and says
    so in the log, a recording that does not tell how the model was asked. Of an answer as many frames are played as
    of the recorded one, where that was. What a session's hooks transform is in no recording.

    Raises, the first two before the model is asked, :exc:`NotReplayable` for a recording that is not of level ``full``,
    an unknown episode, or an observation that cannot be told for sure; :exc:`ContractChanged` when the model does not
    know the recorded edition, unless *force*; what resolving the model does;
    :exc:`~rlmesh_trio.errors.ModelRpcError` and :exc:`~rlmesh_trio.errors.OperationTimeout` when it fails, what was
    written being kept; and :exc:`~rlmesh_trio.recording.RecordingError` when either file cannot be read or written.
    """
    header = recording.header
    if header.level != "full":
        raise NotReplayable(f"{recording.path} holds digests of the observations only: record with level full")
    if header.contract.observation_space is None or header.contract.action_space is None:
        raise NotReplayable(f"{recording.path} declares no spaces for a model")
    wanted = None if episodes is None else frozenset(ordinals_of(recording, episodes))
    open_model = live.model_for("playing recorded observations")
    refuse_own_file(recording, out)
    told = any(isinstance(decision.what, Batch) for decision in recording.decisions())
    horizon, lead = (header.settings.get(name, default) for name, default in _CHUNKS)
    spec = attrs.evolve(_spec(header), limits=live.limits)
    if lead and not told and not spec.driver_owns_resets:
        raise NotReplayable(
            "its lanes restarted themselves while the model was asked ahead: which answers still counted hung on time, "
            "and only a recording of the model too tells which"
        )
    if batches == "recorded" and not told:
        logger.warning("%s does not tell how the model was asked: each row is asked for by itself", recording.path)
    async with open_model() as model:
        spec = attrs.evolve(spec, workflow_edition=_edition(header, model, force=force))
        await model.resolve(spec, execution_horizon=horizon)
        asked = AskedModel(model, spec)
        manner = _Manner(batches == "single" or not told, not told, lead, model.wants_history())
        try:
            with RecordingWriter(out, replay_header(header, model=model), "full") as writer:
                await _Play(recording, writer, spec, asked, wanted, manner).run(live.ended)
                return writer.finish()
        finally:
            await asked.release()


def _spec(header: Header) -> SessionSpec:
    """The route as a model is told it."""
    return SessionSpec(
        env_contract=header.contract,
        env_id=str(uuid_utils.uuid7()),
        session_id=header.settings.get("session_id") or "local",
        num_envs=max(1, header.contract.num_envs),
        subset_step=lanes_in_lockstep(header) == 1,
        seed_every_episode=header.settings.get("seed_every_episode") is True,
    )


def _edition(header: Header, model: object, *, force: bool) -> str:
    """The edition to resolve with: the recorded one, if the model knows it."""
    recorded = header.workflow_edition or CURRENT_EDITION.name
    offered: Collection[str] | None = getattr(model, "supported_editions", None)
    if offered is None or {recorded, edition_rank(recorded)[0]} & set(offered):
        return recorded
    if not force:
        raise ContractChanged((FieldDifference("edition", recorded, ", ".join(offered) or "none"),))
    return str(getattr(model, "edition", recorded))


@attrs.frozen
class _Manner:
    """How the model is asked: each row by itself or not; whenever a frame is missing, or when the recording says so."""

    single: bool
    unasked: bool
    lead: int
    history: bool


class _Play:
    """One play of *recording*, of all episodes or those *wanted*."""

    def __init__(
        self,
        recording: Recording,
        writer: RecordingWriter,
        spec: SessionSpec,
        model: AskedModel,
        wanted: Collection[int] | None,
        manner: _Manner,
    ) -> None:
        self._recording = recording
        self._writer = writer
        self._spec = spec
        self._model = model
        self._wanted = wanted
        # Where lanes restart themselves, what is played hangs on what was asked about the episode before.
        self._asked_about = wanted if spec.driver_owns_resets else None
        self._manner = manner
        contract = spec.env_contract
        assert contract.observation_space is not None
        assert contract.action_space is not None
        self._observations, self._actions = codec_for(contract.observation_space), codec_for(contract.action_space)
        self._cut_action = recording.digester.actions.cut
        self._groups = Groups(
            recording, lead=manner.lead, history=manner.history, new_id=new_episode_id, ended=model.end
        )

    async def run(self, ended: Callable[[], None]) -> None:
        """Play the whole recording; *ended* is called where an episode is over."""
        for entry in self._recording:
            match entry:
                case Tick():
                    action = await self._action(entry) if entry.reset is None else ()
                    self._groups.follow(entry)
                    self._write(entry, action)
                case Episode():
                    self._groups.follow(entry)
                    if entry.end == "capped":
                        self._writer.record_end(entry.lane, entry.ordinal, "capped")
                    ended()
                case Decision(what=Batch() as batch):
                    await self._batch(batch)
                case _:
                    pass

    def _write(self, tick: Tick, action: Leaves) -> None:
        episodes, begins = (self._chosen(ordinals) for ordinals in (tick.episodes, tick.begins))
        if self._wanted is None or episodes or begins:
            number = self._writer.ticks + 1
            played = attrs.evolve(tick, number=number, episodes=episodes, begins=begins, action=action)
            self._writer.copy([played])

    def _chosen(self, ordinals: tuple[int, ...]) -> tuple[int, ...]:
        wanted = self._wanted
        if wanted is None:
            return ordinals
        chosen = tuple([ordinal if ordinal in wanted else 0 for ordinal in ordinals])
        return chosen if any(chosen) else ()

    async def _batch(self, batch: Batch) -> None:
        asked: list[tuple[Shown, int]] = []
        for _, rows in groupby(batch.rows, key=lambda row: row.request):
            own = list(rows)
            key = tuple([(row.ordinal, row.step) if row.ordinal else (0, 0) for row in own])
            asked.append((self._groups.find(key), own[0].frames))
        about = self._asked_about
        for call in [[each] for each in asked] if self._manner.single else [asked]:
            if about is None or any(ordinal in about for shown, _ in call for ordinal, _ in shown.key):
                await self._ask(call)
            else:
                for shown, _ in call:
                    shown.group.send(shown)

    async def _action(self, tick: Tick) -> Leaves:
        """The action of a step as it is now, one row a lane."""
        count = len(tick.lanes)
        recorded = self._cut_action(tick.action, count)
        rows = dict(zip(tick.lanes, recorded, strict=True))
        counted = self._chosen(tick.episodes)
        for group in self._groups.of(tick.lanes):
            if self._manner.unasked and (counted or self._asked_about is None):
                await self._ask_if_due(group)
            frame = group.take()
            if frame is not None:
                rows.update(zip(group.lanes, frame, strict=True))
            elif any(ordinal for lane, ordinal in zip(tick.lanes, counted, strict=False) if lane in group.lanes):
                raise NotReplayable(f"at tick {tick.number}: no answer of the model is recorded for this action")
            if frame is not None and self._manner.unasked:
                await self._ask_ahead(group)
        if count == 1:
            return rows[tick.lanes[0]]
        return self._actions.concatenate([rows[lane] for lane in tick.lanes], [1] * count)

    async def _ask_if_due(self, group: Group) -> None:
        if not group.left and group.shown and not group.shown[-1].is_stale:
            await self._ask([(group.shown[-1], None)])

    async def _ask_ahead(self, group: Group) -> None:
        lead, newest = self._manner.lead, group.shown[-1]
        if not lead or not group.may_ask_ahead or group.left > lead:
            return
        if not self._manner.history or newest in group.unsent:
            await self._ask([(newest, None)])

    async def _ask(self, asked: Sequence[tuple[Shown, int | None]]) -> None:
        """Ask about what was shown, each with how many frames the recorded answer had, if that is known."""
        requests = [self._requests(shown) for shown, _ in asked]
        if self._manner.single:
            replies = [[(await self._model.predict([request]))[0] for request in own] for own in requests]
        else:
            replies = [[reply] for reply in await self._model.predict([own[0] for own in requests])]
        for (shown, frames), own in zip(asked, replies, strict=True):
            self._land(shown, frames, own)

    def _requests(self, shown: Shown) -> list[PredictRequest]:
        """The request about *shown*, or one for each of its rows."""
        history = shown.group.send(shown) if self._manner.history else []
        width = len(shown.rows)
        parts = [slice(row, row + 1) for row in range(width)] if self._manner.single else [slice(0, width)]
        return [
            PredictRequest(
                self._spec.session_id,
                self._spec.env_id,
                self._model.request_id(),
                self._joined(shown.rows[part]),
                shown.infos[part],
                shown.steps[part],
                [HistoryRow(self._joined(past.rows[part]), past.infos[part], past.counter) for past in history],
                shown.counter if self._manner.history else None,
            )
            for part in parts
        ]

    def _joined(self, rows: Sequence[Leaves]) -> Leaves:
        return rows[0] if len(rows) == 1 else self._observations.concatenate(rows, [1] * len(rows))

    def _land(self, shown: Shown, expected: int | None, replies: Sequence[PredictReply | ModelRpcError]) -> None:
        """The answer about *shown*, in one reply or one for each row, is what its group plays next."""
        for info in shown.infos:
            if not self._groups.lives(info.episode_id):
                self._model.end(info.episode_id)
        answered = [reply for reply in replies if not isinstance(reply, ModelRpcError)]
        if expected == 0:  # the recorded one failed here
            return
        for failure in replies:
            if isinstance(failure, ModelRpcError):
                raise failure
        if shown.is_stale:
            return
        width = len(shown.rows)
        if len(replies) == 1:
            frames = [self._cut_action(frame, width) for frame in answered[0].actions]
        else:
            frames = list(zip(*[reply.actions for reply in answered], strict=False))
        if len(frames) < (expected or 1):
            ordinal, step = next(row for row in shown.key if row[0])
            raise NotReplayable(
                f"the model answers step {step} of episode {ordinal} with {len(frames)} frames, the recorded one "
                f"played {expected or 1}"
            )
        shown.group.land(frames[:expected])
