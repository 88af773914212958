"""How a server's address is written: ``host:port``, ``tcp://host:port`` or ``unix:///path``."""

import re

import attrs

from rlmesh_trio.errors import ConnectError

__all__ = ("Address", "is_address", "parse_address")

_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://")
_HOST_AND_PORT = re.compile(r"(?:\[(?P<ipv6>[0-9A-Fa-f:.]+(?:%[\w.-]+)?)\]|(?P<host>[^\s:/\[\]@]+)):(?P<port>[0-9]+)")

_SURE_HOST = re.compile(r"(?:localhost|[0-9]+(?:\.[0-9]+){3}|\[[0-9A-Fa-f:.]+\])(?::|$)")


@attrs.frozen
class Address:
    """Where a server listens: a TCP *host* and *port*, or the *path* of a Unix socket. ``str()`` is a URL."""

    host: str = ""
    port: int = 0
    path: str = ""

    def __str__(self) -> str:
        if self.path:
            return f"unix://{self.path}"
        return f"tcp://[{self.host}]:{self.port}" if ":" in self.host else f"tcp://{self.host}:{self.port}"


def is_address(text: str) -> bool:
    """Whether *text* is meant as an address, be it a good one or not.

    It has a scheme, or a port behind a host, or a host that can be nothing else.
    """
    return bool(_SCHEME.match(text) or _HOST_AND_PORT.fullmatch(text) or _SURE_HOST.match(text))


def parse_address(text: str, *, any_port: bool = False) -> Address:
    """Read an address; the port may be 0, for a server to choose it, if *any_port* is meant.

    Raises :exc:`~rlmesh_trio.errors.ConnectError` that names it and the three forms.
    """
    if text.startswith("unix://"):
        path = text.removeprefix("unix://")
        if not path.startswith("/") or path.endswith("/") or "\0" in path:
            raise _bad(text, "a Unix socket needs an absolute path, which makes three slashes")
        return Address(path=path)
    rest = text.removeprefix("tcp://")
    if scheme := _SCHEME.match(rest):
        raise _bad(text, f"the scheme {scheme.group().removesuffix('://')!r} is none of ours")
    parts = _HOST_AND_PORT.fullmatch(rest)
    if parts is None:
        raise _bad(text, "it is not a host and a port number; an IPv6 host stands in brackets")
    port = int(parts["port"])
    if not (any_port or port) or port >= 1 << 16:
        raise _bad(text, "a port is a number from 1 to 65535")
    return Address(parts["ipv6"] or parts["host"], port)


def _bad(text: str, why: str) -> ConnectError:
    return ConnectError(f"bad address {text!r}: {why}. Use host:port, tcp://host:port or unix:///path")
