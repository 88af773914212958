"""Limits: each operation has one, the innermost tells, and nothing outlives the sum of them."""

import pytest
import trio
import trio.testing

from rlmesh_trio.engine.session import Session, open_session, run_session
from rlmesh_trio.errors import OperationTimeout, RouteCancelled
from rlmesh_trio.events import ObservationEmitted, SessionEnded, SessionFailed
from rlmesh_trio.hooks import Hooks
from rlmesh_trio.spec import Limits
from rlmesh_trio.testing.scripted import EchoEnv, LaneScript, ScriptedEnv, ScriptedModel, lane_spec, one, vector_spec
from tests.engine.recorder import Recorder


def facts(error: OperationTimeout) -> tuple[str, str, str | None, int, float]:
    return error.route_id, error.component_id, error.operation, error.step, error.timeout


class TestOperations:
    async def test_a_first_reset_that_hangs(self, autojump_clock: trio.testing.MockClock) -> None:
        async def hang(lanes: tuple[int, ...]) -> None:
            await trio.sleep_forever()

        env, model = ScriptedEnv(1), ScriptedModel()
        env.before_reset = hang
        start = trio.current_time()
        with pytest.raises(OperationTimeout) as caught:
            await run_session(one(limits=Limits(env_reset_timeout=3)), env, model)
        assert facts(caught.value) == ("TestEnv-v0", "env-1", "env.reset", 0, 3)
        assert str(caught.value) == (
            "env.reset timed out on route TestEnv-v0 component env-1 at runtime step 0 after 3s"
        )
        assert trio.current_time() - start == pytest.approx(3, abs=0.01)
        assert (model.calls, len(model.released), env.closes) == ([], 1, 1)

    async def test_a_later_reset_that_hangs(self, autojump_clock: trio.testing.MockClock) -> None:
        env, model = ScriptedEnv(2), ScriptedModel()

        async def hang_second(lanes: tuple[int, ...]) -> None:
            if len(env.resets) == 2:
                await trio.sleep_forever()

        env.before_reset = hang_second
        with pytest.raises(OperationTimeout) as caught:
            await run_session(one(2, limits=Limits(env_reset_timeout=3)), env, model)
        assert facts(caught.value) == ("TestEnv-v0", "env-1", "env.reset", 0, 3)
        assert caught.value.report is not None
        assert caught.value.report.total_episodes == 1
        assert model.evicted == model.predicted

    @pytest.mark.parametrize("lanes", [1, 3])
    async def test_a_step_that_hangs(self, lanes: int, autojump_clock: trio.testing.MockClock) -> None:
        async def hang_third(lane: int, step: int) -> None:
            if step == 3 and lane == lanes - 1:
                await trio.sleep_forever()

        env, model, hooks = ScriptedEnv(*(LaneScript(9, 0.2) for _ in range(lanes))), ScriptedModel(), Recorder()
        env.before_step = hang_third
        start = trio.current_time()
        limits = Limits(env_step_timeout=1.5)
        spec = one(limits=limits) if lanes == 1 else lane_spec(lanes, lanes, limits=limits)
        with pytest.raises(OperationTimeout) as caught:
            await run_session(spec, env, model, hooks=hooks)
        assert facts(caught.value) == ("TestEnv-v0", "env-1", "env.step", 3, 1.5)
        assert trio.current_time() - start == pytest.approx(1.9, abs=0.01)
        assert [event.reason for event in hooks.of(SessionFailed)] == [str(caught.value)]
        assert sorted(model.evicted) == sorted(model.predicted)

    async def test_each_operation_has_its_own_limit(self, autojump_clock: trio.testing.MockClock) -> None:
        async def take_a_while(lanes: tuple[int, ...]) -> None:
            await trio.sleep(0.9)

        env = ScriptedEnv(LaneScript(5, 0.9))
        env.before_reset = take_a_while
        limits = Limits(env_reset_timeout=1, env_step_timeout=1, model_predict_timeout=1)
        report = await run_session(one(3, limits=limits), env, ScriptedModel(delay=0.9))
        assert report.total_episodes == 3

    async def test_time_spent_in_hooks_is_nobody_s_limit(self, autojump_clock: trio.testing.MockClock) -> None:
        class Slow(Hooks):
            async def observation_emitted(self, event: ObservationEmitted) -> None:
                await trio.sleep(60)

        limits = Limits(env_reset_timeout=1, env_step_timeout=1, model_predict_timeout=1)
        report = await run_session(one(limits=limits), ScriptedEnv(3), ScriptedModel(), hooks=Slow())
        assert report.total_steps == 3

    async def test_the_limits_travel_in_whole_milliseconds_and_never_as_none(
        self, autojump_clock: trio.testing.MockClock
    ) -> None:
        env = ScriptedEnv(1)
        await run_session(one(limits=Limits(env_reset_timeout=1.5, env_step_timeout=0.0001)), env, ScriptedModel())
        assert [reset.timeout_ms for reset in env.resets] == [1500]
        assert [target.timeout_ms for target in env.targets] == [1]

    async def test_steps_name_their_lanes_and_episodes(self, autojump_clock: trio.testing.MockClock) -> None:
        env = ScriptedEnv(1, 1, next_step=True)
        await run_session(vector_spec(2, 4), env, ScriptedModel())
        assert [target.env_indices for target in env.targets] == [(), (), ()]
        first, roll, second = (target.episode_ids for target in env.targets)
        assert roll == second
        assert not set(first) & set(roll)
        env = ScriptedEnv(1, 1)
        await run_session(lane_spec(2, 2), env, ScriptedModel())
        assert sorted(target.env_indices for target in env.targets) == [(0,), (1,)]
        by_lane = {reset.env_indices: reset.episode_ids for reset in env.resets}
        assert all(by_lane[target.env_indices] == target.episode_ids for target in env.targets)


