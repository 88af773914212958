"""One open socket: written to at once from wherever, and read by whoever has reason to.

To asyncio's protocols a link is an ordinary transport. What is written goes to the kernel whole and in the order of
the calls; what the kernel does not take at once follows when it can.

Somebody always reads. As a rule that is a resident task, which wakes those whose answer came. When one request at a
time is made, it steps aside: the one who waits borrows the reading and reads the answer itself, which saves two task
switches per request. When nobody has read for a while it comes back, for pings and the end of the connection.

Who borrowed the reading and expects the answer soon does not fall asleep for it, but looks for it in every pass of the
scheduler, giving way to all other tasks and processes.
"""

import asyncio
import os
import socket
from collections import deque
from collections.abc import Callable, Sized
from time import perf_counter_ns
from typing import Any

import trio

from rlmesh_trio.transport.expecting import Expecting
from rlmesh_trio.transport.frames import FrameSplitter
from rlmesh_trio.woken import WOKEN

__all__ = ("Link",)

_SHORT_READ = 1 << 16
_LONG_READ = 1 << 18
# After so many reads in a row that left nobody waiting, the resident reader steps aside.
_SOLITARY_READS = 3
_IDLE = 0.5
_give_way: Callable[[], None] | None = getattr(os, "sched_yield", None)
_QUICKACK: int = getattr(socket, "TCP_QUICKACK", 0)


