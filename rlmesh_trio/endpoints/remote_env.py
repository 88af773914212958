"""An env served by another process, driven over one Join stream, and over another when that one was lost.

Nothing is sent twice: a step whose caller gave up still happens on the server, and its late reply is dropped.
"""

import json
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from textwrap import shorten

import trio

from rlmesh_trio.errors import ConnectError, EndpointError, HandshakeError, ProtocolError, SpaceError, format_duration
from rlmesh_trio.messages import EnvReply, Leaves, ResetRequest, StepTarget
from rlmesh_trio.spaces import contract_from_wire
from rlmesh_trio.spec import EnvContract, Limits, PeerCeiling
from rlmesh_trio.transport.address import parse_address
from rlmesh_trio.transport.channel import Channel, open_channel
from rlmesh_trio.transport.handshake import NAMED_RESETS, SUBSET_STEP, Agreement, PeerInfo, agree, introduce
from rlmesh_trio.transport.join import JoinStream
from rlmesh_trio.wire.hot_env import EnvAnswer, EnvArm, encode_reset, encode_step
from rlmesh_trio.wire.pb.rlmesh.env import v1 as pb
from rlmesh_trio.wire.step_forms import EnvReader
from rlmesh_trio.wire.strict import decode, encode, encoded_field, present

__all__ = ("RemoteEnv", "ServedEnv", "connect_env", "describe_env")

_SERVICE = "/rlmesh.env.v1.EnvService"
# The most that one attempt to reconnect may take, in seconds; the caller decides how many there are.
_RECONNECT_LIMIT = 10.0

_Stream = JoinStream[EnvArm, EnvAnswer]


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
        stream = await _open_stream(channel, agreement.edition, limits)
        env = RemoteEnv(address, agreement, contract, channel, stream, edition, limits)
        try:
            yield env
        finally:
            with trio.CancelScope(shield=True):
                await env._stream.close(limits.service_close_timeout)  # pyright: ignore[reportPrivateUsage]


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
        self.subset_step = agreement.can(SUBSET_STEP)
        self.resets_named_lanes = agreement.can(NAMED_RESETS)
        self.ceiling: PeerCeiling | None = PeerCeiling(self.edition, capabilities=self.capabilities)


class RemoteEnv(ServedEnv):
    """One env session with a server. Made by :func:`connect_env`; a ``ReconnectingEnv`` besides a ``DescribedEnv``."""

    def __init__(
        self,
        address: str,
        agreement: Agreement,
        contract: EnvContract,
        channel: Channel,
        stream: _Stream,
        wanted_edition: str | None,
        limits: Limits,
    ) -> None:
        super().__init__(address, agreement, contract)
        self._channel = channel
        self._stream = stream
        self._wanted_edition = wanted_edition or agreement.edition
        self._limits = limits
        self._closed = False
        self._reconnecting = trio.Lock()

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
            with trio.fail_after(self._limits.service_close_timeout):
                _, arm, _ = await stream.exchange(request_id, encode(request))
        except trio.TooSlowError:
            limit = format_duration(self._limits.service_close_timeout)
            raise EndpointError("TIMEOUT", f"the env did not close within {limit}") from None
        if arm != "close":
            raise _mismatch("close", arm)

    async def reconnect(self) -> None:
        """Drop the connection, be it lost or not, and make one attempt at a new session, with the same token.

        Leaving the old session takes at most ``limits.service_close_timeout``, the attempt at most 10 seconds or
        ``limits.env_connect_timeout``. Operations under way fail with the code ``CONNECTION``, later ones too until an
        attempt has succeeded; then each lane has to be reset. ``peer_info`` and ``supported_editions`` are those of the
        server as it is now; all else is as it was. Who calls while another does waits for that one's success.

        Raises:
            ConnectError: nobody there, or not in time, or busy with another client.
            HandshakeError: no server that can be driven, or not the same env: another contract, edition or capability.

        """
        lost, limits = self._stream, self._limits
        async with self._reconnecting:
            if self._stream is not lost:
                return
            channel = self._channel
            try:
                await lost.close(limits.service_close_timeout)
                await channel.redial(min(limits.env_connect_timeout, _RECONNECT_LIMIT))
                served = ServedEnv(self.address, *await _shake_hands(channel, self._wanted_edition))
                _refuse_changes(self, served)
                self._stream = await _open_stream(channel, served.edition, limits)
            except BaseException:
                await channel.drop()
                raise
            self._closed = False
            self.peer_info, self.supported_editions = served.peer_info, served.supported_editions


def _refuse_changes(before: ServedEnv, after: ServedEnv) -> None:
    was, now = _foundations(before), _foundations(after)
    changes = [
        f"{name} was {shorten(was[name][1], 200)} and is {shorten(shown, 200)}"
        for name, (compared, shown) in now.items()
        if compared != was[name][0]
    ]
    if changes:
        raise HandshakeError(f"{after.address} no longer serves the env of this session: {'; '.join(changes)}")


def _foundations(env: ServedEnv) -> Mapping[str, tuple[object, str]]:
    """What a session builds on, by name: in a form that compares, and as it is shown."""
    contract = env.contract
    observations, actions = contract.observation_space, contract.action_space
    values = {
        "edition": env.edition,
        "capabilities": dict(sorted(env.capabilities.items())),
        "env_id": contract.env_id,
        "num_envs": contract.num_envs,
        "autoreset_mode": contract.autoreset_mode,
        "render_mode": contract.render_mode,
        # A server writes maps in any order, and a NaN shall equal itself.
        "metadata": json.dumps(dict(contract.metadata), sort_keys=True, default=repr),
    }
    return {
        "observation_space": (observations and observations.encoded, f"{observations and observations.space}"),
        "action_space": (actions and actions.encoded, f"{actions and actions.space}"),
    } | {name: (value, repr(value)) for name, value in values.items()}


async def _open_stream(channel: Channel, edition: str, limits: Limits) -> _Stream:
    with channel.deadline("stream"):
        stream = await channel.join(f"{_SERVICE}/Join", "the env server", EnvReader().decode)
    try:
        await _configure(channel, stream, edition)
    except BaseException:
        with trio.CancelScope(shield=True):
            await stream.close(limits.service_close_timeout)
        raise
    return stream


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


async def _configure(channel: Channel, stream: _Stream, edition: str) -> None:
    request_id = stream.new_id()
    configure = present(pb.ConfigureEnvRequest(selected_workflow_edition=edition))
    with channel.deadline("answer to configure"):
        try:
            _, arm, _ = await stream.exchange(
                request_id, encode(pb.JoinRequest(configure=configure, request_id=request_id))
            )
        except EndpointError as error:
            if error.code == "CONNECTION":
                raise ConnectError(f"{channel.address} was lost before it answered configure: {error}") from error
            raise HandshakeError(f"{channel.address} refused the workflow edition {edition}: {error}") from error
        except ProtocolError as error:
            raise HandshakeError(f"{channel.address} answered configure with nonsense: {error}") from error
    if arm != "configure":
        raise HandshakeError(f"{channel.address} answered configure with {arm}")


def _mismatch(asked: str, answered: str) -> ProtocolError:
    return ProtocolError(f"the env server answered a {asked} with {answered}")
