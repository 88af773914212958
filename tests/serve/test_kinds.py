"""Every kind of env, driven by our own engine and message by message: what is served is what runs in this process."""

import zlib
from typing import Any

import numpy as np
import pytest
import trio
from gymnasium.vector import AutoresetMode

from rlmesh_trio import SessionSpec, connect_env, open_local_env, open_local_model, run_session
from rlmesh_trio.errors import HandshakeError, InvalidSpec
from rlmesh_trio.report import Report
from rlmesh_trio.serve import serve_env
from rlmesh_trio.wire.pb.rlmesh.env import v1 as pb
from rlmesh_trio.wire.strict import present
from tests.interop.peers.policies import counter, kitchen
from tests.interop.wire import reset, step
from tests.serve.serving import LIMIT, asked, failed, toy, vector
from tests.serve.test_rules import clocks, told


async def drive(env: Any, decide: Any, **fields: Any) -> Report:
    class Policy:
        def predict(self, observation: Any) -> Any:
            return decide(observation, 0)

    async with open_local_model(Policy()) as model:
        spec = SessionSpec.for_env(env, max_episodes=7, **fields)
        await model.resolve(spec)
        return await run_session(spec, env, model)


def outcomes(report: Report) -> Any:
    return [
        (one.episode_index, one.seed, one.step_count, one.cumulative_reward, one.terminated, one.truncated)
        for one in sorted(report.episodes, key=lambda one: one.episode_index)
    ]


KINDS: dict[str, tuple[Any, Any, dict[str, Any]]] = {
    "one env": (toy, counter, {"base_seed": 3}),
    "every kind of space": (lambda: toy(env="kitchen"), kitchen, {"base_seed": 3}),
    "lanes": (lambda: [toy() for _ in range(3)], counter, {"base_seed": 3}),
    "a lockstep vector": (lambda: vector(AutoresetMode.NEXT_STEP), counter, {}),
    "one that is seeded anew": (
        lambda: vector(AutoresetMode.NEXT_STEP),
        counter,
        {"seed_every_episode": True, "base_seed": 3},
    ),
    "a vector that waits for resets": (lambda: vector(AutoresetMode.DISABLED), counter, {"partial_reset": True}),
}


@pytest.mark.parametrize("where", ["inline", "thread"])
@pytest.mark.parametrize("kind", KINDS)
async def test_what_is_served_plays_as_what_runs_here(kind: str, where: Any) -> None:
    source, decide, fields = KINDS[kind]
    with trio.fail_after(LIMIT):
        async with open_local_env(source()) as env:
            here = await drive(env, decide, **fields)
        async with serve_env(source(), where=where) as server, connect_env(server.address) as env:
            there = await drive(env, decide, **fields)
    assert outcomes(there) == outcomes(here)
    assert there.total_steps == here.total_steps


async def test_rows_of_a_vector_are_reset_by_name() -> None:
    async with asked(vector(AutoresetMode.DISABLED)) as (wire, _):
        await wire.ask(reset("a", "b", "c"))
        await wire.ask(step(1, 1, 1))
        assert told(await wire.ask(step(1, 1, 1))) == [("a", 0, None, 2, 2.2, True, False)]
        assert failed(await wire.ask(step(1, 1, 1))) == ("NOT_READY", True)
        assert failed(await wire.ask(step(1, lanes=[1]))) == ("UNSUPPORTED", True)
        again = await wire.ask(reset("d", lanes=[0], seeds=[9]))
        assert clocks(again) == [0]
        assert clocks(await wire.ask(step(1, 1, 1))) == [1, 3, 3]


async def test_a_vector_that_restarts_in_the_next_step() -> None:
    async with asked(vector(AutoresetMode.NEXT_STEP, 2)) as (wire, _):
        await wire.ask(reset("a", "b"))
        replies = [await wire.ask(ids(step(1, 1), "a", "b")) for _ in range(2)]
        assert told(replies[1]) == [("a", 0, None, 2, 2.2, True, False)]
        rolled = await wire.ask(ids(step(1, 1), "a2", "b"))
        assert (clocks(rolled), list(rolled.step.rewards)) == ([0, 3], [0.0, 1.1])
        assert told(rolled) == [("b", 1, None, 3, pytest.approx(3.3), False, True)]
        await wire.ask(ids(step(1, 1), "a2", "b2"))
        (record,) = told(await wire.ask(ids(step(1, 1), "a2", "b2")))
        assert record[:4] == ("a2", 0, None, 2)


