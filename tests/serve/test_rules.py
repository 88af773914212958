"""What a client is told, request by request: order, refusals, errors, accounting."""

from typing import Any

import numpy as np
import pytest
from gymnasium.vector import AutoresetMode

from rlmesh_trio.endpoints.local_env import Where
from rlmesh_trio.errors import EndpointError
from rlmesh_trio.serve import serve_env
from rlmesh_trio.wire.pb.rlmesh.env import v1 as pb
from rlmesh_trio.wire.pb.rlmesh.spaces import v1 as spaces_pb
from rlmesh_trio.wire.strict import present
from tests.interop.peers.toys import Fault
from tests.interop.wire import configure, env_wire, reset, step
from tests.serve.serving import asked, failed, toy, vector

OVER = "ended the stream"

each_place = pytest.mark.parametrize("where", ["inline", "thread"])


def clocks(reply: pb.JoinResponse) -> list[float]:
    """What step the counters of a reply are at."""
    value = reply.reset.observation if reply.is_set("reset") else reply.step.observation
    return np.frombuffer(value.leaves[0], np.float32).reshape(-1, 3)[:, 0].tolist()


def seen_seeds(reply: pb.JoinResponse) -> list[float]:
    return np.frombuffer(reply.reset.observation.leaves[0], np.float32).reshape(-1, 3)[:, 1].tolist()


def told(reply: pb.JoinResponse) -> list[tuple[Any, ...]]:
    """The episodes a reply tells of."""
    episodes = reply.close.final_episodes if reply.is_set("close") else reply.step.completed_episodes
    return [
        (one.episode_id, one.env_index, one.seed, one.step_count, one.cumulative_reward, one.terminated, one.truncated)
        for one in episodes
    ]


def close() -> pb.JoinRequest:
    return pb.JoinRequest(close=present(pb.CloseEnvsRequest("client close")))


def raw_step(*leaves: bytes, lanes: tuple[int, ...] = ()) -> pb.JoinRequest:
    action = present(spaces_pb.SpaceValue(leaves=list(leaves)))
    return pb.JoinRequest(step=present(pb.StepRequest(action=action, env_indices=list(lanes))))


@each_place
async def test_an_episode_from_configure_to_close(where: Where) -> None:
    async with asked(toy(), where=where) as (wire, _):
        assert (await wire.ask(configure("2026.06"))).is_set("configure")
        first = await wire.ask(reset("one", seeds=[7]))
        assert (clocks(first), seen_seeds(first)) == ([0], [7])
        assert told(await wire.ask(step(1))) == []
        last = await wire.ask(step(1))
        assert (last.step.terminated_mask, last.step.truncated_mask, list(last.step.rewards)) == (b"\1", b"\0", [1.1])
        assert told(last) == [("one", 0, 7, 2, 2.2, True, False)]
        await wire.ask(reset("two"))
        closed = await wire.ask(close())
        assert told(closed) == [("two", 0, None, 0, 0.0, False, True)]
        with pytest.raises(EndpointError, match=OVER):
            await wire.ask(step(1))


async def test_closing_harms_nobody() -> None:
    async with serve_env(toy()) as server:
        for _ in range(2):
            async with env_wire(server.address) as wire:
                assert told(await wire.ask(close())) == []
        async with env_wire(server.address) as wire:
            assert clocks(await wire.ask(reset("one"))) == [0]


@pytest.mark.parametrize("source", [toy, lambda: vector(AutoresetMode.NEXT_STEP)])
async def test_every_client_has_to_reset_first(source: Any) -> None:
    made = source()
    rows = getattr(made, "num_envs", 1)
    actions = step(*[1] * rows)
    async with serve_env(made) as server:
        for _ in range(2):
            async with env_wire(server.address) as wire:
                assert failed(await wire.ask(actions)) == ("NOT_READY", True)
                await wire.ask(reset(*"abc"[:rows]))
                assert clocks(await wire.ask(actions)) == [1] * rows


async def test_lanes_are_reset_one_by_one() -> None:
    async with asked([toy(0), toy(1)]) as (wire, _):
        await wire.ask(reset("a", lanes=[1]))
        assert failed(await wire.ask(step(1, 1))) == ("NOT_READY", True)
        assert failed(await wire.ask(step(1, lanes=[0]))) == ("NOT_READY", True)
        reply = await wire.ask(step(1, lanes=[1]))
        assert (clocks(reply), list(reply.step.env_indices)) == ([1], [1])


@pytest.mark.parametrize("edition", ["2099.01", "", " 2026.06", "2026.06-rc9"])
async def test_another_edition_is_refused_for_good(edition: str) -> None:
    async with asked(toy()) as (wire, _):
        assert failed(await wire.ask(configure(edition))) == ("INVALID_ACTION", False)
        with pytest.raises(EndpointError, match=OVER):
            await wire.ask(reset("one"))


REFUSED = {
    "an action outside the space": (step(9), "INVALID_ACTION"),
    "a short leaf": (raw_step(b"123"), "INVALID_ACTION"),
    "no leaf": (raw_step(), "INVALID_ACTION"),
    "no action": (pb.JoinRequest(step=present(pb.StepRequest())), "INVALID_ACTION"),
    "a leaf too many": (raw_step(bytes(8), bytes(8)), "INVALID_ACTION"),
    "a row too many": (step(1, 1), "INVALID_ACTION"),
    "a lane that is not there": (step(1, lanes=[1]), "INVALID_ACTION"),
    "a lane twice": (step(1, 1, lanes=[0, 0]), "INVALID_ACTION"),
    "too many seeds": (reset("x", seeds=[1, 2], lanes=[0]), "INVALID_ACTION"),
    "more seeds than lanes": (reset("x", seeds=[1, 2]), "INVALID_ACTION"),
    "more ids than lanes": (reset("x", "y"), "INVALID_ACTION"),
    "no kind": (pb.JoinRequest(), "UNSUPPORTED"),
    "two lanes to render": (pb.JoinRequest(render=present(pb.RenderRequest(env_indices=[0, 0]))), "UNSUPPORTED"),
    "another lane to render": (pb.JoinRequest(render=present(pb.RenderRequest(env_indices=[1]))), "INVALID_ACTION"),
}


