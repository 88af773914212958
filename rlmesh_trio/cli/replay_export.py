"""``rlmesh-trio replay export``: a recording as a data set of another tool."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import click

from rlmesh_trio.cli.complaints import complain
from rlmesh_trio.cli.exit_status import NOT_STARTED
from rlmesh_trio.errors import SessionError

if TYPE_CHECKING:
    from rlmesh_trio.export import Exported

__all__ = ("export_command",)


@click.command("export", short_help="Write a recording as a data set of another tool.")
@click.argument("file", metavar="FILE", type=click.Path(exists=True, dir_okay=False))
@click.argument("out", metavar="OUT", type=click.Path())
@click.option("--to", "form", type=click.Choice(("parquet", "minari", "lerobot")), required=True, help="The format.")
@click.option("--all", "everything", is_flag=True, help="Episodes that ended in an error too.")
@click.option("--force", is_flag=True, help="Replace an earlier export.")
@click.option(
    "--fps", metavar="N", type=click.IntRange(1), help="lerobot: frames a second.  [default: the env's, or 30]"
)
@click.option("--task", metavar="TEXT", help="lerobot: what the episodes are about.  [default: the env's id]")
@click.option(
    "--video",
    type=click.Choice(("exact", "small", "none")),
    help="lerobot: lossless videos, small ones, or images as numbers.  [default: exact]",
)
def export_command(file: str, out: str, form: str, everything: bool, force: bool, **options: Any) -> int:
    """Write the episodes of the recording FILE to OUT, in order of their ordinals.

    OUT is a file (parquet), or a folder: for minari one whose name is the data set's id, as in cartpole-random-v0.
    minari and lerobot need a recording with observations (--record-level full). What is there already is refused, and
    an export that fails leaves nothing.

    \b
    Examples:
      rlmesh-trio replay export run.mcap run.parquet --to parquet
      rlmesh-trio replay export run.mcap datasets/cartpole-random-v0 --to minari
      rlmesh-trio replay export run.mcap datasets/cartpole --to lerobot --task 'balance the pole'

    Exit status: 0 exported; 2 not, and why.
    """  # noqa: D301 - click wants the backspace itself
    given = {name: value for name, value in options.items() if value is not None}
    if form != "lerobot" and given:
        raise click.UsageError(f"--{next(iter(given))} is of --to lerobot alone")
    try:
        exported = _exporter(form)(file, out, everything=everything, force=force, **given)
    except SessionError as refusal:
        complain(refusal)
        return NOT_STARTED
    for remark in exported.remarks:
        click.echo(f"note: {remark}", err=True)
    click.echo(f"{exported.episodes} episodes, {exported.steps} steps: {out}")
    return 0


def _exporter(form: str) -> "Callable[..., Exported]":
    from rlmesh_trio import export

    return {"parquet": export.export_parquet, "minari": export.export_minari, "lerobot": export.export_lerobot}[form]
