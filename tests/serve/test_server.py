"""The server as a whole: what it declares, where it listens, whom it admits, how it ends."""

import socket
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import trio
from gymnasium import spaces
from gymnasium.vector import AutoresetMode

from rlmesh_trio import connect_env
from rlmesh_trio.endpoints.remote_env import describe_env
from rlmesh_trio.errors import ConnectError, EndpointError, HandshakeError
from rlmesh_trio.messages import ResetRequest, StepTarget
from rlmesh_trio.serve import serve_env
from rlmesh_trio.spaces import contract_to_wire
from rlmesh_trio.spec import Limits
from rlmesh_trio.transport.address import parse_address
from rlmesh_trio.transport.channel import open_channel
from rlmesh_trio.wire.pb.rlmesh.core import v1 as core
from rlmesh_trio.wire.pb.rlmesh.env import v1 as pb
from rlmesh_trio.wire.strict import decode, encode, encoded_field, present
from tests.interop.leaks import held
from tests.interop.wire import env_wire, reset, step
from tests.serve.serving import LIMIT, Gated, asked, toy, vector
from tests.serve.test_rules import clocks

SERVICE = "/rlmesh.env.v1.EnvService"
QUICK = Limits(env_connect_timeout=5)


async def unary(address: str, method: str, request: bytes, token: str | None = None) -> bytes:
    async with open_channel(parse_address(address), token=token, limit=5) as channel:
        with channel.deadline("answer"):
            return await channel.unary(f"{SERVICE}/{method}", request)


async def shake(address: str, generation: str) -> pb.HandshakeResponse:
    base = core.HandshakeRequest(protocol_generation=generation, supported_workflow_editions=["1999.01"])
    return decode(
        pb.HandshakeResponse,
        await unary(address, "Handshake", encode(pb.HandshakeRequest(base=present(base)))),
        what="answer",
    )


@pytest.mark.parametrize(
    ("source", "offers"),
    [
        (toy, {"subset_step": "true"}),
        (lambda: vector(AutoresetMode.NEXT_STEP), {"rlmesh_trio.named_resets.v1": "true"}),
        (lambda: vector(AutoresetMode.SAME_STEP), {}),
        (lambda: vector(AutoresetMode.DISABLED), {"rlmesh_trio.named_resets.v1": "true"}),
    ],
)
async def test_what_is_served_is_declared(source: Any, offers: dict[str, str]) -> None:
    made = source()
    async with serve_env(made) as server:
        served = await describe_env(server.address, limits=QUICK)
        assert served.capabilities == offers
        assert served.contract.num_envs == getattr(made, "num_envs", 1)
        assert served.contract.encoded_spec == server.contract.encoded_spec
        assert served.contract.autoreset_mode == server.contract.autoreset_mode
        assert (served.edition, served.supported_editions) == ("2026.06", ("2026.06",))
        assert served.peer_info.component == "rlmesh-env"


async def test_the_generation_decides_and_the_contract_stays_the_same() -> None:
    async with asked(toy()) as (wire, server):
        refusal = await shake(server.address, "rlmesh-wire-v2")
        assert not refusal.base.compatible
        assert "rlmesh-wire-v2" in (refusal.base.error_message or "")
        assert not refusal.is_set("env_contract")
        assert refusal.base.supported_workflow_editions == ["2026.06"]
        assert (await shake(server.address, " rlmesh-wire-v1 ")).base.compatible
        await wire.ask(reset("one"))
        request = encode(pb.HandshakeRequest(base=present(core.HandshakeRequest("rlmesh-wire-v1"))))
        data = await unary(server.address, "Handshake", request)
        assert encoded_field(pb.HandshakeResponse, data, "env_contract") == contract_to_wire(server.contract)


@pytest.mark.parametrize(
    ("method", "request_", "answer"),
    [
        ("Handshake", b"", "missing base"),
        ("Handshake", b"\x0a\xff", "INVALID_ARGUMENT"),
        ("Reflect", b"", "does not offer"),
    ],
)
async def test_calls_that_make_no_sense(method: str, request_: bytes, answer: str) -> None:
    async with serve_env(toy()) as server:
        with pytest.raises(HandshakeError, match=answer):
            await unary(server.address, method, request_)
        assert (await describe_env(server.address)).contract.num_envs == 1


