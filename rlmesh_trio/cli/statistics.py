"""The figures of a finished run: plain functions over its report, none of which divides by zero."""

import math
from collections.abc import Sequence

import attrs

from rlmesh_trio.report import EpisodeSummary, TelemetrySnapshot

__all__ = ("Rate", "Spread", "StepTimes", "lane_steps", "spread_of", "step_times", "steps_per_second", "success_rate")

_Z_95 = 1.959963984540054


@attrs.frozen
class Spread:
    """Mean, sample standard deviation (``None`` below two values) and range of some values."""

    mean: float
    deviation: float | None
    low: float
    high: float


@attrs.frozen
class Rate:
    """``hits`` of ``trials``, with the bounds of the Wilson 95 % confidence interval of their ratio."""

    hits: int
    trials: int
    low: float
    high: float


@attrs.frozen
class StepTimes:
    """Where one step of one lane spends its time, in milliseconds.

    ``rest`` is the engine itself and, with several lanes, waiting for the others.
    """

    env: float
    model: float
    rest: float


def spread_of(values: Sequence[float]) -> Spread | None:
    """The spread of *values*, ``None`` when there are none. What is not finite makes it so."""
    if not values:
        return None
    mean = math.fsum(values) / len(values) if all(map(math.isfinite, values)) else sum(values) / len(values)
    deviation = None
    if len(values) > 1:
        deviation = math.sqrt(sum((value - mean) ** 2 for value in values) / (len(values) - 1))
    return Spread(mean, deviation, min(values), max(values))


def success_rate(episodes: Sequence[EpisodeSummary]) -> Rate | None:
    """Success over the episodes that report it, ``None`` when none does."""
    told = [episode.success for episode in episodes if episode.success is not None]
    if not told:
        return None
    hits, trials = sum(told), len(told)
    share, weight = hits / trials, _Z_95**2 / trials
    middle = (share + weight / 2) / (1 + weight)
    reach = _Z_95 * math.sqrt(share * (1 - share) / trials + weight / (4 * trials)) / (1 + weight)
    return Rate(hits, trials, max(0.0, middle - reach), min(1.0, middle + reach))


def lane_steps(episodes: Sequence[EpisodeSummary]) -> int:
    """The steps of *episodes*, each lane counted."""
    return sum(episode.step_count for episode in episodes)


def steps_per_second(episodes: Sequence[EpisodeSummary], wall_seconds: float) -> float:
    """Lane steps of *episodes* over the *wall_seconds* they took."""
    return lane_steps(episodes) / wall_seconds if wall_seconds > 0 else 0.0


def step_times(episodes: Sequence[EpisodeSummary], telemetry: TelemetrySnapshot | None) -> StepTimes | None:
    """The split of a step's time: env and model from the episodes' means, the rest of the round from *telemetry*."""
    timed = [episode for episode in episodes if episode.step_ms is not None and episode.step_count]
    steps = lane_steps(timed)
    rows = telemetry.rows if telemetry else ()
    rounds = [row.avg for row in rows if (row.op, row.metric) == ("runner.round", "rpc.total")]
    if not steps or not rounds:
        return None
    env = sum((episode.step_ms or 0.0) * episode.step_count for episode in timed) / steps
    model = sum((episode.predict_ms or 0.0) * episode.step_count for episode in timed) / steps
    return StepTimes(env, model, max(0.0, rounds[0] - env - model))
