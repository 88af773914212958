"""A file of lines that one process appends to. What cannot be written now is kept, and goes first at the next try."""

import logging
import os
import sys
import time
from io import FileIO
from typing import IO, Any, Final

from rlmesh_trio.errors import InvalidSpec

if sys.platform != "win32":
    import fcntl

__all__ = ("LineFile", "check_place", "locked_elsewhere")

logger = logging.getLogger("rlmesh_trio")

_SYNC_SECONDS: Final = 1.0


def check_place(path: str, what: str) -> None:
    """Raise :exc:`InvalidSpec` when no *what* can be written at *path*, and leave everything as it is."""
    folder = os.path.dirname(path) or os.curdir
    if os.path.exists(path):
        if not os.path.isfile(path):
            raise InvalidSpec(f"{what} {path} is no regular file")
        writable = os.access(path, os.W_OK)
    elif os.path.isdir(folder):
        writable = os.access(folder, os.W_OK)
    else:
        raise InvalidSpec(f"{what} {path} cannot be written: there is no folder {folder}")
    if not writable:
        raise InvalidSpec(f"{what} {path} cannot be written: it is write-protected")


def locked_elsewhere(stream: IO[Any] | FileIO) -> bool:
    """Lock the file of *stream* for as long as it is open; whether another one has it locked, and this one not.

    Not every file system knows locks: where none can be had, nobody has one.
    """
    if sys.platform != "win32":
        try:
            fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        except OSError as error:
            logger.debug("%s cannot be locked: %s", stream.name, error)
    return False


class LineFile:
    """The file *path*, a *what*, made if need be and locked while it is open.

    ``failure`` is why the newest lines are not in the file yet, and ``None`` while none is missing.

    Raises :exc:`InvalidSpec` for a place that cannot be written, or that another process writes to.
    """

    def __init__(self, path: str, what: str) -> None:
        self.failure: OSError | None = None
        self._name = f"{what} {path}"
        self._unwritten = bytearray()
        self._synced = time.monotonic()
        check_place(path, what)
        try:
            self._stream = FileIO(os.open(path, os.O_RDWR | os.O_CREAT, 0o666), "r+")
        except OSError as error:
            raise self._refusal(error) from error
        if locked_elsewhere(self._stream):
            self._stream.close()
            raise InvalidSpec(f"{self._name} is being written by another run")

    def read(self) -> bytes:
        """The whole content."""
        try:
            self._stream.seek(0)
            return self._stream.readall()
        except OSError as error:
            raise InvalidSpec(f"{self._name} cannot be read: {_reason(error)}") from error

    def begin(self, kept: int, lines: bytes) -> None:
        """Keep the first *kept* bytes of the content and write *lines* behind them, or raise :exc:`InvalidSpec`."""
        try:
            self._stream.seek(kept)
            self._stream.truncate()
            self._unwritten += lines
            self._write_all()
            os.fsync(self._stream.fileno())
        except OSError as error:
            raise self._refusal(error) from error

    def append(self, lines: bytes, *, sync: bool = False) -> None:
        """Write *lines*, which then survive the process; a *sync*, of which there is one a second, the machine too."""
        self._unwritten += lines
        before = self.failure
        try:
            self._write_all()
            if sync or time.monotonic() - self._synced >= _SYNC_SECONDS:
                self._synced = time.monotonic()
                os.fsync(self._stream.fileno())
        except OSError as failure:
            self.failure = failure
            if before is None:
                logger.warning("%s cannot be written: %s; the run goes on without it", self._name, _reason(failure))
        else:
            self.failure = None
            if before is not None:
                logger.warning("%s can be written again; nothing of it is missing", self._name)

    def close(self) -> None:
        """Close the file. What is missing then is missing for good, and an error in the log."""
        if self._stream.closed:
            return
        if self.failure is not None:
            self.append(b"", sync=True)
        if self.failure is not None:
            logger.error("%s is incomplete: %s", self._name, _reason(self.failure))
        self._stream.close()

    def _write_all(self) -> None:
        while self._unwritten:
            del self._unwritten[: self._stream.write(self._unwritten)]

    def _refusal(self, error: OSError) -> InvalidSpec:
        return InvalidSpec(f"{self._name} cannot be written: {_reason(error)}")


def _reason(error: OSError) -> str:
    return error.strerror or str(error)
