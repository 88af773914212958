"""What can be tested: a server that runs somewhere, an env served by a process started here, an env of this process.

A running server is taken as it is. A process started here can be started again, and its env be opened in this process
as well. All targets are named as a user names an env: an address, a gymnasium id, ``module:factory``.
"""

from collections.abc import AsyncGenerator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Literal, Protocol, cast

import trio

from rlmesh_trio.conformance.background import open_background
from rlmesh_trio.conformance.serving_process import ServingProcess
from rlmesh_trio.endpoints.env import Env
from rlmesh_trio.endpoints.local_env import Where, open_local_env
from rlmesh_trio.endpoints.remote_env import connect_env
from rlmesh_trio.errors import ConnectError
from rlmesh_trio.spec import DescribedEnv, Limits
from rlmesh_trio.transport.address import is_address, parse_address

__all__ = ("LocalTarget", "OpenEnv", "ServedTarget", "Target", "WireTarget", "target_for")

_CLOSE_LIMIT = 0.5


class OpenEnv(DescribedEnv, Env, Protocol):
    """An env session that says what it is."""


class Target(Protocol):
    """Something to test. ``running`` surrounds everything that is done with it.

    ``source`` opens the env in this process, where that is possible. ``restartable`` says whether :meth:`restart` can
    bring it back; ``ended`` whether it is known to be gone. ``stderr`` are the last lines its process wrote.
    """

    name: str
    kind: Literal["wire", "factory", "local"]
    token: str | None

    @property
    def address(self) -> str:
        """Where its server is now; empty when it has none."""
        ...

    @property
    def source(self) -> object | None:
        """What :func:`~rlmesh_trio.endpoints.local_env.open_local_env` takes."""
        ...

    @property
    def restartable(self) -> bool:
        """Whether it can be started again."""
        ...

    @property
    def ended(self) -> bool:
        """Whether its process is known to have ended."""
        ...

    @property
    def stderr(self) -> tuple[str, ...]:
        """The last lines its process wrote."""
        ...

    def running(self) -> AbstractAsyncContextManager[None]:
        """See to it that the target runs, for the block. Raises :exc:`ConnectError`."""
        ...

    def connect(self, limit: float) -> AbstractAsyncContextManager[OpenEnv]:
        """A session, opened within *limit* seconds. Raises :exc:`ConnectError` and :exc:`HandshakeError`."""
        ...

    async def restart(self) -> None:
        """End what runs, however hard that is, and start it again. Raises :exc:`ConnectError`."""
        ...


class WireTarget:
    """A server that runs at *address*: nothing is known of its process, and nothing is done to it."""

    kind: Literal["wire", "factory", "local"] = "wire"
    source: object | None = None
    restartable = False
    ended = False
    stderr: tuple[str, ...] = ()

    def __init__(self, address: str, *, token: str | None = None) -> None:
        parse_address(address)
        self.name = self.address = address
        self.token = token

    @asynccontextmanager
    async def running(self) -> AsyncGenerator[None]:
        """Nothing has to be done for it to run."""
        await trio.lowlevel.checkpoint()
        yield

    def connect(self, limit: float) -> AbstractAsyncContextManager[OpenEnv]:
        """A session with the server."""
        return connect_env(self.address, token=self.token, limits=_limits(limit))

    async def restart(self) -> None:
        """It cannot be started from here."""
        raise ConnectError(f"the server at {self.address} was not started here")


class ServedTarget:
    """An env served on *lanes* lanes by a process of its own, on a local port.

    *source* is what :func:`~rlmesh_trio.endpoints.local_env.open_local_env` takes, except an env that exists already.
    """

    kind: Literal["wire", "factory", "local"] = "factory"
    restartable = True
    token: str | None = None

    def __init__(self, source: object, *, lanes: int = 1) -> None:
        self.name = _name_of(source)
        self.source: object | None = source
        self._lanes = lanes
        self._process: ServingProcess | None = None

    @property
    def address(self) -> str:
        """Where its server is now."""
        return "" if self._process is None else self._process.address

    @property
    def ended(self) -> bool:
        """Whether its process has ended."""
        return self._process is not None and self._process.ended

    @property
    def stderr(self) -> tuple[str, ...]:
        """The last lines its process wrote."""
        return () if self._process is None else tuple(self._process.stderr)

    @asynccontextmanager
    async def running(self) -> AsyncGenerator[None]:
        """Serve the env for the block."""
        async with open_background() as nursery:
            self._process = process = ServingProcess(self.source, self._lanes, nursery)
            try:
                await process.start()
                yield
            finally:
                await process.end()

    def connect(self, limit: float) -> AbstractAsyncContextManager[OpenEnv]:
        """A session with the process."""
        return connect_env(self.address, limits=_limits(limit))

    async def restart(self) -> None:
        """Kill the process and start another."""
        process = cast("ServingProcess", self._process)
        await process.kill()
        await process.start()


class LocalTarget:
    """An env of this process, on *lanes* lanes, without a server: what is about servers does not apply to it.

    *where* it runs is as for :func:`~rlmesh_trio.endpoints.local_env.open_local_env`.
    """

    kind: Literal["wire", "factory", "local"] = "local"
    address = ""
    token: str | None = None
    ended = False
    stderr: tuple[str, ...] = ()
    restartable = False

    def __init__(self, source: object, *, lanes: int = 1, where: Where = "thread") -> None:
        self.name = _name_of(source)
        self.source: object | None = source
        self._lanes = lanes
        self._where: Where = where

    @asynccontextmanager
    async def running(self) -> AsyncGenerator[None]:
        """Nothing has to be done for it to run."""
        await trio.lowlevel.checkpoint()
        yield

    def connect(self, limit: float) -> AbstractAsyncContextManager[OpenEnv]:
        """The env, opened here; a factory makes another one each time."""
        del limit
        return open_local_env(self.source, lanes=self._lanes, where=self._where)

    async def restart(self) -> None:
        """It cannot be started again."""
        raise ConnectError(f"{self.name} runs in this process")


def target_for(named: object, *, token: str | None = None, lanes: int | None = None) -> Target:
    """The target that *named* is: an address, a gymnasium id or ``module:factory`` to serve here, a factory, or an env.

    *lanes* are for what is started here. Raises :exc:`ConnectError` for a bad address and for what is none of these.
    """
    if isinstance(named, (WireTarget, ServedTarget, LocalTarget)):
        return named
    if isinstance(named, str) and is_address(named):
        if lanes is not None:
            raise ConnectError(f"lanes are for an env started here: the server at {named} has its own width")
        return WireTarget(named, token=token)
    if isinstance(named, str):
        return ServedTarget(named, lanes=lanes or 1)
    return LocalTarget(named, lanes=lanes or 1)


def _name_of(source: object) -> str:
    return source if isinstance(source, str) else str(getattr(source, "__qualname__", type(source).__qualname__))


def _limits(connect: float) -> Limits:
    return Limits(env_connect_timeout=connect, service_close_timeout=_CLOSE_LIMIT)
