"""The same run has the same root, whatever its lanes, schedulers, delays and task orders, and wherever its env is."""

from collections.abc import Callable, Iterator
from functools import cache, partial
from itertools import count, product
from typing import Any

import gymnasium
import pytest
from gymnasium.vector import AutoresetMode, SyncVectorEnv

from rlmesh_trio.endpoints.local_env import Where, open_local_env
from rlmesh_trio.engine.adaptive import Adaptive
from rlmesh_trio.engine.schedulers import EagerScheduler, FullBatch, Scheduler
from rlmesh_trio.testing.schedule import run_virtual
from tests.recording.same_runs import Ahead, Run, by_batch, lean, noisy, recorded_run

LANES = (1, 2, 7, 16)
SCHEDULERS: dict[str, Callable[[], Scheduler]] = {
    "eager": EagerScheduler,
    "full": lambda: FullBatch(5, 0.4),
    "adaptive": Adaptive,
}
POLICIES: dict[str, tuple[object, dict[str, Any]]] = {
    "pure": (lean, {}),
    "random": ("random", {}),
    "drawing from its generator": (noisy, {}),
    "in chunks ahead of time": (Ahead, {"horizon": 3, "lead": 2}),
}


async def local(policy: object, lanes: int, *, where: Where = "inline", **given: Any) -> Run:
    async with open_local_env("CartPole-v1", lanes=lanes, where=where) as env:
        return await recorded_run(env, policy, **given)


def plays(policy: object, lanes: tuple[int, ...] = LANES, **given: Any) -> Iterator[Run]:
    """Twice with each number of lanes and each scheduler, every time with other delays and another task order."""
    schedules = count()
    for width, scheduler, _ in product(lanes, SCHEDULERS.values(), range(2)):
        seed = next(schedules)
        yield run_virtual(seed, partial(local, policy, width, jitter=seed, scheduler=scheduler(), **given))


@cache
def reference(name: str) -> bytes:
    """The root of one lane that waits for nothing."""
    policy, given = POLICIES[name]
    return run_virtual(0, partial(local, policy, 1, **given)).root


@pytest.mark.parametrize("name", POLICIES)
def test_lanes_schedulers_delays_and_task_orders_do_not_matter(name: str) -> None:
    policy, given = POLICIES[name]
    runs = list(plays(policy, **given))
    assert len(runs) >= 20
    assert {run.root for run in runs} == {reference(name)}
    assert len({run.widths for run in runs}) > len(runs) / 2, "they were batched in many ways"


def test_each_policy_has_a_root_of_its_own() -> None:
    assert len({reference(name) for name in POLICIES}) == len(POLICIES)


def test_a_policy_that_hangs_on_its_batch_is_found_out() -> None:
    assert len({run.root for run in plays(by_batch, (2, 7))}) > 3


def test_it_has_one_root_in_batches_of_one_width() -> None:
    runs = list(plays(by_batch, (7,), fixed_batch=True))
    assert len({run.root for run in runs}) == 1
    assert {width for run in runs for width in run.widths} > {1, 7}, "they would not have been of one width"


@pytest.mark.parametrize("where", ["inline", "thread", "process"])
async def test_it_does_not_matter_where_the_env_runs(where: Where) -> None:
    assert (await local(lean, 3, where=where)).root == reference("pure")


@pytest.mark.parametrize("mode", [AutoresetMode.NEXT_STEP, AutoresetMode.DISABLED], ids=["restarts", "waits"])
@pytest.mark.parametrize("name", ["pure", "random", "drawing from its generator"])
async def test_a_vector_whose_every_episode_is_seeded_is_no_other_run(name: str, mode: AutoresetMode) -> None:
    for lanes in (2, 5):
        made = SyncVectorEnv([lambda: gymnasium.make("CartPole-v1")] * lanes, autoreset_mode=mode)
        async with open_local_env(made) as env:
            run = await recorded_run(env, POLICIES[name][0], seed_every_episode=True)
        assert run.root == reference(name)
