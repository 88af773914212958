"""Servers of either leg that say what a test wants: the handshake, and an answer to every request on Join."""

from collections.abc import Awaitable, Callable

import attrs
import numpy as np
from gymnasium import spaces

from rlmesh_trio.spaces import contract_from_gymnasium, contract_to_wire
from rlmesh_trio.wire.pb.rlmesh.core import v1 as core
from rlmesh_trio.wire.pb.rlmesh.env import v1 as env_pb
from rlmesh_trio.wire.pb.rlmesh.model import v1 as model_pb
from rlmesh_trio.wire.pb.rlmesh.spaces import v1 as spaces_pb
from rlmesh_trio.wire.strict import decode, encode, encoded_field, present, relay_field
from tests.transport.fake_server import FakeStream

__all__ = ("CONTRACT", "EnvAnswer", "FakeEnv", "FakeModel", "ModelAnswer", "pair", "value")

CONTRACT = contract_from_gymnasium(
    spaces.Box(-1, 1, (2,), np.float32),
    spaces.Discrete(3),
    env_id="Fake-v0",
    metadata={},
    num_envs=1,
    autoreset_mode=3,
    render_mode="",
)


def pair(*values: float) -> bytes:
    """Rows of observations."""
    return np.array(values, np.float32).tobytes()


@attrs.define
class _Offers:
    """One side of a handshake; each field may be wrong."""

    compatible: bool = True
    refusal: str | None = None
    editions: list[str] = attrs.field(factory=lambda: ["2026.06"])
    preferred: str = "2026.06"
    capabilities: dict[str, str] = attrs.field(factory=dict[str, str])
    heard: core.HandshakeRequest | None = None

    def base(self) -> core.HandshakeResponse:
        return present(
            core.HandshakeResponse(
                compatible=self.compatible,
                peer_info=core.PeerInfo(component="fake", extra={"a": "b"}),
                capabilities=self.capabilities,
                supported_workflow_editions=self.editions,
                error_message=self.refusal,
                preferred_workflow_edition=self.preferred,
            )
        )


EnvAnswer = Callable[[env_pb.JoinRequest, FakeStream], Awaitable[env_pb.JoinResponse | None]]


async def _never(request: object, stream: FakeStream) -> None:
    return None


@attrs.define
class FakeEnv(_Offers):
    """An env server. *answer* makes the reply to what follows configure, its id filled in; ``None`` is no reply."""

    contract: bytes | None = attrs.field(factory=lambda: contract_to_wire(CONTRACT))
    answer: EnvAnswer = _never
    configured: env_pb.JoinResponse | None = attrs.field(
        factory=lambda: env_pb.JoinResponse(configure=present(env_pb.ConfigureEnvResponse()))
    )
    edition: str | None = None
    requests: list[env_pb.JoinRequest] = attrs.field(factory=list[env_pb.JoinRequest])
    tokens: list[str | None] = attrs.field(factory=list[str | None])

    async def serve(self, stream: FakeStream) -> None:
        self.tokens.append(stream.headers.get("authorization"))
        if stream.path == "/rlmesh.env.v1.EnvService/Handshake":
            data = await stream.receive()
            assert data is not None
            self.heard = decode(env_pb.HandshakeRequest, data, what="handshake").base
            reply = env_pb.HandshakeResponse(base=self.base())
            if self.contract is not None:
                relay_field(reply, "env_contract", self.contract)
            await stream.send(bytes(reply))
            await stream.end()
        elif stream.path == "/rlmesh.env.v1.EnvService/Join":
            await self._join(stream)
        else:
            await stream.refuse(12)

    async def _join(self, stream: FakeStream) -> None:
        await stream.answer()
        while data := await stream.receive():
            request = decode(env_pb.JoinRequest, data, what="request")
            self.requests.append(request)
            reply = self.configured
            if request.is_set("configure"):
                self.edition = request.configure.selected_workflow_edition
            else:
                reply = await self.answer(request, stream)
            if reply is not None:
                reply.request_id = request.request_id
                await stream.send(encode(reply))


ModelAnswer = Callable[[model_pb.JoinRequest, FakeStream], Awaitable[model_pb.JoinResponse | None]]


@attrs.define
class FakeModel(_Offers):
    """A model server. *answer* as in :class:`FakeEnv`; ``requests`` are the bytes as they came."""

    answer: ModelAnswer = _never
    requests: list[bytes] = attrs.field(factory=list[bytes])

    async def serve(self, stream: FakeStream) -> None:
        if stream.path == "/rlmesh.model.v1.ModelService/Handshake":
            data = await stream.receive()
            assert data is not None
            self.heard = decode(model_pb.HandshakeRequest, data, what="handshake").base
            await stream.send(bytes(model_pb.HandshakeResponse(base=self.base())))
            await stream.end()
        elif stream.path == "/rlmesh.model.v1.ModelService/Join":
            await stream.answer()
            while data := await stream.receive():
                self.requests.append(data)
                request = decode(model_pb.JoinRequest, data, what="request")
                reply = await self.answer(request, stream)
                if reply is not None:
                    reply.request_id = request.request_id
                    await stream.send(encode(reply))
        else:
            await stream.refuse(12)

    def relayed_spec(self) -> bytes | None:
        """The env spec of the first request, which resolves."""
        return encoded_field(model_pb.JoinRequest, self.requests[0], "resolve_adapter", "env_spec")


def value(*leaves: bytes) -> spaces_pb.SpaceValue:
    """A space value of these leaves."""
    return present(spaces_pb.SpaceValue(leaves=list(leaves)))
