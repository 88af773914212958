"""Event streams: a reader misses nothing, a slow one slows the session, and one that goes away holds nothing up."""

import gc
from collections.abc import AsyncIterator

import pytest
import trio
import trio.testing

from rlmesh_trio.engine.relay import Convert, Forward, Leg, PayloadFacts, Verdict
from rlmesh_trio.engine.session import Session, open_session
from rlmesh_trio.engine.streams import EventQueue
from rlmesh_trio.events import (
    EpisodeCompleted,
    EpisodeStarted,
    Event,
    ObservationEmitted,
    SessionEnded,
    SessionFailed,
    SessionStarted,
    TelemetryTaken,
)
from rlmesh_trio.report import Advisory
from rlmesh_trio.spec import Limits, PeerCeiling
from rlmesh_trio.testing.scripted import (
    LaneScript,
    ScriptedEnv,
    ScriptedModel,
    lane_spec,
    one,
    space_of,
)
from tests.engine.listening import FULL
from tests.engine.recorder import Recorder, of


async def collect(events: AsyncIterator[Event], into: list[Event]) -> None:
    async for event in events:
        into.append(event)  # noqa: PERF401 - what was read before a failure counts


def living_queues() -> int:
    gc.collect()
    return sum(isinstance(thing, EventQueue) for thing in gc.get_objects())


