"""Real rlmesh servers in processes of their own, for tests to talk to."""

import contextlib
import json
import os
import select
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Generator
from pathlib import Path
from typing import Any

import attrs

__all__ = ("Peer", "start_env_peer", "start_model_peer")

ROOT = Path(__file__).parent.parent
START_LIMIT = 30.0
STOP_LIMIT = 10.0


@attrs.frozen
class Peer:
    """One running server: its *address* as clients spell it, its *process*, and what it writes.

    ``log`` is the model's record of its own calls (absent for an env); ``stderr`` what the process complained of.
    """

    address: str
    process: subprocess.Popen[bytes]
    stderr: Path
    log: Path

    def kill(self) -> None:
        """End the process at once (SIGKILL) and reap it, as a crash of the machine would."""
        self.process.kill()
        self.process.wait(STOP_LIMIT)

    def stop(self) -> int:
        """End the process politely (SIGTERM) and return its exit status."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(STOP_LIMIT)

    def events(self, kind: str) -> list[dict[str, Any]]:
        """The model's logged *kind*: ``forward``, ``seen``, ``episode_end`` or ``close``, oldest first."""
        lines = [json.loads(line) for line in self.log.read_text().splitlines()]
        return [line for line in lines if line["event"] == kind]


@contextlib.contextmanager
def start_env_peer(*args: str) -> Generator[Peer]:
    """Serve an env with ``tests/interop/peers/env_peer.py``'s options *args*; killed and reaped at the end."""
    with _started("env_peer", args, log=None) as peer:
        yield peer


@contextlib.contextmanager
def start_model_peer(*args: str) -> Generator[Peer]:
    """Serve a model with ``tests/interop/peers/model_peer.py``'s options *args*; killed and reaped at the end."""
    with _started("model_peer", args, log="--log") as peer:
        yield peer


@contextlib.contextmanager
def _started(script: str, args: tuple[str, ...], log: str | None) -> Generator[Peer]:
    with tempfile.TemporaryDirectory(prefix="peer-") as name:
        stderr, calls = Path(name) / "stderr.txt", Path(name) / "calls.jsonl"
        calls.touch()
        command = [sys.executable, "-m", f"tests.interop.peers.{script}", *args]
        if log is not None:
            command += [log, str(calls)]
        with stderr.open("wb") as complaints:
            process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=complaints)
        try:
            yield Peer(_ready_address(process), process, stderr, calls)
        except BaseException as error:
            if text := stderr.read_text(errors="replace").strip():
                error.add_note(f"stderr of {script} {' '.join(args)}:\n{text}")
            raise
        finally:
            process.kill()
            process.wait(STOP_LIMIT)
            assert process.stdout is not None
            process.stdout.close()


def _ready_address(process: subprocess.Popen[bytes]) -> str:
    """Read up to the READY line, within :data:`START_LIMIT` seconds."""
    assert process.stdout is not None
    deadline = time.monotonic() + START_LIMIT
    said = b""
    while not said.endswith(b"\n"):
        readable, _, _ = select.select([process.stdout], [], [], max(0.0, deadline - time.monotonic()))
        if not readable:
            raise TimeoutError(f"the peer was not ready after {START_LIMIT:g} s; it said {said!r}")
        piece = os.read(process.stdout.fileno(), 4096)
        if not piece:
            raise RuntimeError(f"the peer ended with status {process.wait(STOP_LIMIT)} before it was ready")
        said += piece
    word, _, address = said.decode().strip().partition(" ")
    if word != "READY":
        raise RuntimeError(f"the peer said {said!r} instead of READY and its address")
    return address
