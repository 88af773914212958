"""Plots of recordings: what is drawn is plain data; plotext draws it into a terminal, matplotlib into a PNG."""

import math
import os
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, Literal, cast

import attrs
import numpy as np
import numpy.typing as npt

from rlmesh_trio.observers.extras import load_extra
from rlmesh_trio.recording.errors import RecordingError
from rlmesh_trio.recording.records import EndKind
from rlmesh_trio.replay.shown import EpisodeShown, RunShown

__all__ = ("Panel", "Series", "episode_panels", "run_panels", "terminal_plot", "write_png")

_MOST_ELEMENTS: Final = 8
_MOST_LEAVES: Final = 4
_PANEL_ROWS: Final = 11
_LEAST_WIDTH: Final = 40
_COLUMNS_A_TICK: Final = 14
_Y_TICKS: Final = 4
_MARKERS: Final[Mapping[EndKind, str]] = {
    "terminated": "o",
    "truncated": "s",
    "capped": "^",
    "interrupted": "D",
    "error": "x",
}
_COLORS: Final[Mapping[EndKind, str]] = {
    "terminated": "tab:blue",
    "truncated": "tab:green",
    "capped": "tab:olive",
    "interrupted": "tab:orange",
    "error": "tab:red",
}


@attrs.frozen(kw_only=True)
class Series:
    """Points in order of ``x``, which are whole numbers; a *line* joins them. ``end`` says how what they are of ended.

    Values that are not finite are left out.
    """

    label: str = ""
    x: tuple[int, ...]
    y: tuple[float, ...]
    kind: Literal["line", "points"] = "line"
    end: EndKind | None = None


@attrs.frozen(kw_only=True)
class Panel:
    """One plot; several stand one below the other."""

    title: str
    x_label: str
    y_label: str
    series: tuple[Series, ...]


def episode_panels(shown: EpisodeShown) -> list[Panel]:
    """Reward, cumulative reward, and numeric observation leaves of at most 8 elements that were recorded; 4 of them.

    A panel that would be empty is left out.
    """
    steps = [step for step in shown.steps if step.reward is not None]
    end = shown.episode.end
    x = [step.step for step in steps]
    panels = [
        _step_panel("reward", [("", x, [step.reward or 0.0 for step in steps])], end),
        _step_panel("cumulative reward", [("", x, [step.cumulative_reward for step in steps])], end),
        *_leaf_panels(shown),
    ]
    return [panel for panel in panels if any(series.x for series in panel.series)]


def _step_panel(title: str, lines: Sequence[tuple[str, Sequence[int], Sequence[float]]], end: EndKind | None) -> Panel:
    series = [_series(label, x, y) for label, x, y in lines]
    if end is not None and (last := [one for one in series if one.x]):
        series += [Series(label=end, x=last[0].x[-1:], y=last[0].y[-1:], kind="points", end=end)]
    return Panel(title=title, x_label="step", y_label=title, series=tuple(series))


def _series(label: str, x: Sequence[int], y: Sequence[float]) -> Series:
    finite = [(place, value) for place, value in zip(x, y, strict=True) if math.isfinite(value)]
    return Series(label=label, x=tuple(place for place, _ in finite), y=tuple(value for _, value in finite))


def _leaf_panels(shown: EpisodeShown) -> Iterator[Panel]:
    seen = [step for step in shown.steps if step.observation is not None]
    space = shown.header.contract.observation_space
    small = 0 if space is None else sum(math.prod(leaf.shape) <= _MOST_ELEMENTS for leaf in space.leaves)
    if not seen or not small:
        return
    values = [shown.observation(step) for step in seen]
    x = [step.step for step in seen]
    drawn = 0
    for name, first in values[0].items():
        if not isinstance(first, np.ndarray) or not 0 < first.size <= _MOST_ELEMENTS or drawn == _MOST_LEAVES:
            continue
        rows = [value.get(name) for value in values]
        if all(isinstance(row, np.ndarray) for row in rows):
            drawn += 1
            columns = np.array(rows, np.float64).reshape(len(rows), -1).T.tolist()
            shape = cast("npt.NDArray[Any]", first).shape
            labels = [""] if first.size == 1 else [str(list(place)) for place in np.ndindex(shape)]
            lines = [(label, x, column) for label, column in zip(labels, columns, strict=True)]
            yield _step_panel(name, lines, None)


def run_panels(shown: RunShown) -> list[Panel]:
    """Returns and lengths over the episodes, by how they ended; none of a run without episodes."""
    if not shown.episodes:
        return []
    returns: list[Series] = []
    lengths: list[Series] = []
    for end in _MARKERS:
        ended = [episode for episode in shown.episodes if episode.end == end]
        if ended:
            x = [episode.ordinal for episode in ended]
            for found, y in (
                (returns, [episode.cumulative_reward for episode in ended]),
                (lengths, [float(episode.steps) for episode in ended]),
            ):
                found.append(attrs.evolve(_series(end, x, y), kind="points", end=end))
    return [
        Panel(title="return", x_label="episode", y_label="return", series=tuple(returns)),
        Panel(title="length", x_label="episode", y_label="steps", series=tuple(lengths)),
    ]


