import math
from collections.abc import Mapping
from typing import Any, cast

import gymnasium
import numpy as np
import pytest
import trio
import trio.testing

from rlmesh_trio.endpoints.local_env import open_local_env
from rlmesh_trio.errors import EndpointError
from rlmesh_trio.messages import ResetRequest
from rlmesh_trio.spaces import codec_for
from rlmesh_trio.spec import AutoresetMode, SessionSpec, ValueSpace
from tests.endpoints.asking import at, discrete, observed, start
from tests.endpoints.toys import ALL_KINDS, Counter, Mirror, Script, counter


async def test_one_env_describes_itself_as_a_served_one() -> None:
    async with open_local_env("CartPole-v1") as env:
        contract = env.contract
        assert (contract.env_id, contract.num_envs, contract.autoreset_mode) == (
            "CartPole-v1",
            1,
            AutoresetMode.DISABLED,
        )
        assert (env.edition, env.subset_step, env.ceiling) == ("2026.06", True, None)
        assert contract.metadata["render_fps"] == 50
        assert contract.encoded_spec
        SessionSpec.for_env(env, max_episodes=1).validate()


async def test_an_episode_is_accounted_by_the_ids_and_seeds_pushed() -> None:
    toy = Counter(length=3)
    async with open_local_env(toy) as env:
        assert env.contract.env_id == "UnknownEnv-v1"
        reply = await start(env, ids=("a",), seeds=(41,))
        assert observed(env, reply).tolist() == [[0, -1, 0]]
        assert (reply.infos, reply.rewards, reply.terminated_mask, reply.truncated_mask) == ({"lane": 0}, (), b"", b"")
        for _ in range(2):
            reply = await env.step(discrete(1), at(ids=("a",)))
            assert (list(reply.completed), reply.terminated_mask) == ([], b"\0")
        reply = await env.step(discrete(2), at(ids=("a",)))
    assert observed(env, reply).tolist() == [[3, 2, 0]]
    assert (list(reply.rewards), reply.terminated_mask, reply.truncated_mask) == ([1.0], b"\1", b"\0")
    (record,) = reply.completed
    assert (record.episode_id, record.seed, record.env_index, record.step_count) == ("a", 41, 0, 3)
    assert (record.cumulative_reward, record.terminated, record.truncated) == (3.0, True, False)
    assert cast("Mapping[str, Any]", record.final_info)["t"] == 3
    assert 1e18 < record.start_timestamp_ns <= record.end_timestamp_ns
    assert toy.resets == [(41, None)]
    assert [type(action) for action in toy.actions] == [np.int64] * 3
    assert toy.closed == 1


async def test_a_truncated_episode_says_so() -> None:
    async with open_local_env(Counter(length=1, truncates=True)) as env:
        await start(env)
        reply = await env.step(discrete(0), at())
    assert (reply.terminated_mask, reply.truncated_mask) == (b"\0", b"\1")
    assert [(record.terminated, record.truncated) for record in reply.completed] == [(False, True)]


async def test_seeds_and_options_reach_the_env_only_when_given() -> None:
    toy = Counter()
    async with open_local_env(toy) as env:
        await env.reset(ResetRequest())
        await env.reset(ResetRequest((2**63 - 1,), {"trial_index": 4}, episode_ids=("x",)))
        await env.reset(ResetRequest((5, 6, 7), episode_ids=("y", "extra")))
    assert toy.resets == [(None, None), (2**63 - 1, {"trial_index": 4}), (5, None)]


async def test_a_reset_over_a_running_episode_is_told_with_the_next_step() -> None:
    async with open_local_env(Counter(length=9)) as env:
        await start(env, ids=("old",), seeds=(1,))
        await env.step(discrete(0), at())
        assert list((await start(env, ids=("new",))).completed) == []
        reply = await env.step(discrete(0), at())
        (record,) = reply.completed
        assert (record.episode_id, record.seed, record.step_count, record.truncated) == ("old", 1, 1, True)
        assert (record.terminated, record.final_info) == (False, None)
        assert list((await env.step(discrete(0), at())).completed) == []


async def test_steps_before_a_reset_and_after_the_end_reach_the_env_and_count_for_nothing() -> None:
    toy = Counter(length=1)
    async with open_local_env(toy) as env:
        assert list((await env.step(discrete(0), at())).completed) == []
        await start(env)
        assert len((await env.step(discrete(0), at())).completed) == 1
        assert list((await env.step(discrete(0), at())).completed) == []
    assert len(toy.actions) == 3


