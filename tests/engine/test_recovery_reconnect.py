"""A lost connection is made anew once for all lanes, and every episode in flight is started again."""

import logging
from collections import Counter
from collections.abc import Callable, Sequence

import attrs
import pytest
import trio
import trio.testing

from rlmesh_trio.engine.session import run_session
from rlmesh_trio.errors import EnvRpcError, HandshakeError
from rlmesh_trio.events import EpisodeStarted, IncidentHappened, ObservationEmitted
from rlmesh_trio.recovery import Recovery
from rlmesh_trio.report import EpisodeSummary, Report
from rlmesh_trio.spec import Limits, SessionSpec
from rlmesh_trio.testing import Delay, Fail, Fault, LaneScript, ScriptedEnv
from rlmesh_trio.testing.scripted import lane_spec, one, vector_spec
from tests.engine.recorder import Recorder
from tests.engine.recovering import QUARANTINE, RETRY, LosableEnv, StrictModel, check

policies = pytest.mark.parametrize("policy", [RETRY, QUARANTINE], ids=str)

SHAPES: dict[str, tuple[SessionSpec, Callable[[Sequence[int], int], LosableEnv]]] = {
    "single": (
        one(3, base_seed=1),
        lambda losses, refusals: LosableEnv(LaneScript(4, 0.1), losses=losses, refusals=refusals),
    ),
    "lanes": (
        lane_spec(3, 8, base_seed=1),
        lambda losses, refusals: LosableEnv(
            LaneScript(4, 0.1), LaneScript(4, 0.3), 4, losses=losses, refusals=refusals
        ),
    ),
    "vector": (
        vector_spec(3, 8),
        lambda losses, refusals: LosableEnv(LaneScript(4, 0.1), 4, 4, next_step=True, losses=losses, refusals=refusals),
    ),
    "lanes that restart": (
        vector_spec(3, 8, subset_step=True),
        lambda losses, refusals: LosableEnv(
            LaneScript(4, 0.1), LaneScript(4, 0.3), 4, next_step=True, losses=losses, refusals=refusals
        ),
    ),
}


def by_index(report: Report, *, lanes: bool = True) -> list[EpisodeSummary]:
    """The episodes in order, without what took time, and where asked without the lane."""
    unlike = {"duration_ms": 0, "predict_ms": None, "step_ms": None} | ({} if lanes else {"env_index": 0})
    return [attrs.evolve(one, **unlike) for one in sorted(report.episodes, key=lambda one: one.episode_index)]


@policies
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("fuses", [False, True], ids=["one by one", "fused"])
async def test_one_reconnect_serves_all(
    policy: Recovery, shape: str, fuses: bool, autojump_clock: trio.testing.MockClock
) -> None:
    spec, make_env = SHAPES[shape]
    spec = attrs.evolve(spec, on_env_error=policy)
    undisturbed = await run_session(spec, make_env([], 0), StrictModel(fuses=fuses))
    for moment in range(1, 15):
        env, model, hooks = make_env([moment], 2), StrictModel(fuses=fuses), Recorder()
        report = await run_session(spec, env, model, hooks=hooks)
        check(spec, report, model, hooks)
        assert env.reconnects == 3
        kinds = Counter(incident.kind for incident in report.incidents)
        assert kinds["reconnect"] == 1
        assert set(kinds) <= {"reconnect", "retry"}
        reconnect = report.incidents[0]
        assert (reconnect.kind, reconnect.attempt, reconnect.env_index, reconnect.episode_id) == (
            "reconnect",
            3,
            None,
            None,
        )
        if spec.driver_owns_resets:
            assert by_index(report, lanes=False) == by_index(undisturbed, lanes=False)


