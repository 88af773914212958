"""grpclib inside trio: the one place where the two meet.

A channel is one connection to one server at a time. A task of its own serves the connection and runs an asyncio loop
nobody else sees: whoever uses the channel stays in plain trio, beside whatever loop the program may run. The task is
shielded, so that what must still be said when the caller is cancelled can be said. Foreign errors become ours here.
"""

import asyncio
import socket
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator, Sized
from contextlib import asynccontextmanager, contextmanager
from typing import Protocol, TypeVar, cast

import trio
from grpclib.client import Channel as GrpcChannel
from grpclib.client import Stream as GrpcStream
from grpclib.const import Cardinality, Status
from grpclib.exceptions import GRPCError, StreamTerminatedError

from rlmesh_trio.errors import ConnectError, EngineInternalError, HandshakeError, SessionError, format_duration
from rlmesh_trio.transport.address import Address
from rlmesh_trio.transport.as_bytes import AsBytes
from rlmesh_trio.transport.asyncio_in_trio import trio_asyncio
from rlmesh_trio.transport.dial import dial
from rlmesh_trio.transport.frames import FrameSplitter
from rlmesh_trio.transport.join import Arm, Decoder, JoinStream, Payload
from rlmesh_trio.transport.link import Link
from rlmesh_trio.transport.pipe import Pipe, open_pipe
from rlmesh_trio.transport.protocol import PROTOCOL_ERROR, ClientProtocol, StreamWatcher

__all__ = ("Channel", "StreamUser", "open_channel")

T = TypeVar("T")

_MAX_TOKEN = 8 * 1024
# How long a server may need to notice that the client before us has gone.
_HANDOVER = 1.0


class StreamUser(StreamWatcher, Protocol):
    """Who uses a stream: is given the way to send, every message that comes, and the end."""

    @property
    def waiting(self) -> Sized:
        """Not empty while somebody waits for a message, now and whenever it is looked at."""
        ...

    def attach(self, pipe: Pipe, link: Link) -> None:
        """From now on messages can be sent by *pipe*."""
        ...

    def deliver(self, message: bytes) -> None:
        """Take one message."""
        ...


@asynccontextmanager
async def open_channel(address: Address, *, token: str | None, limit: float) -> "AsyncGenerator[Channel]":
    """Connect to *address* and serve the connection, or the one that took its place, until the block is left.

    *token* goes with every call. *limit* seconds bound the connecting and everything done under
    :meth:`Channel.deadline`. What the block raises comes out as it is. Raises
    :exc:`~rlmesh_trio.errors.ConnectError`, or :exc:`~rlmesh_trio.errors.HandshakeError` for a token that cannot
    travel.
    """
    metadata = _metadata(token)
    deadline = trio.current_time() + limit
    sock = await dial(address, limit, patient=True)
    failure: Exception | None = None
    try:
        async with trio.open_nursery() as nursery:
            channel = Channel(address, metadata, nursery, sock, limit, deadline)
            try:
                await channel.ready()
                yield channel
            except Exception as error:
                failure = error
            finally:
                channel.leave()
    except ExceptionGroup as crash:
        raise EngineInternalError(f"the connection to {address} crashed", failure) from crash
    if failure is not None:
        raise failure


