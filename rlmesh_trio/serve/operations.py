"""What one request does to the env, and the reply to it: one client's session, without tasks or sockets.

A session begins with nothing reset. A lane is stepped only after a reset of its own; one whose operation failed, and a
lane of a vector that waits for resets after its episode ended, has to be reset again first. An error of an operation
that names lanes concerns these alone; an error of a whole-width one ends the session.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from time import perf_counter_ns
from typing import Any, cast

import attrs
import trio

from rlmesh_trio.editions import CURRENT_EDITION, RETAINED_EDITIONS
from rlmesh_trio.endpoints.local_env import LocalEnv
from rlmesh_trio.errors import EndpointError, ProtocolError, SpaceError, format_duration
from rlmesh_trio.messages import EnvReply, EpisodeRecord, Metadata, MetaValue, ResetRequest, StepTarget
from rlmesh_trio.serve.served_lanes import ServedLanes
from rlmesh_trio.spaces import plain_metadata
from rlmesh_trio.spec import MAX_MESSAGE_BYTES, AutoresetMode
from rlmesh_trio.wire.pb.rlmesh.env import v1 as pb
from rlmesh_trio.wire.served_env import (
    ServedRequest,
    encode_served_reply,
    encode_served_reset,
    encode_served_step,
)
from rlmesh_trio.wire.strict import decode

__all__ = ("Operation", "Operations")

_EDITIONS = [edition.name for edition in RETAINED_EDITIONS]
_WARNING = CURRENT_EDITION.conformance_warning_key

_Encoder = Callable[[str, EnvReply, int], bytes]


@attrs.define(eq=False)
class Operation:
    """One *request* on its way: it *arrived* at that ``perf_counter_ns``, and has until *deadline* on trio's clock.

    ``answered`` says that the client was told something, ``done`` is set when the env is free for the next one.
    """

    request: ServedRequest
    arrived: int
    deadline: float = math.inf
    answered: bool = False
    done: trio.Event = attrs.field(factory=trio.Event)

    @property
    def late(self) -> bool:
        """Whether its time is up."""
        return self.answered or trio.current_time() >= self.deadline

    @property
    def named_lanes(self) -> Sequence[int]:
        """The lanes a step or a reset names; empty for an operation on all of them."""
        request = self.request
        if request.target is not None:
            return request.target.env_indices
        return request.reset.env_indices if request.reset is not None else ()

    @property
    def timeout_ms(self) -> int:
        """How many milliseconds it may take; 0 for as many as it likes."""
        request = self.request
        if request.target is not None:
            return request.target.timeout_ms
        if request.reset is not None:
            return request.reset.timeout_ms
        with suppress(EndpointError):
            return _decoded(pb.RenderRequest, request).timeout_ms if request.arm == "render" else 0
        return 0

    def too_late(self) -> EndpointError:
        """What to answer when its time is up."""
        limit = format_duration(self.timeout_ms / 1000)
        return EndpointError("TIMEOUT", f"env.{self.request.arm} timed out after {limit}", True)


class Operations:
    """One client's session with *env*, the workers of which are those of *lanes*."""

    def __init__(self, lanes: ServedLanes, env: LocalEnv) -> None:
        self._lanes = lanes
        self._env = env
        self._all = range(env.contract.num_envs)
        self._unready = set(self._all)
        self._waits_for_resets = env.contract.autoreset_mode == AutoresetMode.DISABLED and not env.subset_step
        self._warned: set[tuple[MetaValue, MetaValue]] = set()
        self._overdue: list[EpisodeRecord] = []

    async def perform(self, operation: Operation) -> bytes:
        """Do what *operation* asks and return the reply.

        Raises :exc:`EndpointError`; unless that is recoverable the session is over.
        """
        try:
            return await self._done(operation)
        except EndpointError as failure:
            if failure.recoverable:
                raise
            named = operation.named_lanes
            self._unready.update(named or self._all)
            if named or operation.request.arm == "render" or operation.answered:
                raise EndpointError(failure.code, failure.message, True) from failure
            raise

    async def _done(self, operation: Operation) -> bytes:
        request = operation.request
        if request.target is not None:
            return await self._step(operation, request.target)
        if request.reset is not None:
            return await self._reset(operation, request.reset)
        if request.arm == "render":
            return await self._render(operation)
        if request.arm == "configure":
            return self._configure(operation)
        raise EndpointError("UNSUPPORTED", "the request has no kind that this server knows", True)

    def close(self, operation: Operation) -> bytes:
        """End all episodes and return the reply to a close, which has every record that is still due."""
        episodes = [*self._overdue, *self._env.finish()]
        for record in episodes:
            record.final_info = None if record.final_info is None else plain_metadata(record.final_info)
        spent = perf_counter_ns() - operation.arrived
        return encode_served_reply(operation.request.request_id, "close", spent, episodes=episodes)

    async def _step(self, operation: Operation, target: StepTarget) -> bytes:
        if self._unready:
            waiting = self._unready.intersection(target.env_indices or self._all)
            if waiting:
                raise EndpointError("NOT_READY", f"lane {min(waiting)} has to be reset before it is stepped", True)
        started = perf_counter_ns()
        reply = await self._env.step(operation.request.action, target)
        if self._waits_for_resets:
            ends = zip(reply.terminated_mask, reply.truncated_mask, strict=True)
            self._unready.update([lane for lane, flags in enumerate(ends) if any(flags)])
        if self._overdue:
            reply.completed = [*self._overdue, *reply.completed]
        if reply.completed:
            # Until the reply is on its way nobody has been told.
            self._overdue = list(reply.completed)
        message = self._replied(encode_served_step, operation, reply, started)
        self._overdue = []
        return message

    async def _reset(self, operation: Operation, reset: ResetRequest) -> bytes:
        started = perf_counter_ns()
        lanes = [lane for lane in reset.env_indices or self._all if lane in self._all]
        if not reset.env_indices:
            reset = self._fitted(reset)
        await self._lanes.mend(lanes)
        reply = await self._env.reset(reset)
        self._unready.update(lanes)
        message = self._replied(encode_served_reset, operation, reply, started)
        self._unready.difference_update(lanes)
        return message

    def _fitted(self, reset: ResetRequest) -> ResetRequest:
        """A reset of all lanes with a seed and an id for each, or none; a single seed is spread as by a vector env."""
        width = len(self._all)
        seeds = reset.seeds
        if len(seeds) == 1:
            if seeds[0] + width > 1 << 63:
                raise EndpointError("INVALID_ACTION", f"the seed {seeds[0]} cannot be spread over {width} lanes", True)
            seeds = tuple(range(seeds[0], seeds[0] + width))
        for what, count in (("seeds", len(seeds)), ("episode ids", len(reset.episode_ids))):
            if count not in (0, width):
                raise EndpointError("INVALID_ACTION", f"{count} {what} for {width} lanes", True)
        return attrs.evolve(reset, seeds=seeds)

    def _replied(self, encode: _Encoder, operation: Operation, reply: EnvReply, started: int) -> bytes:
        if operation.late:
            raise operation.too_late()
        self._warn_once(reply)
        request_id, queued = operation.request.request_id, started - operation.arrived
        reply.endpoint_total_ns = perf_counter_ns() - operation.arrived
        try:
            message = encode(request_id, reply, queued)
        except SpaceError:
            # Infos that have no wire form are told as far as they can be.
            reply.infos = plain_metadata(reply.infos or {})
            for record in reply.completed:
                record.final_info = plain_metadata(record.final_info or {})
            message = encode(request_id, reply, queued)
        if len(message) > MAX_MESSAGE_BYTES:
            raise EndpointError(
                "UNSUPPORTED", f"the reply has {len(message)} bytes; at most {MAX_MESSAGE_BYTES} can be sent", True
            )
        return message

    async def _render(self, operation: Operation) -> bytes:
        request = operation.request
        named = _decoded(pb.RenderRequest, request).env_indices
        if len(named) > 1:
            raise EndpointError("UNSUPPORTED", f"one lane can be rendered at a time, not {len(named)}", True)
        lane = named[0] if named else 0
        if lane not in self._all:
            raise EndpointError("INVALID_ACTION", f"lane {lane} cannot be rendered: there are {len(self._all)}", True)
        if self._env.contract.render_mode and lane in self._unready:
            raise EndpointError("NOT_READY", f"lane {lane} has to be reset before it is rendered", True)
        frame = await self._env.render(lane)
        if operation.late:
            raise operation.too_late()
        return encode_served_reply(request.request_id, "render", perf_counter_ns() - operation.arrived, frame=frame)

    def _configure(self, operation: Operation) -> bytes:
        request = operation.request
        edition = _decoded(pb.ConfigureEnvRequest, request).selected_workflow_edition
        if edition not in _EDITIONS:
            raise EndpointError("INVALID_ACTION", f"the edition {edition!r} is none of {', '.join(_EDITIONS)}")
        return encode_served_reply(request.request_id, "configure", perf_counter_ns() - operation.arrived)

    def _warn_once(self, reply: EnvReply) -> None:
        """Leave out warnings that this client has been told, by whichever lane."""
        infos = cast("Metadata", reply.infos)
        if _WARNING in infos:
            reply.infos = self._told_once(infos)
        elif isinstance(inner := infos.get("final_info"), list) and any(_WARNING in each for each in _maps(inner)):
            reply.infos = {**infos, "final_info": [self._told_once(each) for each in _maps(inner)]}

    def _told_once(self, infos: Metadata) -> Metadata:
        fresh: list[MetaValue] = []
        for warning in cast("Sequence[Metadata]", infos.get(_WARNING, ())):
            what = (warning["kind"], warning["path"])
            if what not in self._warned:
                self._warned.add(what)
                fresh.append(warning)
        rest = {key: value for key, value in infos.items() if key != _WARNING}
        return {**rest, _WARNING: fresh} if fresh else rest


def _maps(values: Sequence[Any]) -> list[Metadata]:
    return [value for value in values if isinstance(value, Mapping)]


def _decoded(kind: type[Any], request: ServedRequest) -> Any:
    try:
        return decode(kind, request.raw, what=f"the {request.arm} request")
    except ProtocolError as fault:
        raise EndpointError("INVALID_ACTION", str(fault), True) from fault
