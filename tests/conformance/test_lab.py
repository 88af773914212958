import math
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import attrs
import numpy as np
import pytest
import trio
from trio.testing import MockClock

from rlmesh_trio.conformance.facts import facts_of
from rlmesh_trio.conformance.isolation import isolation_for
from rlmesh_trio.conformance.lab import PATIENCE, Isolation, SeenLab, TargetLab, TargetLost, open_lab
from rlmesh_trio.conformance.scripts import Reset, Script, Step
from rlmesh_trio.conformance.settings import Settings
from rlmesh_trio.conformance.targets import LocalTarget, OpenEnv
from rlmesh_trio.errors import ConnectError, EndpointError
from rlmesh_trio.messages import EnvReply, ResetRequest
from tests.conformance.labs import lab_on
from tests.conformance.scripted_env import Counting, ScriptedEnv, ScriptedTarget, ok
from tests.conformance.test_player import ACTION

SCRIPT = Script(1, (Reset((1,)), Step((ACTION,))))
GONE = EndpointError("CONNECTION", "gone")


async def fine(request: object) -> EnvReply:
    return ok(steps=not isinstance(request, ResetRequest))


async def dead(_: object) -> EnvReply:
    raise GONE


async def stuck(_: object) -> EnvReply:
    await trio.sleep(math.inf)
    raise AssertionError


async def stuck_in_steps(request: object) -> EnvReply:
    return ok(steps=False) if isinstance(request, ResetRequest) else await stuck(request)


async def facts() -> Any:
    async with LocalTarget(Counting, where="inline").connect(1.0) as env:
        return facts_of(LocalTarget(Counting), env, Settings())


def lab_of(target: ScriptedTarget, known: Any) -> Any:
    return open_lab(target, known, step_timeout=5.0)


async def test_a_session_serves_many_plays() -> None:
    target = ScriptedTarget(ScriptedEnv(fine))
    async with lab_of(target, await facts()) as lab:
        first, second = await lab.play(SCRIPT), await lab.play(SCRIPT)
        assert (target.opened, target.closed) == (1, 0)
        assert first.answers[0].episode_ids != second.answers[0].episode_ids
        third = await lab.play_fresh(SCRIPT)
        assert (target.opened, target.closed) == (2, 1)
        assert third.answers[0].episode_ids == first.answers[0].episode_ids, "ids follow from the session alone"
        await lab.leave()
        assert target.closed == 2
    assert lab.coverage.sessions == 2
    assert (lab.coverage.scripts, lab.coverage.resets, lab.coverage.steps) == (3, 3, 3)


async def test_isolation_decides_how_plays_are_kept_apart() -> None:
    target = ScriptedTarget(ScriptedEnv(fine), restartable=True)
    async with lab_of(target, await facts()) as lab:
        lab.isolation = "session"
        await lab.play(SCRIPT)
        await lab.play(SCRIPT)
        assert (target.opened, target.restarts) == (2, 0)
        lab.isolation = "process"
        await lab.play(SCRIPT)
        await lab.play(SCRIPT)
        assert (target.opened, target.restarts) == (4, 2)


async def test_a_lost_session_is_opened_anew() -> None:
    target = ScriptedTarget(ScriptedEnv(dead), ConnectError("busy"), ScriptedEnv(fine))
    async with lab_of(target, await facts()) as lab:
        trace = await lab.play(SCRIPT)
        assert trace.lost is not None
        assert lab.lost_connection
        assert (await lab.play(SCRIPT)).lost is None
        assert not lab.lost_connection


async def test_a_target_that_does_not_come_back_is_lost(autojump_clock: MockClock) -> None:
    target = ScriptedTarget(ScriptedEnv(dead), ConnectError("nobody there"))
    async with lab_of(target, await facts()) as lab:
        await lab.play(SCRIPT)
        before = trio.current_time()
        with pytest.raises(TargetLost, match="scripted did not come back: nobody there"):
            await lab.play(SCRIPT)
        assert trio.current_time() - before == pytest.approx(PATIENCE, abs=1.0)


async def test_waiting_that_was_cut_short_counts(autojump_clock: MockClock) -> None:
    target = ScriptedTarget(ScriptedEnv(dead), ConnectError("nobody there"))
    async with lab_of(target, await facts()) as lab:
        await lab.play(SCRIPT)
        before = trio.current_time()
        for _ in range(4):
            with trio.move_on_after(1.0):
                await lab.play(SCRIPT)
        with pytest.raises(TargetLost):
            await lab.play(SCRIPT)
        assert trio.current_time() - before == pytest.approx(PATIENCE, abs=1.5)


