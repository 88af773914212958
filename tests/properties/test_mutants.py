"""An engine broken in a small way breaks a promise within a few worlds: the properties can fail."""

from collections.abc import Callable
from typing import Any

import pytest

from rlmesh_trio.engine import route
from rlmesh_trio.engine.batcher import Batcher, Ticket
from rlmesh_trio.engine.chunks import ChunkBuffer
from rlmesh_trio.engine.lane_group import LaneGroup
from rlmesh_trio.engine.listeners import Listeners
from rlmesh_trio.engine.route import Route
from rlmesh_trio.engine.watchdog import Operation
from rlmesh_trio.testing.world import World
from rlmesh_trio.testing.world_checks import violations

WORLDS = 600


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
}


@pytest.mark.parametrize(("owner", "name", "mutant"), MUTANTS.values(), ids=MUTANTS.keys())
def test_a_broken_engine_is_found_out(monkeypatch: pytest.MonkeyPatch, owner: Any, name: str, mutant: Any) -> None:
    monkeypatch.setattr(owner, name, mutant)
    assert any(violations(World.from_seed(seed).run()) for seed in range(WORLDS))