class Channel:
    """One connection at a time, as :func:`open_channel` gives it."""

    def __init__(
        self,
        address: Address,
        metadata: dict[str, str],
        nursery: trio.Nursery,
        sock: socket.socket,
        limit: float,
        deadline: float,
    ) -> None:
        self.address = address
        self._metadata = metadata
        self._nursery = nursery
        self._limit = limit
        self._deadline = deadline
        self._occupied: type[SessionError] = HandshakeError
        self._left = False
        self._serve(sock)

    def _serve(self, sock: socket.socket) -> None:
        self._service = _Service(self.address, sock)
        self._nursery.start_soon(self._service.run)

    async def ready(self) -> None:
        """Wait until the connection is served; raises :exc:`~rlmesh_trio.errors.ConnectError` when it will not be."""
        await self._service.ready.wait()
        if self._service.gone.is_set():
            raise self._ended()

    async def redial(self, limit: float) -> None:
        """Drop the connection and make one attempt at another, which has *limit* seconds as the first had its own.

        Raises as :func:`open_channel`. From now on a server that is busy with a client counts as not there yet, for
        that may be the client we have been.
        """
        await self.drop()
        self._occupied = ConnectError
        self._limit, self._deadline = limit, trio.current_time() + limit
        sock = await dial(self.address, limit, patient=False)
        if self._left:
            sock.close()
            raise self._ended()
        self._serve(sock)
        await self.ready()

    async def drop(self) -> None:
        """Close the connection, whatever is under way, and wait until nothing is left of it."""
        self._service.stop()
        with trio.CancelScope(shield=True):
            await self._service.gone.wait()

    def leave(self) -> None:
        """Close the connection for good."""
        self._left = True
        self._service.stop()

    def _ended(self) -> ConnectError:
        return ConnectError(f"the session with {self.address} has been left")

    @contextmanager
    def deadline(self, awaited: str) -> Generator[None]:
        """Whoever waits longer than the channel's limit in this block gets a ConnectError that names *awaited*."""
        try:
            with trio.fail_at(self._deadline):
                yield
        except trio.TooSlowError:
            raise ConnectError(
                f"{self.address} accepted the connection, but sent no {awaited} within {format_duration(self._limit)}. "
                "Is it an rlmesh server, and is it alive?"
            ) from None

    async def unary(self, method: str, request: bytes) -> bytes:
        """Call *method* (a gRPC path) once; call it under :meth:`deadline`.

        Raises :exc:`~rlmesh_trio.errors.HandshakeError` for what the server answers instead, and
        :exc:`~rlmesh_trio.errors.ConnectError` when the connection is lost.
        """

        async def call() -> bytes | None:
            stream = self._request(method, Cardinality.UNARY_UNARY)
            async with stream:
                await stream.send_message(request, end=True)
                return await stream.recv_message()

        try:
            reply = await self._service.asyncio(call)
        except Exception as error:
            raise self._explain(error, method) from error
        if reply is None:
            raise HandshakeError(f"{self.address} answered {method} without a message")
        return reply

    async def join(
        self, method: str, peer: str, decode: Decoder[Arm, Payload], *, plain: bool = False
    ) -> JoinStream[Arm, Payload]:
        """Open the stream *method*; once in a connection, under :meth:`deadline`. *plain* forbids the fast path.

        A server that is still busy with the client before us gets a second. Raises as :meth:`unary`.
        """
        patience = trio.current_time() + _HANDOVER
        pause = 0.02
        while True:
            join = JoinStream(peer, decode)
            try:
                await self._open_stream(method, join, plain)
            except Exception as error:
                occupied = isinstance(error, GRPCError) and error.status is Status.FAILED_PRECONDITION
                if not occupied or trio.current_time() + pause > patience:
                    raise self._explain(error, method) from error
            else:
                return join
            await trio.sleep(pause)
            pause *= 2

    async def open_stream(self, method: str, user: StreamUser) -> None:
        """Open the stream *method* for *user*, in place of the one before; call it under :meth:`deadline`.

        Raises as :meth:`unary`, and *user* has heard of the refusal by then.
        """
        try:
            await self._open_stream(method, user, plain=False)
        except Exception as error:
            raise self._explain(error, method) from error

    async def _open_stream(self, method: str, user: StreamUser, plain: bool) -> None:
        stream, service = self._request(method, Cardinality.STREAM_STREAM), self._service

        async def call() -> None:
            await stream.__aenter__()
            try:
                await stream.send_request()
                stream_id = stream._stream.id  # pyright: ignore[reportPrivateUsage]
                assert stream_id is not None
                # From here on nothing is missed, whatever the peer does and whenever.
                pipe = open_pipe(service.link, service.protocol, service.splitter, stream_id, user.deliver, plain=plain)
                user.attach(pipe, service.link)
                service.protocol.watch(stream_id, user)
                await stream.recv_initial_metadata()
            except BaseException as error:
                await stream.__aexit__(type(error), error, error.__traceback__)
                raise

        await service.asyncio(call)
        service.link.waiting = user.waiting

    def _request(self, method: str, cardinality: Cardinality) -> "GrpcStream[bytes, bytes]":
        return self._service.grpc.request(method, cardinality, bytes, bytes, metadata=self._metadata)

    def _explain(self, error: Exception, method: str) -> SessionError:
        """What *error*, met in a call of *method*, means to us."""
        where, service = self.address, method.strip("/").partition("/")[0]
        if isinstance(error, SessionError):
            return error
        if self._left:
            return self._ended()
        if isinstance(error, GRPCError):
            text = error.message or "no reason given"
            if text.startswith("Received :status"):
                return HandshakeError(f"{where} does not answer as a gRPC server does: {text}")
            match error.status:
                case Status.UNAUTHENTICATED | Status.PERMISSION_DENIED:
                    given = "refused the token" if self._metadata else "asks for a token, and none was given"
                    return HandshakeError(f"{where} {given}: {text}")
                case Status.UNIMPLEMENTED:
                    told = f" ({error.message})" if error.message else ""
                    return HandshakeError(
                        f"{where} speaks gRPC, but does not offer {service}{told}: is a model server's address given "
                        "for an env's, or the other way round?"
                    )
                case Status.FAILED_PRECONDITION:
                    return self._occupied(f"{where} does not take this client now: {text}")
                case Status.UNAVAILABLE:
                    return ConnectError(f"{where} is unavailable: {text}")
                case Status.UNKNOWN:
                    return HandshakeError(f"{where} does not answer as a gRPC server does: {text}")
                case status:
                    return HandshakeError(f"{where} answered {method} with status {status.name}: {text}")
        if isinstance(error, StreamTerminatedError):
            reason = str(error)
            if reason.startswith(PROTOCOL_ERROR):
                return HandshakeError(f"{where} does not speak HTTP/2 as gRPC does: {reason}")
            return ConnectError(
                f"{where} accepted the connection and dropped it before it answered: {reason}. Is it an rlmesh server, "
                "and one without TLS?"
            )
        return HandshakeError(f"{where} answered {method} against the rules of gRPC: {error!r}")


