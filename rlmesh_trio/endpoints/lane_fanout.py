"""One operation over several lanes: asked of all together, or in their order where nothing is gained by it.

The answer is one batch in the lanes' order. Its infos are one entry ``final_info`` with each lane's own infos, and
``_final_info`` beside it: all true after a reset, after a step true where the episode ended. The first lane that fails
decides; the others finish.
"""

import statistics
from collections.abc import Awaitable, Callable, Sequence
from time import perf_counter_ns
from typing import TypeVar

import attrs
import trio

from rlmesh_trio.endpoints.env_hosts import HostReply
from rlmesh_trio.endpoints.lane_accounts import fanned_infos
from rlmesh_trio.endpoints.lane_workers import LaneWorker
from rlmesh_trio.errors import ConnectError, EndpointError, HandshakeError, SessionError, SpaceError
from rlmesh_trio.messages import Leaves, Metadata
from rlmesh_trio.spaces import SpaceCodec, contract_to_wire
from rlmesh_trio.spec import EnvContract

__all__ = ("close_lanes", "open_lanes", "reset_lanes", "step_lanes")

T = TypeVar("T")


async def open_lanes(workers: Sequence[LaneWorker]) -> EnvContract:
    """Open all workers and return the contract of the whole; the first failure ends the others' opening."""
    contracts = await _gather(workers, [worker.open for worker in workers], patient=False)
    first = contracts[0]
    if len(contracts) == 1:
        return first
    for lane, contract in enumerate(contracts):
        if contract.num_envs > 1:
            raise ConnectError("a vector env brings its own lanes and is opened alone")
        for side in ("observation_space", "action_space"):
            if getattr(contract, side).encoded != getattr(first, side).encoded:
                raise HandshakeError(f"lane {lane} declares another {side} than lane 0: lanes must be alike")
    whole = attrs.evolve(first, num_envs=len(contracts))
    return attrs.evolve(whole, encoded_size=len(contract_to_wire(whole)))


async def close_lanes(workers: Sequence[LaneWorker]) -> None:
    """Close all workers; the first failure is raised when all are closed."""
    await _gather(workers, [worker.close for worker in workers])


async def reset_lanes(
    workers: Sequence[LaneWorker], observations: SpaceCodec, seeds: Sequence[int], options: Metadata | None
) -> HostReply:
    """Reset each of *workers*, with its own of *seeds* if there are any."""
    started = perf_counter_ns()
    asked = [_resetter(worker, seeds[i : i + 1], options) for i, worker in enumerate(workers)]
    return _joined(await _gather(workers, asked), observations, started, started)


async def step_lanes(
    workers: Sequence[LaneWorker], observations: SpaceCodec, actions: SpaceCodec, action: Leaves
) -> HostReply:
    """Step each of *workers* with its row of *action*."""
    started = perf_counter_ns()
    try:
        rows = actions.split(action, [1] * len(workers))
    except SpaceError as wrong:
        raise EndpointError("INVALID_ACTION", str(wrong), True) from wrong
    decoded = perf_counter_ns()
    asked = [_stepper(worker, row) for worker, row in zip(workers, rows, strict=True)]
    return _joined(await _gather(workers, asked), observations, started, decoded)


def _resetter(worker: LaneWorker, seeds: Sequence[int], options: Metadata | None) -> Callable[[], Awaitable[HostReply]]:
    return lambda: worker.reset(seeds, options)


def _stepper(worker: LaneWorker, action: Leaves) -> Callable[[], Awaitable[HostReply]]:
    return lambda: worker.step(action)


async def _gather(
    workers: Sequence[LaneWorker], calls: Sequence[Callable[[], Awaitable[T]]], *, patient: bool = True
) -> list[T]:
    """Make one call per worker and return their results in order, or raise the first failure.

    After a failure the other calls are still made, unless not *patient*.
    """
    results: dict[int, T] = {}
    failures: list[SessionError] = []

    async def make(position: int) -> None:
        try:
            results[position] = await calls[position]()
        except SessionError as failure:
            failures.append(failure)
            if not patient:
                whole.cancel(reason="another lane failed")

    with trio.CancelScope() as whole:
        if workers[0].waits:
            async with trio.open_nursery() as nursery:
                for position in range(len(calls)):
                    nursery.start_soon(make, position)
        else:
            for position in range(len(calls)):
                await make(position)
    if failures:
        raise failures[0]
    return [results[position] for position in range(len(calls))]


def _joined(replies: Sequence[HostReply], observations: SpaceCodec, started: int, decoded: int) -> HostReply:
    called = perf_counter_ns()
    rewards = [reward for reply in replies for reward in reply.rewards]
    terminated = b"".join([reply.terminated for reply in replies])
    truncated = b"".join([reply.truncated for reply in replies])
    ended = [any(flags) for flags in zip(terminated, truncated, strict=True)] if rewards else [True] * len(replies)
    times = [reply.user_ns for reply in replies]
    return HostReply(
        observations.concatenate([reply.observation for reply in replies], [1] * len(replies)),
        rewards,
        terminated,
        truncated,
        fanned_infos([reply.infos for reply in replies], ended),
        decoded - started,
        called - decoded,
        perf_counter_ns() - called,
        round(max(times) - statistics.median(times)),
    )
