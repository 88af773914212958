"""Which calls a server takes, from whom, and what it answers: the env service's three methods.

The handshake is anybody's who has the token, at any time. There is one place for a Join; a second one is refused as
long as it is taken.
"""

from collections.abc import Awaitable, Callable
from typing import Any, Protocol, cast

from grpclib.const import Cardinality, Status
from grpclib.const import Handler as Method
from grpclib.events import _DispatchServerEvents  # pyright: ignore[reportPrivateUsage]
from grpclib.exceptions import GRPCError
from grpclib.protocol import Stream
from grpclib.server import Handler
from grpclib.server import Stream as Call

from rlmesh_trio.errors import ProtocolError
from rlmesh_trio.serve.introduction import Introduction, is_admitted
from rlmesh_trio.serve.join_call import JoinCall, refuse_call
from rlmesh_trio.serve.speaking import ServerProtocol
from rlmesh_trio.transport.as_bytes import AsBytes
from rlmesh_trio.transport.frames import FrameSplitter
from rlmesh_trio.transport.link import Link
from rlmesh_trio.wire.pb.rlmesh.core import v1 as core
from rlmesh_trio.wire.pb.rlmesh.env import v1 as pb
from rlmesh_trio.wire.strict import decode, encode, present

__all__ = ("ClientCalls", "Host")

_SERVICE = "/rlmesh.env.v1.EnvService"
_JOIN = f"{_SERVICE}/Join"

_NO_SHUTDOWN = "remote shutdown is disabled for this environment endpoint"

_Unary = Callable[[bytes], Awaitable[bytes]]


class Host(Protocol):
    """What the calls of all clients have in common."""

    introduction: Introduction
    token: str | None
    allow_shutdown: bool

    @property
    def refusal(self) -> tuple[Status, str] | None:
        """Why no Join is taken now, if so."""
        ...

    def join(self, call: JoinCall) -> None:
        """Give *call* the place."""
        ...

    def shut_down(self, reason: str) -> None:
        """A client has ended the server."""
        ...


class ClientCalls(Handler):
    """The calls of one client's connection."""

    protocol: ServerProtocol

    def __init__(self, host: Host, link: Link, splitter: FrameSplitter) -> None:
        methods = {
            f"{_SERVICE}/Handshake": self._shake_hands,
            f"{_SERVICE}/Shutdown": self._shut_down,
        }
        mapping = {
            path: Method(self._guarded(function), Cardinality.UNARY_UNARY, bytes, bytes)
            for path, function in methods.items()
        }
        super().__init__(cast("Any", mapping), AsBytes(), None, _DispatchServerEvents())
        self._host = host
        self._link = link
        self._splitter = splitter

    def accept(self, stream: Stream, headers: Any, release_stream: Callable[[], Any]) -> None:
        """Take a call: a Join here and now, another one in a task of grpclib's loop."""
        fields = dict(cast("list[tuple[str, str]]", headers))
        path = fields.get(":path")
        if path in self.mapping or not fields.get("content-type", "").startswith("application/grpc"):
            super().accept(stream, headers, release_stream)
            return
        stream_id = stream.id
        assert stream_id is not None
        refusal = self._host.refusal if path == _JOIN else (Status.UNIMPLEMENTED, f"there is no {path}")
        if not is_admitted(self._host.token, fields.get("authorization", "")):
            refusal = Status.UNAUTHENTICATED, "invalid env token"
        if refusal is None:
            self._host.join(JoinCall(self._link, self.protocol, self._splitter, stream_id, release_stream))
        else:
            refuse_call(self.protocol, stream_id, *refusal)
            release_stream()

    def _guarded(self, function: _Unary) -> Callable[[Call[bytes, bytes]], Awaitable[None]]:
        async def call(stream: Call[bytes, bytes]) -> None:
            fields: Any = stream.metadata
            if not is_admitted(self._host.token, fields.get("authorization", "")):
                raise GRPCError(Status.UNAUTHENTICATED, "invalid env token")
            try:
                reply = await function(await stream.recv_message() or b"")
            except ProtocolError as fault:
                raise GRPCError(Status.INVALID_ARGUMENT, str(fault)) from None
            await stream.send_message(reply)

        return call

    async def _shake_hands(self, request: bytes) -> bytes:
        reply = self._host.introduction.answer(request)
        if reply is None:
            raise GRPCError(Status.INVALID_ARGUMENT, "handshake request missing base")
        return reply

    async def _shut_down(self, request: bytes) -> bytes:
        reason = decode(pb.ShutdownRequest, request, what="the shutdown request").base.reason
        accepted = self._host.allow_shutdown
        message = (f"shutdown accepted: {reason}" if reason else "shutdown accepted") if accepted else _NO_SHUTDOWN
        reply = encode(pb.ShutdownResponse(base=present(core.ShutdownResponse(accepted=accepted, message=message))))
        if accepted:
            self._host.shut_down(reason)
        return reply