async def test_a_lane_that_waits_for_its_predict_starts_again_too(autojump_clock: trio.testing.MockClock) -> None:
    """Only lane 0 notices the loss; the other lanes' episodes are gone with the old session all the same."""
    env = LosableEnv(5, LaneScript(5, 0.5), LaneScript(5, 0.5), losses=[6], takes=0.1)
    spec, hooks = lane_spec(3, 3, on_env_error=RETRY), Recorder()
    model = StrictModel(faults=[Fault("predict", Delay(9), call) for call in (2, 3)])
    report = await run_session(spec, env, model, hooks=hooks)
    check(spec, report, model, hooks)
    retried = [incident.env_index for incident in report.incidents if incident.kind == "retry"]
    assert sorted(map(str, retried)) == ["0", "1", "2"]
    assert len(env.resets) == 6


async def test_a_lane_in_a_hook_starts_again_too(autojump_clock: trio.testing.MockClock) -> None:
    class Slow(Recorder):
        async def observation_emitted(self, event: ObservationEmitted) -> None:
            await super().observation_emitted(event)
            if event.route.lane == 1 and event.step == 1:
                await trio.sleep(100)

    env = LosableEnv(LaneScript(3, 0.5), 3, losses=[5])
    spec, model, hooks = lane_spec(2, 2, on_env_error=RETRY), StrictModel(), Slow()
    start = trio.current_time()
    report = await run_session(spec, env, model, hooks=hooks)
    check(spec, report, model, hooks)
    assert trio.current_time() - start > 100
    assert len(env.resets) == 4


async def test_a_finished_lane_is_left_alone(autojump_clock: trio.testing.MockClock) -> None:
    env = LosableEnv(1, LaneScript(5, 0.5), losses=[6])
    spec, model, hooks = lane_spec(2, 2, on_env_error=RETRY), StrictModel(), Recorder()
    report = await run_session(spec, env, model, hooks=hooks)
    check(spec, report, model, hooks)
    assert sorted(reset.env_indices for reset in env.resets) == [(0,), (1,), (1,)]


async def test_a_lane_that_pauses_meanwhile_waits_for_the_reconnect(autojump_clock: trio.testing.MockClock) -> None:
    """Lane 1's pause after a failure of its own ends while lane 0 reconnects: that costs it no attempt."""
    env = LosableEnv(
        LaneScript(5, 0.3), LaneScript(5, 0.25), losses=[5], takes=3, faults=[Fault("step", Fail(), 1, lane=1)]
    )
    spec, model, hooks = lane_spec(2, 2, on_env_error=RETRY), StrictModel(), Recorder()
    env.losses = [6]
    report = await run_session(spec, env, model, hooks=hooks)
    check(spec, report, model, hooks)
    assert env.reconnects == 1
    assert all(incident.attempt <= 2 for incident in report.incidents)


async def test_a_server_that_dies_of_an_episode_is_not_reconnected_for_ever(
    autojump_clock: trio.testing.MockClock,
) -> None:
    env = LosableEnv(5, losses=[2, 4, 6, 8])
    with pytest.raises(EnvRpcError) as caught:
        await run_session(one(1, on_env_error=Recovery("retry", 3)), env, StrictModel())
    assert caught.value.code == "CONNECTION"
    assert "started again 3 time(s)" in caught.value.__notes__[0]
    assert env.reconnects == 4
    assert caught.value.report is not None
    assert [incident.kind for incident in caught.value.report.incidents] == ["reconnect", "retry"] * 3 + ["reconnect"]


