"""Real servers that are killed, stopped and started again: what is lost is told at once, then the session goes on."""

import signal
from collections.abc import Generator
from contextlib import ExitStack
from pathlib import Path

import numpy as np
import pytest
import trio

from rlmesh_trio import RemoteEnv, connect_env, connect_model
from rlmesh_trio.errors import ConnectError, EndpointError, HandshakeError
from rlmesh_trio.messages import EpisodeInfo, PredictRequest, ResetRequest, StepTarget
from rlmesh_trio.spec import SessionSpec
from tests.peers import Peer, start_env_peer, start_model_peer

ACTION = [np.int64(1).tobytes()]
LIMIT = 20.0


class Servers:
    """Env servers at one place, one after the other."""

    def __init__(self, running: ExitStack, *where: str) -> None:
        self._running = running
        self._where = where

    def start(self, *args: str) -> Peer:
        peer = self._running.enter_context(start_env_peer(*self._where, *args))
        if not self._where:
            self._where = ("--port", peer.address.rpartition(":")[2])
        return peer


@pytest.fixture(params=["tcp", "unix"])
def servers(request: pytest.FixtureRequest, tmp_path: Path) -> Generator[Servers]:
    with ExitStack() as running:
        yield Servers(running, *(("--unix", str(tmp_path / "socket")) if request.param == "unix" else ()))


@pytest.fixture
def tcp_servers() -> Generator[Servers]:
    with ExitStack() as running:
        yield Servers(running)


async def play(env: RemoteEnv, lane: int) -> None:
    """An episode of three steps on *lane*, value by value."""
    target = StepTarget(1000, (lane,), (f"episode {lane}",))
    reply = await env.reset(ResetRequest((lane,), None, 1000, (lane,), target.episode_ids))
    for step in range(1, 4):
        reply = await env.step(ACTION, target)
        assert reply.observation is not None
        assert list(np.frombuffer(reply.observation[0], np.float32)) == [step, lane, 1]


async def play_all(env: RemoteEnv) -> None:
    with trio.fail_after(LIMIT):
        async with trio.open_nursery() as nursery:
            for lane in range(3):
                nursery.start_soon(play, env, lane)


async def lose(env: RemoteEnv, lane: int) -> None:
    with trio.fail_after(LIMIT), pytest.raises(EndpointError) as caught:
        await env.step(ACTION, StepTarget(60_000, (lane,), (f"episode {lane}",)))
    assert caught.value.code == "CONNECTION"


async def reconnect_patiently(env: RemoteEnv, failures: list[ConnectError]) -> None:
    with trio.fail_after(LIMIT):
        while True:
            try:
                return await env.reconnect()
            except ConnectError as error:
                failures.append(error)
                await trio.sleep(0.02)


@pytest.mark.parametrize("ending", [signal.SIGKILL, signal.SIGTERM])
async def test_servers_that_end_and_come_again(servers: Servers, ending: signal.Signals) -> None:
    lanes = ("--kind", "lanes", "--length", "4", "--drain-timeout", "0.1")
    peer = servers.start(*lanes)
    async with connect_env(peer.address) as env:
        await play_all(env)
        peer.process.send_signal(ending)
        await trio.to_thread.run_sync(peer.process.wait)
        await lose(env, 0)
        with trio.fail_after(LIMIT), pytest.raises(ConnectError, match="cannot connect to"):
            await env.reconnect()
        servers.start(*lanes)
        await env.reconnect()
        await play_all(env)


@pytest.mark.parametrize("count", [1, 3])
async def test_steps_under_way_on_a_killed_server_fail_at_once(tcp_servers: Servers, count: int) -> None:
    hanging = ("--kind", "lanes", "--length", "4", "--fault", "hang", "--fault-at", "1")
    peer = tcp_servers.start(*hanging)
    async with connect_env(peer.address) as env:
        for lane in range(count):
            await env.reset(ResetRequest((lane,), None, 1000, (lane,), (f"episode {lane}",)))
        async with trio.open_nursery() as nursery:
            for lane in range(count):
                nursery.start_soon(lose, env, lane)
            await trio.sleep(0.1)
            peer.kill()
        tcp_servers.start("--kind", "lanes", "--length", "4")
        await env.reconnect()
        await play_all(env)


async def test_a_back_off_loop_sees_the_server_come_up(tcp_servers: Servers) -> None:
    peer = tcp_servers.start("--kind", "lanes", "--length", "4")
    failures: list[ConnectError] = []
    async with connect_env(peer.address) as env:
        peer.kill()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(reconnect_patiently, env, failures)
            await trio.to_thread.run_sync(tcp_servers.start, "--kind", "lanes", "--length", "4")
        assert failures
        await play_all(env)


async def test_a_server_still_at_work_on_the_old_session(tcp_servers: Servers) -> None:
    peer = tcp_servers.start("--sleep", "4")
    failures: list[ConnectError] = []
    async with connect_env(peer.address) as env:
        await env.reset(ResetRequest(episode_ids=("episode 0",)))
        async with trio.open_nursery() as nursery:
            nursery.start_soon(lose, env, 0)
            await trio.sleep(0.1)
            await reconnect_patiently(env, failures)
        assert "does not take this client now" in str(failures[0])
        await env.reset(ResetRequest(episode_ids=("episode 1",)))


async def test_another_env_in_the_same_place_is_refused(tcp_servers: Servers) -> None:
    peer = tcp_servers.start("--kind", "lanes", "--length", "4")
    async with connect_env(peer.address) as env:
        peer.kill()
        peer = tcp_servers.start("--kind", "lanes", "--length", "4", "--num-envs", "4")
        with trio.fail_after(LIMIT), pytest.raises(HandshakeError, match=r"num_envs was 3 and is 4$"):
            await env.reconnect()
        await lose(env, 0)
        peer.kill()
        tcp_servers.start("--kind", "lanes", "--length", "4")
        await env.reconnect()
        await play_all(env)


async def test_metadata_comes_in_another_order_from_another_process(tcp_servers: Servers) -> None:
    peer = tcp_servers.start("--env", "arm")
    async with connect_env(peer.address) as env:
        for _ in range(2):
            peer.kill()
            peer = tcp_servers.start("--env", "arm")
            await env.reconnect()


async def test_a_model_server_that_is_killed_is_lost_for_good(tcp_servers: Servers) -> None:
    env_peer = tcp_servers.start()
    with start_model_peer() as peer:
        async with connect_env(env_peer.address) as env, connect_model(peer.address) as model:
            spec = SessionSpec.for_env(env)
            await model.resolve(spec)
            observation = (await env.reset(ResetRequest(episode_ids=("one",)))).observation
            assert observation is not None
            peer.kill()
            request = PredictRequest(spec.session_id, spec.env_id, "p", observation, (EpisodeInfo("one", None),))
            with start_model_peer("--port", peer.address.rpartition(":")[2]):
                for _ in range(2):
                    with trio.fail_after(LIMIT), pytest.raises(EndpointError) as caught:
                        await model.predict(request)
                    assert caught.value.code == "CONNECTION"
