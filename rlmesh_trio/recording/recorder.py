"""Records a session: stands around its env, listens to its hooks, and if wished stands around its model.

The env shows what was asked and answered, under ids; the hooks tell which episode an id is. A tick that begins episodes
is therefore written when the next request goes to one of its lanes, or the model is asked about them: by then the hooks
have told.
"""

import logging
import os
import time
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Self

import attrs

from rlmesh_trio.endpoints.env import Env, ReconnectingEnv
from rlmesh_trio.endpoints.model import Model
from rlmesh_trio.errors import EndpointError, SessionError
from rlmesh_trio.events import EpisodeCompleted, EpisodeStarted, IncidentHappened, SessionFailed
from rlmesh_trio.hooks import Hooks
from rlmesh_trio.messages import (
    EnvReply,
    Leaves,
    PredictReply,
    PredictRequest,
    ResetRequest,
    StepTarget,
)
from rlmesh_trio.recording.errors import RecordingError
from rlmesh_trio.recording.records import Footer, Header, Mishap, parse_level
from rlmesh_trio.recording.resumed import continue_recording
from rlmesh_trio.recording.writer import RecordingWriter
from rlmesh_trio.report import EpisodeSummary
from rlmesh_trio.wire.metadata import LazyMetadata

__all__ = ("Recorder",)

logger = logging.getLogger("rlmesh_trio")

_CHUNK_SECONDS = 2.0
_TOGETHER = 64
_WAITING_SECONDS = 0.5
_SUMMARY_FIELDS = tuple(field.name for field in attrs.fields(EpisodeSummary))


_Asked = tuple[Sequence[int], Sequence[int], tuple[int, ...]]
"""By row of a batch the ordinal of its episode and its step, and by request how many rows it has."""


@attrs.frozen(eq=False)
class _Held:
    """An answer whose new episodes nobody has named yet: of a reset, or of a step that restarted lanes.

    ``ids`` are by row those of the episodes that begin with it, empty for none.
    """

    lanes: tuple[int, ...]
    ids: tuple[str, ...]
    reply: EnvReply
    reset: ResetRequest | None = None
    action: Leaves = ()
    target: StepTarget | None = None

    def is_of(self, lane: int, episode_id: str) -> bool:
        """Whether it belongs to this episode on *lane*, and not to one that begins there after it."""
        return lane in self.lanes and self.ids[self.lanes.index(lane)] in ("", episode_id)


