"""What a real model server does that its edition forbids or that a client would not expect, as docs/peers.md tells it.

``pytest -s`` shows the bytes. A test that fails here says that the peer has changed: mend the document.
"""

from collections.abc import AsyncGenerator
from typing import Any

import numpy as np
import pytest
import trio

from rlmesh_trio import SessionSpec, connect_env, connect_model, run_session
from rlmesh_trio.errors import ModelRpcError
from rlmesh_trio.messages import ReleaseAdapterRequest
from rlmesh_trio.wire.pb.rlmesh.model import v1 as pb
from tests.interop.conftest import StartPeer
from tests.interop.wire import end_episodes, model_wire, predict, release, resolve
from tests.peers import start_model_peer

NOT_RESOLVED = ("INTERNAL", False, "model error: model env adapter was not resolved")


def at(*clocks: int) -> list[np.ndarray[Any, Any]]:
    """The counting env's observations at these steps, one row each."""
    return [np.array([[clock, -1, -1] for clock in clocks], np.float32)]


def picture(clock: int) -> list[np.ndarray[Any, Any]]:
    """The arm's observation at this step."""
    return [np.full((4, 4, 3), clock, np.uint8), np.zeros(2, np.float32)]


def failed(reply: pb.JoinResponse) -> tuple[str, bool, str]:
    """The code of an error reply, whether it calls itself recoverable, and its text."""
    assert reply.is_set("error")
    return pb.ModelErrorCode(reply.error.code).name or "", reply.error.is_recoverable, reply.error.message


def frames(reply: pb.JoinResponse) -> list[list[int]]:
    """The actions of a reply: for each frame, one number per row."""
    assert reply.is_set("predict")
    return [np.frombuffer(frame.leaves[0], np.int64).tolist() for frame in reply.predict.actions]


@pytest.fixture
async def env_spec(shared_env: StartPeer) -> AsyncGenerator[bytes]:
    async with connect_env(shared_env().address) as env:
        yield env.contract.encoded_spec


async def test_a_predict_nobody_resolved(shared_model: StartPeer, env_spec: bytes) -> None:
    async with model_wire(shared_model().address) as wire:
        assert failed(await wire.ask(predict("one", leaves=at(0)))) == NOT_RESOLVED
        await wire.ask(resolve(env_spec))
        await wire.ask(release())
        assert failed(await wire.ask(predict("one", leaves=at(0)))) == NOT_RESOLVED


async def test_a_route_belongs_to_whoever_knows_its_name(shared_model: StartPeer, env_spec: bytes) -> None:
    address = shared_model().address
    async with model_wire(address) as mine:
        await mine.ask(resolve(env_spec))
        async with model_wire(address) as other:
            assert frames(await other.ask(predict("theirs", leaves=at(0)))) == [[1]]
            await other.ask(release())
        assert failed(await mine.ask(predict("mine", leaves=at(0)))) == NOT_RESOLVED
        await mine.ask(resolve(env_spec))
    async with model_wire(address) as later:
        assert frames(await later.ask(predict("later", leaves=at(0)))) == [[1]]
        await later.ask(release())


async def test_two_sessions_of_one_env_id(shared_env: StartPeer, shared_model: StartPeer) -> None:
    address = shared_model().address
    async with connect_env(shared_env().address) as env, connect_model(address) as one, connect_model(address) as two:
        alike, own = (SessionSpec.for_env(env, max_episodes=1, env_id=env_id) for env_id in ("env", "my own"))
        await one.resolve(alike)
        await two.resolve(alike)
        await two.release_adapter(ReleaseAdapterRequest(alike.session_id, alike.env_id, "q", "over"))
        with pytest.raises(ModelRpcError, match="adapter was not resolved"):
            await run_session(alike, env, one)
        await one.resolve(own)
        assert (await run_session(own, env, one)).total_episodes == 1


async def test_a_model_that_raised_goes_on(env_spec: bytes) -> None:
    with start_model_peer("--fault", "raise", "--fault-at", "1") as peer:
        async with model_wire(peer.address) as wire:
            await wire.ask(resolve(env_spec))
            code, recoverable, _ = failed(await wire.ask(predict("one", leaves=at(0))))
            assert (code, recoverable) == ("INTERNAL", False)
            assert frames(await wire.ask(predict("one", leaves=at(0)))) == [[1]]


