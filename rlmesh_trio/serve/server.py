"""An env served over rlmesh-wire-v1: ``serve_env``.

Everything runs in one task below the caller's, shielded so that what must still be said when the caller is cancelled
can be said: operations under way have their time to be answered, clients are told, and the env is closed.
"""

import logging
import socket
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import trio
from grpclib.const import Status

from rlmesh_trio.endpoints.local_env import Where
from rlmesh_trio.errors import ConnectError, EngineInternalError
from rlmesh_trio.serve.calls import ClientCalls
from rlmesh_trio.serve.introduction import Introduction
from rlmesh_trio.serve.join_call import JoinCall
from rlmesh_trio.serve.listening import accept_client, listening
from rlmesh_trio.serve.served_lanes import ServedLanes, open_served_lanes
from rlmesh_trio.serve.session import DRAIN, Session
from rlmesh_trio.serve.speaking import ServerProtocol, ServerSplitter
from rlmesh_trio.spec import EnvContract
from rlmesh_trio.transport.address import Address
from rlmesh_trio.transport.asyncio_in_trio import trio_asyncio
from rlmesh_trio.transport.handshake import NAMED_RESETS, SUBSET_STEP
from rlmesh_trio.transport.link import Link

__all__ = ("EnvServer", "serve_env")

logger = logging.getLogger("rlmesh_trio")

_BUSY = "the environment has an active Join session already: it takes one client at a time"
_STOPPING = "the server is shutting down"
# What a session may take to end once its operations were given their time.
_GRACE = 0.5


@asynccontextmanager
async def serve_env(
    source: object,
    *,
    lanes: int = 1,
    address: str = "127.0.0.1:0",
    token: str | None = None,
    where: Where = "thread",
    allow_shutdown: bool = False,
) -> "AsyncGenerator[EnvServer]":
    """Serve *source* at *address* until the block is left, to one client after the other.

    *source*, *lanes* and *where* are as for :func:`~rlmesh_trio.endpoints.local_env.open_local_env`, except that an env
    runs in a thread by default: one that runs ``inline`` answers a few times as fast if it takes microseconds, but
    while it computes nothing else is answered, and no deadline is kept. A vector env may have any autoreset mode.

    *address* is ``host:port`` (port 0 for any that is free), ``tcp://host:port`` or ``unix:///path``. With *token*,
    who does not send it is refused. *allow_shutdown* lets clients end the server.

    Leaving the block takes at most about five seconds: what is under way has two to be answered, and the env two to
    close. Raises :exc:`ConnectError`, :exc:`HandshakeError` and :exc:`SpaceError` when the env cannot be opened, and
    :exc:`ConnectError` for an address that cannot be had or a *token* that is empty.
    """
    if token == "":
        raise ConnectError("an empty token protects nothing: give one, or None to serve everybody")
    with listening(address) as (got, listener):
        served = await open_served_lanes(source, lanes, where)
        failure: Exception | None = None
        try:
            async with trio.open_nursery() as nursery:
                server = EnvServer(got, served, token, allow_shutdown)
                nursery.start_soon(server._run, listener)  # pyright: ignore[reportPrivateUsage]
                try:
                    yield server
                except Exception as error:
                    failure = error
                finally:
                    server._stopping.set()  # pyright: ignore[reportPrivateUsage]
        except ExceptionGroup as crash:
            raise EngineInternalError(f"the server at {got} crashed", failure) from crash
        finally:
            await served.close()
    if failure is not None:
        raise failure


class EnvServer:
    """A running server. ``address`` is what clients connect to, ``contract`` what they are told."""

    def __init__(self, address: Address, lanes: ServedLanes, token: str | None, allow_shutdown: bool) -> None:
        self.address = str(address)
        self.contract: EnvContract = lanes.contract
        self.token = token
        self.allow_shutdown = allow_shutdown
        self.introduction = Introduction(lanes.contract, _capabilities(lanes))
        self._lanes = lanes
        self._session: Session | None = None
        self._vacant = trio.Event()
        self._stopping = trio.Event()
        self._ended_by: str | None = None
        self._asked = trio.Event()
        self._protocols: set[ServerProtocol] = set()

    async def wait_shutdown(self) -> str:
        """Wait until a client ends the server; returns the reason it gives. Leaving the block is the caller's part."""
        await self._asked.wait()
        return self._ended_by or ""

    # What the calls ask for

    @property
    def refusal(self) -> tuple[Status, str] | None:
        """Why no Join is taken now, if so."""
        if self._stopping.is_set() or self._asked.is_set():
            return Status.UNAVAILABLE, _STOPPING
        return None if self._session is None else (Status.FAILED_PRECONDITION, _BUSY)

    def join(self, call: JoinCall) -> None:
        """Give *call* the place."""
        session = self._session = Session(call, self._lanes)
        self._vacant = trio.Event()
        self._nursery.start_soon(self._attend, session)

    def shut_down(self, reason: str) -> None:
        """A client has ended the server."""
        self._ended_by = reason
        self._asked.set()

    async def _attend(self, session: Session) -> None:
        try:
            await session.run()
        except Exception:
            logger.exception("a session with a client crashed")
        finally:
            self._session = None
            self._vacant.set()

    # Serving

    @trio.lowlevel.enable_ki_protection
    async def _run(self, listener: trio.socket.SocketType) -> None:
        with trio.CancelScope(shield=True):
            async with trio_asyncio.open_loop(), trio.open_nursery() as self._nursery:
                self._nursery.start_soon(self._welcome, listener)
                await self._stopping.wait()
                listener.close()
                if self._session is not None:
                    self._session.stop(_STOPPING)
                    with trio.move_on_after(DRAIN + _GRACE):
                        await self._vacant.wait()
                for protocol in self._protocols:
                    protocol.say_goodbye()
                self._nursery.cancel_scope.cancel()

    async def _welcome(self, listener: trio.socket.SocketType) -> None:
        while not self._stopping.is_set():
            try:
                client = await accept_client(listener)
            except (OSError, trio.ClosedResourceError):
                if not self._stopping.is_set():
                    raise
                return
            self._nursery.start_soon(self._serve_client, client)

    async def _serve_client(self, client: socket.socket) -> None:
        def receive(frame: bytes) -> None:
            protocol.data_received(frame)

        service = trio.CancelScope()
        splitter = ServerSplitter(receive)
        link = Link(client, splitter)
        calls = ClientCalls(self, link, splitter)
        protocol = calls.protocol = ServerProtocol(calls, service.cancel)
        link.set_protocol(protocol)
        self._protocols.add(protocol)
        try:
            with service:
                protocol.connection_made(link)
                await link.run()
        except Exception:
            logger.exception("the connection of a client crashed")
        finally:
            self._protocols.discard(protocol)
            protocol.connection_lost(None)
            link.close()


def _capabilities(lanes: ServedLanes) -> list[str]:
    if lanes.by_name:
        return [SUBSET_STEP]
    return [NAMED_RESETS] if lanes.resets_by_name else []
