"""What runs in the process that a factory target is served from; see ``serving_process``."""

import os
import pickle
import struct
import sys
from typing import TextIO

import trio

from rlmesh_trio.errors import SessionError
from rlmesh_trio.serve import serve_env

__all__ = ("main",)

_LENGTH = struct.Struct("<Q")


def main() -> None:
    """Serve what standard input asks for until it ends."""
    # What the env prints is no answer of ours.
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    order = sys.stdin.buffer.read(_LENGTH.unpack(sys.stdin.buffer.read(_LENGTH.size))[0])
    try:
        source, lanes = pickle.loads(order)
        trio.run(_serve, source, lanes, answers)
    except SessionError as refusal:
        print("FAILED", " ".join(str(refusal).split()), file=answers, flush=True)
    # No thread of the env's, and nothing it wants to do at its end, shall keep the process.
    os._exit(0)


async def _serve(source: object, lanes: int, answers: TextIO) -> None:
    async with serve_env(source, lanes=lanes) as server:
        print("READY", server.address, file=answers, flush=True)
        async with trio.lowlevel.FdStream(os.dup(0)) as orders:
            await orders.receive_some()
