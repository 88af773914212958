"""trio-asyncio, which has no types, and on Python 3.12 and 3.13 warns of a class of asyncio's while it is imported.

Who turns warnings into errors could import nothing of ours there, for a class that neither they nor we use.
"""

import warnings
from typing import Any, cast

with warnings.catch_warnings():
    warnings.filterwarnings("ignore", "'AbstractChildWatcher' is deprecated", DeprecationWarning)
    import trio_asyncio as _trio_asyncio

__all__ = ("trio_asyncio",)

trio_asyncio = cast("Any", _trio_asyncio)
