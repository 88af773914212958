"""A lane's env in a process of its own: a fresh interpreter that shares nothing but the way to make the env.

A process that ends by itself is ``CRASHED``, and the error says how it ended. One that is abandoned in the middle of
an operation is killed at once. Closing asks politely, kills after :data:`CLOSE_GRACE` seconds, and always reaps.
"""

import signal
import subprocess
import sys
from collections.abc import Sequence
from typing import Any, cast

import cloudpickle
import trio

from rlmesh_trio.endpoints.env_hosts import HostReply
from rlmesh_trio.endpoints.lane_frames import HEADER_BYTES, body_length, decode_frame, encode_frame
from rlmesh_trio.endpoints.lane_workers import CLOSE_GRACE, lost_lane
from rlmesh_trio.endpoints.loading import EnvMaker
from rlmesh_trio.errors import ConnectError, EndpointError, SessionError
from rlmesh_trio.messages import Leaves, Metadata
from rlmesh_trio.spec import EnvContract

__all__ = ("ProcessWorker",)

_CHILD_MODULE = "rlmesh_trio.endpoints.lane_child"
_EXIT_GRACE = 5.0
_READ_AT_LEAST = 65536


class ProcessWorker:
    """Runs the env in a worker process, one request at a time over its standard streams."""

    waits = True
    resets_named_lanes = False

    def __init__(self, maker: EnvMaker) -> None:
        self._maker = maker
        self._lane = maker.lane
        self._turn = trio.StrictFIFOLock()
        self._process: trio.Process | None = None
        self._end: str | None = None
        self._opened = False
        self._lost = False

    @property
    def broken(self) -> bool:
        """Whether the process is gone, or was killed in the middle of an operation."""
        return self._lost or self._end is not None

    def anew(self) -> "ProcessWorker":
        """Another one, in a process of its own."""
        return ProcessWorker(self._maker)

    async def open(self) -> EnvContract:
        """Start the process and make the env there."""
        made = self._portable_maker()
        program = f"import sys; sys.path[:] = {sys.path!r}; from {_CHILD_MODULE} import serve; serve()"
        self._process = process = await trio.lowlevel.open_process(
            [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        self._requests = cast("trio.abc.SendStream", process.stdin)
        self._replies = cast("trio.abc.ReceiveStream", process.stdout)
        try:
            (contract, self.resets_named_lanes), _ = await self._exchange(process, made)
        except EndpointError as failure:
            raise ConnectError(f"the env could not be opened: {failure}") from failure
        self._opened = True
        return contract

    async def reset(self, seeds: Sequence[int | None], options: Metadata | None) -> HostReply:
        """Reset in the process."""
        return await self._ask(("reset", tuple(seeds), None if options is None else dict(options)))

    async def step(self, action: Leaves) -> HostReply:
        """Step in the process."""
        return await self._ask(("step",), action)

    async def render(self, lane: int) -> bytes | None:
        """Render in the process."""
        picture, _ = await self._exchange(cast("trio.Process", self._process), ("render", lane))
        return picture

    async def new_session(self) -> None:
        """Tell the host, in the process."""
        await self._exchange(cast("trio.Process", self._process), ("new_session",))

    async def close(self) -> None:
        """Close the env and end the process. Being cancelled only makes it less polite."""
        process = self._process
        if process is None:
            return
        try:
            if self._opened and not self._lost and self._end is None:
                with trio.fail_after(CLOSE_GRACE):
                    await self._exchange(process, ("close",))
        except trio.TooSlowError:
            raise EndpointError("TIMEOUT", f"lane {self._lane} did not close in time and was killed") from None
        finally:
            await self._end_process(process)

    async def _end_process(self, process: trio.Process) -> None:
        try:
            await self._requests.aclose()
            with trio.move_on_after(CLOSE_GRACE):
                await process.wait()
        finally:
            process.kill()
            with trio.CancelScope(shield=True):
                await process.wait()
                await self._replies.aclose()

    def _portable_maker(self) -> bytes:
        if self._maker.holds_env:
            raise ConnectError("an env that exists already cannot move to a process: pass a factory or its name")
        try:
            return cast("bytes", cast("Any", cloudpickle).dumps(self._maker))
        except Exception as failure:
            raise ConnectError(
                f"the env factory cannot be sent to a process ({type(failure).__name__}: {failure}): "
                "name it as module:factory"
            ) from failure

    async def _ask(self, request: tuple[Any, ...], leaves: Leaves = ()) -> HostReply:
        answer, observation = await self._exchange(cast("trio.Process", self._process), request, leaves)
        return cast("HostReply", answer)._replace(observation=observation)

    async def _exchange(self, process: trio.Process, head: object, leaves: Leaves = ()) -> tuple[Any, Leaves]:
        async with self._turn:
            if self._lost:
                raise lost_lane(self._lane)
            if self._end is not None:
                raise EndpointError("CRASHED", self._end)
            try:
                await self._requests.send_all(b"".join(encode_frame(head, leaves)))
                answer, answered = await self._receive()
            except trio.Cancelled:
                self._lost = True
                process.kill()
                raise
            except (trio.BrokenResourceError, EOFError):
                self._end = await self._ending_of(process)
                raise EndpointError("CRASHED", self._end) from None
        if isinstance(answer, SessionError):
            raise answer
        return answer, answered

    async def _receive(self) -> tuple[Any, Leaves]:
        data = await self._at_least(HEADER_BYTES, b"")
        header = data[:HEADER_BYTES]
        data = await self._at_least(HEADER_BYTES + body_length(header), data)
        try:
            return decode_frame(header, memoryview(data)[HEADER_BYTES:])
        except Exception as failure:
            raise EndpointError(
                "INTERNAL", f"the infos of lane {self._lane} cannot be read here: {type(failure).__name__}: {failure}"
            ) from failure

    async def _at_least(self, length: int, data: bytes) -> bytes:
        parts, have = list[bytes | bytearray]((data,)), len(data)
        while have < length:
            part = await self._replies.receive_some(max(_READ_AT_LEAST, length - have))
            if not part:
                raise EOFError
            parts.append(part)
            have += len(part)
        return b"".join(parts)

    async def _ending_of(self, process: trio.Process) -> str:
        with trio.move_on_after(_EXIT_GRACE):
            await process.wait()
        code = process.returncode
        if code is None:
            how = "closed its pipe but lives on"
        elif code < 0:
            how = f"was killed by {signal.Signals(-code).name}"
        else:
            how = f"exited with status {code}"
        return f"the worker process of lane {self._lane} {how}"