@pytest.mark.parametrize("given", ["secret", "Bearer secret", "bearer  secret"])
async def test_a_token_is_taken_bare_or_behind_bearer(given: str) -> None:
    async with serve_env(toy(), token="secret") as server, connect_env(server.address, token=given) as env:
        await env.reset(ResetRequest())


@pytest.mark.parametrize("given", [None, "Secret", "secret2", "Basic secret", "Bearer"])
async def test_another_token_is_refused_everywhere(given: str | None) -> None:
    async with serve_env(toy(), token="secret", allow_shutdown=True) as server:
        with pytest.raises(HandshakeError, match="token") as refusal:
            await describe_env(server.address, token=given)
        assert "secret" not in str(refusal.value).replace(str(given), "")
        with pytest.raises(HandshakeError, match="token"):
            await unary(server.address, "Shutdown", b"", given)
        async with open_channel(parse_address(server.address), token=given, limit=5) as channel:
            with pytest.raises(HandshakeError, match="token"), channel.deadline("stream"):
                await channel.join(f"{SERVICE}/Join", "it", lambda data: ("", "none", data))


async def test_shutdown_is_refused_unless_allowed() -> None:
    request = encode(pb.ShutdownRequest(base=present(core.ShutdownRequest(reason="enough"))))
    async with serve_env(toy()) as server:
        reply = decode(pb.ShutdownResponse, await unary(server.address, "Shutdown", request), what="answer").base
        assert (reply.accepted, "disabled" in reply.message) == (False, True)
    async with serve_env(toy(), allow_shutdown=True) as server:
        reply = decode(pb.ShutdownResponse, await unary(server.address, "Shutdown", request), what="answer").base
        assert (reply.accepted, reply.message) == (True, "shutdown accepted: enough")
        with trio.fail_after(LIMIT):
            assert await server.wait_shutdown() == "enough"
        with pytest.raises(ConnectError, match="shutting down"):
            async with connect_env(server.address):
                pass


async def test_a_unix_socket_is_made_and_removed(tmp_path: Path) -> None:
    path = tmp_path / "env.sock"
    with socket.socket(socket.AF_UNIX) as deserted:
        deserted.bind(str(path))
    async with serve_env(toy(), address=f"unix://{path}") as server:
        assert server.address == f"unix://{path}"
        async with connect_env(server.address) as env:
            await env.reset(ResetRequest())
        with pytest.raises(ConnectError, match="cannot listen at unix://"):
            async with serve_env(toy(), address=f"unix://{path}"):
                pass
    assert not path.exists()


async def test_a_file_in_the_way_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_text("mine")
    with pytest.raises(ConnectError, match="cannot listen"):
        async with serve_env(toy(), address=f"unix://{path}"):
            pass
    assert path.read_text() == "mine"


async def test_what_cannot_be_served_is_refused_before_anybody_may_connect() -> None:
    async with serve_env(toy()) as server:
        with pytest.raises(ConnectError, match="cannot listen at"):
            async with serve_env(toy(), address=server.address):
                pass
    for wrong in ("nowhere", "127.0.0.1:70000", "http://127.0.0.1:1"):
        with pytest.raises(ConnectError, match="bad address"):
            async with serve_env(toy(), address=wrong):
                pass
    with pytest.raises(ConnectError, match="CartPole-v1"):
        async with serve_env("CartPole-v9"):
            pass
    with pytest.raises(ConnectError, match="empty token"):
        async with serve_env(toy(), token=""):
            pass
    with pytest.raises(ConnectError, match="an env runs"):
        async with serve_env(toy(), where="nowhere"):  # pyright: ignore[reportArgumentType]
            pass


async def test_a_body_that_raises_raises_it_bare() -> None:
    with pytest.raises(KeyError, match="mine"):
        async with serve_env(toy()):
            raise KeyError("mine")


