"""Claim: nothing grows with the number of steps: ``python -m benchmarks.memory`` prints the peak memory as they pass.

An unbounded session in process, of 16 lanes and episodes of 500 steps, called off after a million steps.
"""

import resource
import sys

import trio

from benchmarks.engine_cost import CONTRACT, PromptModel, ScriptedLanes
from rlmesh_trio import Hooks, Session, SessionSpec, open_session
from rlmesh_trio.errors import RouteCancelled
from rlmesh_trio.events import EpisodeCompleted

LANES = 16
LENGTH = 500
MARKS = (10_000, 50_000, 250_000, 500_000, 1_000_000)


def peak_mib() -> float:
    """The most memory this process ever held."""
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / 2**20


class Watcher(Hooks):
    """Prints the peak at each mark and ends the session at the last."""

    def __init__(self) -> None:
        self.session: Session | None = None
        self._steps = 0
        self._marks = list(MARKS)

    async def episode_completed(self, event: EpisodeCompleted) -> None:
        self._steps += event.step_count
        if self._marks and self._steps >= self._marks[0]:
            print(f"{self._marks.pop(0):>9,} steps  {peak_mib():6.1f} MiB")
        if not self._marks and self.session is not None:
            self.session.cancel("enough")


async def main() -> None:
    watcher = Watcher()
    spec = SessionSpec(env_contract=CONTRACT, num_envs=LANES, subset_step=True)
    async with open_session(spec, ScriptedLanes(LANES, LENGTH), PromptModel(), hooks=watcher) as session:
        watcher.session = session
        try:
            await session.wait()
        except RouteCancelled as ended:
            print(ended)


if __name__ == "__main__":
    trio.run(main)
