"""A model served by another process, asked over one Join stream.

How several waiting lanes are asked decides how many forward passes the model makes:

- when the env declares adapter tags, the model has an adapter for it, and a grouped predict is one forward pass for a
  model that can batch, chunks and all;
- without tags each lane is asked for itself, all at once, and none waits for another;
- unless the caller allows rows to be merged: then they go out as the rows of one predict, one forward pass of a model
  made for batches (see :mod:`~rlmesh_trio.endpoints.row_merging`).
"""

import logging
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager

import trio

from rlmesh_trio.editions import edition_rank
from rlmesh_trio.endpoints.row_merging import RowMerging
from rlmesh_trio.errors import HandshakeError, InvalidSpec, OperationTimeout, ProtocolError
from rlmesh_trio.messages import PredictReply, PredictRequest, ReleaseAdapterRequest, ResetAdapterRequest
from rlmesh_trio.spec import Limits, SessionSpec, check_horizon
from rlmesh_trio.transport.address import parse_address
from rlmesh_trio.transport.channel import Channel, open_channel
from rlmesh_trio.transport.handshake import Agreement, PeerInfo, agree, introduce
from rlmesh_trio.transport.join import JoinStream
from rlmesh_trio.wire.hot_model import (
    ModelAnswer,
    ModelArm,
    encode_grouped_predict,
    encode_predict,
    encode_release_adapter,
    encode_reset_adapter,
)
from rlmesh_trio.wire.pb.rlmesh.model import v1 as pb
from rlmesh_trio.wire.predict_forms import ModelReader
from rlmesh_trio.wire.strict import decode, encode, relay_field

__all__ = ("RemoteModel", "connect_model")

logger = logging.getLogger("rlmesh_trio")

_SERVICE = "/rlmesh.model.v1.ModelService"
_HISTORY = "rlmesh.model.observation_history.v1"
_ENV_TAGS = "rlmesh.adapters.v1.env_tags"


@asynccontextmanager
async def connect_model(
    address: str,
    *,
    token: str | None = None,
    edition: str | None = None,
    limits: Limits = Limits(),  # noqa: B008 - frozen
    merge_rows: bool = False,
) -> AsyncGenerator["RemoteModel"]:
    """Connect to the model server at *address* and hold a session with it until the block is left.

    *token* is sent as it is with every call. *edition* is the edition to want, by default the newest known. A server
    that is not up yet may come up within ``limits.model_connect_timeout``, which bounds everything until the session is
    ready; leaving the block takes at most ``limits.service_close_timeout``.

    *merge_rows* says that the model answers each row of a batch by itself, keeping nothing between calls: then all
    lanes that wait are one predict of as many rows, one forward pass. A model that is not made for batches would take
    the rows for one strange observation, which no reply gives away.

    Raises:
        ConnectError: a bad address, nobody there in time, or a connection that is lost before the session is ready.
        HandshakeError: the server is not one that can be asked: not rlmesh, another generation or edition, a token
            refused.

    """
    async with open_channel(parse_address(address), token=token, limit=limits.model_connect_timeout) as channel:
        agreement = await _shake_hands(channel, edition)
        with channel.deadline("stream"):
            stream = await channel.join(f"{_SERVICE}/Join", "the model server", ModelReader().decode)
        try:
            yield RemoteModel(address, agreement, stream, merge_rows=merge_rows)
        finally:
            with trio.CancelScope(shield=True):
                await stream.close(limits.service_close_timeout)


