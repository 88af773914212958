"""Thousands of simulated worlds, each of which has to keep every promise the engine makes; ``make soak`` plays more."""

import random
from collections import Counter

import attrs
import pytest

from rlmesh_trio.report import Report
from rlmesh_trio.testing import world_plan
from rlmesh_trio.testing.schedule import real_time_limit
from rlmesh_trio.testing.world import World
from rlmesh_trio.testing.world_checks import violations
from rlmesh_trio.testing.world_facts import heard, is_calm, left_report, signature
from rlmesh_trio.testing.world_hooks import PATIENT, PLANS
from rlmesh_trio.testing.world_run import Outcome

WORLDS = 2000
BLOCK = 200


def play(world: World) -> Outcome:
    with real_time_limit(60):
        return world.run()


@pytest.mark.parametrize("first", range(0, WORLDS, BLOCK))
def test_every_promise_is_kept(first: int) -> None:
    for seed in range(first, first + BLOCK):
        broken = violations(play(World.from_seed(seed)))
        assert not broken, f"World.from_seed({seed}) broke its promises: {broken}"


def test_a_time_cap_is_reached_to_the_nanosecond() -> None:
    env = world_plan.EnvPlan(
        longest=None, reset=world_plan.Delays((0.7234084852544218,)), step=world_plan.Delays((0.5,))
    )
    outcome = play(World(env=env, session=world_plan.SessionPlan(time_cap=1.5)))
    assert violations(outcome) == []
    assert outcome.report is not None
    assert [episode.step_count for episode in outcome.report.episodes] == [3]


def test_a_world_is_recreated_by_what_it_prints() -> None:
    names = vars(world_plan) | {"World": World}
    for seed in range(100):
        world = World.from_seed(seed)
        assert eval(repr(world), names) == world == World.from_seed(seed)


def without_timings(report: Report | None) -> object:
    """A report's content that does not depend on how fast this machine is."""
    assert report is not None
    episodes = [attrs.evolve(episode, predict_ms=None, step_ms=None) for episode in report.episodes]
    return report.total_steps, report.total_episodes, episodes


@pytest.mark.parametrize("seed", range(0, 200, 5))
def test_the_same_seed_plays_the_same(seed: int) -> None:
    first, second = play(World.from_seed(seed)), play(World.from_seed(seed))
    assert first.steps == second.steps
    assert first.ended_at == second.ended_at
    assert first.env.calls == second.env.calls
    assert first.model.calls == second.model.calls
    assert [type(event) for event in heard(first)] == [type(event) for event in heard(second)]
    assert without_timings(left_report(first)) == without_timings(left_report(second))
    assert signature(first.error) == signature(second.error)


def test_the_worlds_are_of_every_kind() -> None:
    worlds = [World.from_seed(seed) for seed in range(WORLDS)]
    assert {(world.env.kind, world.owns_resets) for world in worlds} == {
        ("single", True),
        ("single", False),
        ("lanes", True),
        ("lanes", False),
        ("vector", True),
        ("vector", False),
    }
    planted = {(trouble.part, trouble.kind) for world in worlds for trouble in world.troubles}
    possible = {(part, kind) for part, kinds in world_plan.KINDS.items() for kind in kinds}
    assert planted == possible
    assert {world.session.scheduler for world in worlds} == {"eager", *PLANS, *PATIENT}
    assert {world.session.listening for world in worlds} == {"hooks", "stream", "both", "nobody"}
    policies = [(world.session.on_env_error.action, world.session.on_timeout.action) for world in worlds]
    assert len(set(policies)) == 9
    assert policies.count(("fail", "fail")) > WORLDS / 2
    assert sum(bool(world.session.finished) for world in worlds) > WORLDS / 50


def test_many_of_them_recover() -> None:
    kinds = Counter[str]()
    recovered = 0
    for seed in range(300):
        outcome = play(World.from_seed(seed))
        report = left_report(outcome)
        assert report is not None
        kinds.update(incident.kind for incident in report.incidents)
        recovered += outcome.error is None and bool(report.incidents)
    assert min(kinds[kind] for kind in ("retry", "quarantine", "reconnect")) > 4
    assert recovered > 8


def test_they_come_out_in_every_way() -> None:
    missing = {
        "success",
        "RouteCancelled",
        "EnvRpcError",
        "ModelRpcError",
        "OperationTimeout",
        "ProtocolError",
        "ModelRouteMismatch",
        "HookError",
    }
    for seed in range(WORLDS):
        world = World.from_seed(seed)
        if world.troubles or seed < 20:
            missing.discard(signature(play(world).error).partition(" ")[0])
        if not missing:
            return
    raise AssertionError(missing)


def test_many_of_them_are_calm() -> None:
    assert sum(is_calm(play(World.from_seed(seed))) for seed in range(60)) > 20


def test_a_seed_decides_everything_and_nothing_else_does() -> None:
    random.seed(1)
    first = World.from_seed(11)
    random.seed(2)
    assert World.from_seed(11) == first != World.from_seed(12)
