"""Driving a real server from a test, keeping what went by, and playing the same episodes without any server."""

from collections.abc import Mapping, Sequence
from typing import Any, cast

import attrs
import gymnasium
import numpy as np
import trio

from rlmesh_trio import Hooks, Report, SessionSpec, connect_env, connect_model, open_local_model, run_session
from rlmesh_trio.events import ActionReceived, EpisodeCompleted, EpisodeStarted, ObservationEmitted, StepCompleted
from rlmesh_trio.messages import Leaves
from rlmesh_trio.spaces import codec_for
from rlmesh_trio.spec import ValueSpace
from tests.interop.peers.policies import Decide
from tests.interop.spies import SpyModel
from tests.peers import Peer

__all__ = ("Episode", "Witness", "assert_same", "drive", "drive_remotely", "play")

LIMIT = 30.0


@attrs.define
class Episode:
    """What one episode showed, did and earned; observations and actions as members of their spaces."""

    seed: int | None
    lane: int = 0
    observations: list[Any] = attrs.field(factory=list[Any])
    actions: list[Any] = attrs.field(factory=list[Any])
    rewards: list[float] = attrs.field(factory=list[float])
    terminated: bool = False
    truncated: bool = False


class Witness(Hooks):
    """Keeps every scored episode of a run by its id, and the infos of resets and steps as they came."""

    def __init__(self) -> None:
        self.episodes: dict[str, Episode] = {}
        self.reset_infos: list[Any] = []
        self.step_infos: list[Any] = []
        self._acting: dict[int | None, list[tuple[Episode | None, Any]]] = {}

    async def episode_started(self, event: EpisodeStarted) -> None:
        self.episodes[event.episode_id] = Episode(seed=event.seed)

    async def observation_emitted(self, event: ObservationEmitted) -> None:
        if event.is_reset:
            self.reset_infos.append(event.infos)
        assert event.observation is not None
        shown = self._rows(event.observation_space, event.observation, event.episode_ids)
        for episode, observation in shown:
            if episode is not None:
                episode.observations.append(observation)

    async def action_received(self, event: ActionReceived) -> None:
        self._acting[event.route.lane] = self._rows(event.action_space, event.action, event.episode_ids)

    async def step_completed(self, event: StepCompleted) -> None:
        self.step_infos.append(event.infos)
        acting = self._acting[event.route.lane]
        for (episode, action), reward, rolled in zip(acting, event.rewards, event.autoreset_roll, strict=True):
            if episode is not None and not rolled:
                episode.actions.append(action)
                episode.rewards.append(reward)

    async def episode_completed(self, event: EpisodeCompleted) -> None:
        episode = self.episodes[event.episode_id]
        episode.lane, episode.terminated, episode.truncated = event.env_index, event.terminated, event.truncated

    def _rows(self, space: ValueSpace, leaves: Leaves, episode_ids: Sequence[str]) -> list[tuple[Episode | None, Any]]:
        codec, rows = codec_for(space), len(episode_ids)
        return [(self.episodes.get(name), codec.unpack_row(leaves, rows, row)) for row, name in enumerate(episode_ids)]


async def drive(address: str, decide: Decide, *, hooks: Hooks | None = None, **fields: Any) -> Report:
    """Run *decide* on the server at *address* with these spec fields."""

    class Policy:
        def predict(self, observation: Any) -> Any:
            return decide(observation, 0)

    with trio.fail_after(LIMIT):
        async with connect_env(address) as env, open_local_model(Policy()) as model:
            spec = SessionSpec.for_env(env, **fields)
            await model.resolve(spec)
            return await run_session(spec, env, model, hooks=hooks)


async def drive_remotely(
    env_peer: Peer,
    model_peer: Peer,
    *,
    horizon: int = 1,
    lead: int = 0,
    hooks: Hooks | None = None,
    merge_rows: bool = False,
    spy: SpyModel | None = None,
    **fields: Any,
) -> Report:
    """Run the served model on the served env with these spec fields; *spy* looks over the model's shoulder."""
    with trio.fail_after(LIMIT):
        connecting = connect_model(model_peer.address, merge_rows=merge_rows)
        async with connect_env(env_peer.address) as env, connecting as model:
            spec = SessionSpec.for_env(env, **fields)
            await model.resolve(spec, execution_horizon=horizon)
            watched = model if spy is None else spy.on(model)
            return await run_session(spec, env, watched, hooks=hooks, prefetch_lead=lead)


def play(env: gymnasium.Env[Any, Any], decide: Decide, seed: int | None) -> Episode:
    """The episode that *decide* plays on *env* itself, its last observation included."""
    episode = Episode(seed=seed)
    observation, _ = env.reset(seed=seed)
    episode.observations.append(observation)
    while not (episode.terminated or episode.truncated):
        action = decide(observation, 0)
        observation, reward, episode.terminated, episode.truncated, _ = env.step(action)
        episode.observations.append(observation)
        episode.actions.append(action)
        episode.rewards.append(float(reward))
    return episode


def assert_same(driven: Episode, played: Episode) -> None:
    """Both episodes are value for value the same; a driven one may leave out what it saw last."""
    assert driven.seed == played.seed
    assert driven.rewards == played.rewards
    assert (driven.terminated, driven.truncated) == (played.terminated, played.truncated)
    assert len(driven.observations) in (len(driven.rewards), len(driven.rewards) + 1)
    for seen, shown in zip(driven.observations, played.observations, strict=False):
        assert_equal(seen, shown)
    for taken, chosen in zip(driven.actions, played.actions, strict=True):
        assert_equal(taken, chosen)


def assert_equal(left: Any, right: Any) -> None:
    if isinstance(right, Mapping):
        parts = cast("Mapping[str, Any]", right)
        assert list(left) == list(parts)
        for key, part in parts.items():
            assert_equal(left[key], part)
    elif isinstance(right, tuple):
        assert isinstance(left, tuple)
        for one, other in zip(cast("tuple[Any, ...]", left), cast("tuple[Any, ...]", right), strict=True):
            assert_equal(one, other)
    elif isinstance(right, str):
        assert left == right
    else:
        np.testing.assert_array_equal(left, right)
