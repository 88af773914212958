"""Evictions: each episode the model predicted on is ended there once, between predicts, and then left alone."""

from collections.abc import Sequence

import pytest
import trio
import trio.testing

from rlmesh_trio.engine.session import open_session, run_session
from rlmesh_trio.errors import (
    EndpointError,
)
from rlmesh_trio.messages import PredictReply, PredictRequest
from rlmesh_trio.spec import Limits
from rlmesh_trio.testing.scripted import LaneScript, ScriptedEnv, ScriptedModel, lane_spec, one, vector_spec
from tests.engine.recorder import row

either = pytest.mark.parametrize("fuses", [False, True], ids=["separate", "fused"])


class TestEvictions:
    async def test_each_predicted_episode_is_ended_once(self, autojump_clock: trio.testing.MockClock) -> None:
        for fuses in (False, True):
            model = ScriptedModel(fuses=fuses, delay=0.01)
            env = ScriptedEnv(LaneScript(2, 0.02), LaneScript(5, 0.01), LaneScript(1))
            await run_session(lane_spec(3, 12), env, model)
            assert sorted(model.evicted) == sorted(model.predicted)

    @pytest.mark.parametrize("lead", [0, 1, 2])
    @pytest.mark.parametrize("extra", [0, 1, 3])
    @either
    async def test_an_episode_is_not_predicted_on_after_it_was_ended(
        self, fuses: bool, extra: int, lead: int, autojump_clock: trio.testing.MockClock
    ) -> None:
        for lanes_alone in (False, True):
            model = ScriptedModel(fuses=fuses, extra=extra, delay=0.01)
            spec = vector_spec(3, 12, subset_step=lanes_alone)
            env = ScriptedEnv(LaneScript(1), LaneScript(3, 0.02), LaneScript(2, 0.01), next_step=True)
            await run_session(spec, env, model, prefetch_lead=lead)
            ended: set[str] = set()
            for kind, ids in model.calls:
                if kind == "evict":
                    assert ended.isdisjoint(ids)
                    ended.update(ids)
                else:
                    assert ended.isdisjoint(ids)
            assert ended == set(model.predicted)

    async def test_they_wait_for_every_predict_in_flight(self, autojump_clock: trio.testing.MockClock) -> None:
        flying = 0
        seen_flying: list[int] = []

        class Watching(ScriptedModel):
            async def predict_group(self, requests: Sequence[PredictRequest]) -> Sequence[PredictReply | Exception]:
                nonlocal flying
                flying += 1
                try:
                    return await super().predict_group(requests)
                finally:
                    flying -= 1

        async def look() -> None:
            seen_flying.append(flying)
            await trio.sleep(0.05)
            seen_flying.append(flying)

        model = Watching(delay=0.1)
        model.before_evict = look
        env = ScriptedEnv(LaneScript(2, 0.03), LaneScript(3, 0.04), LaneScript(1, 0.05))
        await run_session(lane_spec(3, 15), env, model)
        assert sorted(model.evicted) == sorted(model.predicted)
        assert set(seen_flying) == {0}

    async def test_they_do_not_wait_for_the_next_predict(self, autojump_clock: trio.testing.MockClock) -> None:
        """The episode is over, the env takes its time to reset: the model is told meanwhile."""
        env, model = ScriptedEnv(1), ScriptedModel()

        async def take_a_while(lanes: tuple[int, ...]) -> None:
            await trio.sleep(10)

        env.before_reset = take_a_while
        async with open_session(one(3), env, model):
            await trio.sleep(15)
            assert len(env.resets) == 2
            assert model.evicted == model.predicted

    async def test_groups_that_get_ready_during_one_are_one_batch(self, autojump_clock: trio.testing.MockClock) -> None:
        """Four resets end in the very pass an eviction does, two of their tasks run before the batcher's."""
        gate = trio.Event()

        async def hold() -> None:
            await trio.sleep(1)
            await gate.wait()

        async def hold_resets(lanes: tuple[int, ...]) -> None:
            if len(env.resets) > 4:
                await trio.sleep(0.5 if lanes[0] < 2 else 1.5)
                await gate.wait()

        async def open_gate() -> None:
            await trio.sleep(3)
            gate.set()

        env, model = ScriptedEnv(1, 1, 1, 1), ScriptedModel(fuses=True)
        env.before_reset = hold_resets
        model.before_evict = hold
        async with trio.open_nursery() as nursery:
            nursery.start_soon(open_gate)
            await run_session(lane_spec(4, 8), env, model)
        assert model.batches == [4, 4]

    async def test_one_that_fails_is_logged_and_not_repeated(
        self, caplog: pytest.LogCaptureFixture, autojump_clock: trio.testing.MockClock
    ) -> None:
        async def fail() -> None:
            raise EndpointError("INTERNAL", "no such episode")

        model = ScriptedModel()
        model.before_evict = fail
        report = await run_session(one(3), ScriptedEnv(1), model)
        assert report.total_episodes == 3
        assert len(model.evicted) == len(set(model.evicted)) == 3
        assert caplog.messages == ["model reset_adapter (evict) failed: no such episode"] * 3

    async def test_one_that_hangs_is_given_up_after_the_predict_limit(
        self, caplog: pytest.LogCaptureFixture, autojump_clock: trio.testing.MockClock
    ) -> None:
        hung = False

        async def hang_once() -> None:
            nonlocal hung
            if not hung:
                hung = True
                await trio.sleep_forever()

        model = ScriptedModel()
        model.before_evict = hang_once
        start = trio.current_time()
        report = await run_session(one(2, limits=Limits(model_predict_timeout=7)), ScriptedEnv(1), model)
        assert report.total_episodes == 2
        assert trio.current_time() - start == pytest.approx(7, abs=0.1)
        assert len(model.evicted) == 2
        assert len([text for text in caplog.messages if "reset_adapter (evict)" in text]) == 1
        sample = row(report.telemetry, "model.reset_adapter", "rpc.total")
        assert sample is not None
        assert sample.count == 1

    async def test_one_under_way_when_the_last_episode_ends_is_let_finish(
        self, autojump_clock: trio.testing.MockClock
    ) -> None:
        finished: list[float] = []

        async def slow() -> None:
            await trio.sleep(1)
            finished.append(trio.current_time())

        model = ScriptedModel()
        model.before_evict = slow
        await run_session(lane_spec(2, 2), ScriptedEnv(LaneScript(1), LaneScript(1, 0.5)), model)
        assert len(finished) == 2
        assert sorted(model.evicted) == sorted(model.predicted)

    async def test_one_under_way_when_the_session_is_cancelled_is_abandoned_at_once(
        self, autojump_clock: trio.testing.MockClock
    ) -> None:
        async def hang_first() -> None:
            if len(model.evicted) == 1:
                await trio.sleep_forever()

        async def leave_the_block() -> None:
            async with open_session(one(None), ScriptedEnv(1), model):
                await trio.sleep(1)

        async def be_cancelled() -> None:
            with trio.move_on_after(1):
                await run_session(one(None), ScriptedEnv(1), model)

        for end in (leave_the_block, be_cancelled):
            model = ScriptedModel()
            model.before_evict = hang_first
            start = trio.current_time()
            await end()
            assert trio.current_time() - start == pytest.approx(1, abs=0.1)
            assert len(model.released) == 1

    async def test_live_episodes_are_ended_when_the_session_is(self, autojump_clock: trio.testing.MockClock) -> None:
        model = ScriptedModel()
        env = ScriptedEnv(*(LaneScript(None, 1.0) for _ in range(3)))
        async with open_session(lane_spec(3, None), env, model):
            await trio.sleep(3.5)
        assert len(model.predicted) == 3
        assert sorted(model.evicted) == sorted(model.predicted)
        assert [kind for kind, _ in model.calls].count("evict") == 1

    async def test_overlapping_predicts_do_not_put_them_off_for_ever(
        self, autojump_clock: trio.testing.MockClock
    ) -> None:
        model = ScriptedModel(delay=0.3)
        env = ScriptedEnv(*(LaneScript(1, 0.1 + 0.013 * lane) for lane in range(16)))
        async with open_session(lane_spec(16, None), env, model) as session:
            await trio.sleep(20)
            assert session.report.total_episodes > 400
            assert len(model.predicted) - len(model.evicted) < 16 + 64 + 16
