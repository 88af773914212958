"""What a real env server does that its edition forbids or that a client would not expect, as docs/peers.md tells it.

``pytest -s`` shows the bytes. A test that fails here says that the peer has changed: mend the document.
"""

from collections.abc import Iterator
from itertools import count
from typing import Any

import numpy as np
import pytest
import trio

from rlmesh_trio import Report, connect_env
from rlmesh_trio.errors import EndpointError, HandshakeError
from rlmesh_trio.wire.pb.rlmesh.env import v1 as pb
from rlmesh_trio.wire.pb.rlmesh.spaces import v1 as spaces_pb
from rlmesh_trio.wire.strict import present
from tests.interop.conftest import StartPeer
from tests.interop.driving import Witness, assert_same, drive, play
from tests.interop.peers.policies import counter
from tests.interop.peers.toys import Fault, Point
from tests.interop.wire import configure, env_wire, reset, step
from tests.peers import start_env_peer

CLOSED_WITHOUT_A_WORD = "ended the stream without an error"


def clocks(reply: pb.JoinResponse) -> list[float]:
    """What step the counters of a reply are at."""
    value = reply.reset.observation if reply.is_set("reset") else reply.step.observation
    return np.frombuffer(value.leaves[0], np.float32).reshape(-1, 3)[:, 0].tolist()


def failed(reply: pb.JoinResponse) -> tuple[str, bool]:
    """The code of an error reply, and whether it calls itself recoverable."""
    assert reply.is_set("error")
    return pb.EnvErrorCode(reply.error.code).name or "", reply.error.is_recoverable


async def test_a_step_before_any_reset(shared_env: StartPeer) -> None:
    action = present(spaces_pb.SpaceValue(leaves=[bytes(8), bytes(8)]))
    async with env_wire(shared_env("--env", "kitchen").address) as wire:
        reply = await wire.ask(pb.JoinRequest(step=present(pb.StepRequest(action=action))))
    assert reply.is_set("step")


async def test_a_step_in_the_episode_of_the_client_before(shared_env: StartPeer) -> None:
    address = shared_env("--length", "2").address
    async with env_wire(address) as wire:
        await wire.ask(reset("one"))
    async with env_wire(address) as wire:
        assert clocks(await wire.ask(step(1))) == [1]
        last = await wire.ask(step(1))
        assert last.step.terminated_mask == b"\1"
        assert last.step.completed_episodes == []
        assert clocks(await wire.ask(step(1))) == [3]


async def test_a_deadline_is_told_when_the_step_is_over() -> None:
    with start_env_peer("--length", "2", "--sleep", "0.1") as peer:
        async with env_wire(peer.address) as wire:
            await wire.ask(reset("one"))
            late = await wire.ask(step(1, timeout_ms=50))
            assert failed(late) == ("TIMEOUT", True)
            assert late.endpoint_total_ns is not None
            assert late.endpoint_total_ns >= 100_000_000
            last = await wire.ask(step(1))
            assert clocks(last) == [2]
            (record,) = last.step.completed_episodes
            assert (record.step_count, record.cumulative_reward) == (1, 1.1)
            await wire.ask(reset("two"))
            await wire.ask(step(1))
            assert failed(await wire.ask(step(1, timeout_ms=50))) == ("TIMEOUT", True)  # it was the last of its episode
            await wire.ask(reset("three"))
            (record,) = (await wire.ask(step(1))).step.completed_episodes
            assert (record.episode_id, record.step_count) == ("two", 1)
            assert (record.terminated, record.truncated) == (False, True)


async def test_a_hung_lane() -> None:
    hung = ("--kind", "lanes", "--num-envs", "2", "--fault", "hang", "--fault-at", "1", "--fault-lane", "0")
    with start_env_peer(*hung) as peer:
        async with env_wire(peer.address) as wire, trio.open_nursery() as nursery:
            await wire.ask(reset("one", "two"))
            nursery.start_soon(wire.ask, step(1, lanes=[0], timeout_ms=50))
            await trio.sleep(0.1)
            overtaking = await wire.ask(step(1, lanes=[1]))
            assert list(overtaking.step.env_indices) == [1]
            nursery.cancel_scope.cancel()
        with pytest.raises(HandshakeError, match="only one client may be connected"):
            async with connect_env(peer.address):
                pass


