"""An env served by another process, driven over one Join stream.

Nothing is sent twice: a step whose caller gave up still happens on the server, and its late reply is dropped.
"""

from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager

import trio

from rlmesh_trio.errors import EndpointError, HandshakeError, ProtocolError, SpaceError, format_duration
from rlmesh_trio.messages import EnvReply, Leaves, ResetRequest, StepTarget
from rlmesh_trio.spaces import contract_from_wire
from rlmesh_trio.spec import EnvContract, Limits, PeerCeiling
from rlmesh_trio.transport.address import parse_address
from rlmesh_trio.transport.channel import Channel, open_channel
from rlmesh_trio.transport.handshake import Agreement, PeerInfo, agree, introduce
from rlmesh_trio.transport.join import JoinStream
from rlmesh_trio.wire.hot_env import EnvAnswer, EnvArm, decode_env_join, encode_reset, encode_step
from rlmesh_trio.wire.pb.rlmesh.env import v1 as pb
from rlmesh_trio.wire.strict import decode, encode, encoded_field, present

__all__ = ("RemoteEnv", "ServedEnv", "connect_env", "describe_env")

_SERVICE = "/rlmesh.env.v1.EnvService"


@asynccontextmanager
async def connect_env(
    address: str,
    *,
    token: str | None = None,
    edition: str | None = None,
    limits: Limits = Limits(),  # noqa: B008 - frozen
) -> AsyncGenerator["RemoteEnv"]:
    """Connect to the env server at *address* and hold a session with it until the block is left.

    *token* is sent as it is with every call. *edition* is the edition to want, by default the newest known. A server
    that is not up yet may come up within ``limits.env_connect_timeout``, which bounds everything until the session is
    ready; leaving the block takes at most ``limits.service_close_timeout`` and leaves the env open on the server.

    Raises:
        ConnectError: a bad address, nobody there in time, or a connection that is lost before the session is ready.
        HandshakeError: the server is not one that can be driven: not rlmesh, another generation or edition, a token
            refused, a contract that cannot be read, another client at work.

    """
    async with open_channel(parse_address(address), token=token, limit=limits.env_connect_timeout) as channel:
        agreement, contract = await _shake_hands(channel, edition)
        with channel.deadline("stream"):
            stream = await channel.join(f"{_SERVICE}/Join", "the env server", decode_env_join)
        try:
            await _configure(channel, stream, agreement.edition)
            yield RemoteEnv(address, agreement, contract, stream, limits)
        finally:
            with trio.CancelScope(shield=True):
                await stream.close(limits.service_close_timeout)


async def describe_env(
    address: str,
    *,
    token: str | None = None,
    edition: str | None = None,
    limits: Limits = Limits(),  # noqa: B008 - frozen
) -> "ServedEnv":
    """Ask the env server at *address* what it is, without taking the one place it has for a client.

    Takes and raises what :func:`connect_env` does, except that another client at work does not matter.
    """
    async with open_channel(parse_address(address), token=token, limit=limits.env_connect_timeout) as channel:
        return ServedEnv(address, *await _shake_hands(channel, edition))


class ServedEnv:
    """What a server says of its env: a ``DescribedEnv``.

    ``address`` is as it was given; ``peer_info``, ``capabilities`` and ``supported_editions`` are the server's own
    words. ``ceiling`` is what its messages and dtypes may be.
    """

    def __init__(self, address: str, agreement: Agreement, contract: EnvContract) -> None:
        self.address = address
        self.contract = contract
        self.edition = agreement.edition
        self.supported_editions = agreement.supported_editions
        self.capabilities: Mapping[str, str] = agreement.capabilities
        self.peer_info: PeerInfo = agreement.peer_info
        self.subset_step = agreement.can("subset_step")
        self.ceiling: PeerCeiling | None = PeerCeiling(self.edition, capabilities=self.capabilities)


