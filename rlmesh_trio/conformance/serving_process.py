"""A child process that serves an env: started with a source, ended when it is no longer wanted, or with its parent.

It gets what to serve over its standard input, writes the address it serves at to its standard output, and ends when
its input does: no server outlives the run that started it.
"""

import struct
import subprocess
import sys
from collections import deque
from typing import Any, cast

import cloudpickle
import trio

from rlmesh_trio.errors import ConnectError

__all__ = ("ServingProcess",)

_CHILD_MODULE = "rlmesh_trio.conformance.serving_child"
_START_LIMIT = 60.0
_LINES_KEPT = 20


class ServingProcess:
    """One env served on a local port. ``stderr`` are the last lines the process wrote, of earlier ones too."""

    def __init__(self, source: object, lanes: int, nursery: trio.Nursery) -> None:
        self._source = source
        self._lanes = lanes
        self._nursery = nursery
        self._process: trio.Process | None = None
        self.address = ""
        self.stderr: deque[str] = deque(maxlen=_LINES_KEPT)

    @property
    def ended(self) -> bool:
        """Whether there is no process, or no longer."""
        return self._process is None or self._process.poll() is not None

    async def start(self) -> None:
        """Start the process and wait until it serves. Raises :exc:`ConnectError` that says why it does not."""
        order = self._order()
        program = f"import sys; sys.path[:] = {sys.path!r}; from {_CHILD_MODULE} import main; main()"
        self._process = process = await trio.lowlevel.open_process(
            [sys.executable, "-c", program],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        told = trio.Event()
        self._nursery.start_soon(self._keep_lines, cast("trio.abc.ReceiveStream", process.stderr), told)
        try:
            with trio.fail_after(_START_LIMIT):
                await cast("trio.abc.SendStream", process.stdin).send_all(struct.pack("<Q", len(order)) + order)
                word, _, rest = (await _line(cast("trio.abc.ReceiveStream", process.stdout))).partition(" ")
        except trio.TooSlowError:
            await self.end()
            raise ConnectError(f"the env was not served within {_START_LIMIT:g} s") from None
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            word, rest = "", ""
        if word == "READY":
            self.address = rest
            return
        await self.end()
        await told.wait()
        raise ConnectError(rest or f"the process to serve the env ended at once: {' '.join(self.stderr) or 'no word'}")

    async def end(self) -> None:
        """Kill the process, if there is one, and reap it."""
        process, self._process = self._process, None
        if process is None:
            return
        process.kill()
        with trio.CancelScope(shield=True):
            await process.wait()
            for stream in (process.stdin, process.stdout):
                await cast("trio.abc.AsyncResource", stream).aclose()

    def _order(self) -> bytes:
        try:
            return cast("bytes", cast("Any", cloudpickle).dumps((self._source, self._lanes)))
        except Exception as failure:
            raise ConnectError(
                f"the env factory cannot be sent to a process ({type(failure).__name__}: {failure}): "
                "name it as module:factory"
            ) from failure

    async def _keep_lines(self, stream: trio.abc.ReceiveStream, told: trio.Event) -> None:
        unfinished = b""
        async with stream:
            async for piece in stream:
                *lines, unfinished = (unfinished + piece).split(b"\n")
                self.stderr.extend(line.decode(errors="replace") for line in lines if line.strip())
        if unfinished.strip():
            self.stderr.append(unfinished.decode(errors="replace"))
        told.set()


async def _line(stream: trio.abc.ReceiveStream) -> str:
    said = b""
    while not said.endswith(b"\n"):
        piece = await stream.receive_some()
        if not piece:
            break
        said += piece
    return said.decode(errors="replace").strip()