@pytest.mark.parametrize("what", REFUSED)
async def test_a_refusal_changes_nothing(what: str) -> None:
    request, code = REFUSED[what]
    async with asked(toy()) as (wire, _):
        await wire.ask(reset("one"))
        assert failed(await wire.ask(request)) == (code, True)
        assert clocks(await wire.ask(step(1))) == [1]
        assert told(await wire.ask(step(1))) == [("one", 0, None, 2, 2.2, True, False)]


@each_place
async def test_a_batch_with_one_bad_row_steps_no_lane(where: Where) -> None:
    async with asked([toy(0), toy(1)], where=where) as (wire, _):
        await wire.ask(reset("a", "b"))
        assert failed(await wire.ask(step(1, 9))) == ("INVALID_ACTION", True)
        assert failed(await wire.ask(step(9, 1, lanes=[1, 0]))) == ("INVALID_ACTION", True)
        assert clocks(await wire.ask(step(1, 1))) == [1, 1]


@pytest.mark.parametrize("data", [b"\x0a\xff", b"\x2a\x02r1\x0a\x02\x08", b"\xff" * 40])
async def test_bytes_that_are_no_request_are_answered_once(data: bytes) -> None:
    async with asked(toy()) as (wire, _):
        request_id = "r1" if b"r1" in data else ""
        assert failed(await wire.say(request_id, data)) == ("INVALID_ACTION", False)
        with pytest.raises(EndpointError, match=OVER):
            await wire.ask(reset("one"))


@each_place
@pytest.mark.parametrize("fault", ["raise", "nan", "shape"])
async def test_a_whole_env_that_fails_ends_the_session(where: Where, fault: Any) -> None:
    async with serve_env(toy(fault=Fault(fault, 1, once=True)), where=where) as server:
        async with env_wire(server.address) as wire:
            await wire.ask(reset("one"))
            assert failed(await wire.ask(step(1))) == ("INTERNAL", False)
            with pytest.raises(EndpointError, match=OVER):
                await wire.ask(step(1))
        async with env_wire(server.address) as wire:
            await wire.ask(reset("two"))
            assert told(await wire.ask(step(1))) == []


async def test_a_lane_that_fails_is_reset_and_the_others_go_on() -> None:
    fault = Fault("raise", 1, lane=1, once=True)
    async with asked([toy(0, fault=fault), toy(1, fault=fault)]) as (wire, _):
        await wire.ask(reset("a", "b"))
        assert failed(await wire.ask(step(1, lanes=[1]))) == ("INTERNAL", True)
        assert failed(await wire.ask(step(1, lanes=[1]))) == ("NOT_READY", True)
        assert clocks(await wire.ask(step(1, lanes=[0]))) == [1]
        await wire.ask(reset("c", lanes=[1]))
        reply = await wire.ask(step(1, lanes=[1]))
        assert clocks(reply) == [1]
        assert told(reply) == [("b", 1, None, 0, 0.0, False, True)]


async def test_every_interrupted_episode_is_told() -> None:
    async with asked(toy()) as (wire, _):
        for number in range(150):
            await wire.ask(reset(f"e{number}"))
        records = told(await wire.ask(step(1)))
        assert [record[0] for record in records] == [f"e{number}" for number in range(149)]
        assert told(await wire.ask(step(1))) == [("e149", 0, None, 2, 2.2, True, False)]


async def test_one_seed_for_all_lanes_is_spread() -> None:
    async with asked([toy(0), toy(1), toy(2)]) as (wire, _):
        assert seen_seeds(await wire.ask(reset("a", "b", "c", seeds=[5]))) == [5, 6, 7]
        assert failed(await wire.ask(reset("a", "b", "c", seeds=[5, 6]))) == ("INVALID_ACTION", True)


@pytest.mark.parametrize("lanes", [1, 2])
async def test_out_of_bounds_is_told_once_a_session_and_in_the_next_again(lanes: int) -> None:
    envs = [toy(lane, fault=Fault("range", 1)) for lane in range(lanes)]

    async def warnings(address: str) -> list[str]:
        kinds: list[str] = []
        async with env_wire(address) as wire:
            for _ in range(2):
                await wire.ask(reset(*"ab"[:lanes]))
                infos = (await wire.ask(step(*[1] * lanes))).step.infos
                kinds += ["told"] * str(infos).count("rlmesh.conformance.warning")
        return kinds

    async with serve_env(envs) as server:
        assert await warnings(server.address) == ["told"]
        assert await warnings(server.address) == ["told"]


async def test_infos_that_have_no_wire_form_are_told_as_text() -> None:
    class Odd(type(toy())):
        def step_info(self) -> dict[str, Any]:
            return {"set": {1}, "t": self.clock}

    env = Odd(0, 1, 0.0, Fault(), None)
    async with asked(env) as (wire, _):
        await wire.ask(reset("one"))
        (record,) = (reply := await wire.ask(step(1))).step.completed_episodes
        for infos in (reply.step.infos, record.final_info):
            assert infos.entries["set"].text == "{1}"
            assert infos.entries["t"].integer == 1
