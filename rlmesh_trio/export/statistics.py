"""What a data set tells of its values, feature by feature: of one episode, and of all. Pure.

Of numbers the figures are by element; of images by channel, of values from 0 to 1, in the shape ``(3, 1, 1)``.
"""

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt

__all__ = ("ImageStatistics", "Statistics", "number_statistics", "statistics_of_all")

Statistics = dict[str, npt.NDArray[Any]]

_QUANTILES: Final = {"q01": 0.01, "q10": 0.1, "q50": 0.5, "q90": 0.9, "q99": 0.99}
_LEVELS: Final = np.arange(256) / 255


def number_statistics(values: npt.NDArray[Any]) -> Statistics:
    """Of the rows of *values*, at least one: least, greatest, mean, deviation, how many, and five quantiles."""
    rows = values.astype(np.float64)
    if rows.ndim == 1:
        rows = rows[:, None]
    with np.errstate(invalid="ignore", over="ignore"):
        found = {"min": rows.min(0), "max": rows.max(0), "mean": rows.mean(0), "std": rows.std(0)}
        quantiles = np.quantile(rows, list(_QUANTILES.values()), axis=0)
    return {**found, "count": np.array([len(rows)]), **dict(zip(_QUANTILES, quantiles, strict=True))}


class ImageStatistics:
    """Counts the levels of each channel of ``uint8`` frames ``(height, width, 3)`` of one episode."""

    def __init__(self) -> None:
        self._frames = 0
        self._counts = np.zeros((3, 256), np.int64)

    def add(self, frame: npt.NDArray[np.uint8]) -> None:
        """Count one frame."""
        self._frames += 1
        for channel in range(3):
            self._counts[channel] += np.bincount(frame[..., channel].ravel(), minlength=256)

    def figures(self) -> Statistics:
        """The figures of the frames that were added, at least one."""
        counts, pixels = self._counts, self._counts.sum(1)
        mean = counts @ _LEVELS / pixels
        deviation = np.sqrt(np.maximum(counts @ _LEVELS**2 / pixels - mean**2, 0))
        reached = np.cumsum(counts, 1)
        found = {
            "min": _LEVELS[(counts > 0).argmax(1)],
            "max": _LEVELS[255 - (counts[:, ::-1] > 0).argmax(1)],
            "mean": mean,
            "std": deviation,
            **{name: _LEVELS[(reached >= part * pixels[:, None]).argmax(1)] for name, part in _QUANTILES.items()},
        }
        told: Statistics = {name: values.reshape(3, 1, 1) for name, values in found.items()}
        told["count"] = np.array([self._frames])
        return told


def statistics_of_all(parts: Sequence[Statistics]) -> Statistics:
    """The figures of several episodes together. Quantiles are means of theirs by length, as LeRobot has it."""
    counts = np.stack([part["count"] for part in parts])
    weights = counts.reshape(len(parts), *[1] * parts[0]["mean"].ndim) / counts.sum()

    def weighted(name: str) -> npt.NDArray[Any]:
        return (np.stack([part[name] for part in parts]) * weights).sum(0)

    with np.errstate(invalid="ignore", over="ignore"):
        mean = weighted("mean")
        spread = np.stack([part["std"] ** 2 + (part["mean"] - mean) ** 2 for part in parts])
        return {
            "min": np.stack([part["min"] for part in parts]).min(0),
            "max": np.stack([part["max"] for part in parts]).max(0),
            "mean": mean,
            "std": np.sqrt((spread * weights).sum(0)),
            "count": counts.sum(0),
            **{name: weighted(name) for name in _QUANTILES},
        }
