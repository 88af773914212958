"""Real servers played again in three ways: recorded runs on them repeat, and what is lost ends a play in order."""

from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import Any

import gymnasium
import pytest
import trio

from rlmesh_trio import connect_env, connect_model, open_local_env, open_local_model
from rlmesh_trio.errors import EnvRpcError, ModelRpcError
from rlmesh_trio.messages import EnvReply, Leaves, StepTarget
from rlmesh_trio.one_call import open_run
from rlmesh_trio.recording import Record, open_recording, verify
from rlmesh_trio.replay.actions import play_actions
from rlmesh_trio.replay.closed import play_closed
from rlmesh_trio.replay.comparing import compare
from rlmesh_trio.replay.findings import Comparison
from rlmesh_trio.replay.live import Live
from rlmesh_trio.replay.observations import play_observations
from rlmesh_trio.spec import Limits
from tests.interop.conftest import StartPeer
from tests.peers import Peer, start_env_peer, start_model_peer

LIMITS = Limits(env_connect_timeout=20, env_step_timeout=5, env_reset_timeout=5, model_predict_timeout=5)
KINDS = {
    "single": (),
    "lanes": ("--kind", "lanes", "--num-envs", "3"),
    "vector": ("--kind", "vector", "--num-envs", "3"),
}
EPISODES = 7


class Rows:
    """Push to the side the pole falls to."""

    def predict(self, observation: Any) -> Any:
        return int(observation[2] + 0.1 * observation[3] > 0)


def on(env: Peer, model: Peer | None = None) -> Live:
    return Live(
        env=lambda _: connect_env(env.address, limits=LIMITS),
        model=(lambda: connect_model(model.address, limits=LIMITS)) if model else partial(open_local_model, Rows),
        limits=LIMITS,
    )


async def record(path: Path, live: Live, **fields: Any) -> None:
    assert live.env
    assert live.model
    fields = {"max_episodes": EPISODES, "base_seed": 11} | fields
    with trio.fail_after(60):
        async with open_run(live.env(None), live.model(), record=Record(path, "full"), limits=LIMITS, **fields) as run:
            await run.wait()


async def played(play: Any, a: Path, b: Path, live: Live, **given: Any) -> Comparison:
    with trio.fail_after(60), open_recording(a) as recording:
        await play(recording, live, b, **given)
    assert verify(b).problems == ()
    with open_recording(a) as before, open_recording(b) as after:
        return compare(before, after)


def equal(found: Comparison) -> bool:
    return found.equal and found.compared == EPISODES and found.run_roots[0] == found.run_roots[1]


@pytest.mark.parametrize("kind", KINDS)
async def test_a_served_env(shared_env: StartPeer, kind: str, tmp_path: Path) -> None:
    live = on(shared_env("--env", "CartPole-v1", "--length", "30", *KINDS[kind]))
    a, b = tmp_path / "a", tmp_path / "b"
    await record(a, live)
    for play in (play_closed, play_actions, play_observations, partial(play_observations, batches="single")):
        assert equal(await played(play, a, b, live))
        b.unlink()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("chunks", [{}, {"execution_horizon": 4, "prefetch_lead": 2}], ids=["frames", "chunks"])
async def test_a_served_model(
    shared_env: StartPeer, shared_model: StartPeer, kind: str, chunks: dict[str, int], tmp_path: Path
) -> None:
    if chunks and kind == "vector":
        chunks = {"prefetch_lead": 1}
    model = shared_model(
        "--policy", "cartpole", *(("--kind", "chunk", "--chunk", "4") if "execution_horizon" in chunks else ())
    )
    live = on(shared_env("--env", "CartPole-v1", "--length", "30", *KINDS[kind]), model)
    a = tmp_path / "a"
    await record(a, live, **chunks)
    ended = len(model.events("episode_end"))
    assert equal(await played(play_observations, a, tmp_path / "b", live))
    assert len(model.events("episode_end")) >= ended + EPISODES
    assert equal(await played(play_observations, a, tmp_path / "c", live, batches="single"))