async def test_a_lane_that_raises_is_not_lost() -> None:
    with start_env_peer("--kind", "lanes", "--fault", "raise", "--fault-at", "1", "--fault-lane", "1") as peer:
        async with env_wire(peer.address) as wire:
            await wire.ask(reset("one", "two", "three"))
            assert failed(await wire.ask(step(1, lanes=[1]))) == ("INTERNAL", False)
            assert clocks(await wire.ask(step(1, lanes=[1]))) == [2]
            assert clocks(await wire.ask(step(1, lanes=[0]))) == [1]


async def test_a_whole_env_that_raises_is_lost_to_this_client() -> None:
    with start_env_peer("--fault", "raise", "--fault-at", "1", "--fault-once") as peer:
        async with env_wire(peer.address) as wire:
            await wire.ask(reset("one"))
            assert failed(await wire.ask(step(1))) == ("INTERNAL", False)
            with pytest.raises(EndpointError, match=CLOSED_WITHOUT_A_WORD):
                await wire.ask(step(1))
        async with env_wire(peer.address) as wire:
            assert clocks(await wire.ask(step(1))) == [2]


@pytest.mark.parametrize("data", [b"\x0a\xff", b"\x0a\x02\x08"], ids=["cut short", "no message"])
async def test_a_request_it_cannot_read(shared_env: StartPeer, data: bytes) -> None:
    async with env_wire(shared_env().address) as wire:
        await wire.ask(reset("one"))
        with pytest.raises(EndpointError, match=CLOSED_WITHOUT_A_WORD):
            await wire.say("bad", data)


async def test_an_interrupted_episode_is_told_with_the_next_step_of_any_lane(shared_env: StartPeer) -> None:
    peer = shared_env("--kind", "lanes")
    async with env_wire(peer.address) as wire:
        await wire.ask(reset("one", "two", "three"))
        await wire.ask(step(1, lanes=[1]))
        again = await wire.ask(reset("four", lanes=[1]))
        assert again.is_set("reset")
        (record,) = (await wire.ask(step(1, lanes=[0]))).step.completed_episodes
    assert (record.episode_id, record.env_index, record.step_count, record.truncated) == ("two", 1, 1, True)
    report: Report = await drive(peer.address, counter, max_episodes=7, max_episode_steps=3)
    assert [done.step_count for done in report.episodes] == [3] * 7
    assert {(done.terminated, done.truncated) for done in report.episodes} == {(False, True)}


@pytest.mark.usefixtures("capsys")  # keeps a hundred messages to itself
async def test_of_interrupted_episodes_the_last_hundred_are_told(shared_env: StartPeer) -> None:
    async with env_wire(shared_env().address) as wire:
        for number in range(103):
            await wire.ask(reset(f"e{number}"))
        told = (await wire.ask(step(1))).step.completed_episodes
    assert [record.episode_id for record in told] == [f"e{number}" for number in range(2, 102)]


async def test_seeds_that_are_too_few_or_too_many(shared_env: StartPeer) -> None:
    async with env_wire(shared_env("--kind", "vector").address) as wire:
        first = await wire.ask(reset("one", "two", "three", seeds=[5]))
        assert np.frombuffer(first.reset.observation.leaves[0], np.float32)[1::3].tolist() == [5, 6, 7]
    async with env_wire(shared_env().address) as wire:
        first = await wire.ask(reset("one", seeds=[5, 6]))
        assert np.frombuffer(first.reset.observation.leaves[0], np.float32)[1] == 5


async def test_editions_it_takes_for_its_own(shared_env: StartPeer) -> None:
    async with env_wire(shared_env().address) as wire:
        for edition in ("2026.06", "", " 2026.06", "2026.06-rc9"):
            assert (await wire.ask(configure(edition))).is_set("configure")
        assert failed(await wire.ask(configure("2026.7"))) == ("INVALID_ACTION", False)


