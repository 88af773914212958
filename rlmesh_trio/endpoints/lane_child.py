"""The worker process of one lane: makes its env, then answers requests on its standard streams until they end.

What the env prints goes to standard error, for standard output carries the answers. Interrupts are left to the parent:
it ends this process by closing the pipe, or kills it.
"""

import os
import signal
import sys
import traceback
from typing import Any, BinaryIO

import cloudpickle

from rlmesh_trio.endpoints.env_hosts import EnvHost, HostReply, host_env
from rlmesh_trio.endpoints.lane_frames import HEADER_BYTES, body_length, decode_frame, encode_frame
from rlmesh_trio.errors import EndpointError, SessionError
from rlmesh_trio.messages import Leaves

__all__ = ("serve",)


def serve() -> None:
    """Answer the parent until it closes the pipe."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with os.fdopen(os.dup(0), "rb") as requests, os.fdopen(os.dup(1), "wb") as replies:
        _detach_standard_streams()
        maker, _ = _receive(requests)
        try:
            host = host_env(cloudpickle.loads(maker)())
        except SessionError as failure:
            _send(replies, _told(failure))
            return
        _send(replies, (host.contract, host.resets_named_lanes))
        while True:
            try:
                request, leaves = _receive(requests)
            except EOFError:
                return
            _answer(host, request, leaves, replies)


def _detach_standard_streams() -> None:
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    os.dup2(2, 1)
    # Written line by line, so that nothing is lost when the process is killed.
    sys.stdout = sys.stderr


def _answer(host: EnvHost, request: tuple[Any, ...], leaves: Leaves, replies: BinaryIO) -> None:
    operation, *arguments = request
    try:
        if operation == "step":
            arguments = [leaves]
        reply = getattr(host, operation)(*arguments)
    except SessionError as failure:
        reply = _told(failure)
    if isinstance(reply, HostReply):
        _send(replies, reply._replace(observation=()), reply.observation)
    else:
        _send(replies, reply)


def _send(replies: BinaryIO, head: object, leaves: Leaves = ()) -> None:
    try:
        frame = encode_frame(head, leaves)
    except Exception as failure:
        refusal = f"the env's infos cannot leave its process: {type(failure).__name__}: {failure}"
        frame = encode_frame(EndpointError("INTERNAL", refusal))
    replies.writelines(frame)
    replies.flush()


def _receive(requests: BinaryIO) -> tuple[Any, Leaves]:
    header = _exactly(requests, HEADER_BYTES)
    return decode_frame(header, _exactly(requests, body_length(header)))


def _exactly(requests: BinaryIO, length: int) -> bytes:
    data = requests.read(length)
    if len(data) < length:
        raise EOFError
    return data


def _told(failure: SessionError) -> SessionError:
    """*failure* with what its traceback says: the cause itself does not cross."""
    if failure.__cause__ is not None:
        failure.add_note("".join(traceback.format_exception(failure.__cause__)).rstrip())
    return failure
