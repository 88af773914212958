"""Running the program: in this process, or in one of its own with pipes or a terminal."""

import codecs
import contextlib
import fcntl
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Generator
from pathlib import Path

import attrs
import pytest

from rlmesh_trio.cli import main

ROOT = Path(__file__).parents[2]
PROGRAM = [sys.executable, "-m", "rlmesh_trio"]
LIMIT = 30.0
_CONTROL = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


@attrs.frozen
class Ran:
    """What a run came to."""

    status: int
    out: str
    err: str

    @property
    def error(self) -> str:
        """The error, which is one line and the last."""
        *_, last = self.err.splitlines()
        assert last.startswith("error: ")
        return last.removeprefix("error: ")

    def rows(self) -> dict[str, str]:
        """The rows of the summary."""
        rows = [re.fullmatch(r"  (.*?)\s{2,}(.*)", line) for line in self.out.splitlines()[1:]]
        return {row[1]: row[2] for row in rows if row}


def run(capsys: pytest.CaptureFixture[str], *args: str) -> Ran:
    """Run the program with *args* in this process, standard error being no terminal."""
    capsys.readouterr()
    with pytest.raises(SystemExit) as exited:
        main(args)
    assert isinstance(exited.value.code, int)
    said = capsys.readouterr()
    return Ran(exited.value.code, said.out, said.err)


@contextlib.contextmanager
def started(*args: str, cwd: Path = ROOT) -> Generator[subprocess.Popen[str]]:
    """The program with pipes, killed at the end."""
    with subprocess.Popen(
        [*PROGRAM, *args], cwd=cwd, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        try:
            yield process
        finally:
            process.kill()


class Terminal:
    """The program at a terminal, whose every redrawing is kept."""

    def __init__(self, *args: str, columns: int = 80, kind: str = "xterm-256color") -> None:
        self.written = ""
        self._decoder = codecs.getincrementaldecoder("utf-8")()
        self._pid, self._terminal = pty.fork()
        if self._pid == 0:
            os.chdir(ROOT)
            os.execvpe(PROGRAM[0], [*PROGRAM, *args], os.environ | {"TERM": kind, "COLUMNS": str(columns)})
        fcntl.ioctl(self._terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))

    def wait_for(self, pattern: str) -> None:
        """Read until something was written that *pattern* finds."""
        deadline = time.monotonic() + LIMIT
        while not re.search(pattern, self.written):
            assert self._read(deadline), f"ended before {pattern!r}: {self.written!r}"

    def type(self, keys: str) -> None:
        """Type *keys*, as a person would."""
        os.write(self._terminal, keys.encode())

    def wait(self) -> int:
        """Read to the end and return the exit status."""
        deadline = time.monotonic() + LIMIT
        while self._read(deadline):
            pass
        _, status = os.waitpid(self._pid, 0)
        self._pid = 0
        return os.waitstatus_to_exitcode(status)

    def press_until_it_ends(self, keys: str) -> int:
        """Type *keys* again and again, as a person would, and return the exit status."""
        deadline = time.monotonic() + LIMIT
        while time.monotonic() < deadline:
            self.type(keys)
            time.sleep(0.1)  # two signals at once are one
            ended, status = os.waitpid(self._pid, os.WNOHANG)
            self._read(deadline)
            if ended:
                self._pid = 0
                return os.waitstatus_to_exitcode(status)
        raise TimeoutError(f"the program went on and on: {self.written!r}")

    def close(self) -> None:
        """End the program if it is still there."""
        if self._pid:
            os.kill(self._pid, signal.SIGKILL)
            os.waitpid(self._pid, 0)
        os.close(self._terminal)

    def lines(self) -> list[str]:
        """Everything drawn, line by line and redrawing by redrawing, without colours."""
        return [line for line in re.split(r"[\r\n]+", _CONTROL.sub("", self.written)) if line]

    def _read(self, deadline: float) -> bool:
        readable, _, _ = select.select([self._terminal], [], [], max(0.0, deadline - time.monotonic()))
        if not readable:
            raise TimeoutError(f"the program went on and on: {self.written!r}")
        try:
            piece = os.read(self._terminal, 65536)
        except OSError:  # what Linux says when the other side has closed
            return False
        self.written += self._decoder.decode(piece)
        return bool(piece)


@contextlib.contextmanager
def at_terminal(*args: str, columns: int = 80, kind: str = "xterm-256color") -> Generator[Terminal]:
    """The program at a terminal of this *kind*, ended at the end."""
    terminal = Terminal(*args, columns=columns, kind=kind)
    try:
        yield terminal
    finally:
        terminal.close()
