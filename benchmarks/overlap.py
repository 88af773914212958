"""Claim: while some lanes wait for their env, the others share one forward; no order of calls could do much better.

The env pauses 5 ms per step, exponentially spread, and the batched model 5 ms per forward. What remains out of reach
is measured against :func:`greedy_bound`: a simulation in which nothing but the pauses takes time, apart from the bare
round trip.
"""

import heapq
import random
import statistics

import attrs

from benchmarks.jobs import ServerPlan
from benchmarks.races import Outcome, Race

__all__ = ("RACES", "SHARE_GOALS", "greedy_bound", "share_of_bound")

ROUND_TRIP = 0.1e-3
LENGTH = 200
PAUSE = 5e-3


def plan(lanes: int) -> ServerPlan:
    return ServerPlan("lanes", lanes, length=LENGTH, pause=PAUSE, jitter="exp")


RACES = (
    Race("overlap 16 lanes", 5.8, plan(16), episodes=16, forward_pause=PAUSE, peer_step_cap=60),
    Race("overlap 64 lanes", 20.0, plan(64), episodes=64, forward_pause=PAUSE, peer_step_cap=30),
)
SHARE_GOALS = {"overlap 16 lanes": 0.97, "overlap 64 lanes": 0.93}


@attrs.frozen
class Timing:
    """Mean seconds: of one env step, of one forward for any number of lanes."""

    env: float
    forward: float


def share_of_bound(outcome: Outcome) -> float:
    """Our median rate over the bound for the pauses that were really made."""
    ours = outcome.ours
    forward = sum(sample.forward_seconds for sample in ours) / sum(sample.forwards for sample in ours)
    bound = greedy_bound(outcome.race.plan.lanes, LENGTH, Timing(outcome.env_seconds, forward))
    return statistics.median(sample.rate for sample in ours) / bound


def greedy_bound(lanes: int, length: int, timing: Timing, trials: int = 51) -> float:
    """Lane steps per second when the model always takes all that wait as soon as it is free: median of *trials*."""
    return statistics.median(simulate(lanes, length, timing, random.Random(seed)) for seed in range(trials))


def simulate(lanes: int, length: int, timing: Timing, dice: random.Random) -> float:
    """Play one episode per lane through a model that answers one batch at a time."""
    remaining = [length] * lanes
    waiting = list(range(lanes))
    stepping: list[tuple[float, int]] = []
    now = 0.0
    while waiting or stepping:
        if not waiting:
            now = stepping[0][0]
        else:
            now += timing.forward
            for lane in waiting:
                done = now + ROUND_TRIP + dice.expovariate(1 / timing.env)
                heapq.heappush(stepping, (done, lane))
            waiting.clear()
        while stepping and stepping[0][0] <= now:
            _, lane = heapq.heappop(stepping)
            remaining[lane] -= 1
            if remaining[lane]:
                waiting.append(lane)
    return lanes * length / now
