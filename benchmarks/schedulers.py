"""Claim: Adaptive is never much worse than going at once, and as good as waiting for a full batch where that wins.

Virtual contests run the engine with scripted endpoints in virtual time, so that only the schedule counts; served ones
run it on a real server whose steps sleep, with a model that sleeps per forward.
"""

import json
import random
import statistics
from collections.abc import Callable, Mapping, Sequence
from typing import Literal

import attrs
import trio
import trio.testing

from benchmarks.children import Child, start
from benchmarks.jobs import Job, Sample, SchedulerName, ServerPlan
from rlmesh_trio import Adaptive, FullBatch, Scheduler, open_session
from rlmesh_trio.testing.scripted import ScriptedEnv, ScriptedModel, lane_spec

__all__ = ("CONTESTS", "SCHEDULERS", "Contest", "Standing", "make_scheduler", "run_contest")

SCHEDULERS: tuple[SchedulerName, ...] = ("eager", "full batch", "adaptive")
MS = 1e-3
STEP = 5 * MS
PATIENCE = 20 * MS
WARM_UP_EPISODES = 1

StepTimes = Literal["even", "exp", "resets", "one slow"]

# Seconds that a step of this lane takes.
DRAWS: Mapping[StepTimes, Callable[[random.Random, int], float]] = {
    "even": lambda dice, _lane: STEP * dice.uniform(0.94, 1.06),
    "exp": lambda dice, _lane: dice.expovariate(1 / STEP),
    "resets": lambda dice, _lane: STEP * (100 if dice.random() < 0.005 else dice.uniform(0.94, 1.06)),
    "one slow": lambda dice, lane: STEP * dice.uniform(0.94, 1.06) * (10 if lane == 0 else 1),
}


@attrs.frozen
class Contest:
    """Lanes whose steps take 5 ms in the mean, spread as *steps* says, and a batched model.

    A forward takes *forward* seconds and *per_row* for each lane in it. *length* is that of an episode on a server;
    in virtual time (*served* false) *seconds* are measured after as many of practice.
    """

    steps: StepTimes
    forward: float
    per_row: float = 0.0
    lanes: int = 16
    served: bool = False
    length: int = 300
    seconds: float = 2.0

    @property
    def name(self) -> str:
        """Where, how many lanes, how their steps are spread, what a forward takes."""
        place = "served" if self.served else "virtual"
        rows = f" + {self.per_row / MS:g} ms/row" if self.per_row else ""
        return f"schedulers {place} {self.lanes} lanes {self.steps} {self.forward / MS:g} ms{rows}"

    def quick(self) -> "Contest":
        """The same, short."""
        return attrs.evolve(self, length=30, seconds=0.5)


EVEN, EXP, RESETS, ONE_SLOW = DRAWS
CONTESTS = (
    *(Contest(EVEN, forward) for forward in (1 * MS, 5 * MS, 10 * MS, 20 * MS)),
    Contest(EVEN, 10 * MS, 0.5 * MS),
    Contest(EVEN, 0.1 * MS, 1 * MS),
    Contest(EVEN, 20 * MS, lanes=2),
    Contest(EVEN, 20 * MS, lanes=64),
    *(Contest(EXP, forward) for forward in (1 * MS, 5 * MS, 10 * MS, 20 * MS)),
    Contest(RESETS, 5 * MS),
    Contest(RESETS, 20 * MS),
    Contest(ONE_SLOW, 20 * MS),
    *(Contest(EVEN, forward, served=True) for forward in (5 * MS, 20 * MS)),
    *(Contest(EXP, forward, served=True) for forward in (5 * MS, 20 * MS)),
)


@attrs.frozen
class Standing:
    """Per scheduler the lane steps per second, and the mean batch: the median of the rounds."""

    contest: Contest
    rates: Mapping[SchedulerName, float]
    batches: Mapping[SchedulerName, float]

    @property
    def best(self) -> str:
        """The schedulers within 2 % of the fastest."""
        fastest = max(self.rates.values())
        return ", ".join(name for name in SCHEDULERS if self.rates[name] >= 0.98 * fastest)


def make_scheduler(name: SchedulerName, lanes: int) -> Scheduler | None:
    """A new one; ``None`` stands for the default."""
    if name == "full batch":
        return FullBatch(lanes, PATIENCE)
    return Adaptive() if name == "adaptive" else None


def run_contest(contest: Contest, rounds: int, driver: Child | None) -> Standing:
    """Let each scheduler have its *rounds*; *driver* serves the contests on real servers. Virtual ones need but one."""
    if contest.served:
        assert driver is not None
        samples = served(contest, rounds, driver)
    else:
        samples = {name: [virtual(contest, make_scheduler(name, contest.lanes))] for name in SCHEDULERS}
    return Standing(
        contest,
        {name: statistics.median(sample.rate for sample in samples[name]) for name in SCHEDULERS},
        {name: statistics.median(sample.steps / sample.forwards for sample in samples[name]) for name in SCHEDULERS},
    )


def virtual(contest: Contest, scheduler: Scheduler | None) -> Sample:
    dice = [random.Random(lane) for lane in range(contest.lanes)]
    env, model = ScriptedEnv(*[None] * contest.lanes), ScriptedModel(fuses=True)

    async def step(lane: int, _number: int) -> None:
        await trio.sleep(DRAWS[contest.steps](dice[lane], lane))

    async def think(_number: int) -> None:
        await trio.sleep(contest.forward + contest.per_row * model.batches[-1])

    async def play() -> Sample:
        spec = lane_spec(contest.lanes, None)
        async with open_session(spec, env, model, scheduler=scheduler) as session:
            await trio.sleep(contest.seconds)
            steps, forwards = session.report.total_steps, len(model.batches)
            await trio.sleep(contest.seconds)
            taken = session.report.total_steps - steps
            return Sample(taken, contest.seconds, 0.0, len(model.batches) - forwards, 0.0)

    env.before_step = step
    model.before_predict = think
    return trio.run(play, clock=trio.testing.MockClock(autojump_threshold=0))


def served(contest: Contest, rounds: int, driver: Child) -> Mapping[SchedulerName, Sequence[Sample]]:
    jitter = "exp" if contest.steps == EXP else "const"
    plan = ServerPlan("lanes", contest.lanes, length=contest.length, pause=STEP, jitter=jitter)
    samples: dict[SchedulerName, list[Sample]] = {name: [] for name in SCHEDULERS}
    with start("benchmarks.peer_server", json.dumps(attrs.asdict(plan))) as server:
        job = Job(server.greeting["address"], contest.lanes, batched=True, pause=contest.forward)
        run(driver, attrs.evolve(job, episodes=WARM_UP_EPISODES))
        for _ in range(rounds):
            for name in SCHEDULERS:
                samples[name].append(run(driver, attrs.evolve(job, scheduler=name)))
    return samples


def run(driver: Child, job: Job) -> Sample:
    return Sample(**driver.ask(attrs.asdict(job)))
