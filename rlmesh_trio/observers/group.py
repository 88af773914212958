"""Several listeners as one. Only what a member overrides is overridden, so that what nobody hears is never built."""

import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final, final

import trio

from rlmesh_trio.hooks import Hooks, overrides

__all__ = ("HookGroup",)

logger = logging.getLogger("rlmesh_trio")

_Hook = Callable[[Any], Awaitable[Any]]
_TRANSFORMED: Final = {"transform_observation": "observation", "transform_action": "action"}


@final
class HookGroup(Hooks):
    """Tells each event to its members in order.

    A member that fails is logged and the others still hear the event; one that takes its time delays them, and when it
    is cancelled meanwhile they are told before that goes on. Transforms are chained: each gets what the one before made
    of the payload, and one that raises fails the route.
    """

    def __init__(self, *members: Hooks) -> None:
        for name in (name for name in vars(Hooks) if not name.startswith("_")):
            hooks: list[_Hook] = [getattr(member, name) for member in members if overrides(member, name)]
            if name in _TRANSFORMED and hooks:
                setattr(self, name, _chained(hooks, _TRANSFORMED[name]))
            elif hooks:
                setattr(self, name, hooks[0] if len(hooks) == 1 else _each(name, hooks))


def _each(name: str, hooks: Sequence[_Hook]) -> _Hook:
    async def tell_each(event: Any) -> None:
        cancelled: trio.Cancelled | None = None
        for hook in hooks:
            try:
                await hook(event)
            except trio.Cancelled as cut_short:
                cancelled = cut_short
            except Exception as error:
                owner = type(getattr(hook, "__self__", hook)).__name__
                logger.warning("runtime hook %s of %s failed: %s", name, owner, error)
        if cancelled is not None:
            raise cancelled

    return tell_each


def _chained(transforms: Sequence[_Hook], payload: str) -> _Hook:
    async def transform(event: Any) -> Any:
        for each in transforms:
            setattr(event, payload, await each(event))
        return getattr(event, payload)

    return transform