async def test_one_of_its_lanes_that_is_reset_after_its_end_does_not_restart_again() -> None:
    async with asked(vector(AutoresetMode.NEXT_STEP, 2)) as (wire, _):
        await wire.ask(reset("a", "b"))
        await wire.ask(ids(step(1, 1), "a", "b"))
        assert told(await wire.ask(ids(step(1, 1), "a", "b")))[0][0] == "a"
        assert clocks(await wire.ask(reset("c", lanes=[0], seeds=[9]))) == [0]
        after = await wire.ask(ids(step(1, 1), "c", "b"))
        assert (clocks(after), list(after.step.rewards)) == ([1, 3], [1.1, 1.1])
        assert told(await wire.ask(ids(step(1, 1), "c", "b2"))) == [("c", 0, 9, 2, 2.2, True, False)]


def ids(request: pb.JoinRequest, *episode_ids: str) -> pb.JoinRequest:
    request.step.episode_ids = list(episode_ids)
    return request


async def test_a_vector_that_restarts_in_the_same_step_shows_what_was_last() -> None:
    async with asked(vector(AutoresetMode.SAME_STEP, 2)) as (wire, server):
        assert server.contract.autoreset_mode == 2
        await wire.ask(reset("a", "b", seeds=[4, 5]))
        assert failed(await wire.ask(reset("c", lanes=[0]))) == ("UNSUPPORTED", True)
        await wire.ask(ids(step(1, 1), "a", "b"))
        done = await wire.ask(ids(step(1, 2), "a", "b"))
        assert clocks(done) == [0, 2]
        assert told(done) == [("a", 0, 4, 2, 2.2, True, False)]
        infos = done.step.infos.entries
        assert [one.bool for one in infos["_final_obs"].list.items] == [True, False]
        last, none = infos["final_obs"].list.items
        assert [number.number for number in last.list.items] == [2.0, 4.0, 1.0]
        assert not none.is_set("list")
        assert [one.integer for one in infos["final_info"].map.entries["t"].list.items] == [2, 0]
        (record,) = done.step.completed_episodes
        assert {key: value.integer for key, value in record.final_info.entries.items()} == {"t": 2}
        after = await wire.ask(ids(step(1, 1), "a2", "b"))
        assert told(after) == [("b", 1, 5, 3, pytest.approx(3.4), False, True)]
        (record,) = told(await wire.ask(ids(step(1, 1), "a2", "b2")))
        assert record[:4] == ("a2", 0, None, 2), "the step that tells its id is its first"


async def test_our_engine_does_not_drive_same_step() -> None:
    async with serve_env(vector(AutoresetMode.SAME_STEP)) as server, connect_env(server.address) as env:
        with pytest.raises(InvalidSpec, match="SAME_STEP"):
            await drive(env, counter)
    with pytest.raises(HandshakeError, match="SAME_STEP"):
        async with open_local_env(vector(AutoresetMode.SAME_STEP)):
            pass


def render(*lanes: int) -> pb.JoinRequest:
    return pb.JoinRequest(render=present(pb.RenderRequest(env_indices=list(lanes))))


def picture(reply: pb.JoinResponse) -> Any:
    """The red channel's first value of the PNG in a reply, by a reader that knows the filters this server uses."""
    data = reply.render.frame
    assert data is not None
    assert data.startswith(b"\x89PNG")
    at = data.index(b"IDAT")
    size = int.from_bytes(data[at - 4 : at], "big")
    lines = np.frombuffer(zlib.decompress(data[at + 4 : at + 4 + size]), np.uint8).reshape(4, 1 + 6 * 3)
    assert not lines[:, 0].any()
    return lines[:, 1:].reshape(4, 6, 3)


@pytest.mark.parametrize("kind", ["lanes", "vector"])
async def test_any_lane_is_rendered(kind: str) -> None:
    def made(lane: int) -> Any:
        env = toy(lane, length=9)
        env.render_mode = "rgb_array"
        return env

    source: Any = [made(0), made(1)]
    if kind == "vector":
        source = type(vector(AutoresetMode.DISABLED))(
            [lambda: made(0), lambda: made(1)], autoreset_mode=AutoresetMode.DISABLED
        )
    async with asked(source) as (wire, server):
        assert server.contract.render_mode == "rgb_array"
        assert failed(await wire.ask(render())) == ("NOT_READY", True)
        await wire.ask(reset("a", "b"))
        await wire.ask(step(1, 1))
        if kind == "lanes":
            await wire.ask(step(1, lanes=[1]))
        reply = await wire.ask(render(1))
        assert reply.render.format == 1
        assert (picture(reply)[:, :, 0] == (2 if kind == "lanes" else 1)).all()
        assert picture(await wire.ask(render()))[0, 0].tolist() == [1, 0, 0]


async def test_nothing_is_rendered_without_a_mode() -> None:
    async with asked(toy()) as (wire, _):
        reply = await wire.ask(render())
        assert (reply.render.frame, reply.render.format) == (None, 0)
