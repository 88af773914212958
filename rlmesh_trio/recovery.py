"""What a session does when an env operation fails or is late: fail, play the episode again, or take the lane out."""

from typing import Literal, Self

import attrs

from rlmesh_trio.errors import InvalidSpec

__all__ = ("Recovery",)

_FORMS = "fail, retry, retry:N (N from 1 on) or quarantine"


@attrs.frozen
class Recovery:
    """A policy for failed env operations. It governs ``env.reset`` and ``env.step`` only.

    ``fail`` fails the session. ``retry`` plays the episodes of the lane (of a lockstep vector: of all its lanes) again
    from their seeds, each at most ``attempts`` times. ``quarantine`` takes the lane out for good and gives its episode
    to another lane; a lost connection is no lane's fault, so where it can be made anew the episodes are played again,
    each at most ``attempts`` times. Model failures, relay refusals, hooks that raise and spec errors always fail the
    session. Raises :exc:`InvalidSpec` for another action, or for fewer attempts than one.
    """

    action: Literal["fail", "retry", "quarantine"] = "fail"
    attempts: int = 3

    def __attrs_post_init__(self) -> None:
        if self.action not in ("fail", "retry", "quarantine"):
            raise InvalidSpec(f"a recovery is {_FORMS}, not {self.action!r}")
        if type(self.attempts) is not int or self.attempts < 1:
            raise InvalidSpec(f"the attempts of a recovery must be a whole number from 1 on, not {self.attempts!r}")

    def __str__(self) -> str:
        return f"retry:{self.attempts}" if self.action == "retry" else self.action

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read ``fail``, ``retry``, ``retry:N`` or ``quarantine``; anything else raises :exc:`InvalidSpec`."""
        match text.split(":"):
            case ["fail" | "retry" | "quarantine" as action]:
                return cls(action)
            case ["retry", count] if count.isascii() and count.isdigit() and int(count) > 0:
                return cls("retry", int(count))
            case _:
                raise InvalidSpec(f"a recovery is {_FORMS}, not {text!r}")
