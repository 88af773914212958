"""The program against real servers."""

import json
from collections.abc import Generator
from pathlib import Path

import pytest

from tests.cli.program import at_terminal, run
from tests.cli.schema import complaints
from tests.peers import Peer, start_env_peer, start_model_peer

pytestmark = pytest.mark.interop


@pytest.fixture(scope="module")
def cartpole() -> Generator[Peer]:
    """Two lanes of CartPole."""
    with start_env_peer("--kind", "lanes", "--num-envs", "2", "--env", "CartPole-v1") as peer:
        yield peer


@pytest.fixture(scope="module")
def model() -> Generator[Peer]:
    """A model that balances CartPole."""
    with start_model_peer("--kind", "batch", "--policy", "cartpole") as peer:
        yield peer


def returns(out: str) -> list[tuple[int, float]]:
    return [(one["seed"], one["cumulative_reward"]) for one in json.loads(out)["episodes"]]


def test_a_served_env_plays_as_one_of_this_process(cartpole: Peer, capsys: pytest.CaptureFixture[str]) -> None:
    ran = run(capsys, "run", cartpole.address, "--episodes", "6", "--seed", "7", "--json", "-")
    assert (ran.status, ran.err) == (0, "")
    assert complaints(json.loads(ran.out)) == []
    here = run(capsys, "run", "CartPole-v1", "--episodes", "6", "--seed", "7", "--json", "-")
    assert returns(ran.out) == returns(here.out)


def test_a_served_model_drives_any_env(cartpole: Peer, model: Peer, capsys: pytest.CaptureFixture[str]) -> None:
    job = ("--model", model.address, "--episodes", "2", "--seed", "7", "--max-steps", "60", "--json", "-")
    ran = run(capsys, "run", cartpole.address, *job)
    assert (ran.status, ran.err) == (0, "")
    here = run(capsys, "run", "CartPole-v1", *job)
    assert (here.status, here.err) == (0, "")
    assert returns(ran.out) == returns(here.out)
    assert [length for _, length in returns(ran.out)] == [60.0, 60.0], "a random policy would have fallen"


def test_a_server_is_inspected_without_a_reset(cartpole: Peer, capsys: pytest.CaptureFixture[str]) -> None:
    ran = run(capsys, "inspect", cartpole.address, "--json")
    assert (ran.status, ran.err) == (0, "")
    document = json.loads(ran.out)
    assert (document["env_id"], document["width"], document["driven"]) == ("CartPole-v1", 2, "2 lanes, each by itself")
    assert document["peer"]["component"] == "rlmesh-env"
    assert document["peer"]["package_version"] == "0.1.0"
    assert document["limits"]["max_message_bytes"] == 256 * 1024 * 1024
    assert len(document["limits"]["dtypes"]) == 12
    out = run(capsys, "inspect", cartpole.address).out
    assert out.startswith(f"{cartpole.address} (CartPole-v1)\n")
    assert "rlmesh-env 0.1.0, python 3." in out


def test_a_server_has_its_own_width(cartpole: Peer, capsys: pytest.CaptureFixture[str]) -> None:
    ran = run(capsys, "run", cartpole.address, "--lanes", "2")
    assert ran.status == 2
    assert ran.error.startswith(
        f"--lanes is for an env started here: the server at {cartpole.address} has its own width"
    )


def test_a_model_server_is_no_env(model: Peer, capsys: pytest.CaptureFixture[str]) -> None:
    ran = run(capsys, "run", model.address)
    assert ran.status == 2
    assert model.address in ran.error


def test_a_server_that_dies_leaves_what_was_finished(tmp_path: Path) -> None:
    path = tmp_path / "report.json"
    with (
        start_env_peer("--env", "counter", "--length", "5", "--sleep", "0.01") as peer,
        at_terminal("run", peer.address, "--episodes", "1000", "--json", str(path)) as terminal,
    ):
        terminal.wait_for("/1,000 episodes  ")
        peer.kill()
        assert terminal.wait() == 1
    assert any(line.startswith("error: env.step failed at step ") for line in terminal.lines())
    assert any("of 1,000 finished" in line for line in terminal.lines())
    document = json.loads(path.read_text())
    assert complaints(document) == []
    assert len(document["episodes"]) >= 1
    assert document["error"]["type"] == "EnvRpcError"


def test_a_model_server_that_dies_is_named_in_one_line(cartpole: Peer, capsys: pytest.CaptureFixture[str]) -> None:
    with start_model_peer("--policy", "cartpole", "--fault", "exit", "--fault-at", "9") as peer:
        ran = run(capsys, "run", cartpole.address, "--model", peer.address, "--episodes", "4")
    assert ran.status == 1
    assert ran.err.count("\n") == 1
    assert f"model endpoint {peer.address} request failed: transport error: connection closed" in ran.err
