"""Where a server listens: a TCP port, or a Unix socket that is removed again."""

import errno
import os
import socket
import stat
from collections.abc import Generator
from contextlib import contextmanager, suppress

import trio

from rlmesh_trio.errors import ConnectError
from rlmesh_trio.transport.address import Address, parse_address

__all__ = ("accept_client", "listening")

# The machine is short of something: the next client may have more luck.
_SHORTAGE = {errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM}
_PAUSE = 0.1
_BACKLOG = 128
_KEEPALIVE = (("TCP_KEEPIDLE", 30), ("TCP_KEEPINTVL", 10), ("TCP_KEEPCNT", 3))


@contextmanager
def listening(text: str) -> Generator[tuple[Address, trio.socket.SocketType]]:
    """Listen at the address *text* until the block is left; gives the address with the port that was got.

    A Unix socket that nobody listens at any more is replaced. Raises :exc:`ConnectError`.
    """
    address = parse_address(text, any_port=True)
    try:
        plain = _bind_unix(address.path) if address.path else _bind_tcp(address)
    except (OSError, UnicodeError) as error:
        raise ConnectError(f"cannot listen at {address}: {getattr(error, 'strerror', None) or error}") from error
    with plain:
        plain.setblocking(False)
        if address.path:
            made = os.stat(address.path)
        else:
            made = None
            address = Address(address.host, plain.getsockname()[1])
        with trio.socket.from_stdlib_socket(plain) as listener:
            try:
                yield address, listener
            finally:
                if made is not None:
                    _remove(address.path, made)


def _bind_tcp(address: Address) -> socket.socket:
    found = socket.getaddrinfo(address.host, address.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    family, _, _, _, where = found[0]
    opened = socket.socket(family, socket.SOCK_STREAM)
    try:
        opened.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        opened.bind(where)
        opened.listen(_BACKLOG)
    except BaseException:
        opened.close()
        raise
    return opened


def _bind_unix(path: str) -> socket.socket:
    opened = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        try:
            opened.bind(path)
        except OSError as error:
            if error.errno != errno.EADDRINUSE or not _is_deserted(path):
                raise
            os.unlink(path)
            opened.bind(path)
        opened.listen(_BACKLOG)
    except BaseException:
        opened.close()
        raise
    return opened


def _is_deserted(path: str) -> bool:
    """Whether *path* is a socket that nobody listens at."""
    if not stat.S_ISSOCK(os.stat(path).st_mode):
        return False
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as caller:
        caller.setblocking(False)
        return caller.connect_ex(path) == errno.ECONNREFUSED


def _remove(path: str, made: os.stat_result) -> None:
    """Remove the socket at *path*, unless it has become another server's."""
    with suppress(OSError):
        if os.path.samestat(os.stat(path), made):
            os.unlink(path)


async def accept_client(listener: trio.socket.SocketType) -> socket.socket:
    """The next client's socket, non-blocking. The system probes whether a silent client is still there."""
    while True:
        try:
            accepted, _ = await listener.accept()
        except OSError as error:
            if error.errno in _SHORTAGE:
                await trio.sleep(_PAUSE)
            elif error.errno != errno.ECONNABORTED:
                raise
            continue
        client = socket.socket(fileno=accepted.detach())
        client.setblocking(False)
        if client.family != getattr(socket, "AF_UNIX", None):
            client.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            for name, value in _KEEPALIVE:
                if hasattr(socket, name):
                    client.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
        return client
