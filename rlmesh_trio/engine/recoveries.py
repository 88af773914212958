"""What becomes of an episode whose env operation failed: counted per slot, decided without waiting. Pure."""

from collections.abc import Sequence

import attrs

from rlmesh_trio.errors import OperationTimeout, SessionError
from rlmesh_trio.recovery import Recovery

__all__ = ("Again", "Final", "Recoveries", "TakenOut")

_FIRST_PAUSE = 0.1
_LONGEST_PAUSE = 5.0


@attrs.frozen
class Again:
    """The group plays its episodes again, after ``pause`` seconds."""

    pause: float


@attrs.frozen
class TakenOut:
    """The group plays no more; its episode goes to another one."""


@attrs.frozen
class Final:
    """The failure fails the session; ``note`` says why it was not recovered from."""

    note: str


class Recoveries:
    """The two policies of a session, and how often each slot's episode was started again."""

    def __init__(self, on_env_error: Recovery, on_timeout: Recovery) -> None:
        self._on_env_error = on_env_error
        self._on_timeout = on_timeout
        self._restarts: dict[int, int] = {}

    def policy(self, failure: SessionError) -> Recovery:
        """The policy that governs *failure*, an env operation's."""
        return self._on_timeout if isinstance(failure, OperationTimeout) else self._on_env_error

    def attempt(self, slot: int) -> int:
        """How often the slot's episode was started again so far."""
        return self._restarts.get(slot, 0)

    def decide(
        self, failure: SessionError, slots: Sequence[int], *, reconnected: bool, others: int
    ) -> Again | TakenOut | Final:
        """What becomes of the episodes in *slots* after *failure*; unless it is final, each counts as started again.

        *reconnected* tells that the failure was a lost connection, which stands again; *others* is how many other
        groups could take an episode over.
        """
        policy = self.policy(failure)
        restarts = max(map(self.attempt, slots))
        if policy.action == "quarantine" and not reconnected:
            if not others:
                return Final("no other lane is left to play its episode, and quarantine needs one")
            verdict = TakenOut()
        elif restarts >= policy.attempts:
            return Final(f"its episode was started again {restarts} time(s), as often as the policy allows")
        else:
            verdict = Again(min(_FIRST_PAUSE * 2.0 ** min(restarts, 30), _LONGEST_PAUSE))
        for slot in slots:
            self._restarts[slot] = self.attempt(slot) + 1
        return verdict