async def test_what_can_be_started_again_is(autojump_clock: MockClock) -> None:
    target = ScriptedTarget(ScriptedEnv(dead), *[ConnectError("down")] * 14, ScriptedEnv(fine), restartable=True)
    async with lab_of(target, await facts()) as lab:
        await lab.play(SCRIPT)
        assert (await lab.play(SCRIPT)).lost is None
    assert target.restarts == 1
    assert lab.coverage.restarts == 1


async def test_a_process_that_starts_in_vain_is_lost(autojump_clock: MockClock) -> None:
    target = ScriptedTarget(ScriptedEnv(dead), ConnectError("down"), restartable=True)
    async with lab_of(target, await facts()) as lab:
        await lab.play(SCRIPT)
        with pytest.raises(TargetLost):
            await lab.play(SCRIPT)
    assert target.restarts == 1


@pytest.mark.parametrize("restartable", [False, True])
async def test_a_target_that_answers_nothing_hangs(restartable: bool, autojump_clock: MockClock) -> None:
    target = ScriptedTarget(ScriptedEnv(stuck), restartable=restartable)
    async with lab_of(target, await facts()) as lab:
        await lab.play(SCRIPT)
        if restartable:
            await lab.play(SCRIPT)
        else:
            with pytest.raises(TargetLost, match="hangs: no answer within 6s, 2 sessions in a row"):
                await lab.play(SCRIPT)
    assert target.restarts == restartable


async def test_an_env_that_hangs_on_an_action_is_no_target_that_hangs(autojump_clock: MockClock) -> None:
    target = ScriptedTarget(ScriptedEnv(stuck_in_steps))
    async with lab_of(target, await facts()) as lab:
        for _ in range(4):
            trace = await lab.play(SCRIPT)
            assert trace.lost is not None
            assert trace.lost.code == "TIMEOUT"
    assert target.opened == 4


async def test_a_play_that_is_cut_short_leaves_its_session(autojump_clock: MockClock) -> None:
    target = ScriptedTarget(ScriptedEnv(stuck_in_steps), ScriptedEnv(fine))
    async with lab_of(target, await facts()) as lab:
        with trio.move_on_after(3.0) as scope:
            await lab.play(SCRIPT)
        assert scope.cancelled_caught
        assert lab.unanswered == pytest.approx(3.0)
        await lab.play(SCRIPT)
        assert (target.opened, target.closed) == (2, 1)
        assert lab.unanswered == 0


async def test_a_local_env_has_any_width() -> None:
    async with lab_on(Counting) as lab:
        script = Script(3, (Reset((1, 2, 3)), Step((ACTION,) * 3)))
        trace = await lab.play_local(script, width=3)
        assert trace.lost is None
        assert len(trace.answers[1].observation) == 3
        alone = await lab.play_local(SCRIPT)
        assert alone.answers[1].observation[0] == trace.answers[1].observation[0]


async def test_the_highest_is_what_the_search_climbs() -> None:
    async with lab_on(Counting) as lab:
        lab.target(1.0, "reward")
        lab.target(3.0, "reward")
        lab.target(2.0, "reward")
        assert lab.take_climbed() == {"reward": 3.0}
        assert lab.take_climbed() == {}


async def test_a_seen_script_is_not_played_again() -> None:
    async with lab_on(Counting) as lab:
        seen = SeenLab(lab, await lab.play(SCRIPT))
        assert await seen.play(seen.seen.script) is seen.seen
        assert seen.facts is lab.facts
        assert lab.coverage.scripts == 1
        assert (await seen.play(Script(1, (Reset((2,)),)))).lost is None
        assert lab.coverage.scripts == 2
        assert isinstance(lab, TargetLab)


class Remembering(ScriptedTarget):
    """Observes how many steps there were in all sessions, or in each, since it was started."""

    def __init__(self, *, apart: bool, restartable: bool = True) -> None:
        super().__init__(ScriptedEnv(self.answer), restartable=restartable)
        self.apart = apart
        self.total = 0

    async def answer(self, request: object) -> EnvReply:
        if isinstance(request, ResetRequest):
            return ok(steps=False)
        self.total += 1
        return attrs.evolve(ok(), observation=[np.array([[self.total, 0]], np.float32).tobytes()])

    @asynccontextmanager
    async def connect(self, limit: float) -> AsyncGenerator[OpenEnv]:
        if self.apart:
            self.total = 0
        async with super().connect(limit) as env:
            yield env

    async def restart(self) -> None:
        await super().restart()
        self.total = 0


@pytest.mark.parametrize(
    ("target", "isolation"),
    [
        (Remembering(apart=True), "session"),
        (Remembering(apart=False), "process"),
        (Remembering(apart=False, restartable=False), "session"),
    ],
)
async def test_sessions_keep_plays_apart_or_processes_do(target: Remembering, isolation: Isolation) -> None:
    async with lab_of(target, await facts()) as lab:
        assert await isolation_for(lab, SCRIPT, SCRIPT, restartable=target.restartable) == isolation
        assert lab.isolation == "shared"
