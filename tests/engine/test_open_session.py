"""A session beside a block: who is told of a failure and how often, and every way to leave."""

# ruff: noqa: PT012 - a block that raises is the very thing tested

import signal
from collections.abc import Awaitable, Callable
from functools import partial

import pytest
import trio
import trio.testing

from rlmesh_trio.engine.session import Session, open_session, run_session
from rlmesh_trio.errors import EndpointError, EnvRpcError, InvalidSpec, RouteCancelled
from rlmesh_trio.events import EpisodeCompleted, SessionEnded, SessionFailed, SessionStarted, StepCompleted
from rlmesh_trio.hooks import Hooks
from rlmesh_trio.messages import ReleaseAdapterRequest
from rlmesh_trio.report import Report
from rlmesh_trio.spec import Limits, SessionSpec
from rlmesh_trio.testing.scripted import LaneScript, ScriptedEnv, ScriptedModel, lane_spec, one
from tests.engine.recorder import Recorder

CANCELLED = "route TestEnv-v0 cancelled at runtime step {}: {}"


def broken_env(*, after: float = 0.0) -> ScriptedEnv:
    async def fail(lane: int, step: int) -> None:
        await trio.sleep(after)
        raise EndpointError("INTERNAL", "broken")

    env = ScriptedEnv(1)
    env.before_step = fail
    return env


def slow_env(lanes: int = 1) -> ScriptedEnv:
    return ScriptedEnv(*(LaneScript(3, 1.0) for _ in range(lanes)))


def check_ended_in_order(env: ScriptedEnv, model: ScriptedModel, *, reason: str) -> None:
    assert sorted(model.evicted) == sorted(model.predicted)
    assert model.released == [reason]
    assert env.closes == 1


class TestAFailedRoute:
    async def test_is_raised_out_of_events_and_not_again(self, autojump_clock: trio.testing.MockClock) -> None:
        async with open_session(one(), broken_env(), ScriptedModel()) as session:
            with pytest.raises(EnvRpcError, match="broken") as caught:
                _ = [event async for event in session.events()]
        assert caught.value.report == session.report

    async def test_is_raised_out_of_wait_and_not_again(self, autojump_clock: trio.testing.MockClock) -> None:
        async with open_session(one(), broken_env(), ScriptedModel()) as session:
            with pytest.raises(EnvRpcError, match="broken"):
                await session.wait()

    async def test_is_raised_at_the_end_of_the_block_if_nobody_asked(
        self, autojump_clock: trio.testing.MockClock
    ) -> None:
        left_at: list[float] = []
        start = trio.current_time()
        with pytest.raises(EnvRpcError, match="broken") as caught:
            async with open_session(one(), broken_env(), ScriptedModel()):
                await trio.sleep(1)
                left_at.append(trio.current_time() - start)
        assert left_at == [1]
        assert caught.value.report is not None

    async def test_comes_out_of_the_block_as_the_same_object(self, autojump_clock: trio.testing.MockClock) -> None:
        raised: list[EnvRpcError] = []
        with pytest.raises(EnvRpcError) as caught:
            async with open_session(one(), broken_env(), ScriptedModel()) as session:
                try:
                    await session.wait()
                except EnvRpcError as error:
                    raised.append(error)
                    raise
        assert raised == [caught.value]

    async def test_is_raised_to_everyone_who_waits(self, autojump_clock: trio.testing.MockClock) -> None:
        told: list[str] = []

        async def ask(session: Session) -> None:
            with pytest.raises(EnvRpcError):
                await session.wait()
            told.append("wait")

        async def read(session: Session) -> None:
            with pytest.raises(EnvRpcError):
                _ = [event async for event in session.events()]
            told.append("events")

        async with open_session(one(), broken_env(), ScriptedModel()) as session, trio.open_nursery() as nursery:
            for task in (ask, ask, read, read):
                nursery.start_soon(task, session)
        assert sorted(told) == ["events", "events", "wait", "wait"]

    async def test_does_not_hide_the_body_s_own_exception(self, autojump_clock: trio.testing.MockClock) -> None:
        own = ValueError("mine")
        with pytest.raises(ValueError, match="mine") as caught:
            async with open_session(one(), broken_env(), ScriptedModel()):
                await trio.sleep(1)
                raise own
        assert caught.value is own

    async def test_of_a_one_call_run_is_raised_once(self, autojump_clock: trio.testing.MockClock) -> None:
        with pytest.raises(EnvRpcError) as caught:
            await run_session(one(), broken_env(), ScriptedModel())
        assert caught.value.report is not None


