"""An env server that keeps the edition to the letter, and can break it in one way at a time, over a real socket.

It counts: an observation is the number of steps since the reset and the last action. ``FAULTS`` says what each fault
is; everything else stays as it should be.
"""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import attrs
import numpy as np
import trio
from gymnasium import spaces

from rlmesh_trio.contract import AutoresetMode, EnvContract
from rlmesh_trio.errors import ProtocolError, SpaceError
from rlmesh_trio.spaces import SpaceCodec, codec_for, contract_from_gymnasium, contract_to_wire
from rlmesh_trio.transport.handshake import GENERATION
from rlmesh_trio.wire.pb.rlmesh.core import v1 as core
from rlmesh_trio.wire.pb.rlmesh.env import v1 as pb
from rlmesh_trio.wire.pb.rlmesh.spaces import v1 as spaces_pb
from rlmesh_trio.wire.strict import decode, encode, present, relay_field
from tests.transport.fake_server import FakeConnection, FakeStream

__all__ = ("FAULTS", "ODD", "ScriptedServer", "scripted_server")

FAULTS = {
    "answers twice": "wire.one-answer",
    "out of order": "wire.one-answer",
    "loses an answer": "wire.one-answer",
    "wrong request id": "wire.one-answer",
    "mixes up kinds": "wire.one-answer",
    "writes nonsense": "wire.one-answer",
    "cuts the stream": "wire.one-answer",
    "drops empty requests": "wire.unsupported",
    "empty is internal": "wire.unsupported",
    "empty is fatal": "wire.unsupported",
    "renders two lanes": "wire.unsupported",
    "takes named lanes": "wire.unsupported",
    "takes short leaves": "wire.malformed",
    "takes broken texts": "wire.malformed",
    "unreadable ends with OK": "wire.malformed",
    "unreadable crashes": "wire.malformed",
    "unreadable hangs": "wire.malformed",
    "ignores timeout_ms": "wire.deadline",
    "fatal and goes on": "wire.recoverable-honest",
    "recoverable and ends": "wire.recoverable-honest",
    "refuses the next session": "wire.survives",
    "accepts the next and hangs": "wire.survives",
    "keeps a vanished client's place": "wire.survives",
    "keeps a reset stream's place": "wire.survives",
    "crashes after an error": "wire.survives",
    "second client hangs": "wire.second-client",
    "second client is left waiting": "wire.second-client",
    "second client takes over": "wire.second-client",
    "close is answered twice": "wire.close",
    "close is not answered": "wire.close",
    "close ends nothing": "wire.close",
    "answers after close": "wire.close",
    "close ends with an error": "wire.close",
    "close breaks the env": "wire.close",
    "takes 4 MiB at most": "wire.large",
    "sends 4 MiB at most": "wire.large",
    "accepts shutdown and stays": "wire.shutdown",
    "refuses shutdown and goes": "wire.shutdown",
}
"""Each fault, and the one check that a server with it fails."""

ODD = {
    "lanes overtake": "named lanes are answered as they finish",
    "serves everybody": "a second client is served beside the first",
    "answers the unreadable": "with an error that has no request id",
    "resets what it cannot read": "the stream is reset",
    "malformed is fatal": "an action that cannot be read ends the session, as the error says",
    "restarts on a step": "a step before a reset starts the episode",
}
"""What a server may do as well."""

_EDITION = "2026.06"
_ACTIONS = spaces.Dict({"move": spaces.Discrete(3), "say": spaces.Text(max_length=8, charset="abc")})
_LENGTH = 6
_MOMENT = 0.02
_TOO_LONG = 10.0
_WINDOW = 1 << 24
_FRAME_SIZE = 1 << 20


class _StreamOver(Exception):
    """No more requests are read from this stream, which ends with *status*, or is left as it is (``None``)."""

    def __init__(self, status: int | None = 0) -> None:
        self.status = status


class _Refused(Exception):
    def __init__(self, code: pb.EnvErrorCode, why: str, *, recoverable: bool = True) -> None:
        super().__init__(why)
        self.reply = pb.JoinResponse(error=pb.EnvError(code, why, recoverable))


_Code = pb.EnvErrorCode


