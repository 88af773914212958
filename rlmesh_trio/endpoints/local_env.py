"""An env in this process (or its threads, or its worker processes), driven exactly as a served one.

A scalar env and a list of them are lanes: an operation that names one runs beside those of the others. A vector env
moves in lockstep: all its lanes, none by name, save that one with ``DISABLED`` autoreset, and gymnasium's own with
``NEXT_STEP``, resets those it is named.
"""

import logging
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from time import perf_counter_ns
from typing import Literal, cast

import trio

from rlmesh_trio.editions import CURRENT_EDITION
from rlmesh_trio.endpoints.conformance import Conformance
from rlmesh_trio.endpoints.env_hosts import HostReply, only_lanes
from rlmesh_trio.endpoints.lane_accounts import EpisodeAccounts, InfosOf, fanned_infos
from rlmesh_trio.endpoints.lane_fanout import close_lanes, open_lanes, reset_lanes, step_lanes
from rlmesh_trio.endpoints.lane_process import ProcessWorker
from rlmesh_trio.endpoints.lane_workers import InlineWorker, LaneWorker, ThreadWorker
from rlmesh_trio.endpoints.loading import env_makers
from rlmesh_trio.errors import ConnectError, EndpointError, HandshakeError, SpaceError
from rlmesh_trio.messages import EnvReply, EpisodeRecord, Leaves, Metadata, Phases, ResetRequest, StepTarget
from rlmesh_trio.spaces import codec_for
from rlmesh_trio.spaces.lane_infos import lane_part
from rlmesh_trio.spec import AutoresetMode, EnvContract, PeerCeiling, ValueSpace

__all__ = ("LocalEnv", "Where", "make_workers", "open_local_env")

logger = logging.getLogger("rlmesh_trio")

Where = Literal["inline", "thread", "process"]

_WORKERS: dict[str, type[InlineWorker] | type[ThreadWorker] | type[ProcessWorker]] = {
    "inline": InlineWorker,
    "thread": ThreadWorker,
    "process": ProcessWorker,
}


@asynccontextmanager
async def open_local_env(source: object, *, lanes: int = 1, where: Where = "inline") -> AsyncGenerator["LocalEnv"]:
    """Open *source* as an env and close it at the end of the block, whoever made it. A failure to close is logged.

    *source* is a gymnasium env; a list of envs, one per lane; a factory, called for each lane (with the lane's number
    if it takes a parameter ``lane``); a gymnasium id; ``module:factory``, looked for in the working directory too; or
    a gymnasium vector env, which brings its own lanes. *lanes* is how many to make of a factory or a name.

    *where* is ``inline`` to run the env in the calling task, for envs that answer in microseconds; ``thread`` to give
    each lane a thread, so that a hung operation ends at its limit; or ``process`` to give each lane a fresh
    interpreter, for envs that compute, hang or crash. Only a factory or a name can go to a process.

    Raises :exc:`ConnectError` when the source cannot be found, made or described, :exc:`HandshakeError` for an env that
    cannot be driven (``SAME_STEP`` autoreset, lanes with different spaces), :exc:`SpaceError` for a space that has no
    wire form.
    """
    workers = make_workers(source, lanes, where)
    try:
        env = LocalEnv(workers, _drivable(await open_lanes(workers)))
    except BaseException:
        await _close_quietly(workers)
        raise
    try:
        yield env
    finally:
        if not env.closed:
            await _close_quietly(workers)


def _drivable(contract: EnvContract) -> EnvContract:
    if contract.autoreset_mode == AutoresetMode.SAME_STEP:
        raise HandshakeError(
            "a vector env with SAME_STEP autoreset hides the last observation of every episode: make it with NEXT_STEP"
        )
    return contract


def make_workers(source: object, lanes: int, where: Where) -> list[LaneWorker]:
    """The workers of *source*, still to be opened; takes and raises what :func:`open_local_env` does."""
    if where not in _WORKERS:
        raise ConnectError(f"an env runs {', '.join(_WORKERS)}, not {where!r}")
    return [_WORKERS[where](maker) for maker in env_makers(source, lanes)]


