"""Runs on real servers, recorded: killed and gone on with, and with a model server whose batches are recorded."""

import random
import time
from collections.abc import Generator
from pathlib import Path

import pytest

from rlmesh_trio import connect_env, connect_model
from rlmesh_trio.one_call import open_run
from rlmesh_trio.recording import Batch, Record, open_recording, verify
from rlmesh_trio.resume import read_finished
from tests.cli.program import started
from tests.interop.conftest import StartPeer
from tests.peers import Peer, start_env_peer

LANES = ("--kind", "lanes", "--num-envs", "4", "--env", "CartPole-v1", "--sleep", "0.001")
JOB = ("--model", "tests.cli.toys:Telling", "--episodes", "60", "--seed", "11")


@pytest.fixture(scope="module")
def server() -> Generator[Peer]:
    with start_env_peer(*LANES) as peer:
        yield peer


def root(path: Path) -> bytes:
    assert verify(path).problems == ()
    with open_recording(path) as recording:
        assert recording.footer is not None
        return recording.footer.run_root


@pytest.fixture(scope="module")
def undisturbed(server: Peer, tmp_path_factory: pytest.TempPathFactory) -> bytes:
    path = tmp_path_factory.mktemp("undisturbed") / "run.mcap"
    with started("run", server.address, *JOB, "--record", str(path)) as process:
        process.communicate(timeout=60)
    return root(path)


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_a_killed_run_goes_on_to_the_root_it_would_have_had(
    server: Peer, undisturbed: bytes, seed: int, tmp_path: Path
) -> None:
    moment, path = random.Random(seed), tmp_path / "run.mcap"
    job = ("run", server.address, *JOB, "--record", str(path))
    seen = moment.randrange(15, 50)
    with started(*job) as process:
        assert process.stdout is not None
        for _ in range(seen):
            assert process.stdout.readline().startswith("ended")
        time.sleep(moment.uniform(0, 0.02))
        process.kill()
        process.wait(30)
    left = verify(path)
    assert any(line.startswith("it has no footer") for line in left.problems)
    finished = len(read_finished(path).episodes)
    assert 0 < finished < 60
    with started(*job, "--resume", str(path)) as process:
        out, err = process.communicate(timeout=60)
    assert (process.returncode, err) == (0, "")
    assert out.count("ended") == 60 - finished
    assert root(path) == undisturbed


async def test_a_served_model_is_told_its_route_and_its_batches_are_recorded(
    shared_env: StartPeer, shared_model: StartPeer, tmp_path: Path
) -> None:
    env, model = shared_env("--kind", "lanes", "--num-envs", "3", "--env", "CartPole-v1"), shared_model()
    for name, recorded in (("a", Record(tmp_path / "a", "full")), ("b", Record(tmp_path / "b"))):
        async with open_run(
            connect_env(env.address), connect_model(model.address), record=recorded, max_episodes=6, base_seed=3
        ) as run:
            assert (await run.wait()).total_episodes == 6
        with open_recording(tmp_path / name) as recording:
            assert recording.header.env_peer
            assert recording.header.model_peer
            assert recording.header.env_address == env.address
            batches = [decision.what for decision in recording.decisions() if isinstance(decision.what, Batch)]
            assert {row.ordinal for batch in batches for row in batch.rows} == set(range(1, 7))
            assert all(row.frames == 1 for batch in batches for row in batch.rows)
    assert root(tmp_path / "a") == root(tmp_path / "b")
