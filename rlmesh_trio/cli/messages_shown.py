"""What a run has to say besides its result: the package's log, as short lines on standard error."""

import logging
import warnings
from collections.abc import Generator
from contextlib import contextmanager

from rlmesh_trio.cli.standard_streams import tell

__all__ = ("MessageLines", "shown_messages")

_LOGGER = logging.getLogger("rlmesh_trio")


_ADVICE = " If the source is 'transport error"
_OF_THE_ENDING = ("during route shutdown", "(evict) failed")


class MessageLines(logging.Handler):
    """Prints records. What goes wrong while a session ends is held back: a failed run says why in one line."""

    def __init__(self, *, hold: bool) -> None:
        super().__init__()
        self._hold = hold
        self._held: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        """Print *record*, or hold it back."""
        line = f"{record.levelname.lower()}: {_short(self.format(record))}"
        if self._hold and any(words in line for words in _OF_THE_ENDING):
            self._held.append(line)
        else:
            tell(line)

    def show_held(self) -> None:
        """Print what was held back."""
        for line in self._held:
            tell(line)


def _short(text: str) -> str:
    """*text*, which may quote what an env said, in one line and without the advice that a failed env brings along."""
    return " ".join(text.partition(_ADVICE)[0].split())


@contextmanager
def shown_messages(*, quiet: bool, debug: bool) -> Generator[MessageLines]:
    """Show warnings while the block runs; *debug* shows everything, *quiet* no warning at all."""
    handler = MessageLines(hold=not debug)
    before, propagated = _LOGGER.level, _LOGGER.propagate
    _LOGGER.addHandler(handler)
    _LOGGER.setLevel(logging.DEBUG if debug else logging.ERROR if quiet else logging.WARNING)
    _LOGGER.propagate = False
    try:
        with warnings.catch_warnings():
            if quiet and not debug:
                warnings.simplefilter("ignore")
            yield handler
    finally:
        _LOGGER.removeHandler(handler)
        _LOGGER.setLevel(before)
        _LOGGER.propagate = propagated
