"""``rlmesh-trio serve``: one line that says where, a client like any other's, an end by signal or by a client."""

import os
import select
import signal
import subprocess
from pathlib import Path

import pytest
import trio

from rlmesh_trio.cli.exit_status import INTERRUPTED, NOT_STARTED
from rlmesh_trio.endpoints.remote_env import describe_env
from rlmesh_trio.transport.address import parse_address
from rlmesh_trio.transport.channel import open_channel
from rlmesh_trio.wire.pb.rlmesh.core import v1 as core
from rlmesh_trio.wire.pb.rlmesh.env import v1 as pb
from rlmesh_trio.wire.strict import encode, present
from tests.cli.program import LIMIT, run, started


def ready(process: subprocess.Popen[str]) -> str:
    """The address on the one line of standard output."""
    assert process.stdout is not None
    readable, _, _ = select.select([process.stdout], [], [], LIMIT)
    assert readable, "it was not ready in time"
    words, _, address = process.stdout.readline().rstrip("\n").rpartition(" ")
    assert words.startswith("serving ")
    assert words.endswith(" at")
    return address


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_env_is_served_until_a_signal(
    number: signal.Signals, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    options = ("--lanes", "2", "--address", f"unix://{tmp_path}/env") if number == signal.SIGTERM else ()
    with started("serve", "CartPole-v1", *options) as process:
        address = ready(process)
        ran = run(capsys, "run", address, "--episodes", "3", "--seed", "7")
        assert (ran.status, ran.err) == (0, "")
        process.send_signal(number)
        assert process.wait(LIMIT) == INTERRUPTED
        assert process.stdout is not None
        assert process.stderr is not None
        assert (process.stdout.read(), process.stderr.read()) == ("", "")
    assert not os.listdir(tmp_path)


def test_copies_become_a_vector_and_a_client_may_end_it() -> None:
    async def end(address: str) -> int:
        served = await describe_env(address, token="secret")
        async with open_channel(parse_address(address), token="secret", limit=LIMIT) as channel:
            with channel.deadline("answer"):
                request = pb.ShutdownRequest(base=present(core.ShutdownRequest(reason="enough")))
                await channel.unary("/rlmesh.env.v1.EnvService/Shutdown", encode(request))
        return served.contract.autoreset_mode * 100 + served.contract.num_envs

    options = ("--lanes", "3", "--autoreset", "same-step", "--token", "secret", "--allow-shutdown", "--where", "inline")
    with started("serve", "CartPole-v1", *options) as process:
        assert trio.run(end, ready(process)) == 203
        assert process.wait(LIMIT) == 0


def test_a_hung_step_does_not_hold_up_the_end() -> None:
    with started("serve", "tests.cli.toys:StuckWalk") as process:
        address = ready(process)
        with started("run", address, "--episodes", "1", "--step-timeout", "0.2s") as client:
            assert client.wait(LIMIT) == 1
        process.send_signal(signal.SIGTERM)
        assert process.wait(LIMIT) == INTERRUPTED


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (("CartPole-v9",), "did you mean CartPole-v1"),
        (("127.0.0.1:5000",), "is a server already"),
        (("CartPole-v1", "--address", "nowhere"), "bad address 'nowhere'"),
        (("CartPole-v1", "--lanes", "0"), "--lanes"),
        (("CartPole-v1", "--autoreset", "sometimes"), "--autoreset"),
    ],
)
def test_what_cannot_be_served_is_one_line(
    args: tuple[str, ...], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    ran = run(capsys, "serve", *args)
    assert (ran.status, ran.out) == (NOT_STARTED, "")
    assert said in ran.error
    assert len(ran.err.splitlines()) == 1