def terminal_plot(panels: Sequence[Panel], *, width: int, color: bool) -> str:
    """*panels* as text *width* columns wide, 11 rows each. Several lines of one panel are drawn with their numbers.

    Raises :exc:`~rlmesh_trio.observers.MissingExtra` without the package plotext.
    """
    plotext = load_extra("plotext", extra="plot", wanted_by="a plot in the terminal")
    plotext.terminal.limit(False, False)
    texts: list[str] = []
    for panel in panels:
        figure = plotext.figure.clear()
        _draw(figure, panel, max(_LEAST_WIDTH, width))
        texts.append(figure.build().string(colorless=not color))
    plotext.figure.clear()
    plotext.terminal.clear()
    return "\n".join(line.rstrip() for text in texts for line in text.splitlines())


def _draw(figure: Any, panel: Panel, width: int) -> None:
    figure.theme("simple")
    figure.plot_size(width, _PANEL_ROWS)
    title = panel.title
    lines = [series for series in panel.series if series.kind == "line" and series.x]
    for place, series in enumerate(lines):
        thin = _thinned(series, 4 * width)
        marker = "braille" if len(lines) == 1 else str(place)
        figure.draw(figure.signal(list(thin.x), list(thin.y), marker=marker).lines())
    if len(lines) > 1:
        title += f"   0 to {len(lines) - 1} are {lines[0].label} to {lines[-1].label}"
    for series in panel.series:
        if series.kind == "points" and series.x:
            figure.draw(figure.signal(list(series.x), list(series.y), marker="●"))
            title += f"   ● {series.label}"
    figure.title(title)
    figure.label(panel.x_label)
    x = [place for series in panel.series for place in series.x]
    y = [value for series in panel.series for value in series.y]
    x_ticks, y_ticks = _x_ticks(min(x), max(x), width), np.linspace(min(y), max(y), _Y_TICKS)
    figure.ruler("x").ticks(x_ticks, [str(tick) for tick in x_ticks])
    figure.ruler("y").ticks(y_ticks.tolist(), [f"{tick:.4g}" for tick in y_ticks])


def _x_ticks(low: int, high: int, width: int) -> list[int]:
    step = max(1, -(-(high - low) // (width // _COLUMNS_A_TICK)))
    return [*range(low, high - step // 2, step), high]


def _thinned(series: Series, most: int) -> Series:
    """*series* with at most about *most* points: of each stretch the lowest and the highest."""
    if len(series.x) <= most:
        return series
    values = np.array(series.y)
    kept: set[int] = {0, len(values) - 1}
    for stretch in np.array_split(np.arange(len(values)), most // 2):
        part = values[stretch]
        kept |= {int(stretch[part.argmin()]), int(stretch[part.argmax()])}
    places = sorted(kept)
    return attrs.evolve(series, x=tuple(series.x[place] for place in places), y=tuple(values[places].tolist()))


def write_png(panels: Sequence[Panel], path: str | os.PathLike[str], *, title: str) -> None:
    """Draw *panels*, which are not none, into the PNG file *path*, over whatever is there.

    Raises :exc:`~rlmesh_trio.observers.MissingExtra` without the package matplotlib, and
    :exc:`~rlmesh_trio.recording.RecordingError` when the file cannot be written.
    """
    figures = load_extra("matplotlib.figure", extra="plot", wanted_by="a PNG")
    figure = figures.Figure(figsize=(10, 0.8 + 2.6 * len(panels)), layout="constrained", dpi=120)
    figure.suptitle(title)
    for axes, panel in zip(figure.subplots(len(panels), 1, squeeze=False, sharex=True)[:, 0], panels, strict=True):
        _draw_axes(axes, panel)
    try:
        figure.savefig(os.fspath(path), format="png")
    except OSError as error:
        raise RecordingError(os.fspath(path), f"it cannot be written: {error.strerror or error}") from error


def _draw_axes(axes: Any, panel: Panel) -> None:
    for series in panel.series:
        if series.kind == "line":
            axes.plot(series.x, series.y, linewidth=1.2, label=series.label)
        elif series.end is not None:
            marker, colour = _MARKERS[series.end], _COLORS[series.end]
            axes.scatter(series.x, series.y, s=22, marker=marker, color=colour, label=series.label, zorder=3)
    axes.set_xlabel(panel.x_label)
    axes.set_ylabel(panel.y_label)
    axes.label_outer()
    axes.xaxis.get_major_locator().set_params(integer=True)
    axes.margins(x=0.02)
    axes.grid(alpha=0.3)
    if any(series.label for series in panel.series):
        axes.legend(loc="center left", bbox_to_anchor=(1.0, 0.5), frameon=False, fontsize="small")
