"""For a policy that is a function of what it sees, results by episode depend on the seeds alone: not on how many lanes
played them, how long anything took, how predicts were batched or planned, or in which order tasks ran."""

import random

import attrs
import pytest

from rlmesh_trio.testing.schedule import real_time_limit
from rlmesh_trio.testing.world import World
from rlmesh_trio.testing.world_checks import violations
from rlmesh_trio.testing.world_expected import expected, is_determined
from rlmesh_trio.testing.world_plan import Delays, EnvPlan, ModelPlan, NetworkPlan, SessionPlan
from tests.properties.world_roots import root_of

EPISODES = 17
HORIZONS = [(1, 0, False), (3, 0, False), (3, 1, False), (3, 2, True), (2, 3, True)]
QUICK = (Delays(), Delays((0.0, 0.25)), Delays((0.0, 0.25, 0.5, 1.0)), Delays(jitter=1.0))

Result = tuple[int, int | None, int | None, int, float, bool, bool, bool | None]


def base(chunk: int, lead: int, *, history: bool) -> World:
    """One undisturbed lane whose every episode is seeded."""
    return World(
        env=EnvPlan(longest=6, salt=chunk),
        model=ModelPlan(chunk=chunk, varied=True, history=history),
        session=SessionPlan(budget=EPISODES, base_seed=42, trial_base=9, prefetch_lead=lead),
    )


def rescheduled(world: World, lanes: int, number: int) -> World:
    """The same episodes, played by so many lanes with other delays, batches, plans and turns."""
    draw = random.Random(1000 * lanes + number)
    return attrs.evolve(
        world,
        seed=number,
        schedule=draw.getrandbits(32),
        env=attrs.evolve(
            world.env,
            kind="single" if lanes == 1 else "lanes",
            lanes=lanes,
            reset=draw.choice(QUICK),
            step=draw.choice(QUICK),
        ),
        model=attrs.evolve(world.model, fuses=draw.choice([True, False]), predict=draw.choice(QUICK)),
        network=NetworkPlan(env=draw.choice(QUICK), model=draw.choice(QUICK)),
        session=attrs.evolve(
            world.session,
            scheduler=draw.choice(["eager", "lowest", "together", "never", "unruly", "full", "adaptive"]),
            listening=draw.choice(["hooks", "nobody"]),
            window=draw.choice([0.0, 0.5]),
        ),
    )


def results(world: World) -> list[Result]:
    """What it makes of each episode, by index."""
    with real_time_limit(60):
        outcome = world.run()
    assert violations(outcome) == [], world
    assert outcome.report is not None
    return [
        (
            one.episode_index,
            one.seed,
            one.trial_index,
            one.step_count,
            one.cumulative_reward,
            one.terminated,
            one.truncated,
            one.success,
        )
        for one in sorted(outcome.report.episodes, key=lambda one: one.episode_index)
    ]


def is_repeatable(world: World) -> bool:
    """Whether time decides nothing of what *world* plays: not even which lane, where that matters."""
    is_disturbed = world.troubles or world.cancellation or world.network.env_lost_at or world.network.model_lost_at
    is_bounded = world.session.budget is not None and world.env.longest is not None
    return not is_disturbed and is_bounded and is_determined(world) and (world.seeds_by_slot or world.groups == 1)


REPEATABLE = [seed for seed in range(400) if is_repeatable(World.from_seed(seed))]


@pytest.mark.parametrize("seed", REPEATABLE[:16])
def test_a_drawn_world_has_one_root_for_twenty_schedules(seed: int) -> None:
    world = World.from_seed(seed)
    roots = {root_of(attrs.evolve(world, schedule=schedule, seed=schedule)) for schedule in range(20)}
    assert len(roots) == 1, world


@pytest.mark.parametrize(("chunk", "lead"), [(1, 0), (3, 1)])
def test_lanes_and_batches_and_twenty_schedules_give_one_root(chunk: int, lead: int) -> None:
    world = base(chunk, lead, history=False)
    worlds = [rescheduled(world, (1, 2, 7, 16)[number % 4], number) for number in range(20)]
    assert {root_of(other) for other in worlds} == {root_of(world)}


def test_worlds_have_roots_of_their_own() -> None:
    world = base(3, 0, history=False)
    others = [
        attrs.evolve(world, session=attrs.evolve(world.session, base_seed=43)),
        attrs.evolve(world, model=attrs.evolve(world.model, salt=1)),
        attrs.evolve(world, env=attrs.evolve(world.env, salt=1)),
    ]
    assert len({root_of(one) for one in (world, *others)}) == 4


horizons = pytest.mark.parametrize(("chunk", "lead", "history"), HORIZONS)


@horizons
def test_the_reference_is_a_varied_one(chunk: int, lead: int, history: bool) -> None:
    reference = results(base(chunk, lead, history=history))
    assert [result[0] for result in reference] == list(range(1, EPISODES + 1))
    assert len({result[1] for result in reference}) == EPISODES
    assert len({result[3] for result in reference}) > 3
    assert len({result[4] for result in reference}) > 8


@horizons
@pytest.mark.parametrize("lanes", [1, 2, 7, 16])
def test_results_by_index_do_not_depend_on_lanes_delays_or_schedule(
    chunk: int, lead: int, history: bool, lanes: int
) -> None:
    world = base(chunk, lead, history=history)
    reference = results(world)
    for number in range(6):
        other = rescheduled(world, lanes, number)
        assert results(other) == reference, other


def test_the_naive_model_does_not_know_of_time_either() -> None:
    world = base(3, 1, history=False)
    wanted = [attrs.evolve(one, lane=0) for one in expected(world)]
    for lanes in (2, 5):
        other = rescheduled(world, lanes, 1)
        assert [attrs.evolve(one, lane=0) for one in expected(other)] == wanted


def test_results_do_depend_on_the_seeds_and_on_the_policy() -> None:
    world = base(3, 0, history=False)
    reference = results(world)
    reseeded = attrs.evolve(world, session=attrs.evolve(world.session, base_seed=43))
    retrained = attrs.evolve(world, model=attrs.evolve(world.model, salt=1))
    for other in (reseeded, retrained):
        assert all(one != two for one, two in zip(results(other), reference, strict=True))
