"""Faults of server packages that are known: an env author who serves with one is not failed for them.

Each was seen on the package's own server, by the check that is named. A finding that matches is shown with its script
and does not count, unless the run asks for it. An entry goes when a version without the fault is out.
"""

from collections.abc import Callable
from fnmatch import fnmatchcase

import attrs
from gymnasium import spaces

from rlmesh_trio.conformance.registry import Facts

__all__ = ("KNOWN_FAULTS", "KnownFault", "lookup")


def _anywhere(_: Facts) -> bool:
    return True


@attrs.frozen
class KnownFault:
    """One fault of one *package*.

    *versions*, like *signature*, is a pattern with ``*`` and ``?``: ``0.1.0``, ``0.1.*``. *check* is an id,
    *signature* is compared with the evidence's own. *note* says in a sentence what the server does, *pointer* where it
    is described. *concerns* tells the targets that have the fault from those on which the same evidence is the env's.
    """

    package: str
    versions: str
    check: str
    signature: str
    note: str
    pointer: str
    concerns: Callable[[Facts], bool] = _anywhere

    def covers(self, package: str, version: str, check: str, signature: str, facts: Facts) -> bool:
        """Whether this is the fault that was found on the target with these *facts*."""
        return (
            (package, check) == (self.package, self.check)
            and fnmatchcase(version, self.versions)
            and fnmatchcase(signature, self.signature)
            and self.concerns(facts)
        )


def _rlmesh(
    check: str, signature: str, note: str, entry: str, concerns: Callable[[Facts], bool] = _anywhere
) -> KnownFault:
    return KnownFault("rlmesh", "0.1.0", check, signature, note, f"docs/peers.md, {entry}", concerns)


def _is_vector_of_tuples(facts: Facts) -> bool:
    """Whether lanes in lockstep observe tuples: no reset of such a target succeeds, whatever its env does."""
    space = facts.contract.observation_space
    in_lockstep = facts.contract.num_envs > 1 and not facts.subset_step
    return in_lockstep and space is not None and isinstance(space.space, spaces.Tuple)


def _works_side_by_side(facts: Facts) -> bool:
    return facts.subset_step and facts.contract.num_envs > 1


_PLACE_TAKEN = (
    "While an operation runs, the server takes no other client, however long the one who asked has been gone."
)
_NOT_REFUSED = "A step before any reset is handed to the env, which may raise; there is no NOT_READY."
_NO_TUPLES = "Every reset of a vector env whose observations are tuples fails in the server."
_LATE = "The deadline is looked at when the operation is over; one that never ends is never answered."

KNOWN_FAULTS: tuple[KnownFault, ...] = (
    _rlmesh("life.step-needs-reset", "a step before the first reset is taken", _NOT_REFUSED, "E1"),
    _rlmesh("life.step-needs-reset", "refused as INTERNAL", _NOT_REFUSED, "E1"),
    _rlmesh("wire.deadline", "TIMEOUT comes too late", _LATE, "E2"),
    _rlmesh("wire.deadline", "no answer", _LATE, "E2"),
    _rlmesh("wire.survives", "the next client is refused", _PLACE_TAKEN, "E3"),
    _rlmesh("wire.second-client", "the next client is refused", _PLACE_TAKEN, "E3"),
    _rlmesh(
        "wire.malformed",
        "an unreadable message: the stream ends with OK",
        "Bytes that are no request end the stream with status OK and without an error.",
        "E4",
    ),
    _rlmesh(
        "wire.recoverable-honest",
        "INTERNAL not recoverable, and goes on",
        "A lane that raised in a step of its own is called lost, and goes on with the others.",
        "E5",
    ),
    _rlmesh(
        "acct.interrupted",
        "record lost",
        "Episodes cut short by resets are told with the next step only, and only the last hundred of them.",
        "E6",
    ),
    _rlmesh(
        "space.nonmember-refused",
        "* range passed on without a warning",
        "What is out of range is warned of once in the server's life, and in no session after that.",
        "E10",
    ),
    _rlmesh("value.warning-once", "* warned of again", "Each lane of a lane server warns by itself.", "E10"),
    _rlmesh("space.obs-structure", "obs structure", _NO_TUPLES, "E17", _is_vector_of_tuples),
    _rlmesh("space.member-accepted", "reset *", _NO_TUPLES, "E17", _is_vector_of_tuples),
    _rlmesh(
        "render.frame",
        "a frame without a render mode",
        "The env's render() is called, and its picture sent, although no render mode is declared.",
        "E18",
    ),
    _rlmesh(
        "wire.one-answer",
        "out of order",
        "Steps of one lane that are sent ahead are taken, and answered, in any order.",
        "E19",
        _works_side_by_side,
    ),
)
"""What is shipped, in the order of ``docs/peers.md``."""


def lookup(package: str, version: str, check: str, signature: str, facts: Facts) -> str | None:
    """What is known of a failure of *check* with *signature* on a target that a server of *package* serves.

    ``None`` if nothing is.
    """
    for fault in KNOWN_FAULTS:
        if fault.covers(package, version, check, signature, facts):
            return f"{fault.note} ({fault.package} {version}; {fault.pointer})"
    return None
