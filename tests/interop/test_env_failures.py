"""Real env servers that fail: each failure is one typed error, at once, and what was finished is not lost."""

from typing import Any

import pytest
import trio

from rlmesh_trio import Hooks, Limits
from rlmesh_trio.errors import EnvRpcError, OperationTimeout, SessionError
from rlmesh_trio.events import ActionReceived, EpisodeCompleted
from tests.interop.driving import LIMIT, drive
from tests.interop.peers.policies import counter
from tests.peers import Peer, start_env_peer

BAD_LANE = ("--kind", "lanes", "--num-envs", "2", "--length", "4", "--fault-lane", "1", "--fault-at", "3")


async def failure(peer: Peer, **fields: Any) -> SessionError:
    with pytest.raises(SessionError) as caught:
        await drive(peer.address, counter, max_episodes=100, **fields)
    return caught.value


def finished_lanes(error: SessionError) -> set[int]:
    assert error.report is not None
    for episode in error.report.episodes:
        assert (episode.step_count, episode.terminated) == (4, True)
        assert episode.cumulative_reward == pytest.approx(1.1 + 1.2 + 1.0 + 1.1)
    assert error.report.total_episodes == len(error.report.episodes)
    return {episode.env_index for episode in error.report.episodes}


class OneAfterTheOther(Hooks):
    """Lane 0 finishes an episode and rests; then lane 1 makes the step that is its last."""

    def __init__(self) -> None:
        self.rests = trio.Event()

    async def episode_completed(self, event: EpisodeCompleted) -> None:
        self.rests.set()
        await trio.sleep_forever()

    async def action_received(self, event: ActionReceived) -> None:
        if event.route.lane == 1 and event.step == 3:
            await self.rests.wait()
            self.at_last()

    def at_last(self) -> None:
        """The step is about to be sent."""


async def test_a_step_that_hangs_ends_at_its_limit() -> None:
    with start_env_peer(*BAD_LANE, "--fault", "hang") as peer, trio.fail_after(LIMIT):
        error = await failure(peer, hooks=OneAfterTheOther(), limits=Limits(env_step_timeout=1.0))
    assert isinstance(error, OperationTimeout)
    assert (error.operation, error.timeout, error.step) == ("env.step", 1.0, 3)
    assert finished_lanes(error) == {0}


async def test_a_server_killed_in_the_middle_of_a_step() -> None:
    class Killer(OneAfterTheOther):
        def at_last(self) -> None:
            nursery.start_soon(self.kill)

        async def kill(self) -> None:
            await trio.sleep(0.2)
            peer.kill()

    with start_env_peer(*BAD_LANE, "--fault", "hang") as peer:
        async with trio.open_nursery() as nursery:
            error = await failure(peer, hooks=Killer())
    assert isinstance(error, EnvRpcError)
    assert (error.operation, error.step, error.code) == ("env.step", 3, "CONNECTION")
    assert finished_lanes(error) == {0}


async def test_a_server_that_exits_in_a_step() -> None:
    with start_env_peer("--fault", "exit", "--fault-at", "2") as peer:
        error = await failure(peer)
    assert isinstance(error, EnvRpcError)
    assert (error.operation, error.step, error.code) == ("env.step", 2, "CONNECTION")


async def test_an_env_that_raises() -> None:
    with start_env_peer("--fault", "raise", "--fault-at", "2") as peer:
        error = await failure(peer)
    assert isinstance(error, EnvRpcError)
    assert (error.operation, error.step, error.code, error.recoverable) == ("env.step", 2, "INTERNAL", False)
    assert "RuntimeError: the toy failed on purpose in a step" in str(error)


async def test_a_lane_that_raises_keeps_what_its_neighbours_finished() -> None:
    with start_env_peer(*BAD_LANE, "--fault", "raise", "--length-stagger", "40", "--fault-at", "30") as peer:
        error = await failure(peer)
    assert isinstance(error, EnvRpcError)
    assert error.code == "INTERNAL"
    assert finished_lanes(error) == {0}


@pytest.mark.parametrize("fault", ["nan", "shape"])
@pytest.mark.parametrize("kind", ["single", "lanes", "vector"])
async def test_an_observation_outside_its_space(fault: str, kind: str) -> None:
    with start_env_peer("--kind", kind, "--fault", fault, "--fault-at", "2") as peer:
        error = await failure(peer)
    assert isinstance(error, EnvRpcError)
    assert (error.operation, error.step, error.code) == ("env.step", 2, "INTERNAL")
    assert error.report is not None
    assert not error.report.episodes