class TestLeavingTheBlock:
    @pytest.mark.parametrize("after", [0.0, 0.5, 1.25, 2.5])
    async def test_early_ends_the_session_and_raises_nothing(
        self, after: float, autojump_clock: trio.testing.MockClock
    ) -> None:
        env, model, hooks = slow_env(2), ScriptedModel(), Recorder()
        async with open_session(lane_spec(2, None), env, model, hooks=hooks) as session:
            await trio.sleep(after)
        if after:
            check_ended_in_order(env, model, reason=CANCELLED.format(int(after), "cancelled by caller"))
        assert [type(event) for event in hooks.events[-1:]] == [SessionFailed]
        with pytest.raises(RouteCancelled):
            await session.wait()

    @pytest.mark.parametrize("own", [ValueError("mine"), ExceptionGroup("ours", [KeyError("a"), ValueError("b")])])
    async def test_by_an_exception_lets_it_out_bare(
        self, own: Exception, autojump_clock: trio.testing.MockClock
    ) -> None:
        env, model = slow_env(), ScriptedModel()
        with pytest.raises(type(own)) as caught:
            async with open_session(one(None), env, model):
                await trio.sleep(1.5)
                raise own
        assert caught.value is own
        check_ended_in_order(env, model, reason=CANCELLED.format(1, "cancelled by caller"))

    async def test_after_the_end_changes_nothing(self, autojump_clock: trio.testing.MockClock) -> None:
        env, model, hooks = ScriptedEnv(1), ScriptedModel(), Recorder()
        async with open_session(one(3), env, model, hooks=hooks) as session:
            report = await session.wait()
        assert report.total_episodes == 3
        assert await session.wait() == session.report == report
        check_ended_in_order(env, model, reason="completed requested episodes")

    async def test_while_a_finished_session_ends_does_not_make_it_a_cancelled_one(
        self, autojump_clock: trio.testing.MockClock
    ) -> None:
        """The reader stops at the last episode: the env is being closed, all that was asked for is done."""
        env, model, hooks = ScriptedEnv(1), ScriptedModel(), Recorder()
        env.before_close = partial(trio.sleep, 1)
        async with open_session(one(), env, model, hooks=hooks) as session:
            await trio.sleep(0.5)
        assert (await session.wait()).total_episodes == 1
        assert [type(event) for event in hooks.events[-1:]] == [SessionEnded]

    async def test_by_return(self, autojump_clock: trio.testing.MockClock) -> None:
        env, model = ScriptedEnv(2), ScriptedModel()

        async def first_completed() -> EpisodeCompleted | None:
            async with open_session(one(None), env, model) as session:
                async for event in session.events():
                    if isinstance(event, EpisodeCompleted):
                        return event
            return None

        event = await first_completed()
        assert event is not None
        assert event.step_count == 2
        assert len(model.released) == env.closes == 1