async def _close_quietly(workers: Sequence[LaneWorker]) -> None:
    with trio.CancelScope(shield=True):
        try:
            await close_lanes(workers)
        except EndpointError as failure:
            logger.warning("environment close failed: %s", failure)


class LocalEnv:
    """One env session over local workers. Made by :func:`open_local_env`; an ``Env`` and a ``DescribedEnv``.

    A worker in *workers* may be replaced while no operation is about it.

    ``subset_step`` holds for lanes, a single one included, and not for a lockstep vector; ``resets_named_lanes`` for a
    lockstep vector that can reset some of its lanes. ``closed`` says whether :meth:`close` was called.
    """

    def __init__(self, workers: Sequence[LaneWorker], contract: EnvContract) -> None:
        self.contract = contract
        self.edition = CURRENT_EDITION.name
        self.subset_step = len(workers) == contract.num_envs and contract.autoreset_mode == AutoresetMode.DISABLED
        self.resets_named_lanes = workers[0].resets_named_lanes
        self.ceiling: PeerCeiling | None = None
        self.closed = False
        self._reset_whole = False
        self._workers = workers
        self._all_lanes = tuple(range(contract.num_envs))
        action_space = cast("ValueSpace", contract.action_space)
        self._actions = codec_for(action_space)
        self._check_actions = Conformance("action", action_space, []).check
        self._observations = codec_for(cast("ValueSpace", contract.observation_space))
        self._accounts = EpisodeAccounts(contract.num_envs, contract.autoreset_mode)

    async def reset(self, request: ResetRequest) -> EnvReply:
        """Start episodes on the named lanes, or on all."""
        await trio.lowlevel.checkpoint()
        started = perf_counter_ns()
        named, episode_ids = request.env_indices, request.episode_ids
        lanes = self._covered(named, episode_ids, resets=True)
        seeds = self._seeds_of(request, lanes)
        if self.subset_step and len(lanes) > 1:
            workers = [self._workers[lane] for lane in lanes]
            reply = await reset_lanes(workers, self._observations, seeds, request.options)
        elif named and not self.subset_step:
            reply = await self._reset_some(lanes, seeds, request.options)
        else:
            worker = self._workers[lanes[0] if self.subset_step else 0]
            reply = await worker.reset(request.seeds, request.options)
            self._reset_whole = True
        self._accounts.start(lanes, seeds, episode_ids)
        return EnvReply(
            reply.observation,
            reply.infos,
            endpoint_total_ns=perf_counter_ns() - started,
            phases=Phases(reply.decode_ns, reply.user_ns, reply.encode_ns, lane_skew_ns=reply.lane_skew_ns),
        )

    async def _reset_some(self, lanes: Sequence[int], seeds: Sequence[int], options: Metadata | None) -> HostReply:
        """Reset *lanes* of a lockstep vector; the rows of the observation and the infos are theirs."""
        if not self._reset_whole:
            raise EndpointError(
                "INVALID_ACTION", "a vector env has to be reset whole before some of its lanes are", True
            )
        width = len(self._all_lanes)
        reply = await self._workers[0].reset(*only_lanes(lanes, width, seeds, options))
        rows = self._observations.split(reply.observation, [1] * width)
        own = self._observations.concatenate([rows[lane] for lane in lanes], [1] * len(lanes))
        infos = [lane_part(reply.infos, lane, width) for lane in lanes]
        told = infos[0] if len(lanes) == 1 else fanned_infos(infos, [True] * len(lanes))
        return reply._replace(observation=own, infos=told)

    async def step(self, action: Leaves, target: StepTarget) -> EnvReply:
        """Step the named lanes, or all, with one row of *action* each."""
        await trio.lowlevel.checkpoint()
        started = perf_counter_ns()
        named, episode_ids = target.env_indices, target.episode_ids
        lanes = self._covered(named, episode_ids)
        if self.subset_step and len(lanes) > 1:
            self._refuse_strange_rows(action, len(lanes))
            workers = [self._workers[lane] for lane in lanes]
            reply = await step_lanes(workers, self._observations, self._actions, action)
        elif self.subset_step:
            reply = await self._workers[lanes[0]].step(action)
        else:
            self._accounts.expect_steppable(lanes)
            reply = await self._workers[0].step(action)
        completed = self._accounts.step(
            lanes, episode_ids, reply.rewards, reply.terminated, reply.truncated, self._infos_of(reply, len(lanes))
        )
        return EnvReply(
            reply.observation,
            reply.infos,
            reply.rewards,
            reply.terminated,
            reply.truncated,
            completed,
            named,
            perf_counter_ns() - started,
            Phases(reply.decode_ns, reply.user_ns, reply.encode_ns, lane_skew_ns=reply.lane_skew_ns),
        )

    async def render(self, lane: int) -> bytes | None:
        """The picture of *lane* as a PNG file; ``None`` when the env has none to show."""
        await trio.lowlevel.checkpoint()
        return await self._workers[lane if self.subset_step else 0].render(lane)

    def finish(self) -> Sequence[EpisodeRecord]:
        """End what runs as truncated; returns every record that is still due."""
        return self._accounts.finish()

    async def close(self) -> None:
        """Close the env. A failure is raised when all lanes are closed; closing again does nothing."""
        if self.closed:
            await trio.lowlevel.checkpoint()
            return
        self.closed = True
        await close_lanes(self._workers)

    def _covered(self, named: Sequence[int], episode_ids: Sequence[str], *, resets: bool = False) -> Sequence[int]:
        """The lanes that a step covers, or an operation that *resets* them."""
        if self.closed:
            raise EndpointError("CLOSED", "the env is closed")
        if not named:
            return self._all_lanes
        if not (self.subset_step or (resets and self.resets_named_lanes)):
            raise EndpointError("UNSUPPORTED", "a lockstep vector env takes no env_indices", True)
        if len(set(named)) < len(named):
            raise EndpointError("INVALID_ACTION", f"env_indices name a lane twice: {list(named)}", True)
        if min(named) < 0 or max(named) >= len(self._all_lanes):
            raise EndpointError(
                "INVALID_ACTION", f"env_indices {list(named)}: there are {len(self._all_lanes)} lanes", True
            )
        if episode_ids and len(episode_ids) != len(named):
            raise EndpointError("INVALID_ACTION", f"{len(episode_ids)} episode ids for {len(named)} lanes", True)
        return named

    def _refuse_strange_rows(self, action: Leaves, rows: int) -> None:
        """Refuse a batch with one row that its env would refuse, before another env has stepped."""
        try:
            self._check_actions(action, rows)
        except SpaceError as wrong:
            raise EndpointError("INVALID_ACTION", str(wrong), True) from wrong

    def _seeds_of(self, request: ResetRequest, lanes: Sequence[int]) -> Sequence[int]:
        """One seed per lane, or none.

        A lockstep vector spreads a single one, which is then known for the first lane only; a single env takes the
        first it is given.
        """
        seeds = request.seeds
        if len(self._all_lanes) == 1 and not request.env_indices:
            return seeds[:1]
        spreads = not (self.subset_step or request.env_indices)
        if len(seeds) in (0, len(lanes)) or (len(seeds) == 1 and spreads):
            return seeds
        raise EndpointError("INVALID_ACTION", f"{len(seeds)} seeds for {len(lanes)} lanes", True)

    def _infos_of(self, reply: HostReply, lanes: int) -> InfosOf:
        """How to find one lane's own infos, by its position, in those of the whole reply."""
        infos = reply.infos
        if self.contract.autoreset_mode == AutoresetMode.SAME_STEP:
            infos = cast("Metadata", infos.get("final_info") or {})
        if lanes == 1:
            return lambda _: infos
        if self.subset_step:
            return cast("Sequence[Metadata]", infos["final_info"]).__getitem__
        return lambda lane: lane_part(infos, lane, lanes)
