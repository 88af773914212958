"""Operations that take long, that never end, and whose client does not wait: deadlines, turns, the one place."""

from typing import Any

import pytest
import trio

from rlmesh_trio import connect_env
from rlmesh_trio.errors import HandshakeError
from rlmesh_trio.serve import serve_env, session
from rlmesh_trio.wire.pb.rlmesh.env import v1 as pb
from rlmesh_trio.wire.strict import present
from tests.interop.peers.toys import Fault, Toy
from tests.interop.wire import env_wire, reset, step
from tests.serve.serving import LIMIT, EnvWire, Gated, asked, failed, toy
from tests.serve.test_rules import clocks, told


async def test_a_deadline_is_kept_while_the_step_goes_on_and_counts() -> None:
    env = Gated(length=2)
    async with asked(env) as (wire, _):
        await wire.ask(reset("one"))
        assert failed(await wire.ask(step(2, timeout_ms=20))) == ("TIMEOUT", True)
        assert env.begun.is_set()
        assert failed(await wire.ask(step(1, timeout_ms=20))) == ("TIMEOUT", True), "it waits its turn"
        env.gate.set()
        reply = await wire.ask(step(1))
        assert clocks(reply) == [2]
        assert told(reply) == [("one", 0, None, 2, 1.2 + 1.1, True, False)]


async def test_an_episode_that_ended_unheard_is_told_with_the_next_step() -> None:
    env = Gated(length=1)
    async with asked(env) as (wire, _):
        await wire.ask(reset("one"))
        assert failed(await wire.ask(step(2, timeout_ms=20))) == ("TIMEOUT", True)
        env.gate.set()
        await wire.ask(reset("two"))
        assert [record[0] for record in told(await wire.ask(step(1)))] == ["one", "two"]


async def test_an_env_that_runs_inline_is_told_late_when_it_is_over() -> None:
    async with asked(paused(0.05), where="inline") as (wire, _):
        await wire.ask(reset("one"))
        assert failed(await wire.ask(step(1, timeout_ms=10))) == ("TIMEOUT", True)
        reply = await wire.ask(step(1))
        assert [record[3] for record in told(reply)] == [2]


def paused(pause: float) -> Toy:
    made = toy()
    made.pause = pause
    return made


async def test_a_reset_that_was_late_has_to_be_asked_again() -> None:
    class Slow(Gated):
        def reset(self, **arguments: Any) -> Any:
            if arguments.get("seed") == 1:
                assert self.gate.wait(30)
            return super().reset(**arguments)

    env = Slow()
    async with asked(env) as (wire, _):
        late = pb.JoinRequest(reset=present(pb.ResetRequest(seeds=[1], timeout_ms=20, episode_ids=["a"])))
        assert failed(await wire.ask(late)) == ("TIMEOUT", True)
        env.gate.set()
        assert failed(await wire.ask(step(1))) == ("NOT_READY", True)
        await wire.ask(reset("b"))
        assert clocks(await wire.ask(step(1))) == [1]


async def test_lanes_overtake_and_one_lane_keeps_its_order() -> None:
    envs = [Gated(0), Gated(1)]
    answers: list[str] = []

    async def ask(wire: EnvWire, request: pb.JoinRequest, name: str) -> None:
        reply = await wire.ask(request)
        answers.append(f"{name} {clocks(reply)}")

    async with asked(envs) as (wire, _):
        await wire.ask(reset("a", "b"))
        async with trio.open_nursery() as nursery:
            nursery.start_soon(ask, wire, step(2, lanes=[0]), "held")
            await envs[0].reached()
            nursery.start_soon(ask, wire, step(1, lanes=[0]), "behind it")
            await ask(wire, step(1, lanes=[1]), "beside it")
            nursery.start_soon(ask, wire, step(1, 1), "all")
            await trio.sleep(0.02)
            nursery.start_soon(ask, wire, step(1, lanes=[1]), "behind all")
            await trio.sleep(0.02)
            assert answers == ["beside it [1.0]"]
            envs[0].gate.set()
    assert answers == ["beside it [1.0]", "held [1.0]", "behind it [2.0]", "all [3.0, 2.0]", "behind all [3.0]"]


async def test_requests_sent_ahead_are_answered_in_order_also_after_the_client_has_said_its_last() -> None:
    async with asked(Gated()) as (wire, _):
        await wire.ask(reset("a"))
        replies: list[float] = []

        async def ask() -> None:
            replies.extend(clocks(await wire.ask(step(1))))

        async with trio.open_nursery() as nursery:
            for _ in range(4):
                nursery.start_soon(ask)
                await trio.lowlevel.checkpoint()
    assert replies == [1, 2, 3, 4]


