"""grpclib's side of one client's connection: HTTP/2 as a server speaks it, over a link.

Unary calls are grpclib's own, each a task of its loop. A Join call is not: it is told at once, beside grpclib, what
happens to its stream, and writes by the same pipes that a client's streams have.
"""

import asyncio
from collections.abc import Callable
from typing import Protocol

from grpclib.config import Configuration
from grpclib.protocol import AbstractHandler, H2Protocol
from grpclib.server import Handler
from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.events import Event, StreamEnded, StreamReset
from h2.exceptions import ProtocolError as H2Error

from rlmesh_trio.transport.frames import FrameSplitter
from rlmesh_trio.transport.link import Link
from rlmesh_trio.transport.protocol import LinkConnection, PayloadWatcher, WatchedEvents, begin_connection

__all__ = ("CallWatcher", "ServerProtocol", "ServerSplitter")

_CONFIGURATION = Configuration().__for_server__()
_H2_CONFIGURATION = H2Configuration(
    client_side=False,
    header_encoding="ascii",
    validate_inbound_headers=False,
    validate_outbound_headers=False,
    normalize_inbound_headers=False,
    normalize_outbound_headers=False,
)


_PREFACE_SIZE = len(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")


class ServerSplitter(FrameSplitter):
    """A splitter of what a client sends, which begins with words that are no frame."""

    __slots__ = ("_preface",)

    def __init__(self, pass_on: Callable[[bytes], None]) -> None:
        super().__init__(pass_on)
        self._preface = _PREFACE_SIZE

    def feed(self, data: bytes) -> None:
        """Take what was received next, cut anywhere."""
        if self._preface:
            opening, data = data[: self._preface], data[self._preface :]
            self._preface -= len(opening)
            self._pass_on(opening)
        if data:
            super().feed(data)


class CallWatcher(PayloadWatcher, Protocol):
    """Who is told what happens to one call's stream."""

    def half_closed(self) -> None:
        """The client asks for nothing more."""
        ...

    def broken(self) -> None:
        """The client has reset the stream, or is gone."""
        ...


class ServerProtocol(H2Protocol):
    """Speaks HTTP/2 to one client over a :class:`~rlmesh_trio.transport.link.Link`.

    *handler* gets the calls; *when_over* is called once, when the connection is closed by either side.
    """

    h2: H2Connection

    def __init__(self, handler: Handler, when_over: Callable[[], None]) -> None:
        super().__init__(handler, _CONFIGURATION, _H2_CONFIGURATION)
        self._when_over = when_over

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Open the connection."""
        assert isinstance(transport, Link)
        h2 = self.h2 = H2Connection(config=self.h2_config)
        begin_connection(h2)
        self.connection = LinkConnection(h2, transport, config=self.config)
        self.processor = self._events = _Events(self.handler, self.connection, self._when_over)
        self.connection.flush()

    def data_received(self, data: bytes) -> None:
        """Take whole frames."""
        if self._events.closed:
            return
        try:
            events = self.connection.feed(data)
        except H2Error:
            self.connection.flush()
            self.processor.close()
            return
        self.connection.flush()
        for event in events:
            self.processor.process(event)
        if not self._events.closed:
            self.connection.flush()

    def connection_lost(self, exc: BaseException | None) -> None:  # noqa: ARG002
        """End every call."""
        self.processor.close()

    def watch(self, stream_id: int, watcher: CallWatcher) -> None:
        """From now on tell *watcher*, and not grpclib, what happens to its stream."""
        self._events.watchers[stream_id] = watcher

    def forget(self, stream_id: int) -> None:
        """End what :meth:`watch` began."""
        self._events.watchers.pop(stream_id, None)

    def say_goodbye(self) -> None:
        """Tell the client that no further call will be taken."""
        if not self._events.closed:
            self.h2.close_connection()
            self.connection.flush()


class _Events(WatchedEvents[CallWatcher]):
    def __init__(self, handler: AbstractHandler, connection: LinkConnection, when_over: Callable[[], None]) -> None:
        super().__init__(handler, connection)
        self._when_over = when_over
        self.closed = False

    def process(self, event: Event) -> None:
        if not self.closed and event.__class__ in self.processors:
            super().process(event)

    def process_stream_ended(self, event: StreamEnded) -> None:
        super().process_stream_ended(event)
        if watcher := self.watchers.get(event.stream_id):
            watcher.half_closed()

    def process_stream_reset(self, event: StreamReset) -> None:
        if watcher := self.watchers.get(event.stream_id):
            watcher.broken()
        elif event.stream_id in self.streams:
            super().process_stream_reset(event)

    def close(self, reason: str = "the client is gone") -> None:
        """End every call. Once."""
        if self.closed:
            return
        self.closed = True
        self.connection.close()
        self.handler.close()
        for stream in self.streams.values():
            stream.__terminated__(reason)
        for watcher in list(self.watchers.values()):
            watcher.broken()
        self._when_over()
