"""Runs that repeat, recorded and played again: a drifting env, policies for it, and what may be planted in either."""

from collections.abc import Callable
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

from rlmesh_trio.endpoints.local_env import open_local_env
from rlmesh_trio.endpoints.local_model import open_local_model
from rlmesh_trio.one_call import open_run
from rlmesh_trio.recording import Record, Row, open_recording, verify
from rlmesh_trio.replay.comparing import compare
from rlmesh_trio.replay.findings import Comparison
from rlmesh_trio.replay.live import Live
from rlmesh_trio.spaces import contract_from_gymnasium
from rlmesh_trio.spec import EnvContract, Limits, SessionSpec
from rlmesh_trio.testing import ScriptedEnv, ScriptedModel

EPISODES = 9
QUICK = Limits(env_step_timeout=2, env_reset_timeout=2, model_predict_timeout=2, service_close_timeout=1)


class Drift(gymnasium.Env[Any, Any]):
    """Drifts by what is drawn and done, for as many steps as its seed says. *plant* is called before each step."""

    observation_space = spaces.Box(-np.inf, np.inf, (3,), np.float32)
    action_space = spaces.Discrete(3)
    resets = 0

    def __init__(self, plant: Callable[["Drift"], None] = lambda _: None) -> None:
        self.plant = plant
        self.seed: int | None = None
        self.steps = 0
        self.length = 0
        self.place = np.zeros(3, np.float32)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        super().reset(seed=seed)
        Drift.resets += 1
        self.seed, self.steps = seed, 0
        self.length = int(self.np_random.integers(3, 9))
        self.place = self.np_random.normal(size=3).astype(np.float32)
        return self.place, {"length": self.length}

    def step(self, action: Any) -> Any:
        self.steps += 1
        self.plant(self)
        self.place = (self.place + 0.3 * (int(action) - 1) + 0.1 * self.np_random.normal(size=3)).astype(np.float32)
        return self.place, float(self.place[0]), self.steps >= self.length, False, {"steps": self.steps}


def at(ordinal: int, step: int, what: Callable[[Drift], None]) -> Callable[[Drift], None]:
    """Do *what* in this step of the episode that is seeded with 100 + *ordinal*."""

    def plant(env: Drift) -> None:
        if (env.seed, env.steps) == (100 + ordinal, step):
            what(env)

    return plant


SEEDS = {"episode_seeds": tuple(range(101, 101 + EPISODES))}


def back(observations: Any) -> Any:
    """Against the drift."""
    return (1 - np.sign(observations[:, 0])).astype(np.int64)


def forth(observations: Any) -> Any:
    return (1 + np.sign(observations[:, 0])).astype(np.int64)


def crowded(observations: Any) -> Any:
    """What others do decides: no model should."""
    return np.full(len(observations), len(observations) % 3, np.int64)


def frames_from(number: float, count: int) -> Any:
    """Frames that any other number would hardly give."""
    return np.array([int(abs(number) * 1000 / (1 + ahead)) % 3 for ahead in range(count)], np.int64)


class Chunks:
    """Some frames at a time."""

    def predict_chunk(self, observation: Any, execution_horizon: int) -> Any:
        return frames_from(float(observation[0]), execution_horizon)


class Past:
    """Frames that hang on all that was seen since it was asked last, and on who asks."""

    wants_history = True

    def predict_chunk(self, observation: Any, history: Any, context: Any, execution_horizon: int) -> Any:
        seen = sum(float(past.observation[0]) * (1 + past.step % 3) for past in history)
        start = float(observation[0]) + seen + (context.seed or 0) % 2 - context.step % 2
        return frames_from(start, execution_horizon)


def vector(plant: Callable[[Drift], None] = lambda _: None, lanes: int = 3, mode: str = "NEXT_STEP") -> Any:
    makers = [lambda: Drift(plant) for _ in range(lanes)]
    return gymnasium.vector.SyncVectorEnv(makers, autoreset_mode=gymnasium.vector.AutoresetMode[mode], copy=True)


def live(
    source: object = Drift,
    policy: object = back,
    *,
    lanes: int | None = None,
    limits: Limits = QUICK,
    where: Any = "inline",
) -> Live:
    """A live env of *lanes* lanes, or as many as are wanted, and a live model."""
    return Live(
        env=lambda wanted: open_local_env(source, lanes=lanes or wanted or 1, where=where),
        model=partial(open_local_model, policy),
        limits=limits,
    )


async def record(
    path: Path, source: object = Drift, policy: object = back, *, lanes: int = 1, level: str = "full", **fields: Any
) -> None:
    """Record a run of nine episodes, whose seeds are 101 and on."""
    made = live(source, policy, lanes=lanes)
    assert made.env is not None
    assert made.model is not None
    fields = {"max_episodes": EPISODES} | SEEDS | fields
    async with open_run(made.env(None), made.model(), record=Record(path, level), **fields) as run:
        await run.wait()


def judged(recorded: Path, now: Path, **given: Any) -> Comparison:
    """The comparison of two recordings, the new one being whole."""
    assert verify(now).problems == ()
    with open_recording(recorded) as before, open_recording(now) as after:
        return compare(before, after, **given)


def same(recorded: Path, now: Path) -> bool:
    """Whether both have the same root, and all episodes."""
    found = judged(recorded, now)
    return found.equal and found.compared == EPISODES and found.run_roots[0] == found.run_roots[1]


def rows(path: Path, ordinal: int) -> list[Row]:
    with open_recording(path) as recording:
        return list(recording.rows(ordinal))


def ordinals(path: Path) -> list[int]:
    with open_recording(path) as recording:
        return sorted(recording.entries)


class Resolved(ScriptedModel):
    """A scripted model that can be told its route."""

    horizon = 0

    async def resolve(self, spec: SessionSpec, *, execution_horizon: int = 1) -> None:
        self.spec = spec
        self.horizon = execution_horizon


class Scripted(ScriptedEnv):
    """A scripted env whose contract can be written down."""

    @property
    def contract(self) -> EnvContract:
        byte, mode = spaces.Box(0, 255, (1,), np.uint8), super().contract.autoreset_mode
        return contract_from_gymnasium(
            byte, byte, env_id="Scripted", metadata={}, num_envs=len(self.lanes), autoreset_mode=mode, render_mode=""
        )


async def record_scripted(path: Path, env: ScriptedEnv, model: Resolved, episodes: int = 4, **fields: Any) -> None:
    async with open_run(
        nullcontext(env), nullcontext(model), record=Record(path, "full"), max_episodes=episodes, **fields
    ) as run:
        await run.wait()


def scripted(env: Any = None, model: Any = None, limits: Limits = QUICK) -> Live:
    """Scripted endpoints as what is live."""
    return Live(env=lambda _: nullcontext(env), model=lambda: nullcontext(model), limits=limits)
