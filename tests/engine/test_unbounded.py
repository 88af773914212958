"""A session without a budget runs for ever in the same memory: nothing it holds grows with steps or episodes."""

import gc
from collections import deque
from collections.abc import Callable, Collection
from typing import Any, cast

import numpy as np
import pytest
import trio
import trio.testing

from rlmesh_trio.engine.session import Session
from rlmesh_trio.errors import RouteCancelled
from rlmesh_trio.messages import EnvReply, Leaves, StepTarget
from rlmesh_trio.spec import SessionSpec
from rlmesh_trio.testing.scripted import ScriptedEnv, ScriptedModel, lane_spec, one, vector_spec

CONTAINERS = (list, dict, set, tuple, deque)
DRAIN = 1024
SETTLED = 2 * DRAIN


def held(root: object) -> int:
    """How many entries all containers hold that can be reached from *root* through the engine's own objects."""
    seen: set[int] = set()
    open_ends: list[Any] = [root]
    entries = 0
    while open_ends:
        thing = open_ends.pop()
        if id(thing) in seen:
            continue
        seen.add(id(thing))
        if isinstance(thing, CONTAINERS):
            entries += len(cast("Collection[object]", thing))
        elif isinstance(thing, np.ndarray):
            entries += cast("np.ndarray[Any, Any]", thing).size
            continue
        elif not type(thing).__module__.startswith(("rlmesh_trio.", "trio._channel")):
            continue
        open_ends.extend(gc.get_referents(thing))
    return entries


class Forgetful(ScriptedModel):
    """Keeps no record of its calls."""

    async def predict_group(self, requests: Any) -> Any:
        await trio.lowlevel.checkpoint()
        return [self.answer(request) for request in requests]

    async def reset_adapter(self, request: object) -> None:
        await trio.lowlevel.checkpoint()


class Measuring(ScriptedEnv):
    """Weighs the session after each of the given numbers of steps, and ends it after the last."""

    def __init__(self, *lanes: int, at: tuple[int, ...], next_step: bool) -> None:
        super().__init__(*lanes, next_step=next_step)
        self.at = at
        self.steps = 0
        self.weights: list[int] = []
        self.session: Session | None = None

    async def step(self, action: Leaves, target: StepTarget) -> EnvReply:
        self.steps += 1
        if self.steps in self.at:
            assert self.session is not None
            self.weights.append(held(self.session))
            if self.steps == self.at[-1]:
                self.session.cancel("measured")
        reply = await super().step(action, target)
        self.actions.clear()
        self.targets.clear()
        self.resets.clear()
        return reply


@pytest.mark.parametrize(
    ("spec", "lengths", "model"),
    [
        (one(None), (4,), Forgetful),
        (lane_spec(3, None), (4, 5, 6), lambda: Forgetful(fuses=True)),
        (vector_spec(2, None), (3, 4), lambda: Forgetful(extra=2, history=True)),
    ],
    ids=["single", "lanes", "vector, chunks, history"],
)
def test_nothing_grows(spec: SessionSpec, lengths: tuple[int, ...], model: Callable[[], ScriptedModel]) -> None:
    async def main() -> tuple[Measuring, Session]:
        env = Measuring(*lengths, at=(SETTLED + 1, 4 * SETTLED + 1), next_step=not spec.driver_owns_resets)
        session = env.session = Session(spec, env, model(), prefetch_lead=1 if model().extra else 0)
        await session.run()
        return env, session

    env, session = trio.run(main, clock=trio.testing.MockClock(autojump_threshold=0))
    early, late = env.weights
    assert session.report.total_episodes > SETTLED / 2
    assert late - early < 200
    assert session.report.episodes == ()
    assert session.report.total_steps >= 4 * SETTLED - 2


async def test_its_outcome_is_the_cancellation_that_ended_it(autojump_clock: trio.testing.MockClock) -> None:
    session = Session(one(None), ScriptedEnv(1), ScriptedModel(delay=1))
    with trio.move_on_after(10):
        await session.run()
    with pytest.raises(RouteCancelled) as caught:
        await session.wait()
    assert caught.value.report is not None
    assert (caught.value.report.total_episodes, caught.value.report.episodes) == (9, ())