async def test_rows_for_a_model_of_single_rows_are_one_observation(shared_model: StartPeer, env_spec: bytes) -> None:
    model = shared_model()
    before = len(model.events("forward"))
    async with model_wire(model.address) as wire:
        await wire.ask(resolve(env_spec))
        assert frames(await wire.ask(predict("one", "two", leaves=at(0, 1)))) == [[1, 2]]
        await wire.ask(release())
    (forward,) = model.events("forward")[before:]
    assert (forward["method"], forward["episode"]) == ("predict", "")


async def test_a_horizon_for_a_model_without_chunks(shared_model: StartPeer, env_spec: bytes) -> None:
    async with model_wire(shared_model().address) as wire:
        await wire.ask(resolve(env_spec, horizon=4))
        assert frames(await wire.ask(predict("one", leaves=at(0)))) == [[1]]
        await wire.ask(release())


async def test_many_rows_come_back_as_one_frame(shared_model: StartPeer, env_spec: bytes) -> None:
    async with model_wire(shared_model("--kind", "chunkbatch").address) as wire:
        await wire.ask(resolve(env_spec, horizon=4))
        assert frames(await wire.ask(predict("one", leaves=at(0)))) == [[1], [2], [0], [1]]
        assert frames(await wire.ask(predict("one", "two", leaves=at(0, 1)))) == [[1, 2]]
        await wire.ask(release())


async def test_who_hears_of_the_end_of_an_episode(shared_model: StartPeer, env_spec: bytes) -> None:
    model = shared_model()
    before = len(model.events("episode_end"))
    async with model_wire(model.address) as wire:
        await wire.ask(resolve(env_spec))
        await wire.ask(predict("known", leaves=at(0)))
        await wire.ask(end_episodes("known", "never heard of"))
        await wire.ask(end_episodes("known"))
        await wire.ask(predict("left", leaves=at(0)))
        await wire.ask(end_episodes())
        await wire.ask(release())
    ended = [line["episode"] for line in model.events("episode_end")[before:]]
    assert ended == ["known", "never heard of", "known"]


async def test_routes_that_share_one_forward_at_a_time(env_spec: bytes) -> None:
    with start_model_peer("--sleep", "0.15") as peer:
        async with model_wire(peer.address) as wire:
            for env_id in ("x", "y"):
                await wire.ask(resolve(env_spec, env_id=env_id))
            replies: list[pb.JoinResponse] = []

            async def ask(env_id: str) -> None:
                replies.append(await wire.ask(predict("one", leaves=at(0), env_id=env_id)))

            async with trio.open_nursery() as nursery:
                nursery.start_soon(ask, "x")
                nursery.start_soon(ask, "y")
    assert [reply.in_flight for reply in replies] == [1, 2]
    queued = replies[1].queue_ns
    assert queued is not None
    assert queued > 30_000_000


async def test_a_step_of_history_left_out_or_told_twice(shared_env: StartPeer, shared_model: StartPeer) -> None:
    async with connect_env(shared_env("--env", "arm").address) as env:
        spec = env.contract.encoded_spec
    async with model_wire(shared_model("--kind", "history").address) as wire:
        await wire.ask(resolve(spec))
        for clock, taken in ((5, True), (6, True), (8, False), (6, False), (7, True)):
            reply = await wire.ask(predict("one", leaves=picture(clock), at=clock))
            assert reply.is_set("predict") == taken
            if not taken:
                code, recoverable, text = failed(reply)
                assert (code, recoverable) == ("INTERNAL", False)
                assert f"step {clock} arrived after step 6 (expected 7)" in text
        await wire.ask(release())


async def test_an_edition_it_takes_for_its_own(shared_model: StartPeer, env_spec: bytes) -> None:
    async with model_wire(shared_model().address) as wire:
        for edition in ("", "2026.06-rc9"):
            assert (await wire.ask(resolve(env_spec, edition=edition))).is_set("resolve_adapter")
        code, recoverable, _ = failed(await wire.ask(resolve(env_spec, edition="2099.01")))
        assert (code, recoverable) == ("INVALID_REQUEST", False)
        await wire.ask(release())