class TestCancel:
    async def test_in_mid_run(self, autojump_clock: trio.testing.MockClock) -> None:
        env, model, hooks = slow_env(2), ScriptedModel(), Recorder()
        async with open_session(lane_spec(2, None), env, model, hooks=hooks) as session:
            await trio.sleep(2.5)
            session.cancel("enough")
            with pytest.raises(RouteCancelled) as caught:
                await session.wait()
        error = caught.value
        assert (error.route_id, error.step, error.reason) == ("TestEnv-v0", 2, "enough")
        assert str(error) == CANCELLED.format(2, "enough")
        check_ended_in_order(env, model, reason=CANCELLED.format(2, "enough"))
        assert [event.reason for event in hooks.of(SessionFailed)] == [str(error)]

    async def test_before_the_session_has_begun(self, autojump_clock: trio.testing.MockClock) -> None:
        env, model, hooks = ScriptedEnv(1), ScriptedModel(), Recorder()
        with pytest.raises(RouteCancelled, match="at runtime step 0: too late"):
            async with open_session(one(), env, model, hooks=hooks) as session:
                session.cancel("too late")
        assert hooks.kinds == ["SessionStarted", "TelemetryTaken", "SessionFailed"]
        assert (env.resets, model.requests, model.evicted) == ([], [], [])
        assert (len(model.released), env.closes) == (1, 1)

    async def test_twice_keeps_the_first_reason(self, autojump_clock: trio.testing.MockClock) -> None:
        with pytest.raises(RouteCancelled, match="first"):
            async with open_session(one(None), slow_env(), ScriptedModel()) as session:
                await trio.sleep(1)
                session.cancel("first")
                session.cancel("second")

    async def test_after_the_end(self, autojump_clock: trio.testing.MockClock) -> None:
        async with open_session(one(), ScriptedEnv(1), ScriptedModel()) as session:
            await session.wait()
            session.cancel("too late")
            assert (await session.wait()).total_episodes == 1

    async def test_after_a_failure(self, autojump_clock: trio.testing.MockClock) -> None:
        with pytest.raises(EnvRpcError):
            async with open_session(one(), broken_env(), ScriptedModel()) as session:
                await trio.sleep(1)
                session.cancel("too late")

    async def test_from_a_hook(self, autojump_clock: trio.testing.MockClock) -> None:
        sessions: list[Session] = []

        class StopsAfterThree(Hooks):
            async def episode_completed(self, event: EpisodeCompleted) -> None:
                if event.episode_index == 3:
                    sessions[0].cancel("three are enough")

        with pytest.raises(RouteCancelled, match="three are enough") as caught:
            async with open_session(one(None), ScriptedEnv(2), ScriptedModel(), hooks=StopsAfterThree()) as session:
                sessions.append(session)
                await session.wait()
        assert caught.value.report is not None
        assert caught.value.report.total_episodes == 3


