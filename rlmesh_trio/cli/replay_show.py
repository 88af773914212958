"""``rlmesh-trio replay show``: a recorded run, or one episode of it, as a table, a plot, a picture or JSON."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import click

from rlmesh_trio.cli.columns import clipped, printable, screen
from rlmesh_trio.cli.complaints import complain
from rlmesh_trio.cli.exit_status import FAILED, NOT_STARTED
from rlmesh_trio.cli.report_json import json_text
from rlmesh_trio.errors import SessionError
from rlmesh_trio.observers.extras import MissingExtra
from rlmesh_trio.recording.errors import RecordingError

if TYPE_CHECKING:
    from rlmesh_trio.recording import Recording
    from rlmesh_trio.replay.plots import Panel
    from rlmesh_trio.replay.shown import EpisodeShown

__all__ = ("show_command",)

T = TypeVar("T")

_FEWEST_ROWS = 8


@click.command("show")
@click.argument("file", metavar="FILE")
@click.option("--episode", "ordinal", metavar="K", type=click.IntRange(1), help="The steps of this episode.")
@click.option("--all", "everything", is_flag=True, help="All rows, however many there are.")
@click.option("--png", metavar="OUT", help="Draw it into a picture: returns and lengths, or the episode's rewards.")
@click.option("--json", "as_json", is_flag=True, help="Print all of it as JSON.")
def show_command(file: str, ordinal: int | None, **options: Any) -> int:
    """Show what the recording FILE holds: which run it is of and its episodes, or the steps of one.

    Observations are shown where they were recorded (--record-level full), else the beginnings of their digests. Of a
    broken file what is before the first broken chunk is shown, and what is wrong with it.

    \b
    Examples:
      rlmesh-trio replay show run.mcap
      rlmesh-trio replay show run.mcap --episode 7 --png seven.png

    Exit status: 0 shown; 1 shown, but the file is damaged; 2 no recording, or no such episode.
    """  # noqa: D301 - click wants the backspace itself
    try:
        return _show_run(file, **options) if ordinal is None else _show_episode(file, ordinal, **options)
    except SessionError as refusal:
        complain(refusal)
        return NOT_STARTED


def _show_run(file: str, *, everything: bool, png: str | None, as_json: bool) -> int:
    from rlmesh_trio.cli.replay_tables import run_lines, run_title
    from rlmesh_trio.replay.plots import run_panels
    from rlmesh_trio.replay.shown import run_document, show_run

    shown, damage = _looked_at(file, show_run)
    if as_json:
        click.echo(json_text({"file": file} | run_document(shown)), nl=False)
    else:
        width, most = _room(everything)
        _print([run_title(shown), *run_lines(file, shown, width=width, most=most)], width)
    if png is not None:
        _draw(run_panels(shown), png, run_title(shown))
    return FAILED if damage else 0


def _show_episode(file: str, ordinal: int, *, everything: bool, png: str | None, as_json: bool) -> int:
    from rlmesh_trio.cli.replay_tables import episode_lines, episode_title
    from rlmesh_trio.replay.plots import episode_panels
    from rlmesh_trio.replay.shown import episode_document, show_episode

    def look(recording: "Recording") -> "EpisodeShown":
        known = recording.entries
        if ordinal not in known:
            held = f"episodes {min(known)} to {max(known)}" if known else "none"
            raise RecordingError(file, f"it holds no episode {ordinal}: it has {held}")
        return show_episode(recording, ordinal)

    shown, damage = _looked_at(file, look)
    panels = [] if as_json and png is None else episode_panels(shown)
    if as_json:
        click.echo(json_text({"file": file, "damage": damage} | episode_document(shown)), nl=False)
    else:
        width, most = _room(everything)
        _print([episode_title(shown), *episode_lines(shown, damage, width=width, most=most)], width)
        _plot(panels, width)
    if png is not None:
        _draw(panels, png, episode_title(shown))
    return FAILED if damage else 0


def _looked_at(file: str, look: "Callable[[Recording], T]") -> tuple[T, str]:
    """What *look* makes of the recording, as far as it is whole, and what is wrong with it."""
    from rlmesh_trio.recording import open_recording

    try:
        with open_recording(file) as recording:
            return look(recording), recording.damage
    except RecordingError:
        with open_recording(file, by_index=False) as recording:
            return look(recording), recording.damage


def _room(everything: bool) -> tuple[int, int | None]:
    """The screen's columns, and how many rows of a table leave the rest of it visible."""
    size = screen()
    return size.columns, None if everything else max(_FEWEST_ROWS, size.lines - 10)


def _print(lines: list[str], width: int) -> None:
    click.secho(clipped(printable(lines[0]), width), bold=True)
    for line in lines[1:]:
        click.echo(line)


def _plot(panels: "list[Panel]", width: int) -> None:
    """Plot *panels* on standard output; why not, in one line on standard error, where that cannot be done."""
    from rich.console import Console

    from rlmesh_trio.replay.plots import terminal_plot

    console = Console()
    colored = console.is_terminal and not console.is_dumb_terminal and not console.no_color
    try:
        plot = terminal_plot(panels, width=width, color=colored)
    except MissingExtra as missing:
        click.echo(f"no plot: {missing}", err=True)
        return
    click.echo(f"\n{plot}")


def _draw(panels: "list[Panel]", png: str, title: str) -> None:
    from rlmesh_trio.replay.plots import write_png

    if not panels:
        raise RecordingError(png, "it was not drawn: there is nothing that can be plotted")
    write_png(panels, png, title=title)
    click.echo(f"drawn: {png}", err=True)
