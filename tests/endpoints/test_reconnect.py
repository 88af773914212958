"""A session that goes on over another connection, whatever became of the first, the server, or who wanted it."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import attrs
import numpy as np
import pytest
import trio
import trio.testing
from gymnasium import spaces

from rlmesh_trio.editions import CURRENT_EDITION
from rlmesh_trio.endpoints.env import ReconnectingEnv
from rlmesh_trio.endpoints.remote_env import RemoteEnv, connect_env
from rlmesh_trio.errors import ConnectError, EndpointError, HandshakeError
from rlmesh_trio.messages import ResetRequest
from rlmesh_trio.spaces import contract_from_gymnasium, contract_to_wire
from rlmesh_trio.spec import Limits
from rlmesh_trio.transport import channel, handshake
from rlmesh_trio.wire.pb.rlmesh.env import v1 as pb
from rlmesh_trio.wire.strict import present
from tests.endpoints.fake_peers import CONTRACT, FakeEnv
from tests.endpoints.reconnecting import HANGING, TARGET, lose, play, use
from tests.transport.fake_server import FakeStream, fake_server


def kinds(fake: FakeEnv) -> list[str]:
    names = ["configure", "reset", "step", "close"]
    return [next(name for name in names if request.is_set(name)) for request in fake.requests]


async def test_a_session_goes_on_and_on() -> None:
    fake = FakeEnv(answer=play)
    async with fake_server(fake.serve) as address, connect_env(address, token="s3cret") as env:
        handle: ReconnectingEnv = env
        assert isinstance(env, ReconnectingEnv)
        contract = env.contract
        fake.requests.clear()
        for _ in range(3):
            await use(handle)
            await lose(handle)
            await lose(handle, TARGET)
            with pytest.raises(EndpointError, match="transport error: connection closed"):
                await env.reset(ResetRequest())
            assert kinds(fake) == ["reset", "step", "step"]
            fake.requests.clear()
            await handle.reconnect()
            assert kinds(fake) == ["configure"]
            fake.requests.clear()
        await use(handle)
        assert env.contract is contract
    assert fake.tokens == ["s3cret"] * 8
    assert fake.edition == "2026.06"


async def test_it_is_the_edition_of_before_that_is_wanted() -> None:
    fake = FakeEnv(answer=play)
    async with fake_server(fake.serve) as address, connect_env(address, edition="2026.06-mine") as env:
        fake.heard = None
        await env.reconnect()
        assert fake.heard is not None
        assert fake.heard.preferred_workflow_edition == "2026.06-mine"


async def test_a_connection_that_is_not_lost_is_left_in_order() -> None:
    ended: list[tuple[bool, int | None]] = []
    fake = FakeEnv(answer=play)

    async def serve(stream: FakeStream) -> None:
        await fake.serve(stream)
        if stream.path.endswith("Join"):
            ended.append((stream.half_closed, stream.reset_code))

    async with fake_server(serve) as address, connect_env(address) as env:
        await use(env)
        await env.reconnect()
        assert ended == [(True, None)]
        await use(env)


async def test_an_env_that_was_closed_can_be_closed_again_behind_a_new_session() -> None:
    fake = FakeEnv(answer=play)
    async with fake_server(fake.serve) as address, connect_env(address) as env:
        await env.close()
        await env.reconnect()
        await env.close()
        await env.close()
    assert kinds(fake) == ["configure", "close", "configure", "close"]


async def test_what_the_server_says_of_itself_is_as_it_is_now() -> None:
    fake = FakeEnv(answer=play)
    async with fake_server(fake.serve) as address, connect_env(address) as env:
        fake.editions = ["2026.06", "2027.01"]
        await env.reconnect()
        assert (env.supported_editions, env.edition) == (("2026.06", "2027.01"), "2026.06")


@pytest.mark.parametrize("others", [0, 2])
async def test_steps_that_hang_are_told(others: int) -> None:
    """Alone, the one who waits reads the socket himself; with others, a resident reader does."""
    fake = FakeEnv(answer=play)
    async with fake_server(fake.serve) as address, connect_env(address, limits=Limits(service_close_timeout=60)) as env:
        for _ in range(8):
            await use(env)
        async with trio.open_nursery() as nursery:
            for _ in range(1 + others):
                nursery.start_soon(lose, env, HANGING)
            await trio.testing.wait_all_tasks_blocked(0.01)
            with trio.fail_after(5):
                await env.reconnect()
        await use(env)


async def test_nobody_there_is_told_at_once_and_is_no_end(tmp_path: Path) -> None:
    fake, path = FakeEnv(answer=play), tmp_path / "socket"
    with trio.fail_after(5):
        async with trio.open_nursery() as nursery:
            leave = await nursery.start(listen, fake, path)
            async with connect_env(f"unix://{path}", limits=Limits(env_connect_timeout=60)) as env:
                await use(env)
                leave()
                for obstacle in ["Connection refused", "No such file or directory"]:
                    with pytest.raises(ConnectError, match=f"cannot connect to unix://{path}: {obstacle}"):
                        await env.reconnect()
                    await lose(env)
                    path.unlink(missing_ok=True)
                leave = await nursery.start(listen, fake, path)
                await env.reconnect()
                await use(env)
            leave()


async def listen(fake: FakeEnv, path: Path, task_status: trio.TaskStatus[Callable[[], None]]) -> None:
    """Serve *fake* until the function that is given is called."""
    with trio.CancelScope() as scope:
        async with fake_server(fake.serve, unix=path):
            task_status.started(scope.cancel)
            await trio.sleep_forever()


async def test_a_server_that_does_not_answer_has_its_limit(loopback_clock: trio.testing.MockClock) -> None:
    fake = FakeEnv(answer=play)
    async with fake_server(fake.serve) as address:
        for limit, taken in [(3, 3), (600, 10)]:
            fake.configured = pb.JoinResponse(configure=present(pb.ConfigureEnvResponse()))
            async with connect_env(address, limits=Limits(env_connect_timeout=limit)) as env:
                fake.configured = None
                before = trio.current_time()
                with pytest.raises(ConnectError, match=f"sent no answer to configure within {taken}s"):
                    await env.reconnect()
                assert trio.current_time() - before == pytest.approx(taken, abs=0.1)
                await lose(env)


async def test_a_server_that_is_busy_may_be_free_later(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(channel, "_HANDOVER", 0.1)
    fake, busy = FakeEnv(answer=play), False

    async def serve(stream: FakeStream) -> None:
        if busy and stream.path.endswith("Join"):
            await stream.refuse(9, "only one client", reset=True)
        else:
            await fake.serve(stream)

    async with fake_server(serve) as address, connect_env(address) as env:
        busy = True
        with trio.fail_after(5), pytest.raises(ConnectError, match="does not take this client now: only one client"):
            await env.reconnect()
        busy = False
        await env.reconnect()
        await use(env)


@pytest.mark.parametrize(
    ("reply", "error", "said"),
    [
        (None, ConnectError, "was lost before it answered configure: transport error: connection closed"),
        (b"\xff", HandshakeError, "answered configure with nonsense"),
    ],
)
async def test_a_new_session_that_comes_to_nothing(reply: bytes | None, error: type[Exception], said: str) -> None:
    fake, failing = FakeEnv(answer=play), False

    async def serve(stream: FakeStream) -> None:
        if not failing or stream.path.endswith("Handshake"):
            await fake.serve(stream)
            return
        await stream.answer()
        await stream.receive()
        if reply is None:
            await stream.connection.socket.aclose()
        else:
            await stream.send(reply)

    async with fake_server(serve) as address, connect_env(address) as env:
        failing = True
        with trio.fail_after(5), pytest.raises(error, match=said):
            await env.reconnect()
        failing = False
        await env.reconnect()
        await use(env)


def contract(**changes: Any) -> bytes:
    """The fake env's contract with these changes."""
    fields: dict[str, Any] = {
        "observation_space": spaces.Box(-1, 1, (2,), np.float32),
        "action_space": spaces.Discrete(3),
        "env_id": "Fake-v0",
        "metadata": {},
        "num_envs": 1,
        "autoreset_mode": 3,
        "render_mode": "",
    }
    return contract_to_wire(contract_from_gymnasium(**fields | changes))