@pytest.mark.parametrize("lead", [0, 2])
async def test_a_served_model_that_looks_back(
    shared_env: StartPeer, shared_model: StartPeer, lead: int, tmp_path: Path
) -> None:
    env = shared_env("--env", "arm", "--length", "9", *KINDS["lanes"])
    live = on(env, shared_model("--kind", "history", "--policy", "arm", "--stack", "3"))
    a = tmp_path / "a"
    await record(a, live, execution_horizon=4, prefetch_lead=lead)
    assert equal(await played(play_observations, a, tmp_path / "b", live))


async def test_lanes_and_one_env_play_each_others_runs(shared_env: StartPeer, tmp_path: Path) -> None:
    one, lanes = (
        on(shared_env("--env", "CartPole-v1", "--length", "30", *KINDS[kind])) for kind in ("single", "lanes")
    )
    for name, there, here in (("a", one, lanes), ("b", lanes, one)):
        a = tmp_path / name
        await record(a, there)
        assert equal(await played(play_actions, a, tmp_path / f"{name}.actions", here))
        assert equal(await played(play_closed, a, tmp_path / f"{name}.closed", here))


def short_pole() -> Any:
    return gymnasium.make("CartPole-v1", max_episode_steps=30)


async def test_a_served_run_plays_in_this_process(shared_env: StartPeer, tmp_path: Path) -> None:
    a = tmp_path / "a"
    await record(a, on(shared_env("--env", "CartPole-v1", "--length", "30", *KINDS["lanes"])))
    live = Live(env=lambda lanes: open_local_env(short_pole, lanes=lanes or 2), limits=LIMITS)
    found = await played(play_actions, a, tmp_path / "b", live, force=True)
    assert found.divergences == ()
    assert found.compared == EPISODES


class Killing:
    """An env whose server is killed at its ninth step."""

    def __init__(self, env: Any, peer: Peer) -> None:
        self._env = env
        self._peer = peer
        self._steps = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._env, name)

    async def step(self, action: Leaves, target: StepTarget) -> EnvReply:
        self._steps += 1
        if self._steps == 9:
            self._peer.kill()
        return await self._env.step(action, target)


@pytest.mark.parametrize("play", [play_closed, play_actions])
async def test_a_server_that_dies(play: Any, shared_env: StartPeer, tmp_path: Path) -> None:
    options = ("--env", "CartPole-v1", "--length", "5")
    a, b = tmp_path / "a", tmp_path / "b"
    await record(a, on(shared_env(*options)))
    with start_env_peer(*options) as peer:
        async with connect_env(peer.address, limits=LIMITS) as env:
            killing: Any = Killing(env, peer)
            live = Live(env=lambda _: nullcontext(killing), model=partial(open_local_model, Rows), limits=LIMITS)
            with pytest.raises(EnvRpcError) as lost:
                await played(play, a, b, live)
    assert lost.value.code == "CONNECTION"
    assert verify(b).problems == ()
    with open_recording(a) as before, open_recording(b) as after:
        found = compare(before, after)
        assert found.compared == 2
        assert [(each.ordinal, each.first.leaves[0].part) for each in found.divergences] == [(2, "error")]


async def test_a_model_server_that_dies(shared_env: StartPeer, tmp_path: Path) -> None:
    env = shared_env("--env", "CartPole-v1", "--length", "5")
    a, b = tmp_path / "a", tmp_path / "b"
    await record(a, on(env))
    dying = start_model_peer("--policy", "cartpole", "--fault", "exit", "--fault-at", "9")
    with dying as model, pytest.raises(ModelRpcError) as lost:
        await played(play_observations, a, b, on(env, model))
    assert lost.value.code == "CONNECTION"
    assert verify(b).problems == ()


async def test_an_env_that_hangs(shared_env: StartPeer, tmp_path: Path) -> None:
    options = ("--env", "counter", "--length", "4")
    a, b = tmp_path / "a", tmp_path / "b"
    limits = Limits(env_connect_timeout=20, env_step_timeout=3, env_reset_timeout=20)
    policy = partial(open_local_model, "zero")
    await record(a, Live(env=on(shared_env(*options)).env, model=policy), max_episodes=3)
    with start_env_peer(*options, "--fault", "hang", "--fault-at", "2") as peer:
        live = Live(env=lambda _: connect_env(peer.address, limits=limits), limits=limits)
        found = await played(play_actions, a, b, live, episodes=[2])
    assert [(each.ordinal, each.first.step, each.ends[1]) for each in found.divergences] == [(2, 2, "error")]
