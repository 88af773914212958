"""One step of two recordings compared, part by part: what the model asked for, then all that the env answered. Pure.

Digests decide whether a leaf is the same. Its values are looked at only where they are not, and are known where both
sides have them: at level ``full``, or among the newest of a failed episode at level ``ring``. A leaf whose values are
not known on both sides is beyond any tolerance, and so are infos of which only a part is ignored.
"""

from collections.abc import Iterator, Mapping, Sequence

import attrs

from rlmesh_trio.contract import LeafSpec, ValueSpace
from rlmesh_trio.errors import ProtocolError
from rlmesh_trio.messages import Leaves, Metadata
from rlmesh_trio.recording import Digester, Header, Kept, Row
from rlmesh_trio.recording.digests import sorted_infos
from rlmesh_trio.replay.findings import LeafDifference, Part, StepDifference
from rlmesh_trio.replay.leaves import (
    info_differences,
    is_whole,
    leaf_difference,
    reward_difference,
    unknown_difference,
    unlike,
)
from rlmesh_trio.replay.names import check_names, full_name, leaf_names
from rlmesh_trio.replay.tolerance import Tolerance
from rlmesh_trio.spaces.bits import ABSENT
from rlmesh_trio.spaces.leaf_values import covers
from rlmesh_trio.spaces.metadata import plain_metadata
from rlmesh_trio.wire.metadata import encode_metadata

__all__ = ("Seen", "StepComparison")

_Specs = tuple[LeafSpec, LeafSpec]


@attrs.frozen
class Seen:
    """One side's row of a step, and what else the recording holds of it: what a ring kept."""

    row: Row
    kept: Kept | None = None

    @property
    def observation(self) -> Leaves | None:
        """The observation's leaves, if they are known."""
        return self.kept.observation if self.row.observation is None and self.kept is not None else self.row.observation

    @property
    def infos(self) -> Metadata | None:
        """The infos, if they are known."""
        return self.kept.infos or {} if self.row.infos is None and self.kept is not None else self.row.infos


