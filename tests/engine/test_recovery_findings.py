"""Recovery where things meet: surplus lanes, failures that cost the connection too, hooks that are cut short."""

import logging
from typing import Any

import pytest
import trio
import trio.testing

from rlmesh_trio.engine.session import run_session
from rlmesh_trio.errors import EndpointError, EnvRpcError, HandshakeError
from rlmesh_trio.events import EpisodeCompleted
from rlmesh_trio.hooks import Hooks
from rlmesh_trio.messages import EnvReply, Leaves
from rlmesh_trio.messages import StepTarget as Target
from rlmesh_trio.observers import HookGroup
from rlmesh_trio.recovery import Recovery
from rlmesh_trio.report import Report
from rlmesh_trio.spec import AutoresetMode, Limits
from rlmesh_trio.testing import Fail, Fault, LaneScript, ScriptedEnv
from rlmesh_trio.testing.scripted import contract, lane_spec, one, vector_spec
from tests.engine.recorder import Recorder
from tests.engine.recovering import RETRY, LosableEnv, StrictModel, check


class Slow(Hooks):
    """Takes a second to hear of a finished episode."""

    async def episode_completed(self, event: EpisodeCompleted) -> None:
        await trio.sleep(1)


def seeds_of(report: Report) -> dict[int, int | None]:
    return {episode.episode_index: episode.seed for episode in report.episodes}


async def test_a_surplus_lane_without_a_seed_leaves_the_others_theirs(autojump_clock: trio.testing.MockClock) -> None:
    """Lane 0 has played its part and goes on uncounted and unseeded when the vector begins again for lane 1."""
    env = ScriptedEnv(2, 6, faults=[Fault("step", Fail(), 4)])
    declared = contract(AutoresetMode.DISABLED, 2)
    spec = vector_spec(2, 2, env_contract=declared, partial_reset=True, episode_seeds=(11, 12), on_env_error=RETRY)
    model, hooks = StrictModel(), Recorder()
    report = await run_session(spec, env, model, hooks=hooks)
    check(spec, report, model, hooks)
    assert [episode.seed for episode in report.episodes] == [11, 12]
    whole = [reset.seeds for reset in env.resets if not reset.env_indices]
    assert whole == [(11, 12), (12, 12)]


@pytest.mark.parametrize("seeds", [{"base_seed": 1}, {"episode_seeds": (11, 12, 13, 14)}], ids=["derived", "listed"])
async def test_a_partial_reset_that_was_due_keeps_its_seeds(
    seeds: dict[str, Any], autojump_clock: trio.testing.MockClock
) -> None:
    """The step that ends lane 0 comes back late, so what follows it is cut short between the episode and its reset."""

    class Late(ScriptedEnv):
        async def step(self, action: Leaves, target: Target) -> EnvReply:
            reply = await super().step(action, target)
            if reply.completed and len(self.resets) == 1:
                with trio.CancelScope(shield=True):
                    await trio.sleep(5)
            return reply

    declared, limits = contract(AutoresetMode.DISABLED, 2), Limits(env_step_timeout=4)
    spec = vector_spec(2, 4, env_contract=declared, partial_reset=True, on_timeout=RETRY, limits=limits, **seeds)
    undisturbed = await run_session(spec, ScriptedEnv(2, 6), StrictModel())
    model, hooks = StrictModel(), Recorder()
    report = await run_session(spec, Late(2, 6), model, hooks=HookGroup(Slow(), hooks))
    check(spec, report, model, hooks)
    assert {incident.episode_index for incident in report.incidents} == {2, 3}
    assert seeds_of(report) == seeds_of(undisturbed)


class EndedByAnError(LosableEnv):
    """Its *errors*-th calls raise, and the server ends the session behind that: the next call finds it gone."""

    errors: tuple[int, ...] = ()

    async def step(self, action: Leaves, target: Target) -> EnvReply:
        reply = await super().step(action, target)
        if self.arrived in self.errors:
            self.lost = True
            self.unready = set(range(len(self.lanes)))
            raise EndpointError("INTERNAL", "the env raised")
        return reply


