"""Cancelled at each task step while something is recovered from: it ends in order and leaves nothing, as always."""

from functools import partial

import pytest
import trio
import trio.testing

from rlmesh_trio.spec import Limits
from rlmesh_trio.testing import Fail, Fault, Hang, LaneScript, ScriptedEnv
from rlmesh_trio.testing.scripted import lane_spec, one, vector_spec
from tests.engine.recovering import QUARANTINE, RETRY, LosableEnv, StrictModel
from tests.engine.sweeping import World, run_cancelled

LIMITS = Limits(env_reset_timeout=2, env_step_timeout=2, telemetry_window=0)

WORLDS = {
    "retry of a lane": World(
        one(2, on_env_error=RETRY, on_timeout=RETRY, limits=LIMITS),
        lambda: ScriptedEnv(2, faults=[Fault("reset", Fail(), 2), Fault("step", Hang(), 2)]),
        StrictModel,
    ),
    "retry of a vector": World(
        vector_spec(2, 3, on_env_error=RETRY, limits=LIMITS),
        lambda: ScriptedEnv(1, 2, next_step=True, faults=[Fault("step", Fail(), 2)]),
        partial(StrictModel, extra=2, history=True),
        lead=1,
    ),
    "quarantine": World(
        lane_spec(3, 3, on_timeout=QUARANTINE, limits=LIMITS),
        lambda: ScriptedEnv(LaneScript(2, 0.1), 1, 2, faults=[Fault("step", Hang(), 2, lane=2)]),
        partial(StrictModel, fuses=True),
    ),
    "reconnect": World(
        lane_spec(2, 3, on_env_error=RETRY, limits=LIMITS),
        lambda: LosableEnv(LaneScript(2, 0.1), 2, losses=[4], refusals=1),
        StrictModel,
    ),
}


@pytest.mark.parametrize("world", WORLDS.values(), ids=WORLDS.keys())
@pytest.mark.parametrize("from_outside", [True, False], ids=["by the caller", "by itself"])
def test_cancelled_at_every_step(world: World, from_outside: bool) -> None:
    async def sweep() -> int:
        number = 1
        while await run_cancelled(world, number, from_outside=from_outside):
            number += 1
        return number

    assert trio.run(sweep, clock=trio.testing.MockClock(autojump_threshold=0)) > 40
