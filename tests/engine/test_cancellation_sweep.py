"""A session cancelled at each of its task steps in turn: whatever the moment, it ends in order and leaves nothing."""

from collections import Counter
from collections.abc import Callable
from functools import partial

import attrs
import pytest
import trio
import trio.testing

from rlmesh_trio.engine.session import Session
from rlmesh_trio.errors import RouteCancelled
from rlmesh_trio.events import SessionEnded, SessionFailed
from rlmesh_trio.spec import SessionSpec
from rlmesh_trio.testing.scripted import LaneScript, ScriptedEnv, ScriptedModel, lane_spec, one, vector_spec
from tests.engine.recorder import Recorder


@attrs.define(eq=False)
class World:
    """A small session whose tasks all take turns."""

    spec: SessionSpec
    env: Callable[[], ScriptedEnv]
    model: Callable[[], ScriptedModel]
    lead: int = 0


WORLDS = {
    "single": World(one(2), lambda: ScriptedEnv(2), ScriptedModel),
    "lanes, fused": World(
        lane_spec(3, 4), lambda: ScriptedEnv(LaneScript(2, 0.1), 1, 2), partial(ScriptedModel, fuses=True)
    ),
    "lanes, prefetch": World(
        lane_spec(2, 2), lambda: ScriptedEnv(3, 2), partial(ScriptedModel, extra=1, delay=0.1), lead=1
    ),
    "vector": World(vector_spec(2, 3), lambda: ScriptedEnv(1, 2, next_step=True), ScriptedModel),
    "lanes that restart, history": World(
        vector_spec(2, 3, subset_step=True),
        lambda: ScriptedEnv(1, 2, next_step=True),
        partial(ScriptedModel, extra=2, history=True, fuses=True),
        lead=2,
    ),
}

worlds = pytest.mark.parametrize("world", WORLDS.values(), ids=WORLDS.keys())


class AtStep(trio.abc.Instrument):
    """Calls *act* before the *number*-th task step of the run."""

    def __init__(self, number: int, act: Callable[[], None]) -> None:
        self.left = number
        self.act = act

    def before_task_step(self, task: trio.lowlevel.Task) -> None:
        self.left -= 1
        if self.left == 0:
            self.act()


async def run_cancelled(world: World, number: int, *, from_outside: bool) -> bool:
    """Run once, cancelled at that step; false when the session has ended before it."""
    env, model, hooks = world.env(), world.model(), Recorder()
    living = trio.lowlevel.current_statistics().tasks_living
    session = Session(world.spec, env, model, hooks=hooks, prefetch_lead=world.lead)
    scope = trio.CancelScope()
    instrument = AtStep(number, scope.cancel if from_outside else partial(session.cancel, "swept"))
    with scope:
        trio.lowlevel.add_instrument(instrument)
        try:
            await session.run()
        finally:
            trio.lowlevel.remove_instrument(instrument)
    assert trio.lowlevel.current_statistics().tasks_living == living
    check_the_model(model)
    assert len(model.released) == env.closes == 1
    last = hooks.events[-1]
    try:
        report = await session.wait()
        assert isinstance(last, SessionEnded)
        assert report.total_episodes == world.spec.max_episodes
    except RouteCancelled as cancelled:
        assert isinstance(last, SessionFailed)
        assert cancelled.reason == ("cancelled by caller" if from_outside else "swept")  # noqa: PT017
        assert last.reason == str(cancelled)  # noqa: PT017
        report = session.report
        assert cancelled.report == report  # noqa: PT017
    assert model.released == [last.reason]
    kinds = Counter(hooks.kinds)
    assert (kinds["SessionStarted"], kinds["TelemetryTaken"], kinds["SessionEnded"] + kinds["SessionFailed"]) == (
        1,
        1,
        1,
    )
    assert kinds["EpisodeCompleted"] <= report.total_episodes == len(report.episodes)
    return instrument.left <= 0


def check_the_model(model: ScriptedModel) -> None:
    """Each episode it predicted on is ended there once, and left alone from then on."""
    ended: set[str] = set()
    for kind, ids in model.calls:
        assert ended.isdisjoint(ids)
        if kind == "evict":
            ended.update(ids)
    assert ended == set(model.predicted)


@worlds
@pytest.mark.parametrize("from_outside", [True, False], ids=["by the caller", "by itself"])
def test_cancelled_at_every_step(world: World, from_outside: bool) -> None:
    async def sweep() -> int:
        number = 1
        while await run_cancelled(world, number, from_outside=from_outside):
            number += 1
        return number

    for _ in range(2):
        assert trio.run(sweep, clock=trio.testing.MockClock(autojump_threshold=0)) > 30
