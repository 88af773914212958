"""One session between scripted peers, cancelled before a task step: it ends in order and leaves nothing."""

from collections import Counter
from collections.abc import Callable
from functools import partial

import attrs
import trio

from rlmesh_trio.engine.session import Session
from rlmesh_trio.errors import RouteCancelled
from rlmesh_trio.events import SessionEnded, SessionFailed
from rlmesh_trio.spec import SessionSpec
from rlmesh_trio.testing.scripted import ScriptedEnv, ScriptedModel
from tests.engine.recorder import Recorder


@attrs.define(eq=False)
class World:
    """A small session whose tasks all take turns."""

    spec: SessionSpec
    env: Callable[[], ScriptedEnv]
    model: Callable[[], ScriptedModel]
    lead: int = 0


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
