"""The table of results: one row per figure, at most 80 columns wide."""

import math
from collections import Counter
from collections.abc import Sequence

import click

from rlmesh_trio.cli.columns import TEXT_WIDTH, clipped
from rlmesh_trio.cli.statistics import Spread, lane_steps, spread_of, step_times, steps_per_second, success_rate
from rlmesh_trio.recording.recorder import Recorder
from rlmesh_trio.report import Incident, Report

__all__ = ("number_text", "print_rows", "recording_row", "spread_text", "summary_rows")

_ROOT_SHOWN = 12


def summary_rows(report: Report, wall_seconds: float, *, asked: int, lanes: int, resumed: int) -> list[tuple[str, str]]:
    """The rows of the summary of a run that was to have *asked* episodes on *lanes* lanes.

    The first *resumed* episodes are an earlier run's: what the run took in time, it took for the others.
    """
    episodes, played = report.episodes, report.episodes[resumed:]
    finished = len(episodes)
    rows = [("episodes", f"{finished:,}" if finished == asked else f"{finished:,} of {asked:,} finished")]
    if resumed:
        rows.append(("resumed", f"{resumed:,} of them, {lane_steps(episodes[:resumed]):,} steps"))
    returns = spread_of([episode.cumulative_reward for episode in episodes])
    lengths = spread_of([episode.step_count for episode in episodes])
    if returns is not None and lengths is not None:
        rows += [("return", spread_text(returns)), ("length", spread_text(lengths))]
        rows.append(("success", _success(report)))
    steps, pace = lane_steps(played), steps_per_second(played, wall_seconds)
    rows.append(("steps", f"{steps:,} in {_seconds(wall_seconds)} s, {number_text(pace)} steps/s"))
    times = step_times(played, report.telemetry)
    if times is not None:
        rest = "engine" if lanes == 1 else "engine and waiting"
        spent = (("env", times.env), ("model", times.model), (rest, times.rest))
        rows.append(("time per step", ", ".join(f"{what} {number_text(ms)} ms" for what, ms in spent)))
    if report.incidents:
        rows.append(("recovered", _recovered(report.incidents)))
    return rows


def recording_row(recorder: Recorder) -> tuple[str, str]:
    """The row that names the recording and begins its run root, which equal runs share."""
    footer = recorder.footer
    told = "incomplete" if footer is None else f"run root {footer.run_root.hex()[:_ROOT_SHOWN]}"
    return "recording", f"{recorder.path}, {told}"


def _recovered(incidents: Sequence[Incident]) -> str:
    kinds = Counter(incident.kind for incident in incidents)
    told = (
        (kinds["retry"], "retry", "retries"),
        (kinds["quarantine"], "lane quarantined", "lanes quarantined"),
        (kinds["reconnect"], "reconnect", "reconnects"),
    )
    return ", ".join(f"{count:,} {one if count == 1 else several}" for count, one, several in told if count)


def _success(report: Report) -> str:
    rate = success_rate(report.episodes)
    if rate is None:
        return "not reported by this env"
    of = f"{rate.trials:,}" if rate.trials == len(report.episodes) else f"{rate.trials:,} that report it"
    share, low, high = (_percent(value) for value in (rate.hits / rate.trials, rate.low, rate.high))
    return f"{rate.hits:,} of {of}: {share} % (95 % confidence {low} to {high} %)"


def _percent(share: float) -> str:
    return f"{share * 100:.3g}"


def spread_text(spread: Spread) -> str:
    """Mean, deviation if there is one, and range."""
    deviation = "" if spread.deviation is None else f" ± {number_text(spread.deviation)}"
    return f"{number_text(spread.mean)}{deviation} (min {number_text(spread.low)}, max {number_text(spread.high)})"


def number_text(value: float) -> str:
    """Four significant digits, thousands grouped; no exponent between 0.0001 and 10^8."""
    if math.isfinite(value) and 1000 <= abs(value) < 1e8:
        return f"{value:,.0f}"
    return f"{value:.4g}"


def _seconds(value: float) -> str:
    return f"{value:,.0f}" if value >= 1000 else f"{value:.3g}"


def print_rows(title: str, rows: list[tuple[str, str]]) -> None:
    """Print *rows* below *title*, bold on a terminal and plain elsewhere."""
    click.secho(clipped(title, TEXT_WIDTH), bold=True)
    width = max(len(label) for label, _ in rows)
    for label, value in rows:
        click.echo(f"  {click.style(label.ljust(width), bold=True)}  {value}")
