"""An engine broken in a small way breaks a promise within a few worlds: the properties can fail."""

from collections.abc import Callable, Iterator
from itertools import count
from typing import Any

import attrs
import pytest

from rlmesh_trio.engine import reconnecting, recoveries, route
from rlmesh_trio.engine.batcher import Batcher, Ticket
from rlmesh_trio.engine.chunks import ChunkBuffer
from rlmesh_trio.engine.crew import Crew
from rlmesh_trio.engine.incidents import Incidents
from rlmesh_trio.engine.lane_group import LaneGroup
from rlmesh_trio.engine.listeners import Listeners
from rlmesh_trio.engine.recoveries import Recoveries
from rlmesh_trio.engine.route import ResetPlan, Route
from rlmesh_trio.engine.watchdog import Operation
from rlmesh_trio.report import Incident
from rlmesh_trio.testing.world import World
from rlmesh_trio.testing.world_checks import violations

WORLDS = range(900, 1500)
"""What some of them break is rare, and happens early here."""


def nothing(*_: Any) -> int:
    return 0


def reversed_summaries(complete: Callable[..., Any]) -> Callable[..., Any]:
    def insert_first(self: Route, *args: Any) -> Any:
        summary = complete(self, *args)
        if self.summaries:
            self.summaries.insert(0, self.summaries.pop())
        return summary

    return insert_first


def keeps_the_backlog(self: Any) -> None:
    self._frames.clear()
    self._latest = None


def number_of(self: Ticket) -> int:
    return self.number


def one_seed_for_all(*_: Any) -> int:
    return 1


def unseeded(plan_again: Callable[..., ResetPlan | None]) -> Callable[..., ResetPlan | None]:
    def plan_otherwise(self: Route, *args: Any) -> ResetPlan | None:
        plan = plan_again(self, *args)
        return plan and attrs.evolve(plan, seeds=())

    return plan_otherwise


def with_old_ids(plan_again: Callable[..., ResetPlan | None]) -> Callable[..., ResetPlan | None]:
    def plan_otherwise(self: Route, lanes: Any) -> ResetPlan | None:
        plan = plan_again(self, lanes)
        return plan and attrs.evolve(plan, episode_ids=tuple(lane.newest_id for lane in lanes))

    return plan_otherwise


async def noted_and_not_told(self: Incidents, _: Any, incident: Incident) -> None:
    self.entries.append(incident)


def every_slot(_: Any) -> Iterator[int]:
    return count()


def lane_stays(self: Any, _: Any) -> None:
    if self._idle:
        self._start_again(self._idle.pop(0))


MUTANTS: dict[str, tuple[Any, str, Any]] = {
    "a plan outlives its episode": (LaneGroup, "_drop_plan", nothing),
    "a backlog outlives its episode": (ChunkBuffer, "begin_reset", keeps_the_backlog),
    "a prefetch outlives its episode": (ChunkBuffer, "withdraw", nothing),
    "the model is not told of ends": (Batcher, "end_episodes", nothing),
    "requests stand in order of lanes": (Ticket, "order", property(number_of)),
    "slots are granted beyond the budget": (Route, "claim", Route._take),  # pyright: ignore[reportPrivateUsage]
    "seeds are all alike": (route, "slot_seed", one_seed_for_all),
    "the report runs backwards": (Route, "complete", reversed_summaries(Route.complete)),
    "an expired operation is never renewed": (Operation, "finish", nothing),
    "readers are waited for in the ending": (Listeners, "hurry", nothing),
    "finished episodes are played again": (route, "_slots_except", every_slot),
    "what starts again has no seeds": (Route, "plan_again", unseeded(Route.plan_again)),
    "what starts again keeps its id": (Route, "plan_again", with_old_ids(Route.plan_again)),
    "an episode that is given back is lost": (Route, "give_back", nothing),
    "attempts are not counted": (Recoveries, "attempt", nothing),
    "there is no pause between attempts": (recoveries, "_FIRST_PAUSE", 0.0),
    "a lane that was taken out stays": (Crew, "take_out", lane_stays),
    "lanes play on when the connection is lost": (Crew, "interrupt", nothing),
    "reconnects are tried too soon": (reconnecting, "_FIRST_PAUSE", 0.01),
    "an incident is not told": (Incidents, "add", noted_and_not_told),
}


@pytest.mark.parametrize(("owner", "name", "mutant"), MUTANTS.values(), ids=MUTANTS.keys())
def test_a_broken_engine_is_found_out(monkeypatch: pytest.MonkeyPatch, owner: Any, name: str, mutant: Any) -> None:
    monkeypatch.setattr(owner, name, mutant)
    assert any(violations(World.from_seed(seed).run()) for seed in WORLDS)
