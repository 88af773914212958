"""Two recordings compared: where each episode first differs, in any bit and beyond the tolerance.

Episodes are paired by ordinal. Equal roots say that episodes are equal, and nothing of them is read; the others are
read side by side, until all is found that is told of them. An episode that was interrupted on one side is compared as
far as both go: where a failing env ended both runs, it need not have begun on the other. Requests that were never
answered are passed over.
"""

from collections.abc import Collection, Sequence
from typing import Final

import attrs

from rlmesh_trio.errors import InvalidSpec
from rlmesh_trio.recording import Episode, EpisodeEntry, Header, Recording, Tick
from rlmesh_trio.replay.contracts import header_differences, header_facts
from rlmesh_trio.replay.findings import Comparison, Divergence, StepDifference
from rlmesh_trio.replay.leaves import unlike
from rlmesh_trio.replay.names import leaf_names
from rlmesh_trio.replay.shapes import shape_of
from rlmesh_trio.replay.steps import Seen, StepComparison
from rlmesh_trio.replay.tolerance import Tolerance, parse_tolerance

__all__ = ("compare",)

_LATER: Final = (1, 8, 32, 128)
"""How many steps after the first difference growth is looked at."""

_NO_STEP, _A_STEP = "no step", "a step"


def compare(
    recorded: Recording,
    now: Recording,
    *,
    tolerance: Tolerance | None = None,
    ignored: Sequence[str] = (),
    episodes: Collection[int] | None = None,
) -> Comparison:
    """Compare *now* with what was *recorded*: all episodes, or the *episodes* of these ordinals.

    *tolerance* is by default the one in the recorded header. Leaves and infos that either header leaves out are left
    out, and so are those that *ignored* names, as ``obs.image``, ``reward`` or ``info.x``; with digests alone, infos
    are left out only as a whole. A contract that differs is told, and what both declare is compared nevertheless.

    Raises :exc:`InvalidSpec` for a tolerance, a name or an ordinal that means nothing here, and
    :exc:`~rlmesh_trio.recording.RecordingError` where a file is damaged.
    """
    header = recorded.header
    if tolerance is None:
        tolerance = parse_tolerance((header.tolerance,))
    by_step = StepComparison(header, now.header, tolerance, ignored)
    before, after = (_chosen(recording.entries, episodes) for recording in (recorded, now))
    if episodes is not None and (nobodys := sorted(set(episodes) - before.keys() - after.keys())):
        raise InvalidSpec(f"neither {recorded.path} nor {now.path} has an episode {nobodys[0]}")
    roots_tell = _roots_tell(header, now.header)
    both = sorted(before.keys() & after.keys())
    divergences: list[Divergence] = []
    unfinished: list[int] = []
    steps = 0
    for place, ordinal in enumerate(both):
        entries = before[ordinal], after[ordinal]
        steps += min(entry.steps for entry in entries)
        if roots_tell and entries[0].root == entries[1].root:
            continue
        found = _Episode(recorded, now, entries, by_step).divergence()
        if found is not None:
            divergences.append(attrs.evolve(found, equal_before=place - len(divergences)))
        elif (entries[0].end, entries[0].steps) != (entries[1].end, entries[1].steps):
            unfinished.append(ordinal)
    missing, surplus = before.keys() - after.keys(), after.keys() - before.keys()
    cut = _cut_off(recorded, now, missing) | _cut_off(now, recorded, surplus)
    return Comparison(
        contract=header_differences(header, now.header),
        compared=len(both),
        steps=steps,
        missing=tuple(sorted(missing - cut)),
        surplus=tuple(sorted(surplus - cut)),
        unfinished=tuple(sorted({*unfinished, *cut})),
        divergences=tuple(divergences),
        tolerance=str(tolerance),
        run_roots=(_run_root(recorded), _run_root(now)),
        headers=_unlike_facts(header, now.header),
    )


def _chosen(entries: dict[int, EpisodeEntry], wanted: Collection[int] | None) -> dict[int, EpisodeEntry]:
    return entries if wanted is None else {ordinal: entries[ordinal] for ordinal in set(wanted) & entries.keys()}


def _cut_off(recording: Recording, other: Recording, alone: Collection[int]) -> set[int]:
    """Which of the episodes that *recording* has *alone* were cut off by a failing env, that ended *other* as well."""
    interrupted = {ordinal for ordinal in alone if recording.entries[ordinal].end == "interrupted"}
    if not interrupted or not _failed(recording):
        return set()
    failed = _failed(other)
    refused = {ordinal for tick in failed for ordinal in tick.begins}
    return interrupted - refused if failed else set()


def _failed(recording: Recording) -> list[Tick]:
    """The requests that the env answered with an error."""
    return [tick for tick in recording.ticks() if tick.error is not None and tick.error.code != "CONNECTION"]


def _run_root(recording: Recording) -> bytes:
    return b"" if recording.footer is None else recording.footer.run_root


