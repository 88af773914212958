"""Endpoints that pass everything on to a real one and keep what was asked of it."""

from collections.abc import Sequence

import attrs

from rlmesh_trio.endpoints.env import Env
from rlmesh_trio.endpoints.model import Model
from rlmesh_trio.messages import (
    EnvReply,
    Leaves,
    PredictReply,
    PredictRequest,
    ReleaseAdapterRequest,
    ResetAdapterRequest,
    ResetRequest,
    StepTarget,
)

__all__ = ("SpyEnv", "SpyModel")


@attrs.define(eq=False)
class SpyModel:
    """A model whose every request is kept: the predicts as they were sent, the ids it was told are over.

    ``flying`` is how many calls for predicts are under way.
    """

    predicts: list[PredictRequest] = attrs.field(factory=list[PredictRequest])
    ended: list[str] = attrs.field(factory=list[str])
    releases: list[ReleaseAdapterRequest] = attrs.field(factory=list[ReleaseAdapterRequest])
    flying: int = 0
    _model: Model | None = None

    def on(self, model: Model) -> "SpyModel":
        """The same spy, in front of *model*."""
        self._model = model
        return self

    @property
    def _real(self) -> Model:
        assert self._model is not None
        return self._model

    async def predict(self, request: PredictRequest) -> PredictReply:
        self.predicts.append(attrs.evolve(request))
        return await self._real.predict(request)

    async def predict_group(self, requests: Sequence[PredictRequest]) -> Sequence[PredictReply | Exception]:
        self.predicts += [attrs.evolve(request) for request in requests]
        self.flying += 1
        try:
            return await self._real.predict_group(requests)
        finally:
            self.flying -= 1

    def fuses_predicts(self) -> bool:
        return self._real.fuses_predicts()

    def wants_history(self) -> bool:
        return self._real.wants_history()

    async def reset_adapter(self, request: ResetAdapterRequest) -> None:
        self.ended += request.episode_ids
        await self._real.reset_adapter(request)

    async def release_adapter(self, request: ReleaseAdapterRequest) -> None:
        self.releases.append(request)
        await self._real.release_adapter(request)


@attrs.define(eq=False)
class SpyEnv:
    """An env whose every operation is kept by name."""

    _env: Env
    operations: list[str] = attrs.field(factory=list[str])

    async def reset(self, request: ResetRequest) -> EnvReply:
        self.operations.append("reset")
        return await self._env.reset(request)

    async def step(self, action: Leaves, target: StepTarget) -> EnvReply:
        self.operations.append("step")
        return await self._env.step(action, target)

    async def close(self) -> None:
        self.operations.append("close")
        await self._env.close()
