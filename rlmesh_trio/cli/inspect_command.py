"""``rlmesh-trio inspect``: what an env declares, without running it."""

import click

__all__ = ("inspect_command",)


@click.command("inspect")
def inspect_command() -> int:
    """Todo."""
    return 0
