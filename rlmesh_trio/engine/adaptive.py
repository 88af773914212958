"""A scheduler that learns whether leaving the model idle for a while pays, and for how long."""

import math
from collections import deque
from collections.abc import Callable, Collection, Sequence
from statistics import median

import attrs
import numpy as np
import trio
from numpy.typing import NDArray

from rlmesh_trio.errors import InvalidSpec

__all__ = ("Adaptive", "PredictTime", "fit_predict_time", "mean_rounds")

_Seconds = NDArray[np.float64]

_STEPS_KEPT = 256
_PREDICTS_KEPT = 64
_STEPS_NEEDED = 32
_LOOK_EVERY = 8
_WINDOWS_KEPT = 16
_EAGER_WINDOWS_NEEDED = 2
_TRIAL_WINDOWS = 8
_FIRST_REST = 32
_NO_TIME = 1e-9
_SHARES = np.linspace(0.0, 1.0, 17)[1:]


@attrs.frozen
class PredictTime:
    """Seconds a predict takes: *fixed*, and *per_row* for each group in it."""

    fixed: float
    per_row: float

    def seconds(self, rows: NDArray[np.float64]) -> NDArray[np.float64]:
        """For each number of *rows*; below one row a predict takes as long as for one."""
        return self.fixed + self.per_row * np.maximum(rows, 1.0)


class Adaptive:
    """Hold a dispatch back only while the throughput expected of it is larger than what the wait costs.

    A lane's round (step, wait, predict) lasts as long as its step and predict together, rounded up to a multiple of
    the time from one dispatch to the next, because a lane that misses a dispatch waits for another. From the step
    times seen, and the predict times fitted as a fixed part plus a part per row, the mean round is worked out for
    going at once and for holding each dispatch until a certain share of the steps can be over (no longer than until
    all lanes wait); the best hold is taken if it shortens the round by the fraction *gain*. What a round really takes
    is measured as well: a hold that turns out no better than going at once is given up, and tried again after a rest
    that doubles each time.

    Models that answer separate calls, which overlap, are never held back. Raises :exc:`InvalidSpec` for a *gain* that
    is not between 0 and 1.
    """

    def __init__(self, *, gain: float = 0.03, clock: Callable[[], float] = trio.current_time) -> None:
        if type(gain) not in (int, float) or not 0 < gain < 1:
            raise InvalidSpec(f"Adaptive: gain must be a fraction between 0 and 1, not {gain!r}")
        self.wake_at: float | None = None
        self.hold = 0.0
        self._gain = gain
        self._clock = clock
        self._away: dict[int, float] = {}
        self._steps: deque[float] = deque(maxlen=_STEPS_KEPT)
        self._predicts: deque[tuple[int, float]] = deque(maxlen=_PREDICTS_KEPT)
        self._time = PredictTime(0.0, 0.0)
        self._lanes = 0
        self._planned = 0
        self._separate = False
        self._landed_at = -math.inf
        self._looked_at: float | None = None
        self._landings = 0
        self._rows = 0
        self._rest, self._resting = _FIRST_REST, 0
        self._eager_rounds: deque[float] = deque(maxlen=_WINDOWS_KEPT)
        self._held_rounds: deque[float] = deque(maxlen=_WINDOWS_KEPT)

    def plan(self, waiting: Sequence[int], busy: int) -> Collection[int]:
        """Everything, or nothing until the hold is over."""
        self._lanes = len(waiting) + min(busy, len(self._away))
        due = self._landed_at + self.hold
        if self._clock() >= due or self._lanes == len(waiting):
            self.wake_at = None
            self._planned = len(waiting)
            return waiting
        self.wake_at = due
        self._planned = 0
        return ()

    def arrived(self, group: int) -> None:
        """A step, or what else *group* did since its frames landed, is over."""
        since = self._away.pop(group, None)
        if since is not None:
            self._steps.append(self._clock() - since)

    def landed(self, groups: Sequence[int], seconds: float) -> None:
        """Learn from a predict; now and then think the hold over."""
        self._landed_at = now = self._clock()
        self._away.update(dict.fromkeys(groups, now))
        self._predicts.append((len(groups), seconds))
        if self._planned > 1:
            self._separate = len(groups) < self._planned
        self._rows += len(groups)
        self._landings += 1
        if self._landings % _LOOK_EVERY:
            return
        if self._looked_at is not None:
            rounds = self._held_rounds if self.hold else self._eager_rounds
            rounds.append(self._lanes * (now - self._looked_at) / self._rows)
        self._looked_at, self._rows = now, 0
        if len(self._steps) >= _STEPS_NEEDED and len(self._eager_rounds) >= _EAGER_WINDOWS_NEEDED:
            self._think()

    def _think(self) -> None:
        if self._separate:
            self.hold = 0.0
            return
        if self._resting:
            self._resting -= 1
            return
        if self.hold and len(self._held_rounds) >= _TRIAL_WINDOWS:
            if median(self._held_rounds) > median(self._eager_rounds) * (1 - self._gain / 3):
                self.hold = 0.0
                self._resting = self._rest
                self._rest *= 2
                return
            self._rest = _FIRST_REST
        self._time = fit_predict_time(self._predicts, self._time.per_row)
        steps = np.sort(np.array(self._steps))
        holds = np.concatenate([[0.0], np.quantile(steps, _SHARES, method="higher")])
        rounds = mean_rounds(steps, holds, self._time, self._lanes)
        best = int(np.argmin(rounds))
        asked = self._gain / 2 if self.hold else self._gain
        if rounds[best] >= rounds[0] * (1 - asked):
            self.hold = 0.0
            return
        if not self.hold:
            self._held_rounds.clear()
        self.hold = float(holds[best])