async def test_leaving_answers_what_is_under_way_and_tells_the_client() -> None:
    env = Gated()
    answers: list[Any] = []
    reached = trio.Event()

    async def client(address: str) -> None:
        async with env_wire(address) as wire:
            await wire.ask(reset("one"))

            async def ask() -> None:
                answers.append(clocks(await wire.ask(step(2))))

            async with trio.open_nursery() as asking:
                asking.start_soon(ask)
                await env.reached()
                reached.set()
            with pytest.raises(EndpointError, match="shutting down"):
                await wire.ask(step(1))

    with trio.fail_after(LIMIT):
        async with trio.open_nursery() as nursery, serve_env(env) as server:
            nursery.start_soon(client, server.address)
            await reached.wait()
            trio.lowlevel.current_trio_token().run_sync_soon(env.gate.set)
    assert answers == [[1]]


async def test_nothing_is_left_wherever_the_server_is_cancelled() -> None:
    async def life(scope: trio.CancelScope, after: int) -> bool:
        """Whether the life of a server and a client was over before so many checkpoints."""
        with scope:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(cancel_after, scope, after)
                async with serve_env(toy, lanes=2) as server, connect_env(server.address) as env:
                    await env.reset(ResetRequest(episode_ids=("a", "b")))
                    await env.step([np.ones(2, np.int64).tobytes()], StepTarget(0, (), ("a", "b")))
                nursery.cancel_scope.cancel()
                return True
        return False

    async def cancel_after(scope: trio.CancelScope, turns: int) -> None:
        for _ in range(turns):
            await trio.lowlevel.checkpoint()
        scope.cancel()

    with trio.fail_after(LIMIT):
        await life(trio.CancelScope(), 10**6)
        for _ in range(100):  # What ends with this first life is no part of what must be left.
            before = held()
            if not any(name.startswith("rlmesh-trio lane") for name in before.threads):
                break
            await trio.sleep(0.02)
        before = held()
        after, over = 0, False
        while not over:
            over = await life(trio.CancelScope(), after)
            after += 1 + after // 8
        for _ in range(100):
            if held() == before:
                break
            await trio.sleep(0.02)
        assert held() == before


async def test_nothing_is_left_of_a_client() -> None:
    async def visit(address: str) -> None:
        async with connect_env(address) as env:
            await env.reset(ResetRequest())

    async with serve_env(toy()) as server:
        await visit(server.address)
        await trio.sleep(0.05)
        before = held()
        for _ in range(5):
            await visit(server.address)
        for _ in range(100):
            if held() == before:
                break
            await trio.sleep(0.02)
        assert held() == before


async def test_a_client_that_hangs_up_in_any_way_is_followed_by_the_next() -> None:
    async with serve_env(toy()) as server:
        address = parse_address(server.address)
        for rude in (b"", b"GET / HTTP/1.1\r\n\r\n", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", bytes(100), b"\xff" * 5000):
            with socket.create_connection((address.host, address.port)) as caller:
                caller.sendall(rude)
                await trio.sleep(0.01)
        async with env_wire(server.address) as wire:
            assert clocks(await wire.ask(reset("one"))) == [0]


async def test_messages_of_many_megabytes_pass_both_ways() -> None:
    class Wide(type(toy())):
        observation_space = action_space = spaces.Box(0, 255, (16 << 20,), np.uint8)

        def observe(self) -> Any:
            return np.full(16 << 20, 7, np.uint8)

        def act(self, action: Any) -> float:
            return float(action.sum(dtype=np.int64))

    wide = Wide(0, 5, 0.0, toy().fault, None)
    with trio.fail_after(LIMIT):
        async with serve_env(wide) as server, connect_env(server.address) as env:
            await env.reset(ResetRequest())
            reply = await env.step([b"\x01" * (16 << 20)], StepTarget(0, (), ()))
            assert reply.observation is not None
            assert len(reply.observation[0]) == 16 << 20
            assert list(reply.rewards) == [16 << 20]


async def test_a_stream_follows_another_on_one_connection() -> None:
    async with (
        serve_env(toy()) as server,
        open_channel(parse_address(server.address), token=None, limit=5) as channel,
    ):
        for _ in range(2):
            with channel.deadline("stream"):
                stream = await channel.join(f"{SERVICE}/Join", "it", lambda data: ("r", "none", data))
            request = reset("one")
            request.request_id = "r"
            _, _, data = await stream.exchange("r", encode(request))
            assert decode(pb.JoinResponse, data, what="answer").is_set("reset")
            await stream.close(5)
