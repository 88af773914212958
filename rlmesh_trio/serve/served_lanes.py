"""The env that is served, whoever drives it: its workers outlive the clients, and one that is lost is made anew.

Nothing is made anew before a reset asks for it, so that no client sees an env change under it. An env that was handed
over ready made cannot be made anew: a lane that is lost then stays so.
"""

import logging
from collections.abc import Iterable, Sequence
from contextlib import suppress

import trio

from rlmesh_trio.endpoints.lane_fanout import close_lanes, open_lanes
from rlmesh_trio.endpoints.lane_workers import LaneWorker
from rlmesh_trio.endpoints.local_env import LocalEnv, Where, make_workers
from rlmesh_trio.errors import EndpointError, SessionError
from rlmesh_trio.spec import EnvContract

__all__ = ("ServedLanes", "open_served_lanes")

logger = logging.getLogger("rlmesh_trio")


async def open_served_lanes(source: object, lanes: int, where: Where) -> "ServedLanes":
    """Open *source*; takes and raises what :func:`~rlmesh_trio.endpoints.local_env.open_local_env` does.

    A vector env with ``SAME_STEP`` autoreset is as good as another one.
    """
    workers = make_workers(source, lanes, where)
    try:
        return ServedLanes(workers, await open_lanes(workers))
    except BaseException:
        await _close_quietly(workers)
        raise


class ServedLanes:
    """The open workers of a served env, and the ``contract`` of the whole.

    ``by_name`` says whether any operation can name lanes, ``resets_by_name`` whether a reset can, ``waits`` whether the
    server can go on while the env works, ``side_by_side`` whether lanes then work at once, ``replaceable`` whether a
    lost lane can be had anew.
    """

    def __init__(self, workers: list[LaneWorker], contract: EnvContract) -> None:
        self.contract = contract
        self.by_name = LocalEnv(workers, contract).subset_step
        self.resets_by_name = self.by_name or workers[0].resets_named_lanes
        self.waits = workers[0].waits
        self.side_by_side = self.waits and len(workers) > 1
        self.replaceable = all(worker.anew() is not None for worker in workers)
        self._workers = workers

    async def new_session(self) -> LocalEnv:
        """The env for the next client, nothing in it left of the one before."""
        for worker in self._workers:
            if not worker.broken:
                with suppress(EndpointError):  # It has just been found lost: the first reset will mend it.
                    await worker.new_session()
        return LocalEnv(self._workers, self.contract)

    async def mend(self, lanes: Iterable[int]) -> None:
        """Have the workers of *lanes* replaced that are lost. Raises :exc:`EndpointError` when that cannot be done."""
        for place in {min(lane, len(self._workers) - 1) for lane in lanes}:
            if self._workers[place].broken:
                await self._replace(place)

    async def _replace(self, place: int) -> None:
        lost = self._workers[place]
        fresh = lost.anew()
        if fresh is None:
            raise EndpointError(
                "CRASHED", f"the env of lane {place} is lost, and was not made by the server: start the server anew"
            )
        try:
            contract = await fresh.open()
            _expect_alike(contract, self.contract)
        except SessionError as failure:
            await _close_quietly([fresh])
            raise EndpointError("CRASHED", f"the env of lane {place} could not be made anew: {failure}") from failure
        except BaseException:
            await _close_quietly([fresh])
            raise
        self._workers[place] = fresh
        logger.warning("the env of lane %d was lost and has been made anew", place)
        await _close_quietly([lost])

    async def close(self) -> None:
        """Close the env for good. A failure is logged."""
        await _close_quietly(self._workers)


def _expect_alike(fresh: EnvContract, before: EnvContract) -> None:
    for side in ("observation_space", "action_space"):
        if getattr(fresh, side).encoded != getattr(before, side).encoded:
            raise SessionError(f"it has another {side} now")


async def _close_quietly(workers: Sequence[LaneWorker]) -> None:
    with trio.CancelScope(shield=True):
        try:
            await close_lanes(workers)
        except EndpointError as failure:
            logger.warning("environment close failed: %s", failure)
