"""Whatever goes wrong with the env, with enough attempts the episodes are those of a run in which nothing does."""

import attrs
import pytest

from rlmesh_trio.recovery import Recovery
from rlmesh_trio.testing.schedule import real_time_limit
from rlmesh_trio.testing.world import World
from rlmesh_trio.testing.world_checks import violations
from rlmesh_trio.testing.world_draw import Draw
from rlmesh_trio.testing.world_expected import expected
from rlmesh_trio.testing.world_facts import left_report
from rlmesh_trio.testing.world_plan import (
    Autoreset,
    Delays,
    EnvPlan,
    ModelPlan,
    NetworkPlan,
    Reconnects,
    SessionPlan,
    Trouble,
)
from rlmesh_trio.testing.world_run import Outcome

EPISODES = 9
RETRY = Recovery("retry", 10_000)
QUARANTINE = Recovery("quarantine", 10_000)


def play(world: World) -> Outcome:
    with real_time_limit(60):
        outcome = world.run()
    assert violations(outcome) == [], world
    return outcome


def seeded(draw: Draw, kind: str, policy: Recovery) -> World:
    """A world without troubles so far, in which each slot has its seed and any number of attempts."""
    autoreset: Autoreset = draw.one("UNSPECIFIED", "DISABLED") if kind != "vector" else "DISABLED"
    env = attrs.evolve(
        draw.env(), kind=kind, autoreset=autoreset, lanes=1 if kind == "single" else draw.up_to(4, 2), longest=6
    )
    model = draw.model(history=kind != "vector")
    session = attrs.evolve(
        draw.session(env, recovers=False),
        budget=EPISODES,
        base_seed=11 if kind != "vector" else None,
        episode_seeds=tuple(range(EPISODES)) if kind == "vector" else (),
        time_cap=None,
        connect_limit=1000.0,
        on_env_error=policy,
        on_timeout=policy,
        finished=draw.finished(EPISODES - 1),
    )
    if kind == "vector":
        model, session = attrs.evolve(model, chunk=1), attrs.evolve(session, prefetch_lead=0)
    reconnects = Reconnects(draw.delays(), draw.one(0, 1, 3))
    lost_at = draw.losses(most=draw.up_to(3))
    return World(
        seed=draw.up_to(99),
        schedule=draw.random.getrandbits(32),
        env=env,
        model=model,
        network=attrs.evolve(draw.network(lossy=False, recovers=True), env_lost_at=lost_at, reconnects=reconnects),
        session=session,
    )


@pytest.mark.parametrize("kind", ["single", "lanes", "vector"])
def test_with_enough_attempts_no_episode_changes(kind: str) -> None:
    incidents = 0
    for seed in range(30):
        draw = Draw(seed)
        world = seeded(draw, kind, RETRY)
        passing = [draw.env_trouble(world.env.lanes, may_be_slow=False) for _ in range(draw.up_to(5))]
        troubles = [attrs.evolve(trouble, times=trouble.times or 3) for trouble in passing]
        outcome = play(attrs.evolve(world, troubles=tuple(troubles)))
        assert outcome.report is not None, outcome.error
        incidents += len(outcome.report.incidents)
    assert incidents > 60


def test_as_long_as_one_lane_is_left_no_episode_changes() -> None:
    out = 0
    for seed in range(30):
        draw = Draw(seed)
        world = seeded(draw, "lanes", QUARANTINE)
        doomed = draw.random.sample(range(world.env.lanes), draw.up_to(world.env.lanes - 1))
        troubles = [
            Trouble(draw.one("reset", "step"), draw.one("fail", "hang"), draw.up_to(4), times=None, lane=lane)
            for lane in doomed
        ]
        outcome = play(attrs.evolve(world, troubles=tuple(troubles)))
        assert outcome.report is not None, outcome.error
        out += sum(incident.kind == "quarantine" for incident in outcome.report.incidents)
    assert out > 30


@pytest.mark.parametrize("finished", [(), (3,), (9, 1, 4), tuple(range(1, EPISODES + 1))], ids=str)
def test_a_run_that_goes_on_leaves_the_report_of_one_that_never_stopped(finished: tuple[int, ...]) -> None:
    world = World(env=EnvPlan("lanes", lanes=3, longest=6), session=SessionPlan(budget=EPISODES, base_seed=3))
    outcome = play(attrs.evolve(world, session=attrs.evolve(world.session, finished=finished)))
    report = left_report(outcome)
    assert report is not None
    found = {(one.episode_index, one.seed, one.step_count, one.cumulative_reward) for one in report.episodes}
    assert found == {(one.index, one.seed, one.steps, one.reward) for one in expected(world)}


@pytest.mark.parametrize("lead", [1, 2, 3])
def test_a_lane_that_had_finished_starts_again_without_its_old_plan(lead: int) -> None:
    """Lane 1 restarts itself once more and has nothing to play, while a chunk for its finished episode is still good.

    Then lane 0 is taken out, and its episode comes to lane 1.
    """
    world = World(
        env=EnvPlan("lanes", lanes=2, autoreset="NEXT_STEP", longest=1),
        model=ModelPlan(chunk=lead + 1),
        session=SessionPlan(budget=2, prefetch_lead=lead, on_timeout=Recovery("quarantine")),
        troubles=(Trouble("step", "hang", lane=0),),
    )
    assert play(world).error is None


def test_a_lane_between_two_attempts_waits_for_a_reconnect() -> None:
    world = World(
        env=EnvPlan("lanes", lanes=2, step=Delays((0.0625,))),
        network=NetworkPlan(env_lost_at=(5,), reconnects=Reconnects(Delays((0.5,)))),
        session=SessionPlan(budget=2, on_env_error=RETRY),
        troubles=(Trouble("step", "fail", lane=0),),
    )
    outcome = play(world)
    assert outcome.report is not None
    assert [incident.kind for incident in outcome.report.incidents] == ["retry", "reconnect", "retry"]


def test_a_connection_that_never_comes_back_ends_it() -> None:
    world = World(
        session=SessionPlan(budget=2, on_env_error=RETRY),
        network=NetworkPlan(env_lost_at=(2,), reconnects=Reconnects(refusals=None)),
    )
    outcome = play(world)
    assert outcome.error is not None
    assert "could not be reconnected within 12s" in outcome.error.__notes__[0]
