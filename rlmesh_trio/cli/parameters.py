"""The kinds of values the command line takes, each refusing what it does not understand in one line."""

import os
import re

import click

from rlmesh_trio.cli.output_file import JsonOutput
from rlmesh_trio.conformance.durations import parse_duration
from rlmesh_trio.errors import InvalidSpec
from rlmesh_trio.recording.records import parse_level
from rlmesh_trio.recovery import Recovery

__all__ = (
    "INT64",
    "duration",
    "journal",
    "json_output",
    "record_level",
    "recording",
    "recovery",
    "resumed",
    "seeds",
    "token_option",
)

_SEED = re.compile(r"\s*\d+\s*", re.ASCII)
_INT64_MAX = 2**63 - 1

token_option = click.option(
    "--token", metavar="T", envvar="RLMESH_TRIO_TOKEN", show_envvar=True, help="What the env's server asks for."
)
INT64 = click.IntRange(-_INT64_MAX - 1, _INT64_MAX)


def duration(text: str) -> float:
    """A span of time in seconds, from ``10``, ``0.5``, ``250ms``, ``10s``, ``15m`` or ``2h``."""
    try:
        return parse_duration(text)
    except InvalidSpec as refusal:
        raise click.BadParameter(refusal.why) from refusal


def seeds(text: str) -> tuple[int, ...]:
    """Reset seeds from a list with commas."""
    found: list[int] = []
    for part in text.split(","):
        if not _SEED.fullmatch(part) or int(part) > _INT64_MAX:
            raise click.BadParameter(f"{part.strip()!r} is no seed: write whole numbers from 0 to 2^63-1, as in 7,8,9")
        found.append(int(part))
    return tuple(found)


def json_output(name: str) -> JsonOutput:
    """Where the JSON goes, refused when it cannot be written."""
    try:
        return JsonOutput(name)
    except OSError as failure:
        raise click.BadParameter(f"cannot write {name!r}: {failure.strerror or failure}") from failure


def recovery(text: str) -> Recovery:
    """What follows a failure, from ``fail``, ``retry``, ``retry:N`` or ``quarantine``."""
    try:
        return Recovery.parse(text)
    except InvalidSpec as refusal:
        raise click.BadParameter(refusal.why) from refusal


def journal(name: str) -> str:
    """Where the journal goes, which must be read again."""
    if name in ("", "-"):
        raise click.BadParameter(f"{name!r} is no file: a journal is read again by --resume")
    return name


def recording(name: str) -> str:
    """Where the recording goes, which must be read again."""
    if name in ("", "-"):
        raise click.BadParameter(f"{name!r} is no file: a recording is read again")
    return name


def record_level(text: str) -> str:
    """What a recording holds of observations: ``digest``, ``ring=K`` or ``full``."""
    try:
        parse_level(text)
    except InvalidSpec as refusal:
        raise click.BadParameter(refusal.why) from refusal
    return text


def resumed(name: str) -> str:
    """What a run goes on from, refused when it is not there."""
    if not os.path.exists(name):
        raise click.BadParameter(
            f"there is no {name!r}: name what an earlier run wrote with --journal, --json or --record"
        )
    return name