class RemoteModel:
    """One model session with a server. Made by :func:`connect_model`; a ``Model`` once :meth:`resolve` has succeeded.

    ``address`` is as it was given; ``peer_info``, ``capabilities`` and ``supported_editions`` are the server's own
    words. ``native_chunk`` is the number of actions the model makes in one predict, if it declares one.
    """

    def __init__(
        self, address: str, agreement: Agreement, stream: JoinStream[ModelArm, ModelAnswer], *, merge_rows: bool
    ) -> None:
        self.address = address
        self.edition = agreement.edition
        self.supported_editions = agreement.supported_editions
        self.capabilities: Mapping[str, str] = agreement.capabilities
        self.peer_info: PeerInfo = agreement.peer_info
        self.native_chunk: int | None = None
        self._agreement = agreement
        self._stream = stream
        self._wants_history = False
        self._fuses = False
        self._may_merge = merge_rows
        self._merging: RowMerging | None = None
        self._horizon = 1

    async def resolve(self, spec: SessionSpec, *, execution_horizon: int = 1) -> None:
        """Tell the model its route: the env of *spec*, and how many frames of an answer will be played at most.

        The env's own description is relayed byte for byte. Raises :exc:`HandshakeError` when the model does not know
        the spec's edition, :exc:`InvalidSpec` for a horizon outside 1 to 1024, :exc:`EndpointError` when the model
        refuses, and :exc:`OperationTimeout` after ``spec.limits.configure_route_timeout``.
        """
        check_horizon(execution_horizon)
        if self._may_merge and execution_horizon > 1 and _ENV_TAGS not in spec.env_contract.metadata:
            raise InvalidSpec(
                f"merge_rows cannot be combined with execution_horizon={execution_horizon}: a server answers merged "
                "rows with their first action only; use a horizon of 1, or leave merge_rows out"
            )
        edition = spec.workflow_edition
        if not {edition, edition_rank(edition)[0]} & set(self.supported_editions):
            offered = ", ".join(self.supported_editions) or "none"
            raise HandshakeError(
                f"{self.address} does not support the session's edition {edition}; it offers {offered}"
            )
        request_id = self._stream.new_id()
        resolve = pb.ResolveAdapterRequest(
            context=pb.AdapterContext(spec.session_id, spec.env_id, f"{spec.env_id}:resolve_adapter"),
            selected_workflow_edition=edition,
            execution_horizon=execution_horizon,
            delivers_history=self._agreement.can(_HISTORY),
        )
        relay_field(resolve, "env_spec", spec.env_contract.encoded_spec)
        limit = spec.limits.configure_route_timeout
        try:
            with trio.fail_after(limit):
                _, arm, answer = await self._stream.exchange(
                    request_id, encode(pb.JoinRequest(resolve_adapter=resolve, request_id=request_id))
                )
        except trio.TooSlowError:
            raise OperationTimeout(spec.env_id, spec.model_component_id, "model.resolve_adapter", 0, limit) from None
        if arm != "resolve_adapter" or not isinstance(answer, bytes):
            raise _mismatch("resolve", arm)
        resolved = decode(pb.ResolveAdapterResponse, answer, what="the model's answer to resolve")
        self.native_chunk = resolved.native_chunk
        self._wants_history = resolved.history.is_set("keys") and bool(resolved.history.keys)
        self._decide(spec, execution_horizon)

    def _decide(self, spec: SessionSpec, execution_horizon: int) -> None:
        """Choose how several lanes are asked, by the rule this module begins with."""
        observations, actions = spec.env_contract.observation_space, spec.env_contract.action_space
        self._horizon = execution_horizon
        self._merging = None
        adapted = _ENV_TAGS in spec.env_contract.metadata
        if self._may_merge and not adapted and spec.drives_lanes and observations and actions:
            self._merging = RowMerging(observations, actions)
        self._fuses = adapted or self._merging is not None

    def fuses_predicts(self) -> bool:
        """Whether waiting lanes are best asked together."""
        return self._fuses

    def wants_history(self) -> bool:
        """Whether the model reads observations of the past, as it said when it was resolved."""
        return self._wants_history

    async def predict(self, request: PredictRequest) -> PredictReply:
        """The action frames for one group.

        Raises :exc:`EndpointError`, with the server's code or ``CONNECTION``; :exc:`ProtocolError` for an answer that
        makes no sense.
        """
        stream = self._stream
        request_id = stream.new_id()
        message = encode_predict(request_id, request)
        _, arm, reply = await stream.exchange(request_id, message)
        if not isinstance(reply, PredictReply):
            raise _mismatch("predict", arm)
        reply.request_bytes = len(message)
        if self._horizon > 1 and len(reply.actions) == 1:
            self._tell_of_single_frames()
        return reply

    async def predict_group(self, requests: Sequence[PredictRequest]) -> Sequence[PredictReply | Exception]:
        """Answer each request in order, a failed one with its error. Raises as :meth:`predict` if all fail."""
        if len(requests) == 1:
            return [await self.predict(requests[0])]
        merging = self._merging
        if merging is not None and merging.fits(requests):
            return merging.split(await self.predict(merging.merge(requests)), requests)
        return await self._predict_grouped(requests)

    async def _predict_grouped(self, requests: Sequence[PredictRequest]) -> Sequence[PredictReply | Exception]:
        request_id = self._stream.new_id()
        message = encode_grouped_predict(request_id, requests)
        _, arm, replies = await self._stream.exchange(request_id, message)
        if not isinstance(replies, list):
            raise _mismatch("grouped predict", arm)
        if replies and isinstance(replies[0], PredictReply):
            replies[0].request_bytes = len(message)
        return replies

    async def reset_adapter(self, request: ResetAdapterRequest) -> None:
        """End the named episodes on the model. Raises as :meth:`predict`."""
        request_id = self._stream.new_id()
        _, arm, _ = await self._stream.exchange(request_id, encode_reset_adapter(request_id, request))
        if arm != "reset_adapter":
            raise _mismatch("reset", arm)

    async def release_adapter(self, request: ReleaseAdapterRequest) -> None:
        """End the route on the model. Raises as :meth:`predict`."""
        request_id = self._stream.new_id()
        _, arm, _ = await self._stream.exchange(request_id, encode_release_adapter(request_id, request))
        if arm != "release_adapter":
            raise _mismatch("release", arm)

    def _tell_of_single_frames(self) -> None:
        """Once: a model without a chunk method takes any horizon and says nothing."""
        logger.warning(
            "the model at %s answers with one action although execution_horizon is %d: it makes no chunks, "
            "and is asked again at every step",
            self.address,
            self._horizon,
        )
        self._horizon = 1


async def _shake_hands(channel: Channel, edition: str | None) -> Agreement:
    request = pb.HandshakeRequest(base=introduce("rlmesh-model", edition))
    with channel.deadline("answer to the handshake"):
        data = await channel.unary(f"{_SERVICE}/Handshake", encode(request))
    try:
        reply = decode(pb.HandshakeResponse, data, what="the answer to the handshake")
    except ProtocolError as error:
        raise HandshakeError(f"{channel.address} is not an rlmesh model server of this generation: {error}") from error
    return agree(channel.address, reply.base, edition)


def _mismatch(asked: str, answered: str) -> ProtocolError:
    return ProtocolError(f"the model server answered a {asked} with {answered}")