CHANGES: dict[str, tuple[dict[str, Any], str]] = {
    "observations": (
        {"contract": contract(observation_space=spaces.Box(-1, 2, (2,), np.float32))},
        r"observation_space was Box\(-1.0, 1.0, \(2,\), float32\) and is Box\(-1.0, 2.0, \(2,\), float32\)$",
    ),
    "actions": (
        {"contract": contract(action_space=spaces.Discrete(4))},
        r"action_space was Discrete\(3\) and is Discrete\(4\)$",
    ),
    "none": (
        {"contract": contract_to_wire(attrs.evolve(CONTRACT, encoded_spec=b""))},
        r"observation_space was Box.* and is None; action_space was .* and is None; env_id was 'Fake-v0' and is ''$",
    ),
    "width": ({"contract": contract(num_envs=2)}, "num_envs was 1 and is 2$"),
    "autoreset": ({"contract": contract(autoreset_mode=1)}, "autoreset_mode was 3 and is 1$"),
    "rendering": ({"contract": contract(render_mode="human")}, "render_mode was '' and is 'human'$"),
    "metadata": ({"contract": contract(metadata={"tags": [1, True]})}, "metadata was .* and is .*tags"),
    "capabilities": ({"capabilities": {"subset_step": "true"}}, "capabilities was {} and is {'subset_step': 'true'}$"),
    "two": ({"contract": contract(env_id="Other-v0", num_envs=2)}, "env_id was .*; num_envs was 1 and is 2$"),
}


