"""A child process that answers lines of JSON, with a deadline for each answer and its stderr shown when it fails."""

import contextlib
import json
import os
import select
import subprocess
import sys
import tempfile
import time
from collections.abc import Generator
from pathlib import Path
from typing import IO, Any

import attrs

__all__ = ("Child", "start")

ROOT = Path(__file__).parent.parent
ANSWER_LIMIT = 600.0


@attrs.frozen
class Child:
    """One running module; *greeting* is what it said first."""

    module: str
    process: subprocess.Popen[bytes]
    greeting: Any

    def ask(self, question: Any) -> Any:
        """Send *question* and return the answer; raises :exc:`RuntimeError` when none comes."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(json.dumps(question).encode() + b"\n")
        self.process.stdin.flush()
        return read_line(self.module, self.process.stdout)


@contextlib.contextmanager
def start(module: str, *args: str) -> Generator[Child]:
    """Run ``python -m module args`` until the block ends; killed if it does not stop by itself."""
    with tempfile.TemporaryFile() as complaints:
        process = subprocess.Popen(
            [sys.executable, "-m", module, *args],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=complaints,
        )
        try:
            with process:
                try:
                    assert process.stdin is not None
                    assert process.stdout is not None
                    yield Child(module, process, read_line(module, process.stdout))
                    process.stdin.close()
                    process.wait(10.0)
                finally:
                    process.kill()
        except BaseException as error:
            complaints.seek(0)
            if text := complaints.read().decode(errors="replace").strip():
                error.add_note(f"stderr of {module}:\n{text}")
            raise


def read_line(module: str, stream: IO[bytes]) -> Any:
    deadline = time.monotonic() + ANSWER_LIMIT
    said = b""
    while not said.endswith(b"\n"):
        readable, _, _ = select.select([stream], [], [], max(0.0, deadline - time.monotonic()))
        if not readable:
            raise RuntimeError(f"{module} gave no answer within {ANSWER_LIMIT:g} s")
        piece = os.read(stream.fileno(), 65536)
        if not piece:
            raise RuntimeError(f"{module} ended without an answer")
        said += piece
    return json.loads(said)