class TestNesting:
    async def test_the_operation_s_limit_comes_before_the_caller_s(
        self, autojump_clock: trio.testing.MockClock
    ) -> None:
        env = ScriptedEnv(LaneScript(1, 100))
        with trio.fail_after(10), pytest.raises(OperationTimeout):
            await run_session(one(limits=Limits(env_step_timeout=1)), env, ScriptedModel())

    async def test_the_caller_s_limit_comes_before_the_operation_s(
        self, autojump_clock: trio.testing.MockClock
    ) -> None:
        env, model = ScriptedEnv(LaneScript(1, 100)), ScriptedModel()
        with pytest.raises(trio.TooSlowError), trio.fail_after(10):
            await run_session(one(limits=Limits(env_step_timeout=20)), env, model)
        assert len(model.released) == 1

    async def test_a_cancelled_session_comes_before_both(self, autojump_clock: trio.testing.MockClock) -> None:
        async def cancel_at(seconds: float, session: Session) -> None:
            await trio.sleep(seconds)
            session.cancel("enough")

        env = ScriptedEnv(LaneScript(1, 100))
        spec = one(limits=Limits(env_step_timeout=20))
        with trio.fail_after(30), pytest.raises(RouteCancelled):
            async with open_session(spec, env, ScriptedModel()) as session, trio.open_nursery() as nursery:
                nursery.start_soon(cancel_at, 10, session)

    async def test_the_time_cap_of_an_episode_is_not_a_timeout(self, autojump_clock: trio.testing.MockClock) -> None:
        env = EchoEnv()
        env.lanes[0].delay = 1.0
        session = Session(
            one(2, max_episode_seconds=3.5, max_episode_steps=100),
            env,
            ScriptedModel(),
            unix_ns=lambda: int(trio.current_time() * 1e9),
        )
        await session.run()
        report = await session.wait()
        assert [(s.step_count, s.truncated, s.terminated, s.duration_ms) for s in report.episodes] == [
            (4, True, False, 4000),
            (4, True, False, 4000),
        ]