class TestStreams:
    async def test_a_stream_has_every_event_a_hook_gets(self, autojump_clock: trio.testing.MockClock) -> None:
        hooks = Recorder()
        async with open_session(lane_spec(3, 6), ScriptedEnv(2, 3, 1), ScriptedModel(), hooks=hooks) as session:
            seen = [event async for event in session.events()]
        assert seen == hooks.events
        assert [type(seen[0]), type(seen[-1])] == [SessionStarted, SessionEnded]

    async def test_each_reader_gets_every_event(self, autojump_clock: trio.testing.MockClock) -> None:
        first: list[Event] = []
        second: list[Event] = []
        async with open_session(one(20), ScriptedEnv(9), ScriptedModel()) as session, trio.open_nursery() as readers:
            readers.start_soon(collect, session.events(), first)
            readers.start_soon(collect, session.events(), second)
        assert first == second
        assert len(of(EpisodeCompleted, first)) == 20

    async def test_a_late_reader_gets_what_comes_after(self, autojump_clock: trio.testing.MockClock) -> None:
        hooks = Recorder()
        async with open_session(one(5), ScriptedEnv(2), ScriptedModel(delay=1), hooks=hooks) as session:
            await trio.sleep(4.5)
            missed = len(hooks.events)
            assert missed
            seen = [event async for event in session.events()]
        assert seen == hooks.events[missed:]

    async def test_a_slow_reader_slows_the_session_and_misses_nothing(
        self, autojump_clock: trio.testing.MockClock
    ) -> None:
        hooks = Recorder()
        start = trio.current_time()
        seen: list[Event] = []
        async with open_session(one(40), ScriptedEnv(3), ScriptedModel(), hooks=hooks) as session:
            async for event in session.events():
                seen.append(event)
                await trio.sleep(1)
                assert len(hooks.events) <= len(seen) + 70
        assert seen == hooks.events
        assert len(seen) > 300
        assert trio.current_time() - start == pytest.approx(len(seen), abs=1)

    async def test_a_very_slow_reader_still_sees_the_end_and_does_not_hold_it_up(
        self, caplog: pytest.LogCaptureFixture, autojump_clock: trio.testing.MockClock
    ) -> None:
        hooks = Recorder()
        seen: list[Event] = []
        async with open_session(one(12), ScriptedEnv(2), ScriptedModel(), hooks=hooks) as session:
            async for event in session.events():
                seen.append(event)
                await trio.sleep(100)
        assert seen == hooks.events
        assert isinstance(seen[-1], SessionEnded)
        assert caplog.messages == []

    async def test_what_was_announced_before_a_failure_is_read_after_it(
        self, autojump_clock: trio.testing.MockClock
    ) -> None:
        hooks = Recorder()
        seen: list[Event] = []
        async with open_session(lane_spec(4, None), ScriptedEnv(*[1] * 4), ScriptedModel(), hooks=hooks) as session:
            events = session.events()
            await trio.sleep(1)
            session.cancel("enough")
            with pytest.raises(Exception, match="enough"):
                await collect(events, seen)
        assert seen == hooks.events
        assert isinstance(seen[-1], SessionFailed)
        assert len(of(EpisodeCompleted, seen)) == session.report.total_episodes

    async def test_a_reader_that_breaks_off_holds_nothing_up(self, autojump_clock: trio.testing.MockClock) -> None:
        async with open_session(one(50), ScriptedEnv(3), ScriptedModel()) as session:
            async for event in session.events():
                if isinstance(event, EpisodeStarted):
                    break
            report = await session.wait()
        assert report.total_episodes == 50

    async def test_a_reader_that_goes_away_while_the_session_waits_for_it(
        self, autojump_clock: trio.testing.MockClock
    ) -> None:
        async with open_session(lane_spec(3, 60), ScriptedEnv(3, 3, 3), ScriptedModel()) as session:
            others: list[Event] = []
            async with trio.open_nursery() as readers:
                readers.start_soon(collect, session.events(), others)
                with trio.move_on_after(50):
                    async for _ in session.events():
                        await trio.sleep(10)
        assert session.report.total_episodes == 60
        assert len(of(EpisodeCompleted, others)) == 60

    async def test_a_stream_opened_after_the_end_is_over_at_once(self, autojump_clock: trio.testing.MockClock) -> None:
        async with open_session(one(), ScriptedEnv(1), ScriptedModel()) as session:
            await session.wait()
            assert [event async for event in session.events()] == []
        assert [event async for event in session.events()] == []

    async def test_a_stream_that_is_over_stays_over(self, autojump_clock: trio.testing.MockClock) -> None:
        async with open_session(one(), ScriptedEnv(1), ScriptedModel()) as session:
            events = session.events()
            await collect(events, [])
            with pytest.raises(StopAsyncIteration):
                await anext(events)

    async def test_events_of_a_converted_payload_name_the_new_space(
        self, autojump_clock: trio.testing.MockClock
    ) -> None:
        narrow = space_of("uint16")

        class Narrowing:
            def judge(self, leg: Leg, ceiling: PeerCeiling, facts: PayloadFacts) -> Verdict:
                if not facts.leaves:
                    return Forward()
                return Convert([b"\x09"], Advisory("info", "narrowed"), space=narrow)

        model = ScriptedModel()
        async with open_session(one(model_ceiling=FULL), ScriptedEnv(1), model, relay_policy=Narrowing()) as session:
            [event] = of(ObservationEmitted, [event async for event in session.events()])
        assert (event.observation, event.raw_observation, event.observation_space) == ([b"\x09"], [b"\x01"], narrow)
        assert [request.observation for request in model.requests] == [[b"\x09"]]

    async def test_windows_come_while_the_session_runs(self, autojump_clock: trio.testing.MockClock) -> None:
        spec = one(limits=Limits(telemetry_window=2))
        async with open_session(spec, ScriptedEnv(LaneScript(5, 1.0)), ScriptedModel()) as session:
            taken = of(TelemetryTaken, [event async for event in session.events()])
        assert [event.snapshot.horizon for event in taken] == ["window", "window", "session"]

    async def test_streams_that_were_left_are_forgotten(self, autojump_clock: trio.testing.MockClock) -> None:
        before = living_queues()
        async with open_session(one(None), ScriptedEnv(LaneScript(3, 1.0)), ScriptedModel()) as session:
            for _ in range(100):
                async for _ in session.events():
                    break
            assert living_queues() < before + 5

    def test_events_are_for_trio_tasks(self) -> None:
        async def make() -> Session:
            return Session(one(), ScriptedEnv(1), ScriptedModel())

        session = trio.run(make)
        with pytest.raises(RuntimeError, match="async context"):
            session.events()
