"""A closer look at where an env differs from what was recorded of it as digests alone.

The episode is played twice up to there, with all observations: if the env disagrees with itself, these are its values.
"""

import attrs

from rlmesh_trio.replay.findings import Divergence
from rlmesh_trio.replay.plays import Plays

__all__ = ("Focus", "focus_on")


@attrs.frozen
class Focus:
    """What two plays of the episode ``ordinal`` up to the step ``until`` show.

    ``between`` is where the two part, ``None`` if they are equal; ``as_recorded`` says whether the first is equal to
    what was recorded, as far as it went.
    """

    ordinal: int
    until: int
    between: Divergence | None
    as_recorded: bool


async def focus_on(plays: Plays, divergence: Divergence) -> Focus:
    """Play the episode of *divergence* twice, up to the step at which it differs. What breaks a play off is raised."""
    ordinal, until = divergence.ordinal, (divergence.beyond or divergence.first).step
    first, second = [await plays.actions([ordinal], until=until, level="full") for _ in range(2)]
    for played in (first, second):
        if played.failure is not None:
            raise played.failure
    between = plays.compare(first.path, second.path, [ordinal]).divergences
    for played in (first, second):
        plays.discard(played)
    return Focus(ordinal, until, between[0] if between else None, as_recorded=not first.differs)