class Link(asyncio.Transport):
    """A connected, non-blocking socket of its own. :meth:`run` serves it.

    *splitter* is fed what comes in. ``waiting`` holds whoever waits for something: with TCP the peer may hold it back
    until what it sent before is acknowledged, and the kernel takes its time with that unless told to hurry.
    """

    def __init__(self, sock: socket.socket, splitter: FrameSplitter) -> None:
        super().__init__()
        self.waiting: Sized = ("the handshake",)
        self._splitter = splitter
        self._receive = splitter.feed
        self._socket = sock
        self._fd = sock.fileno()
        self._closed = False
        self._protocol: asyncio.Protocol

        self._send: Callable[[bytes | memoryview], int] = sock.send
        self._gathered: list[bytes] = []
        self._gathering: trio.lowlevel.Task | None = None
        self._unsent: deque[memoryview] = deque()
        self._backlog = trio.Event()

        self._recv = sock.recv
        self._read_size = _SHORT_READ
        self._reads = 0
        self._expecting = Expecting()
        self._aside: trio.lowlevel.Task | None = None
        self._borrowed = False
        self._ended = False

        tcp = sock.family != getattr(socket, "AF_UNIX", None)
        self._hurry = tcp and _QUICKACK != 0
        if tcp:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    async def run(self) -> None:
        """Read and write until cancelled."""
        async with trio.open_nursery() as nursery:
            for service in (self._reside, self._look_after_idleness, self._send_gathered, self._send_backlog):
                nursery.start_soon(service)

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        """Tell *protocol* of pressure and of the connection's end."""
        assert isinstance(protocol, asyncio.Protocol)
        self._protocol = protocol

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        """``socket``."""
        return self._socket if name == "socket" else default

    def is_closing(self) -> bool:
        """Whether the socket is closed."""
        return self._closed

    def close(self) -> None:
        """Close the socket at once; what is unsent is lost."""
        if not self._closed:
            self._closed = True
            self._gathered.clear()
            self._unsent.clear()
            trio.lowlevel.notify_closing(self._fd)
            self._socket.close()

    abort = close

    # Writing

    def write(self, data: bytes) -> None:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Send *data*, or queue it behind what could not be sent yet; dropped when the connection is gone."""
        if self._gathered:
            data = b"".join((*self._gathered, data))
            self._gathered.clear()
        if self._unsent:
            self._unsent.append(memoryview(data))
            return
        if self._closed:
            return
        try:
            sent = self._send(data)
        except BlockingIOError:
            sent = 0
        except OSError:
            # What the peer said before it went may still be unread: whoever reads will find the end.
            self._send = len
            return
        if sent < len(data):
            self._unsent.append(memoryview(data)[sent:])
            self._protocol.pause_writing()
            self._backlog.set()

    def write_soon(self, data: bytes) -> None:
        """Send *data* together with what other tasks write before the scheduler has been round once."""
        self._gathered.append(data)
        if self._gathering is not None:
            trio.lowlevel.reschedule(self._gathering, WOKEN)
            self._gathering = None

    async def _send_gathered(self) -> None:
        def stop(_: object) -> trio.lowlevel.Abort:
            self._gathering = None
            return trio.lowlevel.Abort.SUCCEEDED

        while True:
            self._gathering = trio.lowlevel.current_task()
            await trio.lowlevel.wait_task_rescheduled(stop)
            if self._gathered:
                self.write(b"")

    async def _send_backlog(self) -> None:
        while True:
            await self._backlog.wait()
            self._backlog = trio.Event()
            while self._unsent:
                try:
                    await trio.lowlevel.wait_writable(self._fd)
                    sent = self._send(self._unsent[0])
                except BlockingIOError:
                    continue
                except (OSError, trio.ClosedResourceError):
                    self._send = len
                    self._unsent.clear()
                    break
                if sent == len(self._unsent[0]):
                    self._unsent.popleft()
                else:
                    self._unsent[0] = self._unsent[0][sent:]
            self._protocol.resume_writing()

    # Reading

    @trio.lowlevel.enable_ki_protection
    async def read(self) -> None:
        """Wait for data once and take it in. The end of the connection is taken in too."""
        if self._closed:
            await trio.lowlevel.checkpoint()
            self._end(trio.ClosedResourceError())
            return
        try:
            data = await (self._expected() if self._borrowed else self._awaited())
        except BlockingIOError:
            return
        except (OSError, trio.ClosedResourceError) as error:
            self._end(error)
            return
        if not data:
            self._end(None)
            return
        self._reads += 1
        try:
            self._receive(data)
        except Exception as error:
            self._end(error)
            return
        missing = self._splitter.missing
        if (missing or self.waiting) and not self._closed:
            self._read_size = _LONG_READ if missing > _SHORT_READ else _SHORT_READ
            if self._hurry:
                self._socket.setsockopt(socket.IPPROTO_TCP, _QUICKACK, 1)

    async def _awaited(self) -> bytes:
        await trio.lowlevel.wait_readable(self._fd)
        return self._recv(self._read_size)

    async def _expected(self) -> bytes:
        expecting, began, data = self._expecting, perf_counter_ns(), None
        watched = _give_way is not None and expecting.is_worth_watching
        if watched:
            data = await self._watched(began)
        if data is None:
            data = await self._awaited()
        expecting.came(perf_counter_ns() - began, watched=watched)
        return data

    async def _watched(self, began: int) -> bytes | None:
        """Look for data again and again while it may come at any moment."""
        assert _give_way is not None
        while self._expecting.is_soon(perf_counter_ns() - began):
            _give_way()
            await trio.lowlevel.checkpoint()
            try:
                return self._recv(self._read_size)
            except BlockingIOError:
                continue
        return None

    def borrow(self) -> bool:
        """Take over the reading, if it is to be had: call :meth:`read` until satisfied, then :meth:`give_back`."""
        if self._aside is None or self._borrowed:
            return False
        self._borrowed = True
        return True

    def give_back(self) -> None:
        """End what :meth:`borrow` began."""
        self._borrowed = False
        if self.waiting:
            self.resume()

    def resume(self) -> None:
        """Let the resident reader read, unless somebody else does."""
        if self._aside is not None and not self._borrowed:
            trio.lowlevel.reschedule(self._aside, WOKEN)
            self._aside = None

    async def _reside(self) -> None:
        solitary = 0
        if self._hurry:
            self._socket.setsockopt(socket.IPPROTO_TCP, _QUICKACK, 1)
        while not self._ended:
            await self.read()
            solitary = 0 if self.waiting else solitary + 1
            if solitary > _SOLITARY_READS:
                await self._step_aside()

    async def _step_aside(self) -> None:
        def stop(_: object) -> trio.lowlevel.Abort:
            self._aside = None
            return trio.lowlevel.Abort.SUCCEEDED

        self._aside = trio.lowlevel.current_task()
        await trio.lowlevel.wait_task_rescheduled(stop)

    async def _look_after_idleness(self) -> None:
        while not self._ended:
            before = self._reads
            await trio.sleep(_IDLE)
            if self._reads == before:
                self.resume()

    def _end(self, reason: Exception | None) -> None:
        if not self._ended:
            self._ended = True
            self.close()
            self._protocol.connection_lost(reason)
