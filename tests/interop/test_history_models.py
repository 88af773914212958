"""Real models that look back: what they are sent, what they see of it, and what becomes of the episodes."""

from collections import defaultdict
from collections.abc import Iterable
from typing import Any

import pytest

from rlmesh_trio.messages import Leaves, PredictRequest
from rlmesh_trio.spaces import codec_for, contract_from_gymnasium
from tests.interop.conftest import StartPeer
from tests.interop.driving import Witness, assert_same, drive_remotely
from tests.interop.naive import Ask, play_chunks
from tests.interop.peers.policies import arm
from tests.interop.peers.toys import Arm, Fault
from tests.interop.spies import SpyModel

LENGTH, STAGGER, FRAMES = 9, 2, 4
WINDOWS: dict[tuple[str, ...], tuple[int, ...]] = {("--stack", "3"): (-2, -1, 0), ("--offsets=-4,-2,0",): (-4, -2, 0)}

CONTRACT = contract_from_gymnasium(
    Arm.observation_space, Arm.action_space, env_id="", metadata={}, num_envs=1, autoreset_mode=3, render_mode=""
)
assert CONTRACT.observation_space is not None
CODEC = codec_for(CONTRACT.observation_space)

servers = pytest.mark.parametrize(
    "server", [(), ("--kind", "lanes", "--length-stagger", str(STAGGER))], ids=["single", "lanes"]
)


def shown(observation: Leaves | None) -> Any:
    """What a request or a row carries: the step of its episode that the camera shows."""
    assert observation is not None
    return CODEC.unpack_row(observation, 1, 0)


def clock(observation: Leaves | None) -> int:
    return int(shown(observation)["cam"][0, 0, 0])


def ledgers(predicts: Iterable[PredictRequest]) -> dict[str, list[Ask]]:
    """What was asked in each episode, by the steps the pictures show."""
    asked: dict[str, list[Ask]] = defaultdict(list)
    for request in predicts:
        (info,) = request.episode_info
        assert {row.episode_info for row in request.history} <= {request.episode_info}
        rows = tuple(clock(row.observation) for row in request.history)
        asked[info.episode_id].append(Ask(clock(request.observation), rows))
    return asked


def check_counters(predicts: Iterable[PredictRequest]) -> None:
    """The counter of the route that each observation goes under runs on through an episode without a gap."""
    begun: dict[str, int] = {}
    for request in predicts:
        (info,) = request.episode_info
        assert request.step is not None
        start = begun.setdefault(info.episode_id, request.step - clock(request.observation))
        assert request.step == start + clock(request.observation)
        assert [row.step for row in request.history] == [start + clock(row.observation) for row in request.history]


def check_episodes(witness: Witness, spy: SpyModel, lead: int) -> None:
    """Values and ledgers are those of a player that knows no server; a chunk nobody needed may have been left out."""
    asked = ledgers(spy.predicts)
    assert set(witness.episodes) == set(asked) == set(spy.ended)
    assert len(spy.ended) == len(set(spy.ended))
    for name, episode in witness.episodes.items():
        env = Arm(episode.lane, LENGTH + STAGGER * episode.lane, 0.0, Fault(), None)
        played, asks = play_chunks(env, arm, episode.seed, frames=FRAMES, lead=lead, history=True)
        assert_same(episode, played)
        assert asked[name] in ([asks, asks[:-1]] if lead else [asks])
    check_counters(spy.predicts)


@servers
@pytest.mark.parametrize("lead", [0, 1, 3])
@pytest.mark.parametrize("window", WINDOWS, ids=["stack", "offsets"])
async def test_frames_of_the_past(
    shared_env: StartPeer, shared_model: StartPeer, window: tuple[str, ...], lead: int, server: tuple[str, ...]
) -> None:
    env = shared_env("--env", "arm", "--length", str(LENGTH), *server)
    model = shared_model("--kind", "history", *window)
    witness, spy, before = Witness(), SpyModel(), len(model.events("seen"))
    await drive_remotely(env, model, horizon=FRAMES, lead=lead, spy=spy, hooks=witness, max_episodes=5)
    check_episodes(witness, spy, lead)
    owns = [clock(request.observation) for request in spy.predicts]
    expected = [[max(0, own + offset) for offset in WINDOWS[window]] for own in owns]
    assert [line["window"] for line in model.events("seen")[before:]] == expected


@servers
@pytest.mark.parametrize("lead", [0, 1, 3])
async def test_the_last_action(
    shared_env: StartPeer, shared_model: StartPeer, lead: int, server: tuple[str, ...]
) -> None:
    env = shared_env("--env", "arm", "--length", str(LENGTH), *server)
    model = shared_model("--kind", "previous")
    witness, spy, before = Witness(), SpyModel(), len(model.events("seen"))
    await drive_remotely(env, model, horizon=FRAMES, lead=lead, spy=spy, hooks=witness, max_episodes=5)
    check_episodes(witness, spy, lead)
    # The joints are where the action before sent them, so they say what that action was.
    expected = [shown(request.observation)["joints"].tolist() for request in spy.predicts]
    assert [line["window"] for line in model.events("seen")[before:]] == expected
