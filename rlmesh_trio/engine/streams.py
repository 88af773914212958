"""Event streams: a reader misses nothing, and a slow one slows whoever publishes to it.

An event is taken in at once, so that not even a cancelled publisher loses one; how far the session may run ahead is
bounded because the publisher then waits until the reader has caught up.
"""

from collections import deque
from collections.abc import AsyncIterator, Callable
from typing import Final

import trio

from rlmesh_trio.events import Event

__all__ = ("EventQueue", "EventStream")

_ROOM: Final = 64


class EventQueue:
    """The publisher's end of a stream."""

    __slots__ = ("_arrival", "_progress", "abandoned", "events", "finished", "hurried")

    def __init__(self) -> None:
        self.events: deque[Event] = deque()
        self.finished = False
        self.abandoned = False
        self.hurried = False
        self._arrival = trio.lowlevel.ParkingLot()
        self._progress = trio.lowlevel.ParkingLot()

    def put(self, event: Event) -> None:
        """Take the event in."""
        if not self.abandoned:
            self.events.append(event)
            self._arrival.unpark_all()

    @property
    def is_behind(self) -> bool:
        """Whether the reader has so much left to read that the publisher shall wait."""
        return len(self.events) > _ROOM and not self.hurried

    async def caught_up(self) -> None:
        """Wait until the reader has caught up, or need not be waited for any more."""
        while self.is_behind:
            await self._progress.park()

    def hurry(self) -> None:
        """From now on nobody waits for the reader; it may still read what is left."""
        self.hurried = True
        self._progress.unpark_all()

    def finish(self) -> None:
        """No further event will come."""
        self.finished = True
        self._arrival.unpark_all()

    def abandon(self) -> None:
        """The reader is gone."""
        self.abandoned = True
        self.events.clear()
        self._progress.unpark_all()
        self._arrival.unpark_all()

    async def arrived(self) -> None:
        """Wait until there is an event to read, or will never be one. Always a cancel point."""
        if self.events:
            # The publisher has to run before there are many more, so nobody starves.
            await trio.lowlevel.checkpoint_if_cancelled()
            return
        await trio.lowlevel.checkpoint()
        while not (self.events or self.finished or self.abandoned):
            await self._arrival.park()

    def take(self) -> Event:
        """The oldest event that was not read."""
        event = self.events.popleft()
        if len(self.events) <= _ROOM:
            self._progress.unpark_all()
        return event


class EventStream(AsyncIterator[Event]):
    """A session's events from a moment on; the iteration ends with the session and raises what failed it.

    A reader that goes away, by :meth:`aclose` or because nothing refers to the stream any more, holds nothing up.
    """

    __slots__ = ("_outcome", "_queue", "_token")

    def __init__(self, queue: EventQueue, outcome: Callable[[], object], token: trio.lowlevel.TrioToken) -> None:
        self._queue = queue
        self._outcome = outcome
        self._token = token

    async def __anext__(self) -> Event:
        queue = self._queue
        await queue.arrived()
        if queue.events:
            return queue.take()
        if not queue.abandoned:
            queue.abandon()
            self._outcome()
        raise StopAsyncIteration

    async def aclose(self) -> None:
        """Stop reading."""
        self._queue.abandon()
        await trio.lowlevel.checkpoint()

    def __del__(self) -> None:
        if self._queue.abandoned or self._queue.finished:
            return
        try:
            self._token.run_sync_soon(self._queue.abandon, idempotent=True)
        except trio.RunFinishedError:
            return
