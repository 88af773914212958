"""One seeded run of cart poles that is recorded: how it is played may vary, its root may not."""

import random
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import attrs
import numpy as np
import trio

from rlmesh_trio.endpoints.env import Env
from rlmesh_trio.endpoints.local_model import LocalModel, open_local_model
from rlmesh_trio.endpoints.policy_forms import EpisodeContext
from rlmesh_trio.engine.schedulers import Scheduler
from rlmesh_trio.engine.session import run_session
from rlmesh_trio.messages import EnvReply, Leaves, PredictReply, PredictRequest, ResetRequest, StepTarget
from rlmesh_trio.recording import Recorder, header_of
from rlmesh_trio.spec import SessionSpec

EPISODES = 17


def lean(observation: Any) -> Any:
    """Push to the side the pole falls to."""
    return (np.asarray(observation)[:, 2] > 0).astype(np.int64)


def noisy(observation: Any, context: Sequence[EpisodeContext]) -> Any:
    """The same, now and then the other way."""
    flips = [one.generator("noise").random() < 0.3 for one in context]
    return lean(observation) ^ np.array(flips, np.int64)


def by_batch(observation: Any) -> Any:
    """Hangs on how many rows there are, as rounding may."""
    return (lean(observation) + len(observation)) % 2


class Ahead:
    """Frames that go on in turn from what is seen now."""

    def predict_chunk_batch(self, observations: Any) -> Any:
        first = lean(observations)
        return np.stack([first, 1 - first, first], axis=1)


@attrs.frozen
class Run:
    """The root of a run, and how many rows each call to the model had."""

    root: bytes
    widths: tuple[int, ...]


class Jittery:
    """An env whose every answer takes a while, drawn from *source*."""

    def __init__(self, env: Env, source: random.Random) -> None:
        self._env = env
        self._source = source

    async def reset(self, request: ResetRequest) -> EnvReply:
        await trio.sleep(self._source.random())
        return await self._env.reset(request)

    async def step(self, action: Leaves, target: StepTarget) -> EnvReply:
        await trio.sleep(self._source.choice([0.0, 0.1, self._source.random()]))
        return await self._env.step(action, target)

    async def close(self) -> None:
        await self._env.close()


class Counting:
    """A model that notes the width of its calls, and is late as drawn from *source*, if there is one."""

    def __init__(self, model: LocalModel, source: random.Random | None) -> None:
        self._model = model
        self._source = source
        self.widths: list[int] = []
        self.fuses_predicts = model.fuses_predicts
        self.wants_history = model.wants_history
        self.reset_adapter = model.reset_adapter
        self.release_adapter = model.release_adapter
        self.predict = model.predict

    async def predict_group(self, requests: Sequence[PredictRequest]) -> Sequence[PredictReply | Exception]:
        self.widths.append(sum(len(request.episode_info) for request in requests))
        if self._source is not None:
            await trio.sleep(self._source.random() / 2)
        return await self._model.predict_group(requests)


async def recorded_run(
    env: Any,
    policy: object,
    *,
    horizon: int = 1,
    lead: int = 0,
    jitter: int | None = None,
    scheduler: Scheduler | None = None,
    fixed_batch: bool = False,
    **fields: Any,
) -> Run:
    """Play :data:`EPISODES` on *env*; with *jitter*, a seed, everything takes times drawn from it."""
    source = None if jitter is None else random.Random(jitter)
    given: dict[str, Any] = {"max_episodes": EPISODES, "base_seed": 11, "max_episode_steps": 8, **fields}
    spec = SessionSpec.for_env(env, **given)
    with tempfile.TemporaryDirectory() as folder:
        async with open_local_model(policy, where="inline", fixed_batch=fixed_batch) as model:
            await model.resolve(spec, execution_horizon=horizon)
            counting = Counting(model, source)
            recorder = Recorder(Path(folder, "run.mcap"), header_of(spec, env, model, execution_horizon=horizon))
            await run_session(
                spec,
                recorder.wrap(env if source is None else Jittery(env, source)),
                recorder.wrap_model(counting),
                hooks=recorder.hooks,
                scheduler=scheduler,
                prefetch_lead=lead,
            )
        footer = recorder.finish()
    assert footer is not None
    assert [episode.ordinal for episode in footer.episodes] == list(range(1, EPISODES + 1))
    return Run(footer.run_root, tuple(counting.widths))
