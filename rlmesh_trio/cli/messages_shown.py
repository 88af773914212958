"""What a run has to say besides its result: the package's log, as short lines on standard error."""

import logging
import warnings
from collections.abc import Generator
from contextlib import contextmanager

import click

__all__ = ("shown_messages",)

_LOGGER = logging.getLogger("rlmesh_trio")


class _Lines(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        click.echo(f"{record.levelname.lower()}: {self.format(record)}", err=True)


@contextmanager
def shown_messages(*, quiet: bool, debug: bool) -> Generator[None]:
    """Show warnings while the block runs; *debug* shows everything, *quiet* no warning at all."""
    handler = _Lines()
    before, propagated = _LOGGER.level, _LOGGER.propagate
    _LOGGER.addHandler(handler)
    _LOGGER.setLevel(logging.DEBUG if debug else logging.ERROR if quiet else logging.WARNING)
    _LOGGER.propagate = False
    try:
        with warnings.catch_warnings():
            if quiet and not debug:
                warnings.simplefilter("ignore")
            yield
    finally:
        _LOGGER.removeHandler(handler)
        _LOGGER.setLevel(before)
        _LOGGER.propagate = propagated