class TestTheCallersOwnCancellation:
    @pytest.mark.parametrize("after", [0.0, 0.5, 1.25, 2.5])
    async def test_of_a_run_ends_it_in_order_and_goes_on_out(
        self, after: float, autojump_clock: trio.testing.MockClock
    ) -> None:
        env, model, hooks = slow_env(2), ScriptedModel(), Recorder()
        with trio.CancelScope(deadline=trio.current_time() + after) as scope:
            await run_session(lane_spec(2, None), env, model, hooks=hooks)
            pytest.fail("cancellation was swallowed")
        assert scope.cancelled_caught
        assert (len(model.released), env.closes) == (1, 1)
        assert sorted(model.evicted) == sorted(model.predicted)
        assert "cancelled by caller" in model.released[0]
        [failed] = hooks.of(SessionFailed)
        assert failed.reason == model.released[0]

    async def test_of_a_block_ends_it_in_order_and_goes_on_out(self, autojump_clock: trio.testing.MockClock) -> None:
        env, model = slow_env(), ScriptedModel()
        sessions: list[Session] = []
        with trio.move_on_after(1.5) as scope:
            async with open_session(one(None), env, model) as session:
                sessions.append(session)
                await trio.sleep_forever()
        assert scope.cancelled_caught
        check_ended_in_order(env, model, reason=CANCELLED.format(1, "cancelled by caller"))
        with pytest.raises(RouteCancelled) as caught:
            await sessions[0].wait()
        assert caught.value.report == sessions[0].report

    async def test_of_a_session_in_somebody_else_s_nursery(self, autojump_clock: trio.testing.MockClock) -> None:
        env, model = slow_env(2), ScriptedModel()
        cancelled: list[str] = []

        async def harness(task_status: trio.TaskStatus[Session]) -> None:
            async with open_session(lane_spec(2, None), env, model) as session:
                task_status.started(session)
                try:
                    await trio.sleep_forever()
                except trio.Cancelled:
                    cancelled.append("body")
                    raise

        async with trio.open_nursery() as nursery:
            session: Session = await nursery.start(harness)
            await trio.sleep(1.5)
            assert session.report.total_steps == 2
            nursery.cancel_scope.cancel()
        assert cancelled == ["body"]
        check_ended_in_order(env, model, reason=CANCELLED.format(1, "cancelled by caller"))

    async def test_does_not_cut_the_ending_short(self, autojump_clock: trio.testing.MockClock) -> None:
        released: list[float] = []

        class SlowToRelease(ScriptedModel):
            async def release_adapter(self, request: ReleaseAdapterRequest) -> None:
                await trio.sleep(3)
                released.append(trio.current_time())

        start = trio.current_time()
        with trio.move_on_after(1.5):
            await run_session(one(None), slow_env(), SlowToRelease())
        assert released == [pytest.approx(start + 4.5)]

    async def test_of_one_reader_leaves_the_session_alone(self, autojump_clock: trio.testing.MockClock) -> None:
        async with open_session(one(3), slow_env(), ScriptedModel()) as session:
            with trio.move_on_after(1.5):
                _ = [event async for event in session.events()]
            with trio.move_on_after(1.5):
                await session.wait()
            assert (await session.wait()).total_episodes == 3


class TestKeyboardInterrupt:
    @pytest.mark.parametrize("lanes", [1, 3])
    async def test_in_a_hook_ends_the_session_and_goes_on_out(
        self, lanes: int, autojump_clock: trio.testing.MockClock
    ) -> None:
        class Interrupted(Recorder):
            async def step_completed(self, event: StepCompleted) -> None:
                if event.step == 2:
                    raise KeyboardInterrupt

        env, model, hooks = slow_env(lanes), ScriptedModel(), Interrupted()
        with pytest.raises(BaseExceptionGroup) as caught:
            await run_session(lane_spec(lanes, None), env, model, hooks=hooks)
        assert caught.value.split(KeyboardInterrupt)[1] is None
        assert len(model.released) == env.closes == 1
        assert sorted(model.evicted) == sorted(model.predicted)
        assert hooks.kinds[-1] == "SessionFailed"

    async def test_in_the_body_ends_the_session_and_goes_on_out(self, autojump_clock: trio.testing.MockClock) -> None:
        env, model = slow_env(), ScriptedModel()
        with pytest.raises(BaseExceptionGroup) as caught:
            async with open_session(one(None), env, model):
                await trio.sleep(1.5)
                raise KeyboardInterrupt
        assert caught.value.split(KeyboardInterrupt)[1] is None
        check_ended_in_order(env, model, reason=CANCELLED.format(1, "cancelled by caller"))

    def test_by_the_signal_itself(self) -> None:
        class Pressed(Hooks):
            async def episode_completed(self, event: EpisodeCompleted) -> None:
                signal.raise_signal(signal.SIGINT)

        env, model = slow_env(), ScriptedModel()
        with pytest.raises(BaseExceptionGroup) as caught:
            trio.run(
                partial(run_session, one(None), env, model, hooks=Pressed()),
                clock=trio.testing.MockClock(autojump_threshold=0),
            )
        assert caught.value.split(KeyboardInterrupt)[1] is None
        assert len(model.released) == env.closes == 1


async def run_it(spec: SessionSpec, env: ScriptedEnv, model: ScriptedModel, hooks: Hooks, lead: int) -> None:
    await run_session(spec, env, model, hooks=hooks, prefetch_lead=lead)