@attrs.define(eq=False)
class ScriptedServer:
    """*fault* is one of ``FAULTS`` or ``ODD``, or empty.

    The env is *width* wide, a vector that restarts its lanes or, with *lanes*, lanes that can be named, each of which
    shows *cells* numbers. A step takes *step_seconds*. With *may_end* a shutdown is accepted.
    """

    fault: str = ""
    width: int = 2
    cells: int = 2
    lanes: bool = False
    step_seconds: float = 0.0
    may_end: bool = False
    stop: trio.CancelScope = attrs.field(factory=trio.CancelScope, init=False)
    contract: EnvContract = attrs.field(init=False)
    _codec: SpaceCodec = attrs.field(init=False)
    _occupant: FakeStream | None = attrs.field(default=None, init=False)
    _held: list[bytes] = attrs.field(factory=list[bytes], init=False)
    _clocks: list[int] = attrs.field(factory=list[int], init=False)
    _started: bool = attrs.field(default=False, init=False)
    _erred: bool = attrs.field(default=False, init=False)
    _closed: bool = attrs.field(default=False, init=False)

    def __attrs_post_init__(self) -> None:
        self.contract = contract_from_gymnasium(
            spaces.Box(-1e9, 1e9, (self.cells,), np.float32),
            _ACTIONS,
            env_id="Scripted-v0",
            metadata={},
            num_envs=self.width,
            autoreset_mode=AutoresetMode.DISABLED if self.lanes else AutoresetMode.NEXT_STEP,
            render_mode="",
        )
        assert self.contract.action_space is not None
        self._codec = codec_for(self.contract.action_space)
        self._clocks = [0] * self.width

    async def serve(self, stream: FakeStream) -> None:
        """Answer one call."""
        handlers = {"Handshake": self._handshake, "Shutdown": self._shutdown, "Join": self._join}
        handler = handlers.get(stream.path.removeprefix("/rlmesh.env.v1.EnvService/"))
        await (stream.refuse(12) if handler is None else handler(stream))

    async def _handshake(self, stream: FakeStream) -> None:
        data = await stream.receive()
        assert data is not None
        asked = decode(pb.HandshakeRequest, data, what="handshake").base
        base = core.HandshakeResponse(
            compatible=asked.protocol_generation == GENERATION,
            capabilities={"subset_step": "true"} if self.lanes else {},
            supported_workflow_editions=[_EDITION],
            preferred_workflow_edition=_EDITION,
        )
        await stream.send(
            bytes(relay_field(pb.HandshakeResponse(base), "env_contract", contract_to_wire(self.contract)))
        )
        await stream.end()

    async def _shutdown(self, stream: FakeStream) -> None:
        await stream.receive()
        accepted = self.may_end or self.fault == "accepts shutdown and stays"
        await stream.send(bytes(pb.ShutdownResponse(base=core.ShutdownResponse(accepted))))
        await stream.end()
        if self.may_end or self.fault == "refuses shutdown and goes":
            self.stop.cancel()

    async def _join(self, stream: FakeStream) -> None:
        if not await self._admit(stream):
            return
        self._occupant = stream
        self._started = False
        try:
            await stream.answer()
            while (data := await stream.receive()) is not None:
                await self._exchange(stream, data)
            if self.fault == "keeps a reset stream's place" and stream.reset_code is not None:
                with trio.CancelScope(shield=True):
                    await trio.sleep(_TOO_LONG)
        except _StreamOver as over:
            if over.status is not None:
                await stream.end(over.status)
        finally:
            if self._occupant is stream and not (self.fault == "keeps a vanished client's place" and stream.gone):
                self._occupant = None

    async def _admit(self, stream: FakeStream) -> bool:
        """Whether the client gets the place; if not, it has been told, or is left without a word."""
        if self._erred and self.fault == "accepts the next and hangs":
            await stream.answer()
            await stream.closed()
        elif self._erred and self.fault == "refuses the next session":
            await stream.refuse(9, "not again")
        elif self._occupant is None or self.fault == "serves everybody":
            return True
        elif self.fault == "second client hangs":
            await stream.answer()
            await stream.closed()
        elif self.fault == "second client is left waiting":
            await stream.closed()
        elif self.fault == "second client takes over":
            await self._occupant.end()
            return True
        else:
            await stream.refuse(9, "there is a client already")
        return False

    async def _exchange(self, stream: FakeStream, data: bytes) -> None:
        if len(data) > 4 << 20 and self.fault == "takes 4 MiB at most":
            raise _StreamOver(8)
        try:
            request = decode(pb.JoinRequest, data, what="request")
        except ProtocolError:
            await self._complain(stream)
            return
        try:
            reply = await self._perform(request)
        except _Refused as refused:
            reply = refused.reply
            self._erred = True
        if reply is None:
            return
        reply.request_id = request.request_id
        await self._reply(stream, request, reply)
        if request.is_set("close"):
            await self._close(stream, request)
        if reply.is_set("error"):
            if self.fault == "crashes after an error":
                self.stop.cancel()
            ends = (
                self.fault == "recoverable and ends"
                if reply.error.is_recoverable
                else self.fault != "fatal and goes on"
            )
            if ends:
                raise _StreamOver

    async def _complain(self, stream: FakeStream) -> None:
        if self.fault == "unreadable crashes":
            self.stop.cancel()
        elif self.fault == "unreadable hangs":
            await stream.closed()
        elif self.fault == "answers the unreadable":
            await stream.send(encode(pb.JoinResponse(error=pb.EnvError(_Code.INTERNAL, "unreadable"))))
        elif self.fault == "resets what it cannot read":
            await stream.reset()
            raise _StreamOver(None)
        raise _StreamOver(0 if self.fault == "unreadable ends with OK" else 3)

    async def _reply(self, stream: FakeStream, request: pb.JoinRequest, reply: pb.JoinResponse) -> None:
        if self.fault == "cuts the stream" and request.is_set("render"):
            await stream.connection.socket.aclose()
            raise _StreamOver(None)
        answers = self._answers(request, reply)
        if self.fault == "sends 4 MiB at most" and any(len(answer) > 4 << 20 for answer in answers):
            raise _StreamOver(8)
        if request.is_set("step") and not self._held and self._holds_back(request.step.env_indices):
            await trio.sleep(_MOMENT)
            if stream.buffer:
                self._held = answers
                return
        for answer in answers + self._held:
            await stream.send(answer)
        self._held = []

    def _holds_back(self, lanes: list[int]) -> bool:
        return self.fault == "out of order" or (self.fault == "lanes overtake" and lanes == [0])

    def _answers(self, request: pb.JoinRequest, reply: pb.JoinResponse) -> list[bytes]:
        """What is sent for *reply*: as a rule that, once."""
        arm = "step" if request.is_set("step") else "close" if request.is_set("close") else ""
        other = pb.JoinResponse(render=present(pb.RenderResponse()), request_id=request.request_id)
        match self.fault, arm:
            case ("answers twice", "step") | ("close is answered twice", "close"):
                return [encode(reply)] * 2
            case ("loses an answer", "step") | ("close is not answered", "close"):
                return []
            case ("wrong request id", "step"):
                reply.request_id += "x"
            case ("mixes up kinds", "step"):
                return [encode(other)]
            case ("writes nonsense", "step"):
                return [b"\x0a\xff"]
            case _:
                pass
        return [encode(reply)]

    async def _close(self, stream: FakeStream, request: pb.JoinRequest) -> None:
        self._closed = True
        if self.fault == "close ends nothing":
            await stream.closed()
        if self.fault == "answers after close" and (data := await stream.receive()) is not None:
            request_id = decode(pb.JoinRequest, data, what="request").request_id
            await stream.send(encode(pb.JoinResponse(close=present(pb.CloseEnvsResponse()), request_id=request_id)))
        raise _StreamOver(13 if self.fault == "close ends with an error" else 0)

    async def _perform(self, request: pb.JoinRequest) -> pb.JoinResponse | None:
        if request.is_set("configure"):
            if request.configure.selected_workflow_edition != _EDITION:
                raise _Refused(_Code.INVALID_ACTION, "no such edition", recoverable=False)
            return pb.JoinResponse(configure=present(pb.ConfigureEnvResponse()))
        if request.is_set("render"):
            if len(request.render.env_indices) > 1 and self.fault != "renders two lanes":
                raise _Refused(_Code.UNSUPPORTED, "one lane at a time")
            return pb.JoinResponse(render=present(pb.RenderResponse()))
        if request.is_set("close"):
            return pb.JoinResponse(close=present(pb.CloseEnvsResponse()))
        if request.is_set("reset"):
            return await self._reset(request.reset)
        if request.is_set("step"):
            return await self._step(request.step)
        if self.fault == "drops empty requests":
            return None
        code = _Code.INTERNAL if self.fault == "empty is internal" else _Code.UNSUPPORTED
        raise _Refused(code, "nothing was asked", recoverable=self.fault != "empty is fatal")

    async def _reset(self, request: pb.ResetRequest) -> pb.JoinResponse:
        lanes = self._lanes(request.env_indices)
        if self._closed and self.fault == "close breaks the env":
            raise _Refused(_Code.INTERNAL, "the env is closed", recoverable=False)
        for lane in lanes:
            self._clocks[lane] = 0
        self._started = True
        return pb.JoinResponse(reset=present(pb.ResetResponse(observation=self._seen(lanes))))

    async def _step(self, request: pb.StepRequest) -> pb.JoinResponse:
        lanes = self._lanes(request.env_indices)
        if not self._started and self.fault != "restarts on a step":
            raise _Refused(_Code.NOT_READY, "reset first")
        try:
            self._codec.check_members(request.action.leaves, len(lanes))
        except SpaceError as error:
            taken = {"takes short leaves": "bytes", "takes broken texts": "UTF-8"}.get(self.fault)
            if taken is None or taken not in error.why:
                lost = self.fault == "malformed is fatal"
                raise _Refused(_Code.INVALID_ACTION, str(error), recoverable=not lost) from error
        limit = request.timeout_ms / 1000 if request.timeout_ms and self.fault != "ignores timeout_ms" else float("inf")
        with trio.move_on_after(limit) as scope:
            await trio.sleep(self.step_seconds)
        if scope.cancelled_caught:
            raise _Refused(_Code.TIMEOUT, "not in time")
        ends = b"".join(self._ended(lane) for lane in lanes)
        return pb.JoinResponse(
            step=pb.StepResponse(
                observation=self._seen(lanes),
                rewards=[1.0] * len(lanes),
                terminated_mask=ends,
                truncated_mask=bytes(len(lanes)),
                env_indices=list(request.env_indices),
            )
        )

    def _ended(self, lane: int) -> bytes:
        """Let *lane* count; whether its episode ends with that."""
        if self._clocks[lane] >= _LENGTH and not self.lanes:
            self._clocks[lane] = 0
        else:
            self._clocks[lane] += 1
        return bytes([self._clocks[lane] == _LENGTH])

    def _lanes(self, named: list[int]) -> list[int]:
        if not named:
            return list(range(self.width))
        if not self.lanes and self.fault != "takes named lanes":
            raise _Refused(_Code.UNSUPPORTED, "lanes cannot be named")
        if len(set(named)) < len(named) or max(named) >= self.width:
            raise _Refused(_Code.INVALID_ACTION, "no such lanes")
        return named

    def _seen(self, lanes: list[int]) -> spaces_pb.SpaceValue:
        rows = np.zeros((len(lanes), self.cells), np.float32)
        rows[:, :2] = [(self._clocks[lane], lane) for lane in lanes]
        return present(spaces_pb.SpaceValue(leaves=[rows.tobytes()]))


@asynccontextmanager
async def scripted_server(server: ScriptedServer) -> AsyncGenerator[str]:
    """Let *server* listen for the block's duration; gives the address."""
    (listener,) = await trio.open_tcp_listeners(0, host="127.0.0.1")

    async def handle(socket: trio.SocketStream) -> None:
        async with socket:
            await FakeConnection(socket, server.serve, _WINDOW, _FRAME_SIZE).run()

    async def listen() -> None:
        with server.stop:
            await trio.serve_listeners(handle, [listener])

    async with trio.open_nursery() as nursery:
        nursery.start_soon(listen)
        yield f"127.0.0.1:{listener.socket.getsockname()[1]}"
        server.stop.cancel()
