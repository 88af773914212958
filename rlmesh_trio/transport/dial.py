"""Reaching a server: try until it is there or the time is up, and say what stood in the way."""

import errno
import os
import socket
from typing import cast

import trio

from rlmesh_trio.errors import ConnectError, format_duration
from rlmesh_trio.transport.address import Address

__all__ = ("dial",)

_FIRST_PAUSE = 0.02
_LONGEST_PAUSE = 1.0
# What a server that is not up yet, or not again, looks like.
_PASSING = {
    errno.ECONNREFUSED,
    errno.ECONNRESET,
    errno.ECONNABORTED,
    errno.ENOENT,
    errno.EAGAIN,
    errno.ETIMEDOUT,
    errno.EHOSTUNREACH,
    errno.ENETUNREACH,
    errno.EHOSTDOWN,
}


async def dial(address: Address, limit: float, *, patient: bool) -> socket.socket:
    """An open, non-blocking socket to *address*, had within *limit* seconds.

    A server that is not there yet may come up in that time if the caller is *patient*; else one attempt is made. Raises
    :exc:`~rlmesh_trio.errors.ConnectError` after that, or at once when waiting cannot help.
    """
    pause = _FIRST_PAUSE
    obstacle = "no answer"
    with trio.move_on_after(limit):
        while True:
            try:
                return await _connect(address)
            except (socket.gaierror, UnicodeError) as error:
                raise ConnectError(f"cannot resolve the host {address.host!r} of {address}: {error}") from error
            except OSError as error:
                obstacle, passing = _describe(error)
                if not (patient and passing):
                    raise ConnectError(f"cannot connect to {address}: {obstacle}") from error
            await trio.sleep(pause)
            pause = min(2 * pause, _LONGEST_PAUSE)
    raise ConnectError(f"no connection to {address} within {format_duration(limit)}: {obstacle}. Is the server up?")


async def _connect(address: Address) -> socket.socket:
    if address.path:
        if not hasattr(socket, "AF_UNIX"):
            raise OSError(errno.EAFNOSUPPORT, "this system has no Unix sockets")
        opening = trio.socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            await opening.connect(address.path)
        except BaseException:
            opening.close()
            raise
    else:
        opening = (await trio.open_tcp_stream(address.host, address.port)).socket
    opened = socket.socket(fileno=opening.detach())
    opened.setblocking(False)
    if not address.path and _leads_to_itself(opened, address.port):
        opened.close()
        raise OSError(errno.ECONNREFUSED, "nobody listens")
    return opened


def _leads_to_itself(sock: socket.socket, port: int) -> bool:
    """Whether TCP, which may lend out the port of a server that is down, has joined the two ends of one socket."""
    name = sock.getsockname()
    return name[1] == port and name == sock.getpeername()


def _describe(error: OSError) -> tuple[str, bool]:
    """What is wrong, and whether it may pass. Of several attempts at one host the first tells."""
    cause: BaseException | None = error.__cause__
    while isinstance(cause, BaseExceptionGroup):
        cause = cast("BaseExceptionGroup[BaseException]", cause).exceptions[0]
    if isinstance(cause, OSError):
        error = cause
    if error.errno is None:
        return str(error), False
    return os.strerror(error.errno), error.errno in _PASSING
