"""rlmesh's own clients and its own driver, of version 0.1.0, on our server: they see what they see on their own."""

import contextlib
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import trio
from gymnasium.vector import AutoresetMode, SyncVectorEnv

from rlmesh_trio.serve import serve_env
from tests.interop.peers.toys import Toy
from tests.peers import Peer, start_env_peer
from tests.serve.serving import toy

pytestmark = pytest.mark.interop

ROOT = Path(__file__).parents[2]
LENGTH = 2
LANES = 3


def lane(number: int) -> Toy:
    return toy(number, length=LENGTH - number)


def pictured() -> Toy:
    made = toy(env="kitchen")
    made.render_mode = "rgb_array"
    return made


def lanes() -> list[Toy]:
    return [lane(number) for number in range(LANES)]


def vector() -> SyncVectorEnv:
    return SyncVectorEnv(
        [lambda number=number: lane(number) for number in range(LANES)], autoreset_mode=AutoresetMode.NEXT_STEP
    )


KINDS: dict[str, tuple[str, Callable[[], Any], tuple[str, ...]]] = {
    "every kind of space": ("one", pictured, ("--env", "kitchen", "--render")),
    "lanes": ("many", lanes, ("--kind", "lanes")),
    "a lockstep vector": ("many", vector, ("--kind", "vector")),
}


async def clients(*arguments: str) -> list[Any]:
    """What the clients saw, server by server."""
    process = await trio.run_process(
        [sys.executable, "-W", "ignore", "-m", "tests.serve.real_client", *arguments],
        cwd=ROOT,
        capture_stdout=True,
        capture_stderr=True,
        check=False,
    )
    assert process.returncode == 0, process.stderr.decode()
    return [json.loads(line) for line in process.stdout.splitlines()]


async def test_its_clients_see_on_our_server_what_they_see_on_its_own(tmp_path: Path) -> None:
    with contextlib.ExitStack() as running, trio.fail_after(60):
        peers: dict[str, Peer] = {}

        async def start(kind: str) -> None:
            peer = start_env_peer(*KINDS[kind][2], "--length", str(LENGTH))
            peers[kind] = await trio.to_thread.run_sync(peer.__enter__)
            running.push(peer)

        async with trio.open_nursery() as nursery:
            for kind in KINDS:
                nursery.start_soon(start, kind)
        async with contextlib.AsyncExitStack() as serving:
            arguments: list[str] = []
            for number, (kind, (count, source, _)) in enumerate(KINDS.items()):
                address = f"unix://{tmp_path}/{number}" if number % 2 else "127.0.0.1:0"
                server = await serving.enter_async_context(serve_env(source(), address=address))
                arguments += [count, server.address, count, peers[kind].address]
            seen = await clients(*arguments)
    for kind, ours, theirs in zip(KINDS, seen[::2], seen[1::2], strict=True):
        assert ours == theirs, kind
