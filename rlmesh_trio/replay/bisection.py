"""Which earlier episodes an episode hangs on, if on any: played again alone, then after fewer and fewer others.

The search is delta debugging: halves first, then smaller parts and what is left without them. It ends with a set of
which every episode is needed, or where it may not go on.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Final, Literal

import attrs

from rlmesh_trio.recording.reader import Recording, open_recording
from rlmesh_trio.replay.findings import Divergence
from rlmesh_trio.replay.plays import Played, Plays

__all__ = ("Cause", "CauseKind", "Spoils", "acts_otherwise", "bisect", "smallest_cause")

_MOST_PLAYS: Final = 60
"""How often an episode is played again at most."""
_MOST_STEPS: Final = 10
"""How many steps are played in all, at most, as a multiple of the recorded run's."""

_CONFIRMATIONS: Final = 2
"""How often what is found is tried again: chance alone might have made it look so."""

CauseKind = Literal["alone", "after", "recorded after", "lasting", "chance", "unknown"]
Spoils = Callable[[Sequence[int]], Awaitable[bool]]
"""Whether an episode played after these differs from the recorded one."""


@attrs.frozen
class Cause:
    """What an episode that differs hangs on.

    ``alone``: it differs also by itself. ``after``: it differs after ``episodes`` and not by itself. ``recorded
    after``: it differs by itself, and is as recorded after ``episodes``. ``lasting``: after ``episodes`` it does
    otherwise than before, and goes on to do so by itself, because what they left outlives a play. ``chance``: played
    after the same episodes once more, it does not do the same. ``unknown``: it does not differ again, whatever it was
    played after.

    ``same_lane`` says that ``episodes`` were on its lane, ``is_smallest`` that each of them is needed, and ``plays``
    how many it took to find out.
    """

    kind: CauseKind
    episodes: tuple[int, ...] = ()
    same_lane: bool = False
    is_smallest: bool = True
    plays: int = 0


async def smallest_cause(
    candidates: Sequence[int], spoils: Spoils, may_go_on: Callable[[], bool]
) -> tuple[tuple[int, ...], bool]:
    """The smallest part found of *candidates* that still spoils it, and whether each episode of it is needed.

    All *candidates* are known to spoil it, and none of them not to. *may_go_on* is asked before each try.
    """
    left, parts = tuple(candidates), 2
    in_vain = set[tuple[int, ...]]()
    while len(left) > 1:
        size = -(-len(left) // parts)
        pieces = [left[start : start + size] for start in range(0, len(left), size)]
        rests = [tuple([each for each in left if each not in piece]) for piece in pieces] if parts > 2 else []
        for tried in dict.fromkeys((*pieces, *rests)):
            if tried in in_vain:
                continue
            if not may_go_on():
                return left, False
            if await spoils(tried):
                parts = 2 if len(tried) <= size else max(2, parts - 1)
                left = tried
                break
            in_vain.add(tried)
        else:
            if parts >= len(left):
                break
            parts = min(len(left), 2 * parts)
    return left, True


async def bisect(plays: Plays, played: Played, divergence: Divergence) -> Cause:
    """Find what the episode of *divergence* in *played* hangs on, by playing it after others on one lane.

    Recorded actions are played, and the whole run only where it is the model that differs first. No more than
    60 plays are made, nor begun after 10 times the recorded steps.
    """
    search = _Search(plays, divergence.ordinal, acts_otherwise(divergence))
    if not await search.spoils(()):
        with open_recording(played.path) as now:
            ways = _before(now, divergence.ordinal)
        return await search.smallest("after", ways, search.spoils)
    found = await search.smallest("recorded after", _before(plays.recording, divergence.ordinal)[:1], search.restores)
    return found if found.kind != "unknown" else Cause("alone", plays=search.count)


def acts_otherwise(divergence: Divergence) -> bool:
    """Whether the model's action is what differs first."""
    return any(leaf.part == "action" for leaf in divergence.first.leaves)


def _before(recording: Recording, ordinal: int) -> list[tuple[tuple[int, ...], bool]]:
    """The episodes begun before that of *ordinal*: those of its lane, and then all if these are more."""
    lanes = {told.ordinal: told.lane for told in recording.told_episodes()}
    begun = recording.entries[ordinal].first_tick
    earlier = [each for each, entry in recording.entries.items() if entry.first_tick < begun]
    same = tuple(sorted(each for each in earlier if lanes.get(each) == lanes.get(ordinal)))
    ways = [(same, True)] if same else []
    return ways if len(same) == len(earlier) else [*ways, (tuple(sorted(earlier)), False)]


class _Search:
    """Plays of one episode after others, and how many there may still be."""

    def __init__(self, plays: Plays, ordinal: int, whole: bool) -> None:
        self.count = 0
        self._plays = plays
        self._ordinal = ordinal
        self._whole = whole
        self._steps_of = {each: 1 + entry.steps for each, entry in plays.recording.entries.items()}
        self._steps_left = _MOST_STEPS * sum(self._steps_of.values())

    def may_go_on(self) -> bool:
        return self.count < _MOST_PLAYS and self._steps_left > 0

    async def spoils(self, before: Sequence[int]) -> bool:
        episodes = [*before, self._ordinal]
        self.count += 1
        self._steps_left -= sum(self._steps_of[each] for each in episodes)
        played = await (self._plays.closed(episodes, lanes=1) if self._whole else self._plays.actions(episodes))
        self._plays.discard(played)
        if played.failure is not None:
            raise played.failure
        found = played.comparison
        return self._ordinal in found.missing or any(
            each.ordinal == self._ordinal and each.beyond is not None for each in found.divergences
        )

    async def restores(self, before: Sequence[int]) -> bool:
        return not await self.spoils(before)

    async def smallest(self, kind: CauseKind, ways: Sequence[tuple[tuple[int, ...], bool]], does: Spoils) -> Cause:
        """The smallest part of the first of *ways* that does it at all."""
        for candidates, same_lane in ways:
            if self.may_go_on() and await does(candidates):
                if await does(()):
                    repeats = await self._repeats({(): True}, does)
                    return Cause("lasting" if repeats else "chance", candidates, same_lane, False, self.count)
                found, is_smallest = await smallest_cause(candidates, does, self.may_go_on)
                repeats = await self._repeats({found: True, (): False}, does)
                return Cause(kind if repeats else "chance", found, same_lane, is_smallest, self.count)
        return Cause("unknown", plays=self.count)

    async def _repeats(self, told: Mapping[tuple[int, ...], bool], does: Spoils) -> bool:
        """Whether it does the same again, after each of what is *told*, as far as it may be played."""
        for _ in range(_CONFIRMATIONS):
            for before, did in told.items():
                if self.may_go_on() and await does(before) != did:
                    return False
        return True
