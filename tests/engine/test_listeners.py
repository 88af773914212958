"""Hooks: transforms are binding, notices are best effort, and what nobody hears is never built."""

import logging
from collections.abc import Callable
from typing import Any

import pytest
import trio
import trio.testing

from rlmesh_trio.engine import announcer as announcer_module
from rlmesh_trio.engine import session as session_module
from rlmesh_trio.engine.relay import Forward, Leg, PayloadFacts, Verdict
from rlmesh_trio.engine.session import open_session, run_session
from rlmesh_trio.errors import HookError
from rlmesh_trio.events import (
    EpisodeCompleted,
    Event,
    SessionEnded,
    StepCompleted,
)
from rlmesh_trio.hooks import Hooks
from rlmesh_trio.messages import Leaves
from rlmesh_trio.spec import PeerCeiling
from rlmesh_trio.testing.scripted import (
    ScriptedEnv,
    ScriptedModel,
    lane_spec,
    one,
)
from tests.engine.listening import FULL, Advising, Transforming, failing

NOTICES = [name for name in vars(Hooks) if not name.startswith(("_", "transform")) and not name.endswith("_connected")]


class TestTransforms:
    async def test_they_change_what_the_peers_get(self, autojump_clock: trio.testing.MockClock) -> None:
        env, model, hooks = ScriptedEnv(2), ScriptedModel(), Transforming()
        report = await run_session(one(), env, model, hooks=hooks)
        assert [request.observation for request in model.requests] == [[b"\xff", b"\x01"]] * 2
        assert [action for _, action in env.actions] == [[b"\xee", b"\0"]] * 2
        assert report.telemetry is not None
        counts = {row.op: row.count for row in report.telemetry.rows if row.op.startswith("runner.transform")}
        assert counts == {"runner.transform_observation": 2, "runner.transform_action": 2}

    async def test_the_relay_judges_what_the_transform_made(self, autojump_clock: trio.testing.MockClock) -> None:
        judged: list[Leaves] = []

        class Watching:
            def judge(self, leg: Leg, ceiling: PeerCeiling, facts: PayloadFacts) -> Verdict:
                judged.append(facts.leaves)
                return Forward()

        spec = one(env_ceiling=FULL, model_ceiling=FULL)
        await run_session(spec, ScriptedEnv(1), ScriptedModel(), hooks=Transforming(), relay_policy=Watching())
        assert judged == [(), [b"\xff", b"\x01"], [b"\xee", b"\0"]]

    @pytest.mark.parametrize("name", ["transform_observation", "transform_action"])
    @pytest.mark.parametrize("error", [ValueError("no"), ValueError(), HookError("own")])
    async def test_one_that_raises_fails_the_route(
        self, name: str, error: Exception, autojump_clock: trio.testing.MockClock
    ) -> None:
        hooks = failing(name, error)
        model = ScriptedModel()
        with pytest.raises(HookError) as caught:
            await run_session(one(2), ScriptedEnv(3), model, hooks=hooks)
        assert caught.value.__cause__ is error
        assert str(caught.value).startswith("runtime hook failed: ")
        assert len(model.released) == 1
        assert caught.value.report is not None
        assert caught.value.report.telemetry is not None
        assert f"runner.{name}" in {row.op for row in caught.value.report.telemetry.rows}