class TestAFailureThatCostsTheConnection:
    async def test_is_one_attempt(self, autojump_clock: trio.testing.MockClock) -> None:
        env = EndedByAnError(3)
        env.errors = (3,)
        spec, model, hooks = one(2, base_seed=1, on_env_error=Recovery("retry", 1)), StrictModel(), Recorder()
        report = await run_session(spec, env, model, hooks=hooks)
        check(spec, report, model, hooks)
        assert [(incident.kind, incident.attempt) for incident in report.incidents] == [("retry", 1), ("reconnect", 1)]

    async def test_comes_to_an_end_all_the_same(self, autojump_clock: trio.testing.MockClock) -> None:
        env = EndedByAnError(3)
        env.errors = tuple(range(99))
        with pytest.raises(EnvRpcError, match="the env raised") as caught:
            await run_session(one(1, on_env_error=Recovery("retry", 2)), env, StrictModel())
        assert "started again 2 time(s)" in caught.value.__notes__[0]
        assert len(env.resets) == 3

    async def test_a_server_that_dies_of_each_reset_is_not_reconnected_for_ever(
        self, autojump_clock: trio.testing.MockClock
    ) -> None:
        env = EndedByAnError(3, losses=range(4, 99))
        env.errors = (3,)
        with pytest.raises(EnvRpcError) as caught:
            await run_session(one(1, on_env_error=Recovery("retry", 3)), env, StrictModel())
        assert caught.value.code == "CONNECTION"
        assert env.reconnects == 4


class TestTheReconnect:
    async def test_that_crashes_is_a_try_that_failed(
        self, autojump_clock: trio.testing.MockClock, caplog: pytest.LogCaptureFixture
    ) -> None:
        env = LosableEnv(3, losses=[2], refusals=1)
        env.refusal = OSError("no route")
        spec, model, hooks = one(1, on_env_error=RETRY), StrictModel(), Recorder()
        with caplog.at_level(logging.DEBUG, "rlmesh_trio"):
            check(spec, await run_session(spec, env, model, hooks=hooks), model, hooks)
        assert caplog.messages[:2] == [
            "the env connection was lost; reconnecting for up to 60s",
            "reconnect try 1 failed: OSError: no route",
        ]

    async def test_that_is_refused_does_not_claim_to_have_waited(self, autojump_clock: trio.testing.MockClock) -> None:
        env = LosableEnv(3, losses=[2], refusals=9)
        env.refusal = HandshakeError("another env")
        with pytest.raises(EnvRpcError) as caught:
            await run_session(one(on_env_error=RETRY), env, StrictModel())
        assert caught.value.__notes__ == ["the env could not be reconnected: another env"]


async def test_a_listener_behind_one_that_is_cut_short_misses_nothing(autojump_clock: trio.testing.MockClock) -> None:
    """The connection is lost while lane 0 tells of a finished episode."""
    env = LosableEnv(LaneScript(2, 0.1), LaneScript(9, 0.5), losses=[6])
    spec, model, hooks = lane_spec(2, 3, on_env_error=RETRY), StrictModel(), Recorder()
    report = await run_session(spec, env, model, hooks=HookGroup(Slow(), hooks))
    check(spec, report, model, hooks)


async def test_episodes_that_end_together_are_all_told_of(autojump_clock: trio.testing.MockClock) -> None:
    """Both lanes end with one step; the session is cancelled while the first of them is told of."""
    declared = contract(AutoresetMode.DISABLED, 2)
    spec, hooks = vector_spec(2, None, env_contract=declared, partial_reset=True), Recorder()
    with trio.move_on_after(0.5):
        await run_session(spec, ScriptedEnv(3, 3), StrictModel(), hooks=HookGroup(Slow(), hooks))
    assert [event.episode_index for event in hooks.of(EpisodeCompleted)] == [1, 2]