class _Service:
    """Whatever runs for one connection: the asyncio loop with grpclib in it, and the socket's tasks."""

    grpc: "_OneConnection"
    protocol: ClientProtocol
    _loop: object

    def __init__(self, address: Address, sock: socket.socket) -> None:
        self._address = address
        self._scope = trio.CancelScope(shield=True)
        self.splitter = FrameSplitter(self._receive)
        self.link = Link(sock, self.splitter)
        self.ready = trio.Event()
        self.gone = trio.Event()

    @trio.lowlevel.enable_ki_protection
    async def run(self) -> None:
        """Serve until :meth:`stop`."""
        try:
            with self._scope:
                async with trio_asyncio.open_loop() as self._loop:
                    self.grpc = _OneConnection(self._address, self.link)
                    try:
                        self.protocol = self.grpc.protocol
                        self.ready.set()
                        await self.link.run()
                    finally:
                        self.grpc.close()
        finally:
            self.link.close()
            self.ready.set()
            self.gone.set()

    def _receive(self, frame: bytes) -> None:
        self.protocol.data_received(frame)

    def stop(self) -> None:
        """Close the connection, whatever is under way."""
        self._scope.cancel()

    async def asyncio(self, work: Callable[[], Awaitable[T]]) -> T:
        """Run *work* on the asyncio side."""
        try:
            return cast("T", await trio_asyncio.aio_as_trio(work, loop=self._loop)())
        except asyncio.CancelledError:
            raise StreamTerminatedError("the connection was closed on this side") from None


class _OneConnection(GrpcChannel):
    """A grpclib channel over a link that is already open, which it never replaces."""

    def __init__(self, address: Address, link: Link) -> None:
        host, port = address.host or "localhost", address.port or None
        super().__init__(host, port, codec=AsBytes())  # pyright: ignore[reportUnknownMemberType]
        self.protocol = ClientProtocol(self._h2_config)
        link.set_protocol(self.protocol)
        self.protocol.connection_made(link)

    async def __connect__(self) -> ClientProtocol:
        if refusal := self.protocol.refusal:
            raise StreamTerminatedError(refusal)
        return self.protocol

    def close(self) -> None:
        self.protocol.connection_lost(None)


def _metadata(token: str | None) -> dict[str, str]:
    """What goes with every call. The token is never part of a text."""
    if not token:
        return {}
    if len(token) > _MAX_TOKEN:
        raise HandshakeError(f"the token has {len(token)} characters; at most {_MAX_TOKEN} can be sent")
    if not (token.isascii() and token.isprintable()) or token != token.strip():
        raise HandshakeError("the token cannot be sent: only printable ASCII can, without blanks around it")
    return {"authorization": token}
