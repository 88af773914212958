"""A reconnect cut short at each of its moments, by its caller or by the end of the session: nothing is left of it."""

import threading
from collections.abc import Callable
from pathlib import Path

import pytest
import trio
import trio.testing

from rlmesh_trio.endpoints.remote_env import RemoteEnv, connect_env
from rlmesh_trio.errors import ConnectError
from tests.endpoints.fake_peers import FakeEnv
from tests.endpoints.reconnecting import HANGING, lose, play, use
from tests.transport.fake_server import fake_server

pytestmark = pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="counts open files as Linux lists them")


class AtStep(trio.abc.Instrument):
    """Calls *act* before the *number*-th task step."""

    def __init__(self, number: int, act: Callable[[], None]) -> None:
        self.left = number
        self.act = act

    def before_task_step(self, task: trio.lowlevel.Task) -> None:
        self.left -= 1
        if self.left == 0:
            self.act()


def open_files() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def living() -> int:
    return trio.lowlevel.current_statistics().tasks_living


async def settled(tasks: int, files: int) -> None:
    """Wait until so many tasks live, and no more files are open; others' may be closed at any time."""
    with trio.fail_after(5):
        while living() != tasks or open_files() > files:  # noqa: ASYNC110
            await trio.sleep(0.001)


@pytest.mark.parametrize("lost", [True, False], ids=["lost", "hanging"])
async def test_cancelled_at_every_step(tmp_path: Path, lost: bool) -> None:
    fake, tasks, files = FakeEnv(answer=play), living(), open_files()
    async with fake_server(fake.serve, unix=tmp_path / "socket") as address:
        await trio.testing.wait_all_tasks_blocked()
        idle, threads = (living(), open_files()), threading.active_count()
        async with connect_env(address) as env:
            await use(env)
            connected = living(), open_files()
            number, cancelled = 0, True
            while cancelled:
                number += 1
                async with trio.open_nursery() as nursery:
                    if lost:
                        await lose(env)
                    else:
                        nursery.start_soon(lose, env, HANGING)
                        await trio.testing.wait_all_tasks_blocked()
                    scope = trio.CancelScope()
                    instrument = AtStep(number, scope.cancel)
                    with scope, trio.fail_after(5):
                        trio.lowlevel.add_instrument(instrument)
                        try:
                            await env.reconnect()
                        finally:
                            trio.lowlevel.remove_instrument(instrument)
                cancelled = instrument.left <= 0
                if scope.cancelled_caught:
                    await settled(*idle)
                    await lose(env)
                    await env.reconnect()
                await use(env)
                await settled(*connected)
        await settled(*idle)
        assert number > 30
    await settled(tasks, files)
    assert threading.active_count() <= threads


async def test_left_at_every_step(tmp_path: Path) -> None:
    fake, number, left_early = FakeEnv(answer=play), 0, True
    ended: list[bool] = []

    async def reconnect(env: RemoteEnv, leaving: trio.Event) -> None:
        try:
            await env.reconnect()
        except ConnectError:
            ended.append(True)
        leaving.set()

    with trio.fail_after(60):
        async with fake_server(fake.serve, unix=tmp_path / "socket") as address:
            await trio.testing.wait_all_tasks_blocked()
            idle = living(), open_files()
            while left_early:
                number += 1
                leaving = trio.Event()
                instrument = AtStep(number, leaving.set)
                async with trio.open_nursery() as nursery, connect_env(address) as env:
                    trio.lowlevel.add_instrument(instrument)
                    nursery.start_soon(reconnect, env, leaving)
                    await leaving.wait()
                trio.lowlevel.remove_instrument(instrument)
                await settled(*idle)
                left_early = instrument.left <= 0
    assert len(ended) > 30
