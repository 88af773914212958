"""Making a lost env connection anew: once for all groups of a session, with back-off, within the connect limit.

The connection is every lane's. When it is lost, each group's play is interrupted, also where it waited for a predict:
what its lanes played is gone with the env's session, and is started again on the new one.
"""

import logging
from collections.abc import Awaitable, Callable

import trio

from rlmesh_trio.endpoints.env import Env, ReconnectingEnv
from rlmesh_trio.errors import EnvRpcError, HandshakeError, SessionError, format_duration
from rlmesh_trio.report import Incident

__all__ = ("Reconnector",)

logger = logging.getLogger("rlmesh_trio")

_FIRST_PAUSE = 0.1
_LONGEST_PAUSE = 5.0


class Reconnector:
    """Reconnects the env of one session. *limit*, seconds, bounds all tries together.

    *interrupt* stops the play of every group, *tell* makes a reconnect known. ``epoch`` counts the reconnects.
    """

    def __init__(
        self,
        env: Env,
        limit: float,
        interrupt: Callable[[EnvRpcError], None],
        tell: Callable[[Incident], Awaitable[None]],
    ) -> None:
        self.epoch = 0
        self._env = env if isinstance(env, ReconnectingEnv) else None
        self._limit = limit
        self._interrupt = interrupt
        self._tell = tell
        self._turn = trio.Lock()

    async def settled(self) -> int:
        """Wait for a reconnect under way, if there is one; the epoch that now holds."""
        if self._turn.locked():
            async with self._turn:
                pass
        return self.epoch

    async def restore(self, failure: SessionError, epoch: int) -> bool:
        """Make the connection anew if *failure*, of an operation begun in *epoch*, tells that it was lost.

        Returns whether it was lost and stands again. Raises *failure*, with a note, when the limit has passed, or at
        once when the server turns out not to be the session's env any more. An env that cannot reconnect is left as is.
        """
        if self._env is None or not isinstance(failure, EnvRpcError) or failure.code != "CONNECTION":
            return False
        async with self._turn:
            # Whoever had the turn before may have given up, and with that ended the session.
            await trio.lowlevel.checkpoint_if_cancelled()
            if epoch != self.epoch:
                return True
            self._interrupt(failure)
            tries = await self._reconnect(self._env, failure)
            self.epoch += 1
        await self._tell(Incident("reconnect", None, None, None, tries, type(failure).__name__, str(failure)))
        return True

    async def _reconnect(self, env: ReconnectingEnv, failure: EnvRpcError) -> int:
        tries, pause, last = 0, _FIRST_PAUSE, "no answer"
        logger.warning("the env connection was lost; reconnecting for up to %s", format_duration(self._limit))
        with trio.move_on_after(self._limit):
            while True:
                tries += 1
                try:
                    await env.reconnect()
                except HandshakeError as error:
                    failure.add_note(f"the env could not be reconnected: {error}")
                    raise failure from failure.__cause__
                except Exception as error:
                    last = str(error) if isinstance(error, SessionError) else f"{type(error).__name__}: {error}"
                    logger.debug("reconnect try %d failed: %s", tries, last)
                else:
                    return tries
                await trio.sleep(pause)
                pause = min(2 * pause, _LONGEST_PAUSE)
        failure.add_note(
            f"the env could not be reconnected within {format_duration(self._limit)}; try {tries} was the last: {last}"
        )
        raise failure
