"""The Protocol the engine drives a model through."""

from collections.abc import Sequence
from typing import Protocol

from rlmesh_trio.messages import PredictReply, PredictRequest, ReleaseAdapterRequest, ResetAdapterRequest

__all__ = ("Model",)


class Model(Protocol):
    """One model session, resolved for the route before the session starts."""

    async def predict(self, request: PredictRequest) -> PredictReply:
        """The action frames for one group."""
        ...

    async def predict_group(self, requests: Sequence[PredictRequest]) -> Sequence[PredictReply | Exception]:
        """Answer each request in order, a failed one with its error: the engine's only way to ask."""
        ...

    def fuses_predicts(self) -> bool:
        """Whether a group of requests is one forward pass, so that one grouped call at a time is best."""
        ...

    def wants_history(self) -> bool:
        """Whether predicts shall carry the observations since the last one; read once, when the session starts."""
        ...

    async def reset_adapter(self, request: ResetAdapterRequest) -> None:
        """End the named episodes on the model."""
        ...

    async def release_adapter(self, request: ReleaseAdapterRequest) -> None:
        """End the route on the model."""
        ...
