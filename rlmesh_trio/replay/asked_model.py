"""Asking a live model as a session would: under deadlines, told of episodes that are over, released in the end."""

import logging
from collections.abc import Awaitable, Sequence
from typing import Final

import trio

from rlmesh_trio.endpoints.model import Model
from rlmesh_trio.errors import EndpointError, ModelRpcError, OperationTimeout, SessionError
from rlmesh_trio.messages import PredictReply, PredictRequest, ReleaseAdapterRequest, ResetAdapterRequest
from rlmesh_trio.spec import SessionSpec

__all__ = ("AskedModel",)

logger = logging.getLogger("rlmesh_trio")

_OVER: Final = "the recorded observations are played"


class AskedModel:
    """*model*, resolved for *spec*."""

    def __init__(self, model: Model, spec: SessionSpec) -> None:
        self._model = model
        self._spec = spec
        self._known: set[str] = set()
        self._due: dict[str, None] = {}
        self._asked = 0

    def request_id(self) -> str:
        """A fresh request id."""
        self._asked += 1
        return f"{self._spec.env_id}:replayed_observation:{self._asked:06d}"

    def end(self, episode_id: str) -> None:
        """An episode is over: the model is told before it is asked about others, if it ever was asked about this."""
        if episode_id in self._known:
            self._known.discard(episode_id)
            self._due[episode_id] = None

    async def predict(self, requests: Sequence[PredictRequest]) -> Sequence[PredictReply | ModelRpcError]:
        """Answer each request, one that failed by its error.

        Raises :exc:`ModelRpcError` when all failed, and :exc:`OperationTimeout`.
        """
        asked = {info.episode_id for request in requests for info in request.episode_info}
        await self._end_due(asked)
        self._known |= asked
        limit, component = self._spec.limits.model_predict_timeout, self._spec.model_component_id
        with trio.move_on_after(limit):
            try:
                replies = await self._model.predict_group(requests)
            except Exception as error:
                raise self._failure(error) from error
            if len(replies) != len(requests):
                raise ModelRpcError(component, f"{len(replies)} answers came to {len(requests)} requests")
            return [self._failure(reply) if isinstance(reply, Exception) else reply for reply in replies]
        raise OperationTimeout(self._spec.env_id, component, "model.predict", 0, limit)

    def _failure(self, error: Exception) -> ModelRpcError:
        component = self._spec.model_component_id
        if isinstance(error, EndpointError):
            failure = ModelRpcError(component, error.message, error.recoverable, error.code)
        else:
            told = str(error) if isinstance(error, SessionError) else f"{type(error).__name__}: {error}"
            failure = ModelRpcError(component, told, code="INTERNAL")
        failure.__cause__ = error
        return failure

    async def _end_due(self, asked: set[str]) -> None:
        due = [episode_id for episode_id in self._due if episode_id not in asked]
        if due:
            self._due = {episode_id: None for episode_id in self._due if episode_id in asked}
            spec = self._spec
            request = ResetAdapterRequest(spec.session_id, spec.env_id, self.request_id(), tuple(due))
            await self._tell("reset_adapter", self._model.reset_adapter(request), spec.limits.model_predict_timeout)

    async def release(self) -> None:
        """End what the model still holds, and the route. A failure is logged; shielded, each part under its limit."""
        spec = self._spec
        with trio.CancelScope(shield=True):
            self._due.update(dict.fromkeys(self._known))
            with trio.move_on_after(spec.limits.service_close_timeout):
                await self._end_due(set())
            request = ReleaseAdapterRequest(spec.session_id, spec.env_id, self.request_id(), _OVER)
            await self._tell("release_adapter", self._model.release_adapter(request), spec.limits.service_close_timeout)

    async def _tell(self, what: str, told: Awaitable[None], limit: float) -> None:
        with trio.move_on_after(limit) as scope:
            try:
                await told
            except Exception as error:
                logger.warning("model %s failed: %s", what, error)
        if scope.cancelled_caught:
            logger.warning("model %s failed: no answer in time", what)