async def open_it(spec: SessionSpec, env: ScriptedEnv, model: ScriptedModel, hooks: Hooks, lead: int) -> None:
    async with open_session(spec, env, model, hooks=hooks, prefetch_lead=lead):
        pytest.fail("the body must not be entered")


@pytest.mark.parametrize("start", [run_it, open_it])
@pytest.mark.parametrize(("spec", "lead"), [(one(0), 0), (one(session_id=" "), 0), (one(), -1)])
async def test_an_invalid_spec_is_refused_before_anything_starts(
    start: Callable[..., Awaitable[None]], spec: SessionSpec, lead: int, autojump_clock: trio.testing.MockClock
) -> None:
    env, model, hooks = ScriptedEnv(1), ScriptedModel(), Recorder()
    with pytest.raises(InvalidSpec):
        await start(spec, env, model, hooks, lead)
    assert (hooks.events, env.resets, env.closes, model.calls, model.released) == ([], [], 0, [], [])


class TestSideBySide:
    async def test_two_sessions_in_one_nursery(self, autojump_clock: trio.testing.MockClock) -> None:
        reports: dict[str, Report] = {}
        failures: dict[str, Exception] = {}

        async def drive(name: str, env: ScriptedEnv) -> None:
            spec = one(3, session_id=name, env_id=name)
            try:
                reports[name] = await run_session(spec, env, model, hooks=hooks)
            except EnvRpcError as error:
                failures[name] = error

        model, hooks = ScriptedModel(), Recorder()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(drive, "a", slow_env())
            nursery.start_soon(drive, "b", broken_env(after=0.5))
            nursery.start_soon(drive, "c", ScriptedEnv(2))
        assert {name: report.total_episodes for name, report in reports.items()} == {"a": 3, "c": 3}
        assert list(failures) == ["b"]
        assert {event.session_id for event in hooks.of(SessionStarted)} == {"a", "b", "c"}
        assert {event.session_id for event in hooks.of(SessionEnded)} == {"a", "c"}
        assert all(event.route.env_id == event.session_id for event in hooks.events)
        assert len(model.released) == 3

    async def test_one_block_around_another(self, autojump_clock: trio.testing.MockClock) -> None:
        async with (
            open_session(one(None), slow_env(), ScriptedModel()) as outer,
            open_session(one(2), slow_env(), ScriptedModel()) as inner,
        ):
            assert (await inner.wait()).total_episodes == 2
            assert outer.report.total_steps >= 5


async def test_the_report_grows_while_the_session_runs(autojump_clock: trio.testing.MockClock) -> None:
    async with open_session(one(3), slow_env(), ScriptedModel()) as session:
        assert session.report == Report("session-1", "TestEnv-v0", 0, 0, (), None, ())
        await trio.sleep(4.5)
        half = session.report
        assert (half.total_steps, half.total_episodes, len(half.episodes), half.telemetry) == (4, 1, 1, None)
        whole = await session.wait()
    assert (whole.total_steps, whole.total_episodes, len(whole.episodes)) == (9, 3, 3)
    assert len(half.episodes) == 1


async def test_public_waits_are_checkpoints(autojump_clock: trio.testing.MockClock) -> None:
    async with open_session(one(), ScriptedEnv(1), ScriptedModel()) as session:
        await session.wait()
        with trio.testing.assert_checkpoints():
            await session.wait()
        with trio.testing.assert_checkpoints():
            _ = [event async for event in session.events()]
        with trio.testing.assert_checkpoints():
            await session.events().aclose()


async def test_a_session_that_is_not_told_to_close_the_env_leaves_it_open(
    autojump_clock: trio.testing.MockClock,
) -> None:
    env = ScriptedEnv(1)
    await run_session(one(close_env_on_end=False, limits=Limits(telemetry_window=0)), env, ScriptedModel())
    assert env.closes == 0
