"""Trio for tests that are not asynchronous: one run in a thread of its own, in which targets stay open."""

import threading
from collections.abc import Awaitable, Callable
from concurrent.futures import Future
from typing import Any, TypeVar

import trio

from rlmesh_trio.conformance.targets import Target

__all__ = ("TrioThread",)

T = TypeVar("T")

_ENDS_WITHIN = 15.0


class TrioThread:
    """A thread in which trio runs from the first :meth:`call` to :meth:`close`, with the targets that were opened."""

    def __init__(self) -> None:
        self._thread: threading.Thread | None = None
        self._token: trio.lowlevel.TrioToken | None = None
        self._nursery: trio.Nursery | None = None
        self._ready = threading.Event()
        self._open: set[int] = set()

    def call(self, target: Target, function: Callable[..., Awaitable[T]], *args: Any) -> T:
        """What the async *function* returns or raises while *target* runs; it goes on running until :meth:`close`."""
        if self._thread is None:
            self._thread = threading.Thread(target=trio.run, args=(self._main,), name="rlmesh-conform", daemon=True)
            self._thread.start()
            self._ready.wait()
        assert self._token is not None
        answer: Future[T] = Future()
        self._token.run_sync_soon(self._begin, target, function, args, answer)
        return answer.result()

    async def _main(self) -> None:
        self._token = trio.lowlevel.current_trio_token()
        async with trio.open_nursery() as self._nursery:
            self._ready.set()
            await trio.sleep_forever()

    def _begin(self, *asked: Any) -> None:
        assert self._nursery is not None
        self._nursery.start_soon(self._answer, *asked)

    async def _answer(
        self, target: Target, function: Callable[..., Awaitable[T]], args: tuple[Any, ...], answer: "Future[T]"
    ) -> None:
        assert self._nursery is not None
        try:
            if id(target) not in self._open:
                await self._nursery.start(_hold, target)
                self._open.add(id(target))
            answer.set_result(await function(*args))
        except trio.Cancelled:
            answer.set_exception(RuntimeError("the tests are over"))
            raise
        except Exception as failure:
            answer.set_exception(failure)

    def close(self) -> None:
        """Close all targets and end the thread."""
        if self._thread is None or self._token is None or self._nursery is None:
            return
        self._token.run_sync_soon(self._nursery.cancel_scope.cancel)
        self._thread.join(_ENDS_WITHIN)
        self._thread = None


async def _hold(target: Target, task_status: trio.TaskStatus[None]) -> None:
    """Have one task hold *target* open, from beginning to end."""
    async with target.running():
        task_status.started()
        await trio.sleep_forever()
