"""Several runs that should be one: how many traces there are among them. Pure."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

import attrs

__all__ = ("TraceCount", "count_episode_traces", "count_traces")


@attrs.frozen
class TraceCount:
    """How often each trace occurred, the most frequent first; ``str`` is ``5 runs: 3 traces (2, 2, 1)``.

    ``groups`` has for each trace the places of the runs that gave it, counted from 0.
    """

    groups: tuple[tuple[int, ...], ...]

    @property
    def runs(self) -> int:
        """How many runs were counted."""
        return sum(self.counts)

    @property
    def counts(self) -> tuple[int, ...]:
        """How many runs gave each trace."""
        return tuple(map(len, self.groups))

    def __str__(self) -> str:
        runs = f"{self.runs} run{'s' * (self.runs != 1)}"
        traces = f"{len(self.groups)} trace{'s' * (len(self.groups) != 1)}"
        return f"{runs}: {traces} ({', '.join(map(str, self.counts))})"


def count_traces(roots: Sequence[bytes]) -> TraceCount:
    """Count runs, or attempts at one episode, by their *roots*: one root is one trace."""
    places: dict[bytes, list[int]] = {}
    for place, root in enumerate(roots):
        places.setdefault(root, []).append(place)
    return TraceCount(tuple(map(tuple, sorted(places.values(), key=len, reverse=True))))


def count_episode_traces(runs: Iterable[Mapping[int, bytes]]) -> dict[int, TraceCount]:
    """The same by episode, for those in which *runs*, each its roots by ordinal, do not all agree or are not all there.

    The places in a :class:`TraceCount` are those of the runs that have the episode.
    """
    known = list(runs)
    ordinals = sorted(Counter(ordinal for run in known for ordinal in run))
    counted = {ordinal: count_traces([run[ordinal] for run in known if ordinal in run]) for ordinal in ordinals}
    return {ordinal: count for ordinal, count in counted.items() if len(count.groups) > 1 or count.runs < len(known)}