class TestWhenItDoesNotCome:
    async def test_it_backs_off_and_gives_up_at_the_connect_limit(
        self, autojump_clock: trio.testing.MockClock, caplog: pytest.LogCaptureFixture
    ) -> None:
        env = LosableEnv(LaneScript(3, 0.1), LaneScript(3, 0.1), losses=[4], refusals=999, takes=0)
        spec, model, hooks = lane_spec(2, 4, on_env_error=RETRY), StrictModel(), Recorder()
        start = trio.current_time()
        with caplog.at_level(logging.DEBUG, "rlmesh_trio"), pytest.raises(EnvRpcError) as caught:
            await run_session(attrs.evolve(spec, limits=Limits(env_connect_timeout=30)), env, model, hooks=hooks)
        assert trio.current_time() - start == pytest.approx(30, abs=0.5)
        pauses = [0.1, 0.2, 0.4, 0.8, 1.6, 3.2, *[5.0] * 4]
        tries = 1 + len(pauses)
        assert sum(pauses) < 30 < sum(pauses) + 5
        assert env.reconnects == tries
        assert caught.value.__notes__[0] == (
            f"the env could not be reconnected within 30s; try {tries} was the last: nobody there"
        )
        lines = [record for record in caplog.records if record.message.startswith("reconnect try")]
        assert len(lines) == tries
        assert {record.levelname for record in lines} == {"DEBUG"}
        assert hooks.of(IncidentHappened) == []
        assert sorted(model.evicted) == sorted(model.predicted)

    async def test_a_try_that_hangs_is_bounded_too(self, autojump_clock: trio.testing.MockClock) -> None:
        env = LosableEnv(3, losses=[2], takes=1e9)
        start = trio.current_time()
        with pytest.raises(EnvRpcError, match="connection closed") as caught:
            await run_session(one(on_env_error=RETRY), env, StrictModel())
        assert trio.current_time() - start == pytest.approx(60, abs=0.5)
        assert "try 1 was the last: no answer" in caught.value.__notes__[0]

    async def test_another_env_at_the_address_is_final(self, autojump_clock: trio.testing.MockClock) -> None:
        env = LosableEnv(3, losses=[2], refusals=9)
        env.refusal = HandshakeError("no longer serves the env of this session")
        with pytest.raises(EnvRpcError) as caught:
            await run_session(one(on_env_error=RETRY), env, StrictModel())
        assert env.reconnects == 1
        assert "no longer serves the env of this session" in caught.value.__notes__[0]

    async def test_without_a_policy_nobody_reconnects(self, autojump_clock: trio.testing.MockClock) -> None:
        env = LosableEnv(3, losses=[2])
        with pytest.raises(EnvRpcError):
            await run_session(one(on_timeout=RETRY), env, StrictModel())
        assert env.reconnects == 0

    @pytest.mark.parametrize(("policy", "kinds"), [(RETRY, ["retry"] * 3), (QUARANTINE, ["quarantine"])], ids=str)
    async def test_an_env_that_cannot_reconnect_is_under_the_policy_alone(
        self, policy: Recovery, kinds: list[str], autojump_clock: trio.testing.MockClock
    ) -> None:
        env = ScriptedEnv(3, 3, faults=[Fault("step", Fail("CONNECTION"))])
        with pytest.raises(EnvRpcError) as caught:
            await run_session(lane_spec(2, 2, on_env_error=policy), env, StrictModel())
        assert caught.value.report is not None
        mine = [incident for incident in caught.value.report.incidents if incident.env_index == 0]
        theirs = [incident for incident in caught.value.report.incidents if incident.env_index == 1]
        assert kinds in ([incident.kind for incident in mine], [incident.kind for incident in theirs])


async def test_the_reconnect_is_told_before_the_episodes(autojump_clock: trio.testing.MockClock) -> None:
    env = LosableEnv(LaneScript(3, 0.1), LaneScript(3, 0.1), losses=[4])
    hooks = Recorder()
    report = await run_session(lane_spec(2, 2, on_env_error=RETRY), env, StrictModel(), hooks=hooks)
    events = hooks.of(IncidentHappened)
    assert (events[0].incident.kind, events[0].route.lane) == ("reconnect", None)
    assert Counter(event.route.lane for event in events[1:]) == {0: 1, 1: 1}
    assert report.incidents[0].error == "EnvRpcError"
    assert "connection closed" in report.incidents[0].message
    assert len(hooks.of(EpisodeStarted)) == 4
