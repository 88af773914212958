"""A group whose first word may be something else than a command: all words are those of its ``run`` command then."""

import click

__all__ = ("DEFAULT_COMMAND", "DefaultGroup")

DEFAULT_COMMAND = "run"


class DefaultGroup(click.Group):
    """A group with a hidden command of the name :data:`DEFAULT_COMMAND`."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Put the default command first where no other is named."""
        if args and args[0] not in (*self.commands, *ctx.help_option_names):
            args = [DEFAULT_COMMAND, *args]
        return super().parse_args(ctx, args)

    def format_help(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The default command's help: what is seen by who asks for the group's."""
        self.commands[DEFAULT_COMMAND].format_help(ctx, formatter)
