"""Where a lane's env runs: right here or in a thread of its own; in a process of its own is ``lane_process``.

A worker opens once, answers resets and steps one at a time, and closes within :data:`CLOSE_GRACE` seconds whatever
the env does. An operation cancelled while it ran leaves the env in a state nobody knows: that lane is *lost*, and says
so on every further operation.
"""

from collections.abc import Callable, Sequence
from typing import Protocol, TypeVar

import trio

from rlmesh_trio.endpoints.env_hosts import EnvHost, HostReply, host_env
from rlmesh_trio.endpoints.loading import EnvMaker
from rlmesh_trio.endpoints.resident_thread import ResidentThread, ThreadOccupied
from rlmesh_trio.errors import EndpointError
from rlmesh_trio.messages import Leaves, Metadata
from rlmesh_trio.spec import EnvContract

__all__ = ("CLOSE_GRACE", "InlineWorker", "LaneWorker", "ThreadWorker", "lost_lane")

T = TypeVar("T")

CLOSE_GRACE = 2.0


class LaneWorker(Protocol):
    """One env, wherever it runs. Failures are :exc:`EndpointError`, while opening also what :func:`host_env` raises.

    ``waits`` says whether the caller waits while the env works, so that several can work at once. Once it is open
    ``resets_named_lanes`` says whether its env is a vector of which some lanes can be reset.
    """

    waits: bool
    resets_named_lanes: bool

    @property
    def broken(self) -> bool:
        """Whether it will never answer again."""
        ...

    def anew(self) -> "LaneWorker | None":
        """A worker for the same lane with an env of its own, still to be opened; ``None`` if that cannot be made."""
        ...

    async def open(self) -> EnvContract:
        """Make the env and return its contract."""
        ...

    async def reset(self, seeds: Sequence[int | None], options: Metadata | None) -> HostReply:
        """Reset the env, unseeded when *seeds* is empty."""
        ...

    async def step(self, action: Leaves) -> HostReply:
        """Step the env."""
        ...

    async def render(self, lane: int) -> bytes | None:
        """The picture of *lane* of the env, as a PNG file, if there is one."""
        ...

    async def new_session(self) -> None:
        """Tell the env's host that somebody else is driving now."""
        ...

    async def close(self) -> None:
        """Close the env, whatever became of :meth:`open`."""
        ...


def lost_lane(lane: int) -> EndpointError:
    """What every operation on a lost lane raises."""
    return EndpointError(
        "INTERNAL", f"lane {lane} is lost: an operation was abandoned while its env was at it; open the env anew"
    )


class InlineWorker:
    """Runs the env in the calling task: for envs that answer in microseconds."""

    waits = False
    broken = False
    resets_named_lanes = False

    def __init__(self, maker: EnvMaker) -> None:
        self._maker = maker
        self._host: EnvHost | None = None

    def anew(self) -> "InlineWorker | None":
        """Another one, unless the env was made by somebody else."""
        return None if self._maker.holds_env else InlineWorker(self._maker)

    async def open(self) -> EnvContract:
        """Make the env here."""
        await trio.lowlevel.checkpoint()
        self._host = host = host_env(self._maker())
        self._reset, self._step, self._render, self._new_session = host.reset, host.step, host.render, host.new_session
        self.resets_named_lanes = host.resets_named_lanes
        return host.contract

    async def reset(self, seeds: Sequence[int | None], options: Metadata | None) -> HostReply:
        """Reset without waiting: whoever calls has passed a checkpoint."""
        return self._reset(seeds, options)

    async def step(self, action: Leaves) -> HostReply:
        """Step without waiting: whoever calls has passed a checkpoint."""
        return self._step(action)

    async def render(self, lane: int) -> bytes | None:
        """Render without waiting: whoever calls has passed a checkpoint."""
        return self._render(lane)

    async def new_session(self) -> None:
        """Tell the host."""
        self._new_session()

    async def close(self) -> None:
        """Close the env, however long that takes."""
        if self._host is not None:
            self._host.close()
        await trio.lowlevel.checkpoint()


class ThreadWorker:
    """Runs the env in one thread that makes it, uses it and closes it, so that envs bound to a thread work."""

    waits = True
    resets_named_lanes = False

    def __init__(self, maker: EnvMaker) -> None:
        self._maker = maker
        self._thread = ResidentThread(f"rlmesh-trio lane {maker.lane}")
        self._host: EnvHost | None = None

    @property
    def broken(self) -> bool:
        """Whether an operation was abandoned."""
        return self._thread.abandoned

    def anew(self) -> "ThreadWorker | None":
        """Another one, in a thread of its own, unless the env was made by somebody else."""
        return None if self._maker.holds_env else ThreadWorker(self._maker)

    async def open(self) -> EnvContract:
        """Make the env in the thread."""
        self._host = host = await self._thread.run(lambda: host_env(self._maker()))
        self._reset, self._step, self._render, self._new_session = host.reset, host.step, host.render, host.new_session
        self.resets_named_lanes = host.resets_named_lanes
        return host.contract

    async def reset(self, seeds: Sequence[int | None], options: Metadata | None) -> HostReply:
        """Reset in the thread."""
        return await self._call(lambda: self._reset(seeds, options))

    async def step(self, action: Leaves) -> HostReply:
        """Step in the thread."""
        return await self._call(lambda: self._step(action))

    async def render(self, lane: int) -> bytes | None:
        """Render in the thread."""
        return await self._call(lambda: self._render(lane))

    async def new_session(self) -> None:
        """Tell the host, in the thread."""
        await self._call(self._new_session)

    async def close(self) -> None:
        """Close the env in the thread. A thread that does not come back in time is left behind."""
        try:
            if self._host is not None:
                with trio.fail_after(CLOSE_GRACE):
                    await self._thread.free()
                    await self._thread.run(self._host.close)
        except (ThreadOccupied, trio.TooSlowError):
            raise EndpointError(
                "TIMEOUT", f"lane {self._maker.lane} did not come back in time: its env is left open in its thread"
            ) from None
        finally:
            self._thread.close()

    async def _call(self, call: Callable[[], T]) -> T:
        if self._thread.abandoned:
            raise lost_lane(self._maker.lane)
        return await self._thread.run(call)
