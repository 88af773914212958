"""Short ways to ask a model and to read its answers."""

from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import gymnasium
import numpy as np

from rlmesh_trio.endpoints.local_model import LocalModel, Where, open_local_model
from rlmesh_trio.messages import EpisodeInfo, HistoryRow, PredictReply, PredictRequest
from rlmesh_trio.spaces import codec_for, contract_from_gymnasium
from rlmesh_trio.spec import SessionSpec

OBSERVATION = gymnasium.spaces.Box(-10, 10, (2,), np.float32)
ACTION = gymnasium.spaces.Discrete(5)


class Asking:
    """A resolved model and the codecs of its route."""

    def __init__(self, model: LocalModel, spec: SessionSpec) -> None:
        self.model = model
        assert spec.env_contract.observation_space is not None
        assert spec.env_contract.action_space is not None
        self._observations = codec_for(spec.env_contract.observation_space)
        self._actions = codec_for(spec.env_contract.action_space)

    def request(self, rows: Sequence[Any], *ids: str, number: int = 1, **fields: Any) -> PredictRequest:
        """A request with one row per observation; ids default to e0, e1, …, seeds to their place."""
        names = ids or [f"e{row}" for row in range(len(rows))]
        infos = tuple(EpisodeInfo(name, place) for place, name in enumerate(names))
        leaves = self._observations.pack_rows(rows)
        return PredictRequest("session", "route", f"request-{number}", leaves, infos, **fields)

    def past(self, rows: Sequence[Any], step: int, *ids: str) -> HistoryRow:
        return HistoryRow(self._observations.pack_rows(rows), tuple(EpisodeInfo(name, None) for name in ids), step)

    def actions(self, reply: PredictReply | Exception, rows: int) -> list[Any]:
        """The frames of a reply, each a batched action."""
        assert isinstance(reply, PredictReply), repr(reply)
        return [self._actions.unpack_batch(frame, rows) for frame in reply.actions]

    async def frames(self, *rows: Any, **fields: Any) -> list[Any]:
        """The frames for one request, as lists."""
        (reply,) = await self.model.predict_group([self.request(rows, **fields)])
        return [np.asarray(action).tolist() for action in self.actions(reply, len(rows))]


def spec_for(observation: gymnasium.Space[Any] = OBSERVATION, action: gymnasium.Space[Any] = ACTION) -> SessionSpec:
    contract = contract_from_gymnasium(
        observation, action, env_id="Toy-v0", metadata={}, num_envs=1, autoreset_mode=3, render_mode=""
    )
    return SessionSpec(env_contract=contract)


@asynccontextmanager
async def asking(
    policy: object,
    *,
    horizon: int = 1,
    where: Where = "inline",
    spec: SessionSpec | None = None,
    fixed_batch: bool = False,
) -> AsyncGenerator[Asking]:
    spec = spec or spec_for()
    async with open_local_model(policy, where=where, fixed_batch=fixed_batch) as model:
        await model.resolve(spec, execution_horizon=horizon)
        yield Asking(model, spec)