class StepComparison:
    """Compares steps of two recordings with these headers, by one standard.

    ``ignored`` adds to the leaves and infos that either header leaves out. Raises :exc:`InvalidSpec` for a name that is
    none, or that names no leaf of the recorded spaces.
    """

    def __init__(self, recorded: Header, now: Header, tolerance: Tolerance, ignored: Sequence[str]) -> None:
        self.tolerance = tolerance
        unstable = (*recorded.unstable_leaves, *now.unstable_leaves)
        self._left_out = tuple(map(full_name, (*unstable, *ignored)))
        check_names((*map(full_name, ignored), *tolerance.leaves), recorded)
        sides = recorded.contract, now.contract
        self._observed = _Pairing("obs", *(side.observation_space for side in sides))
        self._acted = _Pairing("action", *(side.action_space for side in sides))
        of_infos = [name.removeprefix("info.") for name in self._left_out if name.startswith("info.")]
        digester = Digester(None, None, (*recorded.ignored_infos, *now.ignored_infos, *of_infos))
        self._compared_infos = digester.compared_infos
        self._no_infos = digester.info_rows(None, 1)

    def difference(self, step: int, recorded: Seen, now: Seen, *, past: bool = False) -> StepDifference | None:
        """What differs at *step*; ``None`` if nothing does. With *past* shown by what is beyond the tolerance."""
        leaves: list[LeafDifference] = []
        equal: list[str] = []
        for path, found in self._parts(recorded, now, past):
            if found:
                leaves += found
            else:
                equal.append(path)
        return StepDifference(step, tuple(leaves), tuple(equal)) if leaves else None

    def _parts(self, a: Seen, b: Seen, past: bool) -> Iterator[tuple[str, Sequence[LeafDifference]]]:
        """What was compared, each with what differs in it."""
        if a.row.reset is not None and b.row.reset is not None:
            yield "seed", _resets(a.row, b.row)
        yield from self._actions(a.row, b.row, past)
        codes = tuple("an answer" if row.error is None else row.error.code for row in (a.row, b.row))
        if codes != ("an answer", "an answer"):
            yield "error", [] if codes[0] == codes[1] else [unlike("error", "error", *codes)]
            return
        yield from self._observations(a, b, past)
        if a.row.reset is None and b.row.reset is None:
            if not self._is_left_out("reward"):
                found = reward_difference(a.row.reward, b.row.reward, self.tolerance.of("reward"))
                yield "reward", [] if found is None else [found]
            for name in ("terminated", "truncated"):
                flags: tuple[object, ...] = tuple(_present(getattr(row, name)) for row in (a.row, b.row))
                yield name, [] if flags[0] is flags[1] else [unlike("flag", name, *flags)]
        if not self._is_left_out("info"):
            yield "info", self._infos(a, b, past)

    def _is_left_out(self, path: str) -> bool:
        return any(covers(name, path) for name in self._left_out)

    def _actions(self, a: Row, b: Row, past: bool) -> Iterator[tuple[str, Sequence[LeafDifference]]]:
        if a.action is None or b.action is None:
            return
        pairs = self._acted.pairs(len(a.action), len(b.action))
        if pairs is None:
            same = list(map(bytes, a.action)) == list(map(bytes, b.action))
            counts = [f"{len(leaves)} leaves" for leaves in (a.action, b.action)]
            yield "action", [] if same else [unlike("action", "action", *counts)]
            return
        for path, (i, j), specs in pairs:
            first, second = bytes(a.action[i]), bytes(b.action[j])
            if not self._is_left_out(path):
                yield path, [] if first == second else [self._leaf("action", path, specs, first, second, past)]

    def _leaf(self, part: Part, path: str, specs: _Specs, a: bytes, b: bytes, past: bool) -> LeafDifference:
        allowed = self.tolerance.of(path, whole=is_whole(specs[0]))
        return leaf_difference(part, path, specs, a, b, allowed, past=past)

    def _observations(self, a: Seen, b: Seen, past: bool) -> Iterator[tuple[str, Sequence[LeafDifference]]]:
        digests = a.row.leaf_digests, b.row.leaf_digests
        if not all(digests):
            if any(digests):
                yield "obs", [unlike("observation", "obs", *("something" if one else ABSENT for one in digests))]
            return
        pairs = self._observed.pairs(*map(len, digests))
        if pairs is None:
            yield "obs", [] if digests[0] == digests[1] else [unknown_difference("observation", "obs")]
            return
        known = a.observation, b.observation
        for path, places, specs in pairs:
            if self._is_left_out(path):
                continue
            if digests[0][places[0]] == digests[1][places[1]]:
                yield path, []
            elif known[0] is None or known[1] is None:
                yield path, [unknown_difference("observation", path)]
            else:
                values = bytes(known[0][places[0]]), bytes(known[1][places[1]])
                yield path, [self._leaf("observation", path, specs, *values, past)]

    def _infos(self, a: Seen, b: Seen, past: bool) -> list[LeafDifference]:
        if a.row.info_digest == b.row.info_digest:
            return []
        first, second = (self._told(side) for side in (a, b))
        if first is None or second is None:
            return [unknown_difference("info", "info")]
        return list(info_differences(first, second, self.tolerance.of, past=past))

    def _told(self, side: Seen) -> Metadata | None:
        """What of the infos is compared, if they are known."""
        if side.row.info_digest == self._no_infos:
            return {}
        try:
            return None if side.infos is None else self._compared_infos(side.infos)
        except ProtocolError:
            return None


class _Pairing:
    """The leaves of two spaces by name: what both have, whatever its place."""

    def __init__(self, role: str, recorded: ValueSpace | None, now: ValueSpace | None) -> None:
        names = [leaf_names(role, space) for space in (recorded, now)]
        self._counts = tuple(map(len, names))
        places: Mapping[str, int] = {name: place for place, name in enumerate(names[1])}
        self._pairs: list[tuple[str, tuple[int, int], _Specs]] = []
        if recorded is not None and now is not None:
            self._pairs = [
                (name, (place, places[name]), (recorded.leaves[place], now.leaves[places[name]]))
                for place, name in enumerate(names[0])
                if name in places
            ]

    def pairs(self, recorded: int, now: int) -> list[tuple[str, tuple[int, int], _Specs]] | None:
        """Name, places and layouts of each leaf; ``None`` unless there are as many leaves as each side declares."""
        return self._pairs if (recorded, now) == self._counts else None


def _present(value: object) -> object:
    return ABSENT if value is None else value


def _resets(a: Row, b: Row) -> list[LeafDifference]:
    assert a.reset is not None
    assert b.reset is not None
    seeds: tuple[object, object] = _seed(a.reset.seeds), _seed(b.reset.seeds)
    found = [] if seeds[0] == seeds[1] else [unlike("seed", "seed", *seeds)]
    options = [sorted_infos(plain_metadata(reset.options or {})) for reset in (a.reset, b.reset)]
    if encode_metadata(options[0]) != encode_metadata(options[1]):
        found.append(unlike("seed", "options", *options))
    return found


def _seed(seeds: tuple[int, ...]) -> object:
    return seeds[0] if seeds else ABSENT
