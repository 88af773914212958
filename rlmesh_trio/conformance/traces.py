"""A trace is what an env answered to a script: one answer an op, kept as bits, and judged after the run."""

import attrs

from rlmesh_trio.conformance.scripts import Row, Script
from rlmesh_trio.messages import EpisodeRecord, Metadata

__all__ = ("Answer", "Refusal", "Trace")


@attrs.frozen
class Refusal:
    """An op that was answered with an error: ``code`` as in ``EndpointError``, ``TIMEOUT`` for our own deadline."""

    code: str
    message: str
    recoverable: bool


@attrs.frozen
class Answer:
    """The answer to one op. Rows, rewards and flags follow ``lanes``; a reset has no rewards and no flags.

    ``op`` is the op's place in the script. A ``refusal`` comes with nothing else. Sizes are those that came: a judge
    may find fewer rows or rewards than lanes. ``raw_leaves`` are the observation's leaves as they came, whole.
    ``seconds`` is how long the answer took.
    """

    op: int
    lanes: tuple[int, ...]
    observation: tuple[Row, ...] = ()
    rewards: tuple[float, ...] = ()
    terminated: tuple[bool, ...] = ()
    truncated: tuple[bool, ...] = ()
    infos: Metadata | None = attrs.field(default=None, hash=False)
    completed: tuple[EpisodeRecord, ...] = ()
    episode_ids: tuple[str, ...] = ()
    refusal: Refusal | None = None
    raw_leaves: tuple[bytes, ...] = ()
    seconds: float = 0.0


@attrs.frozen
class Trace:
    """The answers to the resets and steps of ``script``, in order; fewer of them when the session was lost.

    ``episode_ids`` of an answer are those we sent with its op. ``lost`` says how the session ended before the script.
    """

    script: Script
    answers: tuple[Answer, ...]
    lost: Refusal | None = None