class TestTheEnding:
    async def test_release_and_close_hang_side_by_side_for_one_limit(
        self, caplog: pytest.LogCaptureFixture, autojump_clock: trio.testing.MockClock
    ) -> None:
        env, model, hooks = ScriptedEnv(1), ScriptedModel(), Recorder()
        env.before_close = model.before_release = trio.sleep_forever
        start = trio.current_time()
        report = await run_session(one(limits=Limits(service_close_timeout=2)), env, model, hooks=hooks)
        assert trio.current_time() - start == pytest.approx(2, abs=0.01)
        assert report.total_episodes == 1
        assert (model.released, env.closes) == ([], 0)
        assert sorted(caplog.messages) == [
            "environment close timed out during route shutdown; abandoning close",
            "model route close timed out during route shutdown; relying on owner shutdown "
            "(reason: completed requested episodes)",
        ]
        assert len(hooks.of(SessionEnded)) == 1

    async def test_release_and_close_that_raise_are_logged(
        self, caplog: pytest.LogCaptureFixture, autojump_clock: trio.testing.MockClock
    ) -> None:
        async def fail() -> None:
            raise OSError("gone")

        env, model = ScriptedEnv(1), ScriptedModel()
        env.before_close = model.before_release = fail
        report = await run_session(one(), env, model)
        assert report.total_episodes == 1
        assert sorted(caplog.messages) == [
            "environment close failed during route shutdown: gone",
            "model route close failed during route shutdown; relying on owner shutdown "
            "(reason: completed requested episodes): gone",
        ]

    @pytest.mark.parametrize("fuses", [False, True])
    async def test_a_predict_in_flight_has_its_grace(self, fuses: bool, autojump_clock: trio.testing.MockClock) -> None:
        model = ScriptedModel(delay=3, fuses=fuses)
        start = trio.current_time()
        with trio.move_on_after(1):
            await run_session(one(), ScriptedEnv(1), model)
        assert trio.current_time() - start == pytest.approx(3, abs=0.01)
        assert model.evicted == model.predicted

    @pytest.mark.parametrize("fuses", [False, True])
    async def test_a_predict_that_outlives_the_grace_is_abandoned_and_nothing_evicted(
        self, fuses: bool, caplog: pytest.LogCaptureFixture, autojump_clock: trio.testing.MockClock
    ) -> None:
        model = ScriptedModel(delay=30, fuses=fuses)
        start = trio.current_time()
        with trio.move_on_after(1):
            await run_session(one(), ScriptedEnv(1), model)
        assert trio.current_time() - start == pytest.approx(6, abs=0.01)
        assert model.evicted == []
        assert len(model.released) == 1
        assert caplog.messages == ["grouped predict still in flight at route end"]

    async def test_when_everything_hangs_the_session_still_ends(self, autojump_clock: trio.testing.MockClock) -> None:
        class Stuck(Hooks):
            async def session_failed(self, event: SessionFailed) -> None:
                await trio.sleep_forever()

        async def hang_at_last(lane: int, step: int) -> None:
            if step == 2:
                await trio.sleep_forever()

        async def hang_second(number: int) -> None:
            if number == 2:
                await trio.sleep_forever()

        env, model = ScriptedEnv(5), ScriptedModel(extra=1)
        env.before_step = hang_at_last
        model.before_predict = hang_second
        env.before_close = model.before_release = model.before_evict = trio.sleep_forever
        limits = Limits(env_step_timeout=7, model_predict_timeout=50, service_close_timeout=2)
        start = trio.current_time()
        with pytest.raises(OperationTimeout) as caught:
            await run_session(one(limits=limits), env, model, hooks=Stuck(), prefetch_lead=1)
        assert caught.value.operation == "env.step"
        # the step's own limit, then one close limit each for the predict, release with close, and the last hook
        assert trio.current_time() - start == pytest.approx(7 + 3 * 2, abs=0.01)

    async def test_an_eviction_that_hangs_at_the_end_has_the_close_limit(
        self, autojump_clock: trio.testing.MockClock
    ) -> None:
        model = ScriptedModel()
        model.before_evict = trio.sleep_forever
        start = trio.current_time()
        report = await run_session(one(limits=Limits(service_close_timeout=2)), ScriptedEnv(1), model)
        assert report.total_episodes == 1
        assert trio.current_time() - start == pytest.approx(2, abs=0.01)
        assert len(model.released) == 1

    async def test_an_eviction_under_way_at_the_end_has_the_close_limit(
        self, autojump_clock: trio.testing.MockClock
    ) -> None:
        calls: list[float] = []

        async def hang_first() -> None:
            calls.append(trio.current_time())
            if len(calls) == 1:
                await trio.sleep_forever()

        model = ScriptedModel()
        model.before_evict = hang_first
        env = ScriptedEnv(LaneScript(1), LaneScript(1, 1.0))
        start = trio.current_time()
        report = await run_session(lane_spec(2, 2, limits=Limits(service_close_timeout=2)), env, model)
        assert report.total_episodes == 2
        assert trio.current_time() - start == pytest.approx(3, abs=0.01)
        assert sorted(model.evicted) == sorted(model.predicted)


async def test_a_limit_of_nothing_is_over_at_once(autojump_clock: trio.testing.MockClock) -> None:
    async def take_a_moment(lanes: tuple[int, ...]) -> None:
        await trio.sleep(0.1)

    env = ScriptedEnv(1)
    env.before_reset = take_a_moment
    with pytest.raises(OperationTimeout) as caught:
        await run_session(one(limits=Limits(env_reset_timeout=0)), env, ScriptedModel())
    assert caught.value.operation == "env.reset"


async def test_a_plain_run_never_waits_for_a_deadline(autojump_clock: trio.testing.MockClock) -> None:
    start = trio.current_time()
    await run_session(lane_spec(4, 40), ScriptedEnv(1, 2, 3, 4), ScriptedModel(fuses=True))
    with trio.fail_after(0.5):
        await run_session(one(3), ScriptedEnv(2), ScriptedModel())
    assert trio.current_time() == start