class RemoteEnv(ServedEnv):
    """One env session with a server. Made by :func:`connect_env`; an ``Env`` besides a ``DescribedEnv``."""

    def __init__(
        self,
        address: str,
        agreement: Agreement,
        contract: EnvContract,
        stream: JoinStream[EnvArm, EnvAnswer],
        limits: Limits,
    ) -> None:
        super().__init__(address, agreement, contract)
        self._stream = stream
        self._close_limit = limits.service_close_timeout
        self._closed = False

    async def reset(self, request: ResetRequest) -> EnvReply:
        """Start episodes on the named lanes, or on all.

        Raises :exc:`EndpointError`, with the server's code or ``CONNECTION``; :exc:`ProtocolError` for an answer that
        makes no sense; :exc:`SpaceError` for options that metadata cannot hold.
        """
        request_id = self._stream.new_id()
        message = encode_reset(request_id, request)
        _, arm, reply = await self._stream.exchange(request_id, message)
        if arm != "reset" or not isinstance(reply, EnvReply):
            raise _mismatch("reset", arm)
        reply.request_bytes = len(message)
        return reply

    async def step(self, action: Leaves, target: StepTarget) -> EnvReply:
        """Step the lanes *target* names, or all, with one row of *action* each. Raises as :meth:`reset`."""
        stream = self._stream
        request_id = stream.new_id()
        message = encode_step(request_id, action, target)
        _, arm, reply = await stream.exchange(request_id, message)
        if arm != "step" or not isinstance(reply, EnvReply):
            raise _mismatch("step", arm)
        reply.request_bytes = len(message)
        return reply

    async def close(self) -> None:
        """Close the env itself on the server, which then ends the session; closing again does nothing.

        Episodes under way end with it, and what the server tells of them is not kept. Raises :exc:`EndpointError`, with
        the code ``TIMEOUT`` when the server does not answer within ``limits.service_close_timeout``.
        """
        if self._closed:
            await trio.lowlevel.checkpoint()
            return
        self._closed = True
        stream = self._stream
        request_id = stream.new_id()
        request = pb.JoinRequest(close=present(pb.CloseEnvsRequest("client close")), request_id=request_id)
        try:
            with trio.fail_after(self._close_limit):
                _, arm, _ = await stream.exchange(request_id, encode(request))
        except trio.TooSlowError:
            raise EndpointError(
                "TIMEOUT", f"the env did not close within {format_duration(self._close_limit)}"
            ) from None
        if arm != "close":
            raise _mismatch("close", arm)


async def _shake_hands(channel: Channel, edition: str | None) -> tuple[Agreement, EnvContract]:
    request = pb.HandshakeRequest(base=introduce("rlmesh-env", edition))
    with channel.deadline("answer to the handshake"):
        data = await channel.unary(f"{_SERVICE}/Handshake", encode(request))
    try:
        reply = decode(pb.HandshakeResponse, data, what="the answer to the handshake")
        agreement = agree(channel.address, reply.base, edition)
        contract = encoded_field(pb.HandshakeResponse, data, "env_contract")
        if contract is None:
            raise HandshakeError(f"{channel.address} declares no env contract")
        return agreement, contract_from_wire(contract)
    except SpaceError as error:
        raise HandshakeError(f"invalid spaces spec from env: {error}") from error
    except ProtocolError as error:
        raise HandshakeError(f"{channel.address} is not an rlmesh env server of this generation: {error}") from error


async def _configure(channel: Channel, stream: JoinStream[EnvArm, EnvAnswer], edition: str) -> None:
    request_id = stream.new_id()
    configure = present(pb.ConfigureEnvRequest(selected_workflow_edition=edition))
    with channel.deadline("answer to configure"):
        try:
            _, arm, _ = await stream.exchange(
                request_id, encode(pb.JoinRequest(configure=configure, request_id=request_id))
            )
        except EndpointError as error:
            if error.code == "CONNECTION":
                raise
            raise HandshakeError(f"{channel.address} refused the workflow edition {edition}: {error}") from error
    if arm != "configure":
        raise HandshakeError(f"{channel.address} answered configure with {arm}")


def _mismatch(asked: str, answered: str) -> ProtocolError:
    return ProtocolError(f"the env server answered a {asked} with {answered}")