async def test_an_observation_out_of_bounds_is_told_once_a_session() -> None:
    with start_env_peer("--fault", "range", "--fault-at", "1") as peer:
        async with env_wire(peer.address) as wire:
            infos: list[set[str]] = []
            for name in ("one", "two"):
                await wire.ask(reset(name))
                infos.append(set((await wire.ask(step(1))).step.infos.entries))
    assert infos == [{"t", "rlmesh.conformance.warning"}, {"t"}]


async def test_a_vector_that_waits_for_resets_cannot_be_reset_in_part(shared_env: StartPeer) -> None:
    peer = shared_env("--kind", "vector", "--autoreset", "disabled", "--num-envs", "2", "--length-stagger", "1")
    async with env_wire(peer.address) as wire:
        await wire.ask(reset("one", "two"))
        for _ in range(5):
            assert (await wire.ask(step(1, 1))).is_set("step")
        assert failed(await wire.ask(reset("three", lanes=[0]))) == ("UNSUPPORTED", True)
        assert failed(await wire.ask(step(1, 1))) == ("INTERNAL", False)


async def test_a_number_without_an_axis(shared_env: StartPeer) -> None:
    def half(observation: Any, ahead: int) -> int:
        return int(observation) // 2

    witness = Witness()
    await drive(shared_env("--env", "point").address, half, hooks=witness, max_episodes=2)
    for episode in witness.episodes.values():
        assert_same(episode, play(Point(0, 5, 0.0, Fault(), None), half, None))


async def test_a_token_nobody_asked_for(shared_env: StartPeer) -> None:
    async with connect_env(shared_env().address, token="anything at all") as env:
        assert env.contract.num_envs == 1


@pytest.mark.parametrize("lanes", [2, 3])
async def test_a_vector_of_tuples(shared_env: StartPeer, lanes: int) -> None:
    peer = shared_env("--env", "Blackjack-v1", "--kind", "vector", "--num-envs", str(lanes))
    async with env_wire(peer.address) as wire:
        reply = await wire.ask(reset(*map(str, range(lanes))))
        assert failed(reply) == ("INTERNAL", False)
        assert reply.error.message == "reset failed: ValueError: Tuple space expected 3 items, got 2"
        with pytest.raises(EndpointError, match=CLOSED_WITHOUT_A_WORD):
            await wire.ask(reset(*map(str, range(lanes))))


async def test_lanes_of_tuples_are_served(shared_env: StartPeer) -> None:
    async with env_wire(shared_env("--env", "Blackjack-v1", "--kind", "lanes").address) as wire:
        assert (await wire.ask(reset("one", "two", "three"))).is_set("reset")


async def test_a_frame_without_a_render_mode(shared_env: StartPeer) -> None:
    peer = shared_env("--env", "counter")
    async with connect_env(peer.address) as env:
        assert env.contract.render_mode == ""
    async with env_wire(peer.address) as wire:
        await wire.ask(reset("one"))
        reply = await wire.ask(pb.JoinRequest(render=present(pb.RenderRequest())))
    assert reply.render.frame is not None
    assert reply.render.frame.startswith(b"\x89PNG")


async def test_steps_of_one_lane_that_are_sent_ahead(shared_env: StartPeer) -> None:
    peer = shared_env("--kind", "lanes", "--length", "100")
    out_of_order = {"answered": False, "taken": False}
    async with env_wire(peer.address) as wire:
        for _ in range(50):
            await wire.ask(reset("one", "two", "three"))
            sent = count()
            answered: list[tuple[int, float]] = []

            async def ask(sent: Iterator[int] = sent, answered: list[tuple[int, float]] = answered) -> None:
                place = next(sent)
                (clock,) = clocks(await wire.ask(step(1, lanes=[0])))
                answered.append((place, clock))

            async with trio.open_nursery() as nursery:
                for _ in range(6):
                    nursery.start_soon(ask)
            out_of_order["answered"] |= answered != sorted(answered)
            out_of_order["taken"] |= [clock for _, clock in sorted(answered)] != [1, 2, 3, 4, 5, 6]
            print(answered)
    assert out_of_order == {"answered": True, "taken": True}
