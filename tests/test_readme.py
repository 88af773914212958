"""The README's library example is run as it stands, and its commands exist."""

import re
import types
from collections.abc import Iterator
from pathlib import Path

import pytest
import trio

from rlmesh_trio.transport.asyncio_in_trio import trio_asyncio
from tests.peers import start_env_peer, start_model_peer

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text()


@pytest.fixture(scope="module")
def example() -> types.ModuleType:
    blocks = re.findall(r"^```python\n(.*?)^```", README, re.MULTILINE | re.DOTALL)
    assert len(blocks) == 1
    module = types.ModuleType("readme_example")
    exec(compile(blocks[0], "README.md", "exec"), module.__dict__)
    return module


@pytest.fixture
def env_address() -> Iterator[str]:
    with start_env_peer("--kind", "lanes", "--num-envs", "4", "--env", "CartPole-v1") as peer:
        yield peer.address


async def test_one_call(example: types.ModuleType, env_address: str, capsys: pytest.CaptureFixture[str]) -> None:
    await example.one_call(env_address)
    lengths = eval(capsys.readouterr().out)
    assert len(lengths) == 3
    assert all(8 <= length <= 12 for length in lengths)


async def test_by_hand(example: types.ModuleType, env_address: str, capsys: pytest.CaptureFixture[str]) -> None:
    with start_model_peer("--kind", "batch", "--policy", "cartpole") as model:
        await example.by_hand(env_address, model.address)
    total, returns = capsys.readouterr().out.split(" ", 1)
    assert total == "4"
    assert len(eval(returns)) == 4


async def test_streaming(example: types.ModuleType, capsys: pytest.CaptureFixture[str]) -> None:
    await example.streaming()
    steps, episodes = capsys.readouterr().out.split()
    assert episodes == "8"
    assert int(steps) >= 8 * 8


async def test_in_your_nursery(example: types.ModuleType, env_address: str, capsys: pytest.CaptureFixture[str]) -> None:
    with trio.fail_after(20):
        await example.in_your_nursery(env_address)
    assert capsys.readouterr().out.split()[1] == "8"


async def test_inside_a_program_that_already_runs_a_trio_asyncio_loop(
    example: types.ModuleType, env_address: str, capsys: pytest.CaptureFixture[str]
) -> None:
    async with trio_asyncio.open_loop():
        await example.one_call(env_address)
    assert len(eval(capsys.readouterr().out)) == 3


async def test_failing(example: types.ModuleType, capsys: pytest.CaptureFixture[str]) -> None:
    with start_env_peer("--env", "counter", "--length", "5", "--fault", "hang", "--fault-at", "4") as peer:
        await example.failing(peer.address)
    assert "env.step timed out" in capsys.readouterr().out


@pytest.mark.parametrize("target", sorted(set(re.findall(r"^    make ([a-z][a-z -]*[a-z])", README, re.MULTILINE))))
def test_make_targets_exist(target: str) -> None:
    makefile = (ROOT / "Makefile").read_text()
    for name in target.split():
        assert re.search(rf"^{name}:", makefile, re.MULTILINE), name
