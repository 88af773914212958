"""A process that serves an env: started with a source, ended when it is no longer wanted, or with its parent.

Starting an interpreter takes most of a second, so two are kept that fork a process for each start. They take turns:
what hangs on an interpreter's hash seed differs between processes.
"""

import os
import signal
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
_KILL_LIMIT = 5.0
_POLL = 0.002
_GLANCE = 0.05
_LAST_WORDS = 0.1
_LINES_KEPT = 20
_NESTS = 2


class ServingProcess:
    """One env served on a local port. ``stderr`` are the last lines the processes wrote, earlier ones too."""

    def __init__(self, source: object, lanes: int, nursery: trio.Nursery) -> None:
        self._source = source
        self._lanes = lanes
        self._nursery = nursery
        self._nests: list[_Nest] = []
        self._starts = 0
        self._pid: int | None = None
        self.address = ""
        self.stderr: deque[str] = deque(maxlen=_LINES_KEPT)

    @property
    def ended(self) -> bool:
        """Whether there is no process, or no longer."""
        return self._pid is None or not _is_alive(self._pid)

    async def start(self) -> None:
        """Start the process and wait until it serves. Raises :exc:`ConnectError` that says why it does not."""
        order = self._order()
        while len(self._nests) < _NESTS:
            self._nests.append(await _Nest.open(self._nursery, self.stderr))
        nest = self._nests[max(0, self._starts - 1) % _NESTS]
        self._starts += 1
        try:
            with trio.fail_after(_START_LIMIT):
                await nest.send(order)
                self._pid, word, rest = await nest.answer()
        except trio.TooSlowError:
            await self.end()
            raise ConnectError(f"the env was not served within {_START_LIMIT:g} s") from None
        if word == "READY":
            self.address = rest
            return
        await self.end()
        if not rest:
            await trio.sleep(_LAST_WORDS)
            rest = f"the process to serve the env ended at once: {' '.join(self.stderr) or 'no word'}"
        raise ConnectError(rest)

    async def kill(self) -> None:
        """Kill the process that serves, if there is one, and see it gone."""
        pid, self._pid = self._pid, None
        if pid is None or not _is_alive(pid):
            return
        os.kill(pid, signal.SIGKILL)
        with trio.CancelScope(shield=True, deadline=trio.current_time() + _KILL_LIMIT):
            while _is_alive(pid):  # noqa: ASYNC110 - nobody tells
                await trio.sleep(_POLL)

    async def end(self) -> None:
        """Kill everything."""
        await self.kill()
        nests, self._nests = self._nests, []
        for nest in nests:
            await nest.close()

    def _order(self) -> bytes:
        try:
            pickled = cast("bytes", cast("Any", cloudpickle).dumps((self._source, self._lanes)))
        except Exception as failure:
            raise ConnectError(
                f"the env factory cannot be sent to a process ({type(failure).__name__}: {failure}): "
                "name it as module:factory"
            ) from failure
        return struct.pack("<Q", len(pickled)) + pickled


class _Nest:
    """An interpreter that waits for orders."""

    def __init__(self, process: trio.Process, life: int) -> None:
        self._process = process
        self._life = life
        self._said = b""

    @classmethod
    async def open(cls, nursery: trio.Nursery, stderr: deque[str]) -> "_Nest":
        """Start one. What it and its forks write goes to *stderr*."""
        theirs, ours = os.pipe()
        program = f"import sys; sys.path[:] = {sys.path!r}; from {_CHILD_MODULE} import main; main({theirs})"
        try:
            process = await trio.lowlevel.open_process(
                [sys.executable, "-c", program],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                pass_fds=(theirs,),
                # Ctrl-C is for the run: it ends them when it is done with them.
                start_new_session=True,
            )
        except BaseException:
            os.close(ours)
            raise
        finally:
            os.close(theirs)
        nursery.start_soon(_keep_lines, cast("trio.abc.ReceiveStream", process.stderr), stderr)
        return cls(process, ours)

    async def send(self, order: bytes) -> None:
        """Ask for a process. One that is no longer there is noticed by its answer."""
        try:
            await cast("trio.abc.SendStream", self._process.stdin).send_all(order)
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            return

    async def answer(self) -> tuple[int | None, str, str]:
        """The process's id, the word ``READY`` or ``FAILED``, and what comes behind it; empty where nothing came."""
        pid: int | None = None
        while True:
            word, _, rest = (await self._line(pid)).partition(" ")
            if word != "PID":
                return pid, word, rest
            pid = int(rest)

    async def _line(self, pid: int | None) -> str:
        """The next line; nothing when it ends, or the process *pid* does, without one."""
        stdout = cast("trio.abc.ReceiveStream", self._process.stdout)
        while b"\n" not in self._said:
            gone = pid is not None and not _is_alive(pid)
            with trio.move_on_after(_GLANCE) as glance:
                piece = await stdout.receive_some()
                if not piece:
                    return ""
                self._said += piece
            if glance.cancelled_caught and gone:
                return ""
        line, _, self._said = self._said.partition(b"\n")
        return line.decode(errors="replace")

    async def close(self) -> None:
        """Kill it; its forks end with it."""
        os.close(self._life)
        self._process.kill()
        with trio.CancelScope(shield=True):
            await self._process.wait()
            for stream in (self._process.stdin, self._process.stdout):
                await cast("trio.abc.AsyncResource", stream).aclose()


async def _keep_lines(stream: trio.abc.ReceiveStream, lines: deque[str]) -> None:
    unfinished = b""
    async with stream:
        async for piece in stream:
            *finished, unfinished = (unfinished + piece).split(b"\n")
            lines.extend(line.decode(errors="replace") for line in finished if line.strip())
    if unfinished.strip():
        lines.append(unfinished.decode(errors="replace"))


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True
