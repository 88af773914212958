"""trio-asyncio, which has no types, and what it lacks on Python 3.12 and 3.13.

It warns of a class of asyncio's while it is imported: who turns warnings into errors could import nothing of ours. And
it puts a ``current_task`` of its own into asyncio, the only one that knows its loops, which grpclib does not look up
when it has been imported before.
"""

import asyncio
import warnings
from typing import Any, cast

from grpclib import utils as _grpclib

with warnings.catch_warnings():
    warnings.filterwarnings("ignore", "'AbstractChildWatcher' is deprecated", DeprecationWarning)
    import trio_asyncio as _trio_asyncio

__all__ = ("trio_asyncio",)

trio_asyncio = cast("Any", _trio_asyncio)

_grpclib._current_task = asyncio.current_task  # pyright: ignore[reportPrivateUsage]