def _roots_tell(recorded: Header, now: Header) -> bool:
    """Whether roots cover the same leaves on both sides."""
    names = [leaf_names("obs", header.contract.observation_space) for header in (recorded, now)]
    return names[0] == names[1] and set(recorded.unstable_leaves) == set(now.unstable_leaves)


def _unlike_facts(recorded: Header, now: Header) -> dict[str, tuple[str, str]]:
    facts = header_facts(recorded), header_facts(now)
    names = dict.fromkeys((*facts[0], *facts[1]))
    pairs = {name: (facts[0].get(name, ""), facts[1].get(name, "")) for name in names}
    return {name: pair for name, pair in pairs.items() if pair[0] != pair[1]}


class _Side:
    """One side's answered rows of an episode; ``steps`` counts the steps among those taken so far."""

    def __init__(self, recording: Recording, entry: EpisodeEntry) -> None:
        self.entry = entry
        self.steps = 0
        self._recording = recording
        self._rows = (row for row in recording.rows(entry.ordinal) if row.answered)
        is_ring = recording.header.level == "ring"
        self._kept = {kept.tick: kept for kept in self.episode().kept} if is_ring else {}

    def episode(self) -> Episode:
        """What the recording says of the whole episode."""
        return self._recording.episode(self.entry.ordinal)

    def next(self) -> Seen | None:
        """The next row; ``None`` after the last."""
        row = next(self._rows, None)
        if row is None:
            return None
        self.steps += row.reset is None and row.error is None
        return Seen(row, self._kept.get(row.tick))


class _Episode:
    """One episode of two recordings, whose *entries* do not say that it is the same."""

    def __init__(
        self,
        recorded: Recording,
        now: Recording,
        entries: tuple[EpisodeEntry, EpisodeEntry],
        by_step: StepComparison,
    ) -> None:
        self._recorded = _Side(recorded, entries[0])
        self._now = _Side(now, entries[1])
        self._by_step = by_step
        self._first: StepDifference | None = None
        self._beyond: StepDifference | None = None
        self._main: StepDifference | None = None
        self._later: list[StepDifference] = []

    def divergence(self) -> Divergence | None:
        """Read both sides as far as there is anything to find out; ``None`` if nothing differs that counts."""
        a, b = self._recorded, self._now
        while True:
            recorded, now = a.next(), b.next()
            if recorded is None or now is None:
                self._compare_ends(recorded, now)
                break
            step = a.steps + (recorded.row.error is not None)
            self._compare(step, recorded, now)
            if self._is_all_found and self._first is not None and step >= self._first.step + _LATER[-1]:
                break
        return None if self._first is None else self._told(self._first)

    @property
    def _is_all_found(self) -> bool:
        return None not in (self._first, self._beyond, self._main)

    def _told(self, first: StepDifference) -> Divergence:
        a, b = (side.episode() for side in (self._recorded, self._now))
        return Divergence(
            ordinal=a.ordinal,
            seed=a.seed,
            first=first,
            beyond=self._beyond,
            later=tuple(self._later),
            steps=(a.steps, b.steps),
            ends=(a.end, b.end),
            returns=(a.cumulative_reward, b.cumulative_reward),
            lanes=(a.lane, b.lane),
            shape=shape_of(self._main),
            values_known=all(leaf.values is not None for leaf in first.leaves),
        )

    def _compare(self, step: int, recorded: Seen, now: Seen) -> None:
        first = self._first
        is_later = first is not None and step - first.step in _LATER
        if self._is_all_found and not is_later:
            return
        found = self._by_step.difference(step, recorded, now)
        if is_later:
            self._later.append(found or StepDifference(step, ()))
        if found is None:
            return
        if found.tolerated or self._by_step.tolerance.is_exact:
            self._note(found, found)
        else:
            self._note(found, self._by_step.difference(step, recorded, now, past=True) or found)

    def _note(self, found: StepDifference, past: StepDifference) -> None:
        self._first = self._first or found
        if self._beyond is None and not past.tolerated:
            self._beyond = past
        if self._main is None and any(leaf.part != "info" for leaf in found.leaves):
            self._main = found

    def _compare_ends(self, recorded: Seen | None, now: Seen | None) -> None:
        """What it means that one side has no row any more, or neither."""
        a, b = self._recorded, self._now
        shorter = a if recorded is None else b
        if recorded is None and now is None:
            ends = a.entry.end, b.entry.end
            if ends[0] != ends[1] and "interrupted" not in ends:
                found = StepDifference(a.steps, (unlike("flag", "end", *ends),))
                self._note(found, found)
        elif shorter.entry.end != "interrupted":
            sides = [_NO_STEP if side is None else _A_STEP for side in (recorded, now)]
            found = StepDifference(shorter.steps + 1, (unlike("length", "steps", *sides),))
            self._note(found, found)
