"""A nursery for what goes on beside a block: an exception of the block's own passes through it as it is."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import trio

__all__ = ("open_background",)


@asynccontextmanager
async def open_background() -> AsyncGenerator[trio.Nursery]:
    """A nursery whose tasks are cancelled at the end of the block."""
    failure: Exception | None = None
    async with trio.open_nursery() as nursery:
        try:
            yield nursery
        except Exception as error:
            failure = error
        nursery.cancel_scope.cancel(reason="the block is over")
    if failure is not None:
        raise failure
