"""Ctrl-C and SIGTERM: the first ends the run in order, the second ends the process at once."""

import os
import shutil
import signal
import sys
from collections.abc import Generator
from contextlib import contextmanager
from types import FrameType

import trio

from rlmesh_trio.cli.exit_status import INTERRUPTED
from rlmesh_trio.engine.session import Session

__all__ = ("INTERRUPTED_REASON", "Interruption", "watch_signals")

INTERRUPTED_REASON = "interrupted by the host (signal)"
_SIGNALS = (signal.SIGINT, signal.SIGTERM)
_SHOW_CURSOR = "\x1b[?25h"


class Interruption:
    """What a signal does: ends the ``session`` in order; while there is none yet, cancels ``scope``, the opening.

    The ``folder`` of what need not stay, if there is one, is removed even when the second ends the process.
    """

    def __init__(self) -> None:
        self.happened = False
        self.folder = ""
        self.scope = trio.CancelScope()
        self.session: Session | None = None

    def interrupt(self) -> None:
        """Act on a first signal."""
        self.happened = True
        if self.session is None:
            self.scope.cancel(reason=INTERRUPTED_REASON)
        else:
            self.session.cancel(INTERRUPTED_REASON)


async def watch_signals(interruption: Interruption, task_status: trio.TaskStatus[None]) -> None:
    """Act on signals until cancelled."""
    with trio.open_signal_receiver(*_SIGNALS) as signals, _counted(interruption):
        task_status.started()
        async for _ in signals:
            interruption.interrupt()


@contextmanager
def _counted(interruption: Interruption) -> Generator[None]:
    """End the process at the second signal even while the event loop is held up, by an env that never returns, say."""
    seen = 0
    deliver = {number: signal.getsignal(number) for number in _SIGNALS}

    def count(number: int, frame: FrameType | None) -> None:
        nonlocal seen
        seen += 1
        if seen > 1:
            _end_at_once(interruption.folder)
        handler = deliver[signal.Signals(number)]
        if callable(handler):
            handler(number, frame)

    for number in _SIGNALS:
        signal.signal(number, count)
    try:
        yield
    finally:
        for number, handler in deliver.items():
            signal.signal(number, handler)


def _end_at_once(folder: str) -> None:
    if folder:
        shutil.rmtree(folder, ignore_errors=True)
    if sys.stderr.isatty():
        os.write(sys.stderr.fileno(), _SHOW_CURSOR.encode())
    os._exit(INTERRUPTED)