class Recorder:
    """Writes the recording of one session to *path*; a context manager that finishes it.

    Give the session ``recorder.wrap(env)`` for its env and ``recorder.hooks`` as (one of) its hooks; with
    ``recorder.wrap_model(model)`` the make-up of the model's batches is recorded too. Episodes that are not announced
    by the hooks stand outside the budget: their steps are recorded, and they are in no root.

    *level* is as for :class:`~rlmesh_trio.recording.RecordingWriter`, which also says what raises here. Once the run
    has begun a file that cannot be written fails nothing: the log tells, ``failure`` is why, and the file stays as it
    is. What was recorded is on its way to the disk every 512 ticks or some 2 seconds, at once when a request failed.

    ``footer`` is what it amounts to, once it was finished. With *earlier* it goes on with the recording there, which
    :func:`~rlmesh_trio.recording.resumed.continue_recording` says more of.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        header: Header,
        level: str = "digest",
        *,
        earlier: str | os.PathLike[str] | None = None,
    ) -> None:
        self.path = os.fspath(path)
        self.hooks: Hooks = _RecorderHooks(self)
        self.failure: RecordingError | None = None
        self.footer: Footer | None = None
        name, ring = parse_level(level)
        self.header = header = attrs.evolve(header, level=name, ring=ring)
        if earlier is None:
            self._writer = RecordingWriter(path, header, chunk_seconds=_CHUNK_SECONDS)
        else:
            self._writer = continue_recording(earlier, path, header, chunk_seconds=_CHUNK_SECONDS)
        self._all_lanes = tuple(range(max(1, header.contract.num_envs)))
        self._ordinals: dict[str, int] = {}
        self._over: dict[int, str] = {}
        self._ids: dict[int, str] = {}
        self._known: dict[tuple[int, ...], StepTarget] = {}
        self._held: list[_Held] = []
        self._finished = False
        self._waiting: list[tuple[Callable[..., None], tuple[object, ...]]] = []
        self._due = 0.0

    def wrap(self, env: Env) -> Env:
        """*env*, recorded."""
        if isinstance(env, ReconnectingEnv):
            return _ReconnectingRecordingEnv(self, env)
        return _RecordingEnv(self, env)

    def wrap_model(self, model: Model) -> Model:
        """*model*, already resolved, its batches recorded."""
        return _RecordingModel(self, model)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.finish()
        if self.failure is not None:
            logger.error("recording %s is incomplete: %s", self.path, self.failure.why)

    def finish(self) -> Footer | None:
        """Write what is left and the roots, and close the file; ``None`` when it could not be written, or was."""
        self._release(self._all_lanes)
        if self._finished:
            return None
        self._write_waiting()
        self._finished = True
        if self.failure is None:
            try:
                self.footer = self._writer.finish()
            except RecordingError as failure:
                self._give_up(failure)
        return self.footer

    def _give_up(self, failure: RecordingError) -> None:
        self.failure = failure
        logger.warning("%s; the run goes on without it", failure)
        self._writer.close()

    def _put(self, write: Callable[..., None], *arguments: object) -> None:
        """Write, after all that waits."""
        self._waiting.append((write, arguments))
        self._write_waiting()

    def _put_later(self, write: Callable[..., None], arguments: tuple[object, ...]) -> None:
        """Write together with what follows: that costs half as much. Nobody may change *arguments*."""
        waiting = self._waiting
        waiting.append((write, arguments))
        if len(waiting) >= _TOGETHER or time.monotonic() >= self._due:
            self._write_waiting()

    def _write_waiting(self) -> None:
        self._due = time.monotonic() + _WAITING_SECONDS
        waiting, self._waiting = self._waiting, []
        if self.failure is not None or self._finished:
            return
        try:
            for write, arguments in waiting:
                write(*arguments)
        except RecordingError as failure:
            self._give_up(failure)

    # What the env is asked and answers.

    def reset_asked(self, request: ResetRequest) -> tuple[int, ...]:
        """The lanes of *request*, which is about to go out."""
        lanes = request.env_indices or self._all_lanes
        self._release(lanes)
        return lanes

    def reset_answered(self, request: ResetRequest, lanes: tuple[int, ...], reply: EnvReply) -> None:
        """Its answer."""
        ids = request.episode_ids or ("",) * len(lanes)
        self._ids.update(zip(lanes, ids, strict=False))
        self._held.append(_Held(lanes, ids, reply, reset=request))

    def reset_failed(self, request: ResetRequest, error: EndpointError | None) -> None:
        """It was answered with *error*, or never."""
        self._put(self._writer.record_reset, request, error)
        self._put(self._writer.flush)

    def step_asked(self, target: StepTarget) -> tuple[str, ...]:
        """By row of *target*, which is about to be stepped, the id of the episode that begins on it; empty for none."""
        if self._known.get(target.env_indices) is target:
            return ()
        lanes = target.env_indices or self._all_lanes
        self._release(lanes)
        self._known[target.env_indices] = target
        if not target.episode_ids:
            return ()
        fresh = tuple(
            "" if self._ids.get(lane) == episode_id else episode_id
            for lane, episode_id in zip(lanes, target.episode_ids, strict=False)
        )
        return fresh if any(fresh) else ()

    def step_answered(self, action: Leaves, target: StepTarget, fresh: tuple[str, ...], reply: EnvReply) -> None:
        """*target* was stepped; *fresh* is from :meth:`step_asked`."""
        if not fresh:
            self._put_later(self._writer.record_step, (action, reply, target))
            if not _is_lasting(action, reply):
                self._write_waiting()
            return
        lanes = target.env_indices or self._all_lanes
        self._ids.update((lane, episode_id) for lane, episode_id in zip(lanes, fresh, strict=False) if episode_id)
        self._known.pop(target.env_indices, None)
        self._held.append(_Held(lanes, fresh, reply, action=action, target=target))

    def step_failed(self, action: Leaves, target: StepTarget, error: EndpointError | None) -> None:
        """It was answered with *error*, or never."""
        self._known.pop(target.env_indices, None)
        self._put(self._writer.record_step, action, error, target)
        self._put(self._writer.flush)

    def _release(self, lanes: Sequence[int]) -> None:
        """Write what is held of *lanes*: who its episodes are is known, or they stand outside the budget."""
        self._write([held for held in self._held if not set(lanes).isdisjoint(held.lanes)])

    def _write(self, due: Sequence[_Held]) -> None:
        for held in due:
            begins = [self._ordinals.get(episode_id, 0) if episode_id else 0 for episode_id in held.ids]
            if held.reset is not None:
                self._put(self._writer.record_reset, held.reset, held.reply, begins)
            else:
                self._put(self._writer.record_step, held.action, held.reply, held.target, begins)
            self._held.remove(held)

    # What the hooks tell.

    def started(self, event: EpisodeStarted) -> None:
        """An id has its episode."""
        self._ordinals[event.episode_id] = event.episode_index

    def completed(self, event: EpisodeCompleted) -> None:
        """An episode is over; if the env has not said so, the driver has.

        A request about it may still be on its way to the model: its id is known until the lane's next one is over. Its
        last step may have restarted other lanes, whose episodes are known by now.
        """
        self._write([held for held in self._held if held.is_of(event.env_index, event.episode_id)])
        self._ordinals.pop(self._over.get(event.env_index, ""), None)
        self._over[event.env_index] = event.episode_id
        self._put(self._writer.record_end, event.env_index, event.episode_index, "capped")
        summary = EpisodeSummary(*[getattr(event, name) for name in _SUMMARY_FIELDS])
        self._put(self._writer.record_decision, time.time_ns(), summary)

    def mishap(self, mishap: Mishap) -> None:
        """The run recovered from something, or did not."""
        self._ordinals.pop(mishap.episode_id, None)
        self._put(self._writer.record_decision, time.time_ns(), mishap)

    # What the model is asked and answers.

    def model_asked(self, requests: Sequence[PredictRequest]) -> _Asked:
        """What *requests*, which are about to go out, ask about. What they show stands in the file from now on."""
        if self._held:
            shown = {info.episode_id for request in requests for info in request.episode_info if info.episode_id}
            self._write([held for held in self._held if not shown.isdisjoint(held.ids)])
        ordinal = self._ordinals.get
        ordinals, steps = list[int](), list[int]()
        for request in requests:
            for info in request.episode_info:
                ordinals.append(ordinal(info.episode_id, 0))
            steps += request.episode_steps
        return ordinals, steps, tuple([len(request.episode_info) for request in requests])

    def model_answered(self, asked: _Asked, replies: Sequence[PredictReply | Exception], took_ns: int) -> None:
        """One call to the model came back; *asked* is from :meth:`model_asked`."""
        frames = tuple([0 if isinstance(reply, Exception) else len(reply.actions) for reply in replies])
        self._put_later(self._writer.record_batch, (time.time_ns(), took_ns, *asked, frames))


class _RecorderHooks(Hooks):
    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder

    async def episode_started(self, event: EpisodeStarted) -> None:
        self._recorder.started(event)

    async def episode_completed(self, event: EpisodeCompleted) -> None:
        self._recorder.completed(event)

    async def incident_happened(self, event: IncidentHappened) -> None:
        told = event.incident
        given_up = told.env_index, told.episode_id or ""
        mishap = Mishap(told.kind, told.episode_index or 0, told.attempt, told.error, told.message, *given_up)
        self._recorder.mishap(mishap)

    async def session_failed(self, event: SessionFailed) -> None:
        self._recorder.mishap(Mishap("failed", 0, 0, "", event.reason))


class _RecordingEnv:
    """An env whose every reset and step is recorded. What never got an answer is too, as such."""

    def __init__(self, recorder: Recorder, env: Env) -> None:
        self._recorder = recorder
        self._env = env

    async def reset(self, request: ResetRequest) -> EnvReply:
        recorder = self._recorder
        lanes = recorder.reset_asked(request)
        try:
            reply = await self._env.reset(request)
        except BaseException as error:
            recorder.reset_failed(request, _as_answer(error))
            raise
        recorder.reset_answered(request, lanes, reply)
        return reply

    async def step(self, action: Leaves, target: StepTarget) -> EnvReply:
        recorder = self._recorder
        fresh = recorder.step_asked(target)
        try:
            reply = await self._env.step(action, target)
        except BaseException as error:
            recorder.step_failed(action, target, _as_answer(error))
            raise
        recorder.step_answered(action, target, fresh, reply)
        return reply

    async def close(self) -> None:
        await self._env.close()


class _ReconnectingRecordingEnv(_RecordingEnv):
    def __init__(self, recorder: Recorder, env: ReconnectingEnv) -> None:
        super().__init__(recorder, env)
        self._reconnecting = env

    async def reconnect(self) -> None:
        await self._reconnecting.reconnect()


class _RecordingModel:
    """A model whose every call is recorded."""

    def __init__(self, recorder: Recorder, model: Model) -> None:
        self._recorder = recorder
        self._model = model
        self.fuses_predicts = model.fuses_predicts
        self.wants_history = model.wants_history
        self.reset_adapter = model.reset_adapter
        self.release_adapter = model.release_adapter

    async def predict(self, request: PredictRequest) -> PredictReply:
        (reply,) = await self.predict_group([request])
        if isinstance(reply, Exception):
            raise reply
        return reply

    async def predict_group(self, requests: Sequence[PredictRequest]) -> Sequence[PredictReply | Exception]:
        asked = self._recorder.model_asked(requests)
        started = time.perf_counter_ns()
        replies = await self._model.predict_group(requests)
        self._recorder.model_answered(asked, replies, time.perf_counter_ns() - started)
        return replies


def _is_lasting(action: Leaves, reply: EnvReply) -> bool:
    """Whether nobody can change what these hold, as somebody may behind a view, and none of it is large."""
    if reply.infos is not None and type(reply.infos) is not LazyMetadata:
        return False
    for leaves in (action, reply.observation or ()):
        for leaf in leaves:
            if type(leaf) is not bytes:
                return False
    return True


def _as_answer(error: BaseException) -> EndpointError | None:
    """*error* as the env's answer; ``None`` when there is none, because the request was given up."""
    if isinstance(error, EndpointError):
        return error
    if isinstance(error, SessionError):
        return EndpointError("INTERNAL", str(error))
    return EndpointError("INTERNAL", f"{type(error).__name__}: {error}") if isinstance(error, Exception) else None
