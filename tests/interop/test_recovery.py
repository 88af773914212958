"""Real env servers that fail under a policy: the run is completed, with the episodes of an undisturbed one."""

from contextlib import ExitStack
from typing import Any

import attrs
import trio

from rlmesh_trio import EpisodeSummary, Hooks, Limits, Recovery, Report
from rlmesh_trio.events import ActionReceived
from tests.interop.driving import LIMIT, drive
from tests.interop.peers.policies import cartpole, counter
from tests.peers import Peer, start_env_peer

LANES = ("--kind", "lanes", "--num-envs", "4")
LIMITS = Limits(env_step_timeout=3.0)  # No step of a lane that is well takes so long, however busy the machine.


def outcomes(report: Report) -> list[EpisodeSummary]:
    """The episodes by index, without lane and time."""
    unlike = {"duration_ms": 0, "predict_ms": None, "step_ms": None, "env_index": 0}
    return [attrs.evolve(one, **unlike) for one in sorted(report.episodes, key=lambda one: one.episode_index)]


async def test_the_other_lanes_play_what_a_hung_one_had() -> None:
    with start_env_peer(
        *LANES, "--length", "4", "--sleep", "0.01", "--fault", "hang", "--fault-lane", "1", "--fault-at", "3"
    ) as peer:
        quarantine = Recovery("quarantine")
        with trio.fail_after(LIMIT):  # Leaving does not wait for the lane that still hangs.
            report = await drive(peer.address, counter, max_episodes=12, limits=LIMITS, on_timeout=quarantine)
    assert [(one.kind, one.env_index, one.error) for one in report.incidents] == [("quarantine", 1, "OperationTimeout")]
    assert [one.episode_index for one in outcomes(report)] == list(range(1, 13))
    assert {one.env_index for one in report.episodes} == {0, 2, 3}


async def test_a_server_that_is_killed_and_started_again() -> None:
    with ExitStack() as servers:

        def start(*where: str) -> Peer:
            return servers.enter_context(start_env_peer(*LANES, "--env", "CartPole-v1", "--length", "30", *where))

        class Restarter(Hooks):
            steps = 0

            async def action_received(self, event: ActionReceived) -> None:
                self.steps += 1
                if self.steps == 200:
                    first.kill()
                    await trio.to_thread.run_sync(lambda: start("--port", first.address.rpartition(":")[2]))

        first = start()
        fields: dict[str, Any] = {"max_episodes": 12, "base_seed": 3, "on_env_error": Recovery("retry")}
        undisturbed = await drive(first.address, cartpole, **fields)
        report = await drive(first.address, cartpole, hooks=Restarter(), **fields)
    assert [one.kind for one in report.incidents].count("reconnect") == 1
    assert {one.kind for one in report.incidents} == {"reconnect", "retry"}
    assert outcomes(report) == outcomes(undisturbed)
