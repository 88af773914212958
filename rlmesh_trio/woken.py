"""What a task is sent that only has to wake: nothing.

trio wraps what it sends in an :class:`outcome.Value`, a new one each time, as each can be unwrapped only once. Nothing
can be unwrapped as often as one likes.
"""

from typing import Any, Final

__all__ = ("WOKEN",)


class _Nothing:
    __slots__ = ()

    def unwrap(self) -> None:
        pass


WOKEN: Final[Any] = _Nothing()
"""The *next_send* of :func:`trio.lowlevel.reschedule`, where :func:`trio.lowlevel.wait_task_rescheduled` shall return
``None``."""