async def test_more_is_sent_ahead_than_is_taken_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session, "_LEAST_AHEAD", 3)
    env = Gated(length=100)
    async with asked(env) as (wire, _):
        await wire.ask(reset("a"))
        async with trio.open_nursery() as nursery:
            nursery.start_soon(wire.ask, step(2))
            await env.reached()
            for _ in range(20):
                nursery.start_soon(wire.ask, step(1))
            await trio.sleep(0.02)
            env.gate.set()
        assert clocks(await wire.ask(step(1))) == [22]


async def refused(address: str) -> bool:
    try:
        async with connect_env(address):
            return False
    except HandshakeError as refusal:
        return "one client at a time" in str(refusal)


async def test_a_second_client_is_refused_and_the_first_unharmed() -> None:
    async with asked(toy()) as (wire, server):
        await wire.ask(reset("one"))
        assert await refused(server.address)
        assert clocks(await wire.ask(step(1))) == [1]


async def leave_in_the_middle(address: str, env: Gated) -> None:
    async with env_wire(address) as wire, trio.open_nursery() as nursery:
        await wire.ask(reset("one"))
        nursery.start_soon(wire.ask, step(2))
        await env.reached()
        nursery.cancel_scope.cancel()


async def test_the_place_of_a_client_that_left_in_the_middle_is_free_when_its_step_is_over() -> None:
    env = Gated()
    async with serve_env(env) as server:
        await leave_in_the_middle(server.address, env)
        assert await refused(server.address)
        env.gate.set()
        async with env_wire(server.address) as wire:
            assert failed(await wire.ask(step(1))) == ("NOT_READY", True)
            assert clocks(await wire.ask(reset("two"))) == [0]


@pytest.mark.parametrize("lanes", [1, 2])
async def test_a_hung_step_is_abandoned_and_its_env_made_anew(monkeypatch: pytest.MonkeyPatch, lanes: int) -> None:
    monkeypatch.setattr(session, "ABANDON_AFTER", 0.05)
    made: dict[int, list[Gated]] = {0: [], 1: []}

    def make(lane: int = 0) -> Gated:
        made[lane].append(Gated(lane))
        return made[lane][-1]

    async with serve_env(make, lanes=lanes) as server:
        async with env_wire(server.address) as wire, trio.open_nursery() as nursery:
            await wire.ask(reset(*"ab"[:lanes]))
            nursery.start_soon(wire.ask, step(2, *[1] * (lanes - 1)))
            await made[0][0].reached()
            nursery.cancel_scope.cancel()
        async with env_wire(server.address) as wire:
            assert clocks(await wire.ask(reset(*"ab"[:lanes]))) == [0] * lanes
            assert clocks(await wire.ask(step(*[1] * lanes))) == [1] * lanes
    assert [len(made[0]), len(made[1])] == [2, lanes - 1]
    made[0][0].gate.set()


async def test_a_hung_env_that_cannot_be_made_anew_keeps_the_place(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session, "ABANDON_AFTER", 0.01)
    env = Gated()
    async with serve_env(env) as server:
        await leave_in_the_middle(server.address, env)
        assert await refused(server.address)
        env.gate.set()
        assert not await refused(server.address)


def crashes_in_lane_one(lane: int = 0) -> Toy:
    return toy(lane, fault=Fault("exit", 1, lane=1))


async def test_a_lane_whose_process_crashed_comes_back_with_its_reset() -> None:
    with trio.fail_after(LIMIT):
        async with serve_env(crashes_in_lane_one, lanes=2, where="process") as server:
            async with env_wire(server.address) as wire:
                await wire.ask(reset("a", "b"))
                assert failed(await wire.ask(step(1, lanes=[1]))) == ("CRASHED", True)
                assert clocks(await wire.ask(step(1, lanes=[0]))) == [1]
                assert failed(await wire.ask(step(1, lanes=[1]))) == ("NOT_READY", True)
            async with env_wire(server.address) as wire:
                assert clocks(await wire.ask(reset("c", "d"))) == [0, 0]
                assert failed(await wire.ask(step(1, 1))) == ("CRASHED", False)


async def test_an_env_that_cannot_be_made_anew_says_so() -> None:
    attempts: list[int] = []

    def once() -> Any:
        attempts.append(1)
        if len(attempts) > 1:
            raise RuntimeError("no more of them")
        return toy()

    with trio.fail_after(LIMIT):
        async with serve_env(once, where="thread") as server, env_wire(server.address) as wire:
            await wire.ask(reset("one"))
            (worker,) = server._lanes._workers  # pyright: ignore[reportPrivateUsage]
            worker._thread.abandoned = True  # pyright: ignore
            reply = await wire.ask(reset("two"))
            assert failed(reply) == ("CRASHED", False)
            assert "no more of them" in reply.error.message