@pytest.mark.parametrize(
    ("action", "says"),
    [
        (discrete(9), "above the highest"),
        (discrete(1, 1), "take 8 bytes, got 16"),
        ([], "expected 1 leaves, got 0"),
        ([*discrete(1), *discrete(1)], "expected 1 leaves, got 2"),
    ],
)
async def test_a_wrong_action_is_refused_and_never_reaches_the_env(action: list[bytes], says: str) -> None:
    toy = Counter()
    async with open_local_env(toy) as env:
        await start(env)
        with pytest.raises(EndpointError, match=says) as caught:
            await env.step(action, at())
        assert (caught.value.code, caught.value.recoverable) == ("INVALID_ACTION", True)
        assert toy.actions == []
        await env.step(discrete(1), at())


async def test_nan_is_no_action() -> None:
    async with open_local_env("Pendulum-v1") as env:
        await start(env)
        with pytest.raises(EndpointError, match=r"\$: .*NaN") as caught:
            await env.step([np.array([math.nan], "<f4").tobytes()], at())
        assert caught.value.code == "INVALID_ACTION"


@pytest.mark.parametrize(
    ("act", "says"),
    [
        ("raise", "step failed: RuntimeError: toy fault"),
        ("nan", r"observation space: \$: .*NaN"),
        ("shape", r"observation space: \$: .*shape"),
        ("infos", "infos are of type list"),
    ],
)
async def test_an_env_that_misbehaves_is_an_internal_error(act: str, says: str) -> None:
    async with open_local_env(Script({1: act})) as env:
        await start(env)
        with pytest.raises(EndpointError, match=says) as caught:
            await env.step(discrete(1), at())
    assert (caught.value.code, caught.value.recoverable) == ("INTERNAL", False)
    if act == "raise":
        assert isinstance(caught.value.__cause__, RuntimeError)


async def test_leaving_a_box_is_warned_about_once_and_passes() -> None:
    async with open_local_env(Script({1: "beyond", 2: "beyond", 3: "nan"})) as env:
        await start(env)
        reply = await env.step(discrete(1), at())
        assert observed(env, reply)[0, 1] == 2e6
        (warning,) = cast("Any", reply.infos)["rlmesh.conformance.warning"]
        assert (warning["kind"], warning["path"]) == ("observation", "$")
        assert "rlmesh.conformance.warning" not in cast("Any", (await env.step(discrete(1), at())).infos)
        with pytest.raises(EndpointError, match="NaN"):
            await env.step(discrete(1), at())


async def test_every_kind_of_space_goes_through_unharmed() -> None:
    async with open_local_env(Mirror()) as env:
        await start(env, seeds=(3,))
        codec = codec_for(cast("ValueSpace", env.contract.action_space))
        ALL_KINDS.seed(5)
        action = codec.pack_rows([ALL_KINDS.sample()])
        before = list(action)
        reply = await env.step(action, at())
        assert list(cast("Any", reply.observation)) == before == list(action)


async def test_lanes_are_stepped_by_name_and_answered_in_the_order_asked() -> None:
    async with open_local_env(counter, lanes=3) as env:
        assert (env.contract.num_envs, env.subset_step) == (3, True)
        reply = await start(env, 2, 0, ids=("c", "a"), seeds=(12, 10))
        assert observed(env, reply, 2)[:, 2].tolist() == [2, 0]
        assert cast("Any", reply.infos) == {"final_info": [{"lane": 2}, {"lane": 0}], "_final_info": [True, True]}
        reply = await env.step(discrete(1), at(2, ids=("c",)))
        assert (list(reply.rewards), tuple(reply.env_indices), cast("Any", reply.infos)["t"]) == ([3.0], (2,), 1)
        await start(env, 1, ids=("b",))
        for _ in range(2):
            reply = await env.step(discrete(0, 1, 2), at())
            assert reply.phases is not None
            assert reply.phases.lane_skew_ns is not None
        assert observed(env, reply, 3).tolist() == [[2, 0, 0], [2, 1, 1], [3, 2, 2]]
        reply = await env.step(discrete(2, 0), at(2, 0))
        assert observed(env, reply, 2).tolist() == [[4, 2, 2], [3, 0, 0]]
        assert (list(reply.rewards), reply.terminated_mask) == ([3.0, 1.0], b"\0\1")
        assert cast("Any", reply.infos)["_final_info"] == [False, True]
        assert [(r.episode_id, r.env_index, cast("Any", r.final_info)["t"]) for r in reply.completed] == [("a", 0, 3)]