class TestBestEffort:
    @pytest.mark.parametrize("name", [name for name in NOTICES if name not in ("session_failed", "incident_happened")])
    async def test_a_notice_that_raises_is_logged_and_nothing_else(
        self, name: str, caplog: pytest.LogCaptureFixture, autojump_clock: trio.testing.MockClock
    ) -> None:
        spec = one(2, env_ceiling=FULL)
        hooks = failing(name, ExceptionGroup("several", [ValueError("no")]))
        with caplog.at_level(logging.WARNING, "rlmesh_trio"):
            report = await run_session(spec, ScriptedEnv(1), ScriptedModel(), hooks=hooks, relay_policy=Advising())
        assert report.total_episodes == 2
        assert set(caplog.messages) == {f"runtime hook {name} failed: several (1 sub-exception)"}

    async def test_session_failed_may_fail_too(
        self, caplog: pytest.LogCaptureFixture, autojump_clock: trio.testing.MockClock
    ) -> None:
        async with open_session(
            one(None), ScriptedEnv(1), ScriptedModel(), hooks=failing("session_failed", ValueError("no"))
        ):
            pass
        assert caplog.messages == ["runtime hook session_failed failed: no"]

    async def test_a_window_is_named_in_the_log(
        self, caplog: pytest.LogCaptureFixture, autojump_clock: trio.testing.MockClock
    ) -> None:
        hooks = failing("on_telemetry", ValueError("no"))
        await run_session(one(), ScriptedEnv(3), ScriptedModel(delay=1), hooks=hooks)
        assert caplog.messages[0] == "runtime hook on_telemetry (window) failed: no"
        assert caplog.messages[-1] == "runtime hook on_telemetry failed: no"

    async def test_a_slow_hook_holds_up_its_own_group_alone(self, autojump_clock: trio.testing.MockClock) -> None:
        finished: dict[int, float] = {}

        class SlowForLaneZero(Hooks):
            async def step_completed(self, event: StepCompleted) -> None:
                if event.route.lane == 0:
                    await trio.sleep(1)

            async def episode_completed(self, event: EpisodeCompleted) -> None:
                finished[event.env_index] = trio.current_time()

        start = trio.current_time()
        for fuses in (False, True):
            await run_session(lane_spec(2, 2), ScriptedEnv(5, 5), ScriptedModel(fuses=fuses), hooks=SlowForLaneZero())
            assert finished[1] - start < 0.1
            assert finished[0] - start == pytest.approx(5, abs=0.1)
            start = trio.current_time()

    async def test_a_hook_that_never_returns_holds_the_ending_up_no_longer_than_the_close_limit(
        self, autojump_clock: trio.testing.MockClock
    ) -> None:
        class Stuck(Hooks):
            async def session_ended(self, event: SessionEnded) -> None:
                await trio.sleep_forever()

        start = trio.current_time()
        model = ScriptedModel()
        report = await run_session(one(), ScriptedEnv(1), model, hooks=Stuck())
        assert report.total_episodes == 1
        assert trio.current_time() - start == pytest.approx(5, abs=0.1)


EVENT_OF = {
    "session_started": "SessionStarted",
    "episode_started": "EpisodeStarted",
    "observation_emitted": "ObservationEmitted",
    "action_received": "ActionReceived",
    "step_completed": "StepCompleted",
    "episode_completed": "EpisodeCompleted",
    "relay_advisory": "RelayAdvised",
    "log": "LogEmitted",
    "on_telemetry": "TelemetryTaken",
    "session_ended": "SessionEnded",
}


class TestWhatNobodyHears:
    @pytest.fixture
    def built(self, monkeypatch: pytest.MonkeyPatch) -> set[str]:
        """The kinds of events that are built while a test runs."""
        built: set[str] = set()

        def counting(kind: type) -> Callable[..., object]:
            def build(*args: Any) -> object:
                built.add(kind.__name__)
                return kind(*args)

            return build

        from rlmesh_trio.engine import ending

        for module in (announcer_module, session_module, ending):
            for name in EVENT_OF.values():
                if hasattr(module, name):
                    monkeypatch.setattr(module, name, counting(getattr(module, name)))
        return built

    @pytest.mark.parametrize("ceiling", [None, FULL])
    async def test_is_never_built(
        self, ceiling: PeerCeiling | None, built: set[str], autojump_clock: trio.testing.MockClock
    ) -> None:
        spec = one(2, env_ceiling=ceiling, model_ceiling=ceiling)
        for hooks in (None, Hooks()):
            await run_session(spec, ScriptedEnv(2), ScriptedModel(delay=1), hooks=hooks)
        assert built == set()

    @pytest.mark.parametrize("name", list(EVENT_OF))
    async def test_one_hook_builds_its_own_event_alone(
        self, name: str, built: set[str], autojump_clock: trio.testing.MockClock
    ) -> None:
        heard: list[str] = []

        async def hear(self: Hooks, event: Event) -> None:
            heard.append(type(event).__name__)

        hooks = type("One", (Hooks,), {name: hear})()
        spec = one(2, env_ceiling=FULL)
        await run_session(spec, ScriptedEnv(2), ScriptedModel(), hooks=hooks, relay_policy=Advising())
        assert built == {EVENT_OF[name]}
        assert set(heard) == built
