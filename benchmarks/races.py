"""A race: our engine and the peer's own driver in turn on the same server, so that only the ratio counts."""

import json
import statistics
from collections.abc import Sequence

import attrs

from benchmarks.children import Child, start
from benchmarks.jobs import Job, Mode, Sample, ServerPlan

__all__ = ("Outcome", "Race", "run_race")

WARM_UP_EPISODES = 1


@attrs.frozen
class Race:
    """Which env, how many episodes, what is switched on, and the ratio to reach.

    The rival is the peer's driver or, where *rival* names a mode, our own in that mode. *forward_pause* is seconds per
    forward of the model. *peer_step_cap* shortens the peer's episodes where its rate does not depend on their length.
    """

    name: str
    goal: float
    plan: ServerPlan
    episodes: int
    mode: Mode = "run"
    rival: Mode | None = None
    forward_pause: float = 0.0
    peer_step_cap: int | None = None

    def quick(self) -> "Race":
        """The same with a quarter of the episodes, each lane still getting one."""
        return attrs.evolve(self, episodes=max(self.plan.lanes, self.episodes // 4))


@attrs.frozen
class Outcome:
    """What both sides took in each round; *env_seconds* is the mean pause the server really made per step."""

    race: Race
    ours: Sequence[Sample]
    peers: Sequence[Sample]
    env_seconds: float

    @property
    def ratios(self) -> list[float]:
        """Our lane steps per second over the peer's, per round."""
        return [ours.rate / peer.rate for ours, peer in zip(self.ours, self.peers, strict=True)]

    @property
    def ratio(self) -> float:
        """The median of :attr:`ratios`."""
        return statistics.median(self.ratios)


def run_race(race: Race, rounds: int, ours: Child, peers: Child) -> Outcome:
    """Serve the race's env and let the two driver processes *ours* and *peers* run on it in turn."""
    with start("benchmarks.peer_server", json.dumps(attrs.asdict(race.plan))) as server:
        job = Job(
            address=server.greeting["address"],
            episodes=race.episodes,
            mode=race.mode,
            batched=race.plan.kind != "single",
            pause=race.forward_pause,
        )
        rival, rival_job = peers, attrs.evolve(job, step_cap=race.peer_step_cap)
        if race.rival is not None:
            rival, rival_job = ours, attrs.evolve(job, mode=race.rival)
        taken: tuple[list[Sample], list[Sample]] = ([], [])
        sides = ((ours, job, taken[0]), (rival, rival_job, taken[1]))
        for driver, task, _ in sides:
            run(driver, attrs.evolve(task, episodes=WARM_UP_EPISODES))
        for _ in range(rounds):
            for driver, task, samples in sides:
                samples.append(run(driver, task))
        pauses = server.ask("pauses")
    return Outcome(race, *taken, env_seconds=pauses["slept"] / max(1, pauses["count"]))


def run(driver: Child, job: Job) -> Sample:
    return Sample(**driver.ask(attrs.asdict(job)))