def fit_predict_time(predicts: Collection[tuple[int, float]], per_row: float) -> PredictTime:
    """A line through (rows, seconds) that outliers do not bend: through the medians of the outer thirds.

    Where the numbers of rows hardly differ they tell nothing of the slope, and *per_row* is kept.
    """
    ordered = sorted(predicts)
    third = max(1, len(ordered) // 3)
    few, many = ordered[:third], ordered[-third:]
    fewest, most = few[third // 2][0], many[third // 2][0]
    if most >= 1.25 * fewest:
        rise = median(seconds for _, seconds in many) - median(seconds for _, seconds in few)
        per_row = max(0.0, rise / (most - fewest))
    return PredictTime(max(0.0, median(seconds - per_row * rows for rows, seconds in ordered)), per_row)


def mean_rounds(steps: _Seconds, holds: _Seconds, predict: PredictTime, lanes: int) -> _Seconds:
    """The mean round of one of *lanes* lanes for each of *holds*: seconds, ``[holds]``.

    *steps* are step times seen, ascending; *holds* are some of them, after a 0 that stands for going at once.
    """
    batch: NDArray[np.float64] = np.full(len(holds), lanes / 2)
    for _ in range(3):  # The batch depends on how often lanes miss a dispatch, and the predict time on the batch.
        took = predict.seconds(batch)
        batch = lanes / _periods(steps, holds, took)
    took = predict.seconds(batch)
    rounds = (took + _until_all_wait(steps, holds, lanes)) * _periods(steps, holds, took)
    undisturbed = float(steps.mean() + took[0])
    model_in_use = min(1.0, float(batch[0]))
    rounds[0] = undisturbed + model_in_use * (rounds[0] - undisturbed)
    return rounds


def _periods(steps: _Seconds, holds: _Seconds, took: _Seconds) -> _Seconds:
    """How many dispatches apart a lane's dispatches are in the mean."""
    apart = np.maximum(took + holds, _NO_TIME)[:, None]
    return np.maximum(np.ceil((steps + took[:, None]) / apart - 1e-9), 1.0).mean(axis=1)


def _until_all_wait(steps: _Seconds, holds: _Seconds, lanes: int) -> _Seconds:
    """The mean of each hold, cut short when the slowest of *lanes* steps is over."""
    some_step = 1 - (np.arange(len(steps)) / len(steps)) ** lanes
    lengths = np.cumsum(np.diff(steps, prepend=0.0) * some_step)
    return np.where(holds > 0, lengths[np.searchsorted(steps, holds, side="right") - 1], 0.0)