@pytest.mark.parametrize(("changes", "said"), CHANGES.values(), ids=CHANGES.keys())
async def test_another_env_is_refused_before_it_is_taken(changes: dict[str, Any], said: str) -> None:
    fake = FakeEnv(answer=play)
    async with fake_server(fake.serve) as address, connect_env(address) as env:
        as_before = {name: getattr(fake, name) for name in changes}
        fake.requests.clear()
        for name, changed in changes.items():
            setattr(fake, name, changed)
        with pytest.raises(HandshakeError, match=f"^{address} no longer serves the env of this session: .*{said}"):
            await env.reconnect()
        assert not fake.requests
        await lose(env)
        for name, former in as_before.items():
            setattr(fake, name, former)
        await env.reconnect()
        await use(env)


async def test_another_edition_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    older = attrs.evolve(CURRENT_EDITION, name="2026.01")
    monkeypatch.setattr(handshake, "RETAINED_EDITIONS", (CURRENT_EDITION, older))
    fake = FakeEnv(answer=play, editions=["2026.06", "2026.01"], preferred="")
    async with fake_server(fake.serve) as address, connect_env(address) as env:
        fake.editions = ["2026.01"]
        with pytest.raises(HandshakeError, match=r"edition was '2026.06' and is '2026.01'$"):
            await env.reconnect()
        fake.editions = ["2027.01"]
        with pytest.raises(HandshakeError, match="no common workflow edition"):
            await env.reconnect()
        await lose(env)


async def test_metadata_in_another_order_is_the_same() -> None:
    fake = FakeEnv(answer=play, contract=contract(metadata={"a": {"b": float("nan"), "c": b"x"}, "d": [None]}))
    async with fake_server(fake.serve) as address, connect_env(address) as env:
        fake.contract = contract(metadata={"d": [None], "a": {"c": b"x", "b": float("nan")}})
        await env.reconnect()
        fake.contract = contract(metadata={"d": [None], "a": {"c": b"y", "b": float("nan")}})
        with pytest.raises(HandshakeError, match="metadata was"):
            await env.reconnect()


async def test_who_comes_meanwhile_shares_the_success() -> None:
    fake = FakeEnv(answer=play)
    async with fake_server(fake.serve) as address, connect_env(address) as env:
        await lose(env)
        fake.requests.clear()
        async with trio.open_nursery() as nursery:
            for _ in range(3):
                nursery.start_soon(env.reconnect)
        assert kinds(fake) == ["configure"]
        await use(env)


async def test_who_comes_meanwhile_tries_himself_after_a_failure(tmp_path: Path) -> None:
    failures: list[ConnectError] = []
    fake, path = FakeEnv(answer=play), tmp_path / "socket"
    async with trio.open_nursery() as nursery:
        leave = await nursery.start(listen, fake, path)
        async with connect_env(f"unix://{path}") as env:
            leave()

            async def fail() -> None:
                with pytest.raises(ConnectError) as caught:
                    await env.reconnect()
                failures.append(caught.value)

            async with trio.open_nursery() as failing:
                for _ in range(3):
                    failing.start_soon(fail)
    assert len(set(map(id, failures))) == 3


@pytest.mark.parametrize("moment", ["Handshake", "Join"])
async def test_leaving_ends_a_reconnect(moment: str) -> None:
    fake, stuck = FakeEnv(answer=play), trio.Event()
    reached = trio.Event()

    async def serve(stream: FakeStream) -> None:
        if stuck.is_set() and stream.path.endswith(moment):
            reached.set()
            await trio.sleep_forever()
        await fake.serve(stream)

    async def reconnect(env: RemoteEnv) -> None:
        with pytest.raises(ConnectError, match=f"the session with tcp://{env.address} has been left"):
            await env.reconnect()

    with trio.fail_after(5):
        async with fake_server(serve) as address, trio.open_nursery() as nursery:
            async with connect_env(address) as env:
                stuck.set()
                nursery.start_soon(reconnect, env)
                await reached.wait()
            await reconnect(env)
            await lose(env)


async def test_what_is_raised_comes_out_bare() -> None:
    fake, error = FakeEnv(answer=play), ValueError("mine")
    async with fake_server(fake.serve) as address:
        with pytest.raises(ValueError, match="mine") as caught:  # noqa: PT012
            async with connect_env(address) as env:
                await env.reconnect()
                raise error
        assert (caught.value, error.__cause__, error.__context__) == (error, None, None)
        with pytest.raises(HandshakeError, match="declares no env contract"):  # noqa: PT012
            async with connect_env(address) as env:
                fake.contract = None
                await env.reconnect()
