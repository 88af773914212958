"""One open socket: written to at once from wherever, read and flushed by two trio tasks.

To asyncio's protocols a link is an ordinary transport. What is written goes to the kernel in the order of the calls,
whole; what the kernel does not take at once is sent by :meth:`Link.send_rest`.
"""

import asyncio
import socket
from collections import deque
from collections.abc import Callable
from typing import Any

import trio

__all__ = ("Link",)

_READ = 1 << 16
_LONG_READ = 1 << 20
_QUICKACK: int = getattr(socket, "TCP_QUICKACK", 0)


class Link(asyncio.Transport):
    """A connected socket of its own. ``receive`` gets what comes in; set it before :meth:`read_all` runs.

    ``awaited`` says how many bytes are awaited: with TCP the peer may hold them back until what it sent is
    acknowledged, and the kernel takes its time with that unless told that somebody waits.
    """

    receive: Callable[[bytes], None]
    awaited: Callable[[], int]

    def __init__(self, sock: socket.socket) -> None:
        super().__init__()
        self._socket = sock
        self._send = sock.send
        self._closed = False
        self._unsent: deque[memoryview] = deque()
        self._gathered: list[bytes] = []
        self._wake_flush: trio.lowlevel.Task | None = None
        self._backlog = trio.Event()
        self._protocol: asyncio.Protocol
        self._tcp = sock.family != getattr(socket, "AF_UNIX", None)
        if self._tcp:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.awaited = _something

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        """Tell *protocol* of pressure and of the connection's end."""
        assert isinstance(protocol, asyncio.Protocol)
        self._protocol = protocol

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        """``socket`` and ``peername``."""
        if name == "socket":
            return self._socket
        return default

    def is_closing(self) -> bool:
        """Whether the socket is closed."""
        return self._closed

    def write(self, data: bytes) -> None:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Send *data* now, or as soon as what is before it is sent; dropped when the connection is gone."""
        if self._closed:
            return
        if self._unsent:
            self._unsent.append(memoryview(data))
            return
        try:
            sent = self._send(data)
        except BlockingIOError:
            sent = 0
        except OSError:
            # What the peer sent before it went may still be unread: let the reader find the end.
            self._send = len
            return
        if sent < len(data):
            self._unsent.append(memoryview(data)[sent:])
            self._protocol.pause_writing()
            self._backlog.set()

    def close(self) -> None:
        """Close the socket at once; what is unsent is lost."""
        if not self._closed:
            self._closed = True
            self._unsent.clear()
            trio.lowlevel.notify_closing(self._socket)
            self._socket.close()

    abort = close

    async def read_all(self) -> None:
        """Hand on what comes in until the connection ends, then close and tell the protocol."""
        sock = self._socket
        acknowledge = self._tcp and _QUICKACK
        reason: Exception | None = None
        size = _READ
        if acknowledge:
            sock.setsockopt(socket.IPPROTO_TCP, _QUICKACK, 1)
        try:
            while not self._closed:
                await trio.lowlevel.wait_readable(sock)
                try:
                    data = sock.recv(size)
                except BlockingIOError:
                    continue
                if not data:
                    break
                self.receive(data)
                missing = self.awaited()
                if missing:
                    size = _LONG_READ if missing > _READ else _READ
                    if acknowledge:
                        sock.setsockopt(socket.IPPROTO_TCP, _QUICKACK, 1)
        except (OSError, trio.ClosedResourceError) as error:
            reason = error
        except Exception as error:
            reason = error
        self.close()
        self._protocol.connection_lost(reason)

    async def send_rest(self) -> None:
        """Send what the kernel did not take at once, as it gets room."""
        while True:
            await self._backlog.wait()
            self._backlog = trio.Event()
            while self._unsent:
                try:
                    await trio.lowlevel.wait_writable(self._socket)
                    sent = self._send(self._unsent[0])
                except BlockingIOError:
                    continue
                except (OSError, trio.ClosedResourceError):
                    self._unsent.clear()
                    self._send = len
                    break
                if sent == len(self._unsent[0]):
                    self._unsent.popleft()
                else:
                    self._unsent[0] = self._unsent[0][sent:]
            self._protocol.resume_writing()


def _something() -> int:
    return 1
