"""One thread that stays, for code that must not block the trio loop and wants the same thread every time.

Cancelling a call abandons it: the caller goes on at once, the thread finishes when it can, and until then it is
*occupied* and refuses further calls. The thread is a daemon, so a call that never returns cannot keep the process up.
"""

import threading
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any, TypeVar, cast

import outcome
import trio

__all__ = ("ResidentThread", "ThreadOccupied")

T = TypeVar("T")


class ThreadOccupied(Exception):
    """An abandoned call still runs on the thread."""


class ResidentThread:
    """Runs calls one at a time, in the order they were asked for.

    ``occupied`` says whether a call runs now, ``abandoned`` whether one ever was cancelled while it ran.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._turn = trio.StrictFIFOLock()
        self._inbox: SimpleQueue[tuple[Callable[[], Any], trio.lowlevel.TrioToken] | None] = SimpleQueue()
        self._waiting: trio.lowlevel.Task | None = None
        self._started = False
        self._free = trio.Event()
        self.occupied = False
        self.abandoned = False

    async def run(self, call: Callable[[], T]) -> T:
        """Call *call* on the thread and return what it returns or raise what it raises.

        Raises :exc:`ThreadOccupied` at once while an abandoned call still runs.
        """
        async with self._turn:
            if self.occupied:
                raise ThreadOccupied
            if not self._started:
                self._started = True
                threading.Thread(target=self._serve, name=self._name, daemon=True).start()
            self.occupied = True
            self._waiting = trio.lowlevel.current_task()
            self._inbox.put((call, trio.lowlevel.current_trio_token()))
            return cast("T", await trio.lowlevel.wait_task_rescheduled(self._abandon))

    async def free(self) -> None:
        """Wait until no abandoned call runs any more."""
        if self.occupied and self._waiting is None:
            await self._free.wait()
        else:
            await trio.lowlevel.checkpoint()

    def close(self) -> None:
        """Let the thread end after its current call."""
        self._inbox.put(None)

    def _abandon(self, _: Callable[[], None]) -> trio.lowlevel.Abort:
        self._waiting = None
        self._free = trio.Event()
        self.abandoned = True
        return trio.lowlevel.Abort.SUCCEEDED

    def _serve(self) -> None:
        while (item := self._inbox.get()) is not None:
            call, token = item
            result = outcome.capture(call)
            try:
                token.run_sync_soon(self._deliver, result)
            except trio.RunFinishedError:
                return

    def _deliver(self, result: outcome.Outcome[Any]) -> None:
        self.occupied = False
        if self._waiting is not None:
            task, self._waiting = self._waiting, None
            trio.lowlevel.reschedule(task, result)
        else:
            self._free.set()
