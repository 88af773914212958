"""A session cancelled at each of its task steps in turn: whatever the moment, it ends in order and leaves nothing."""

import attrs
import pytest

from rlmesh_trio.recovery import Recovery
from rlmesh_trio.testing.schedule import real_time_limit
from rlmesh_trio.testing.world import World
from rlmesh_trio.testing.world_checks import violations
from rlmesh_trio.testing.world_facts import signature
from rlmesh_trio.testing.world_plan import (
    Cancellation,
    Delays,
    EnvPlan,
    ModelPlan,
    NetworkPlan,
    Reconnects,
    SessionPlan,
    Trouble,
)

WORLDS = {
    "single": World(session=SessionPlan(budget=2, base_seed=1)),
    "single that restarts, transforms": World(
        env=EnvPlan(autoreset="NEXT_STEP", longest=2), session=SessionPlan(budget=2, transforms=True, window=0.5)
    ),
    "lanes, fused": World(
        env=EnvPlan("lanes", lanes=3, longest=2, step=Delays((0.0, 0.1))),
        model=ModelPlan(fuses=True),
        session=SessionPlan(budget=4),
    ),
    "lanes, prefetch, read": World(
        env=EnvPlan("lanes", lanes=2, echoes=True),
        model=ModelPlan(chunk=2, predict=Delays((0.1,))),
        session=SessionPlan(budget=2, prefetch_lead=1, step_cap=2, listening="stream"),
    ),
    "vector, lanes reset by name": World(
        env=EnvPlan("vector", lanes=3), model=ModelPlan(chunk=2), session=SessionPlan(budget=4, prefetch_lead=1)
    ),
    "vector": World(env=EnvPlan("vector", lanes=2, autoreset="NEXT_STEP", longest=2), session=SessionPlan(budget=3)),
    "lanes that restart, history": World(
        env=EnvPlan("lanes", lanes=2, autoreset="NEXT_STEP", longest=2),
        model=ModelPlan(chunk=3, fuses=True, history=True),
        session=SessionPlan(budget=3, prefetch_lead=2, scheduler="together"),
    ),
    "lanes behind a slow network": World(
        env=EnvPlan("lanes", lanes=2, longest=2),
        network=NetworkPlan(env=Delays((0.25,)), model=Delays((0.25,))),
        session=SessionPlan(budget=3, close_env=False, ceilings=True),
    ),
    "an ending in which everything hangs": World(
        env=EnvPlan("lanes", lanes=2, longest=1),
        session=SessionPlan(budget=2),
        troubles=(
            Trouble("close", "hang"),
            Trouble("release", "hang"),
            Trouble("evict", "hang"),
            Trouble("on_telemetry", "hang"),
            Trouble("session_ended", "hang"),
            Trouble("session_failed", "hang"),
        ),
    ),
    "a step that fails": World(
        env=EnvPlan("lanes", lanes=2, step=Delays((0.25,))),
        session=SessionPlan(budget=4),
        troubles=(Trouble("step", "fail", call=5),),
    ),
    "a predict that fails in its grace": World(
        env=EnvPlan("lanes", lanes=2, step=Delays((0.25,))),
        model=ModelPlan(predict=Delays((0.5,))),
        session=SessionPlan(budget=3),
        troubles=(Trouble("predict", "fail", call=4),),
    ),
    "a predict that hangs": World(
        env=EnvPlan("lanes", lanes=2, step=Delays((0.25,))),
        model=ModelPlan(fuses=True),
        session=SessionPlan(budget=4),
        troubles=(Trouble("predict_group", "hang", call=3),),
    ),
    "a lane that is taken out": World(
        env=EnvPlan("lanes", lanes=2, longest=2),
        session=SessionPlan(budget=3, on_env_error=Recovery("quarantine")),
        troubles=(Trouble("step", "fail", times=None, lane=1),),
    ),
    "a connection lost twice": World(
        env=EnvPlan("lanes", lanes=2, longest=2),
        model=ModelPlan(chunk=2, predict=Delays((0.25,))),
        network=NetworkPlan(env_lost_at=(4, 7), reconnects=Reconnects(Delays((0.5,)), refusals=1)),
        session=SessionPlan(budget=3, prefetch_lead=1, on_env_error=Recovery("retry")),
    ),
}


@pytest.mark.parametrize("world", WORLDS.values(), ids=WORLDS.keys())
@pytest.mark.parametrize("outside", [True, False], ids=["by the caller", "by itself"])
def test_cancelled_at_every_step(world: World, outside: bool) -> None:
    moments, step, swept = 0, 0, True
    while swept:
        step += 1
        cancelled = attrs.evolve(world, schedule=int(outside), cancellation=Cancellation(step=step, outside=outside))
        with real_time_limit(60):
            outcome = cancelled.run()
        assert violations(outcome) == [], cancelled
        moments += signature(outcome.error).startswith("RouteCancelled")
        swept = outcome.cancelled_at is not None
    assert moments > 20


def test_only_what_is_left_over_is_a_leak() -> None:
    outcome = next(iter(WORLDS.values())).run()
    outcome.before = outcome.after
    for kind in ("tasks", "files", "threads"):
        count = getattr(outcome.before, kind)
        outcome.after = attrs.evolve(outcome.before, **{kind: count - 1})
        assert violations(outcome) == []
        outcome.after = attrs.evolve(outcome.before, **{kind: count + 1})
        (said,) = violations(outcome)
        assert said.startswith("something is left over")
