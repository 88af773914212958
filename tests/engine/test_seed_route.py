"""Seeds that mix in a route id, as sessions send them."""

from typing import Any

import pytest
import trio.testing

from rlmesh_trio.engine.session import run_session
from rlmesh_trio.spec import SessionSpec
from rlmesh_trio.testing.scripted import ScriptedEnv, ScriptedModel, lane_spec, one, vector_spec
from tests.engine.seeded import partial_spec


async def sent(spec: SessionSpec, *lengths: int, **env: Any) -> list[tuple[int, ...]]:
    scripted = ScriptedEnv(*lengths, **env)
    await run_session(spec, scripted, ScriptedModel())
    return [reset.seeds for reset in scripted.resets]


def seeded(route_id: str | None) -> dict[str, Any]:
    return {"base_seed": 1234, "session_id": "session-1", "seed_route_id": route_id}


@pytest.mark.parametrize(
    ("route_id", "seeds"),
    [
        (None, [(5827150907976557851,), (6673286045664998248,)]),
        ("route-1", [(8552392209508998990,), (7706257071820558593,)]),
        ("", [(3742154472529314733,)]),
    ],
)
async def test_a_lane_s_seeds(
    route_id: str | None, seeds: list[tuple[int, ...]], autojump_clock: trio.testing.MockClock
) -> None:
    assert await sent(one(len(seeds), **seeded(route_id)), 1) == seeds
    assert sorted(await sent(lane_spec(2, len(seeds), **seeded(route_id)), 1, 1)) == sorted(seeds)


async def test_a_vector_s_seeds(autojump_clock: trio.testing.MockClock) -> None:
    spec = partial_spec(4, 5, **seeded("route-1"))
    cold, *rest = await sent(spec, 2, 2, 2, 1)
    assert cold[0] == 8552392209508998990
    assert rest == [(715200441933372194,)]
    assert (await sent(vector_spec(4, 5, **seeded("route-1")), 2, 2, 2, 1, next_step=True)) == [cold]


async def test_listed_seeds_are_as_they_are(autojump_clock: trio.testing.MockClock) -> None:
    assert await sent(one(2, episode_seeds=(7, 8), **seeded("route-1")), 1) == [(7,), (8,)]