async def test_an_interrupted_episode_is_told_by_any_lane() -> None:
    async with open_local_env([Counter(9), Counter(9, lane=1)]) as env:
        await start(env, ids=("a", "b"), seeds=(1, 2))
        await start(env, 1, ids=("c",))
        reply = await env.step(discrete(0), at(0))
        assert [(record.episode_id, record.env_index, record.seed) for record in reply.completed] == [("b", 1, 2)]


@pytest.mark.parametrize("lanes", [(3,), (-1,), (0, 0)])
async def test_lanes_that_are_not_there_or_named_twice_are_refused(lanes: tuple[int, ...]) -> None:
    async with open_local_env(counter, lanes=2) as env:
        for ask in (start(env, *lanes, ids=()), env.step(discrete(*lanes), at(*lanes))):
            with pytest.raises(EndpointError, match="env_indices") as caught:
                await ask
            assert (caught.value.code, caught.value.recoverable) == ("INVALID_ACTION", True)


@pytest.mark.parametrize(("seeds", "ids"), [((1,), ("a", "b")), ((1, 2), ("a",)), ((1, 2, 3), ())])
async def test_seeds_and_ids_must_match_the_lanes_named(seeds: tuple[int, ...], ids: tuple[str, ...]) -> None:
    async with open_local_env(counter, lanes=2) as env:
        with pytest.raises(EndpointError, match="for 2 lanes") as caught:
            await start(env, 0, 1, ids=ids, seeds=seeds)
        assert caught.value.code == "INVALID_ACTION"


async def test_the_first_lane_that_fails_decides_and_the_others_go_on() -> None:
    toys = [Script({}), Script({1: "raise"}, 1), Script({}, 2)]
    async with open_local_env(toys) as env:
        await start(env, ids=())
        with pytest.raises(EndpointError, match="toy fault"):
            await env.step(discrete(0, 0, 0), at())
        assert [toy.t for toy in toys] == [1, 1, 1]
        await env.step(discrete(0), at(2))


async def test_every_operation_passes_a_checkpoint(autojump_clock: trio.testing.MockClock) -> None:
    toy = Counter(length=10**9)
    async with open_local_env(toy) as env:
        for ask in (
            lambda: start(env),
            lambda: env.step(discrete(0), at()),
            env.close,
            env.close,
        ):
            with trio.testing.assert_checkpoints():
                await ask()
    assert toy.closed == 1


async def test_a_limit_ends_a_lane_that_answers_at_once(autojump_clock: trio.testing.MockClock) -> None:
    async with open_local_env(Counter(length=10**9)) as env:
        await start(env)
        with trio.move_on_after(5) as scope:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(trio.sleep, 1)
                while True:
                    await env.step(discrete(0), at())
                    autojump_clock.jump(0.1)
        assert scope.cancelled_caught


async def test_a_closed_env_refuses_and_is_closed_once() -> None:
    toy = Counter()
    async with open_local_env(toy) as env:
        await env.close()
        with pytest.raises(EndpointError, match="closed") as caught:
            await start(env)
    assert (caught.value.code, toy.closed) == ("CLOSED", 1)


async def test_a_failing_close_is_raised_when_asked_for_and_logged_at_the_end(caplog: pytest.LogCaptureFixture) -> None:
    class Sticky(Counter):
        def close(self) -> None:
            raise OSError("stuck")

    with pytest.raises(KeyError, match="the body's own"):
        async with open_local_env(Sticky()) as env:
            raise KeyError("the body's own")
    assert "environment close failed: close failed: OSError: stuck" in caplog.text
    async with open_local_env(Sticky()) as env:
        with pytest.raises(EndpointError, match="close failed: OSError: stuck"):
            await env.close()


async def test_the_time_an_operation_took_is_told() -> None:
    async with open_local_env(Counter()) as env:
        await start(env)
        reply = await env.step(discrete(0), at())
        assert reply.phases is not None
        assert reply.endpoint_total_ns is not None
        parts = (reply.phases.decode_ns, reply.phases.user_ns, reply.phases.encode_ns)
        assert min(parts) > 0
        assert sum(parts) <= reply.endpoint_total_ns


def test_a_wrapped_env_is_what_gymnasium_makes() -> None:
    async def run() -> None:
        async with open_local_env(lambda: gymnasium.make("MountainCar-v0", max_episode_steps=2)) as env:
            await start(env)
            await env.step(discrete(0), at())
            reply = await env.step(discrete(0), at())
            assert reply.truncated_mask == b"\1"

    trio.run(run)
