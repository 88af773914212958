"""What runs in the processes that a factory target is served from; see ``serving_process``.

An interpreter that has imported what serving takes waits for orders, and serves each from a fork of itself: a new
process that knows nothing of the user's code, in a few milliseconds. All end when the parent's end of the *life* pipe
closes.
"""

import contextlib
import os
import pickle
import random
import signal
import struct
import sys
import warnings
from typing import BinaryIO, TextIO

import numpy as np
import trio

from rlmesh_trio.errors import SessionError
from rlmesh_trio.serve import serve_env

__all__ = ("main",)

_LENGTH = struct.Struct("<Q")


def main(life: int) -> None:
    """Serve what standard input asks for, one process an order, until it ends."""
    # What an env prints is no answer of ours, and is written line by line: the process ends by being killed.
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    sys.stdout = sys.stderr
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    while (order := _order(sys.stdin.buffer)) is not None:
        with warnings.catch_warnings():
            # The threads that numpy's libraries keep know of forks.
            warnings.simplefilter("ignore", DeprecationWarning)
            child = os.fork()
        if not child:
            _serve_and_exit(order, life, answers)


def _order(orders: BinaryIO) -> bytes | None:
    head = orders.read(_LENGTH.size)
    return orders.read(_LENGTH.unpack(head)[0]) if len(head) == _LENGTH.size else None


def _serve_and_exit(order: bytes, life: int, answers: TextIO) -> None:
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    random.seed()
    np.random.seed()
    print("PID", os.getpid(), file=answers, flush=True)
    try:
        source, lanes = pickle.loads(order)
        trio.run(_serve, source, lanes, life, answers)
    except SessionError as refusal:
        print("FAILED", " ".join(str(refusal).split()), file=answers, flush=True)
    except BaseException as crash:
        print("FAILED", f"serving the env failed with {type(crash).__name__}: {crash}", file=answers, flush=True)
    finally:
        with contextlib.suppress(OSError):
            sys.stdout.flush()
            sys.stderr.flush()
        # No thread of the env's, and nothing it wants to do at its end, shall keep the process.
        os._exit(0)


async def _serve(source: object, lanes: int, life: int, answers: TextIO) -> None:
    async with serve_env(source, lanes=lanes) as server:
        print("READY", server.address, file=answers, flush=True)
        await trio.lowlevel.wait_readable(life)
        # Nobody is left to be told.
        os._exit(0)
