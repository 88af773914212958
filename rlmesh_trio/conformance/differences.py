"""Where two traces part: the first op, lane, leaf and element that is not the same, bit for bit.

The same NaN is equal to itself, and -0.0 is not 0.0. A tolerance in ulps, where the user gave one, is for the floats of
observations, rewards and infos; flags, steps and whole numbers are always exact. What two equal runs may differ in does
not count: wall-clock times, ids we did not send, warnings a server gives once a session, records of episodes that a
reset cut short (they come when the server likes), leaves and infos that the user left out, and whatever a lane does
between an end and the next reset where nobody restarts it. Nor does what follows a request that was never answered, or
was refused when it stepped such a lane among others.
"""

import struct
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Literal, TypeVar

import attrs

from rlmesh_trio.conformance.infos import compared_infos, info_spot, infos_of_lane
from rlmesh_trio.conformance.registry import Facts
from rlmesh_trio.conformance.scripts import Reset, Row, Script, Wait
from rlmesh_trio.conformance.traces import Answer, Trace
from rlmesh_trio.contract import AutoresetMode, LeafSpec
from rlmesh_trio.messages import EpisodeRecord
from rlmesh_trio.spaces.bits import ABSENT, Spot, leaf_spot, value_spot
from rlmesh_trio.spaces.leaf_values import covers, leaf_name

__all__ = ("Difference", "Part", "first_difference", "lane_fingerprint", "without")

T = TypeVar("T")
Part = Literal["refusal", "observation", "reward", "flag", "record", "info"]

_RESTARTING = (AutoresetMode.NEXT_STEP, AutoresetMode.SAME_STEP)
_UNANSWERED = ("TIMEOUT", "CONNECTION")


@attrs.frozen
class Difference:
    """The first thing in which two traces differ; pairs hold the first trace's side and then the second's.

    ``ops`` are places in the two scripts, ``lanes`` the lanes compared. ``path`` names what differs, as in
    ``obs.velocity``, ``reward`` or ``record.step_count``. ``index``, ``values``, ``bits`` and ``ulps`` are those of a
    :class:`~rlmesh_trio.spaces.bits.Spot`.
    """

    part: Part
    path: str
    ops: tuple[int, int]
    lanes: tuple[int, int]
    values: tuple[object, object]
    index: tuple[int, ...] = ()
    bits: tuple[str, str] = ("", "")
    ulps: int | None = None

    @property
    def op(self) -> int:
        """The place in the first script."""
        return self.ops[0]

    @property
    def lane(self) -> int:
        """The lane of the first trace."""
        return self.lanes[0]

    @property
    def info_only(self) -> bool:
        """Whether everything but infos is equal, to the end of both traces."""
        return self.part == "info"


def first_difference(
    a: Trace, b: Trace, facts: Facts, *, lanes: Mapping[int, int] | None = None, autoresets: bool = True
) -> Difference | None:
    """Where *a* and *b* part; ``None`` when they are equal. Infos count only where nothing else differs anywhere.

    The n-th reset or step of one script is compared with the n-th of the other. *lanes* maps the lanes of *a* that are
    compared to those of *b*, by default each to itself. Without *autoresets*, a lane's episodes are compared only if a
    reset of the script started them.
    """
    pairs = {lane: lane for lane in range(min(a.script.lanes, b.script.lanes))} if lanes is None else dict(lanes)
    of_infos: Difference | None = None
    for found in _Comparison(a, b, facts, pairs, autoresets).differences():
        if not found.info_only:
            return found
        of_infos = of_infos or found
    return of_infos


class _Side:
    """One of the two traces: its answers by the number of the request, and the episode each lane is in.

    ``over`` are the lanes whose episode is over: who steps them, by themselves or among others, may get any answer.
    """

    def __init__(self, trace: Trace, goes_on: bool) -> None:
        self._script = trace.script
        self._places = [place for place, op in enumerate(trace.script.ops) if not isinstance(op, Wait)]
        self._answers = {answer.op: answer for answer in trace.answers}
        self._episodes: dict[int, str] = {}
        self._goes_on = goes_on
        self.over: set[int] = set()

    def __len__(self) -> int:
        return len(self._places)

    def answer(self, number: int) -> Answer | None:
        """The answer to request *number*; ``None`` when there is none, or one that tells nothing. Call it in order."""
        answer = self._answers.get(self._places[number]) if number < len(self._places) else None
        if answer is None:
            return None
        resets = isinstance(self._script.ops[answer.op], Reset)
        if answer.refusal is None:
            self._episodes.update(zip(answer.lanes, answer.episode_ids, strict=False))
            self.over.difference_update(answer.lanes if resets else ())
        elif answer.refusal.code in _UNANSWERED or not (resets or self.over.isdisjoint(answer.lanes)):
            return None
        return answer

    def pass_ends(self, answer: Answer) -> None:
        """Remember which lanes *answer* ended."""
        if not self._goes_on:
            self.over.update(lane for lane in answer.lanes if _ended(answer, lane))

    def record(self, answer: Answer, lane: int) -> EpisodeRecord | None:
        """The record of the episode that *lane* has just ended, if there is one."""
        own = [record for record in answer.completed if record.env_index == lane]
        named = [record for record in own if self.is_named(record, lane)]
        return (named or own or [None])[-1]

    def is_named(self, record: EpisodeRecord, lane: int) -> bool:
        """Whether *record* has the id that was sent for the lane's episode."""
        return bool(record.episode_id) and record.episode_id == self._episodes.get(lane)


class _Comparison:
    def __init__(self, a: Trace, b: Trace, facts: Facts, lanes: Mapping[int, int], autoresets: bool) -> None:
        self._facts = facts
        self._lanes = lanes
        self._mode = facts.contract.autoreset_mode
        self._goes_on = autoresets and self._mode in _RESTARTING
        self._sides = _Side(a, self._goes_on), _Side(b, self._goes_on)
        space = facts.contract.observation_space
        self._leaves = () if space is None else space.leaves

    def differences(self) -> Iterator[Difference]:
        """All of them as long as only infos differ; what comes after another one means nothing."""
        a, b = self._sides
        for number in range(min(len(a), len(b))):
            x, y = a.answer(number), b.answer(number)
            if x is None or y is None:
                return
            pairs = [(lane, self._lanes[lane]) for lane in x.lanes if lane in self._lanes and lane not in a.over]
            if x.refusal is not None or y.refusal is not None:
                yield from self._refusals(x, y, pairs)
                continue
            for lanes in pairs:
                if lanes[1] in y.lanes:
                    yield from self._lane(x, y, lanes)
            a.pass_ends(x)
            b.pass_ends(y)

    def _refusals(self, x: Answer, y: Answer, pairs: list[tuple[int, int]]) -> Iterator[Difference]:
        codes = tuple("an answer" if answer.refusal is None else answer.refusal.code for answer in (x, y))
        if pairs and codes[0] != codes[1]:
            yield Difference("refusal", "refusal", (x.op, y.op), pairs[0], (codes[0], codes[1]))

    def _lane(self, x: Answer, y: Answer, lanes: tuple[int, int]) -> Iterator[Difference]:
        """What differs between one lane's parts of two answers."""

        def told(part: Part, path: str, spot: Spot) -> Difference:
            return Difference(part, path, (x.op, y.op), lanes, spot.values, spot.index, spot.bits, spot.ulps)

        at = x.lanes.index(lanes[0]), y.lanes.index(lanes[1])
        ended = _ended(x, lanes[0])
        if self._goes_on or not (ended and self._mode == AutoresetMode.SAME_STEP):
            for path, spot in self._observations(_get(x.observation, at[0]), _get(y.observation, at[1])):
                yield told("observation", path, spot)
        rewards = _get(x.rewards, at[0]), _get(y.rewards, at[1])
        spot = value_spot(*rewards, self._facts.ulps)
        if spot is not None:
            yield told("reward", "reward", spot)
        for name, first, second in (
            ("terminated", x.terminated, y.terminated),
            ("truncated", x.truncated, y.truncated),
        ):
            flags = bool(_get(first, at[0])), bool(_get(second, at[1]))
            if flags[0] != flags[1]:
                yield told("flag", name, Spot(flags))
        if ended:
            for part, path, spot in self._records(x, y, lanes):
                yield told(part, path, spot)
        infos = [
            compared_infos(infos_of_lane(answer, place, self._facts), self._facts)
            for answer, place in zip((x, y), at, strict=True)
        ]
        found = info_spot(infos[0], infos[1], "info", self._facts.ulps)
        if found is not None:
            yield told("info", *found)

    def _observations(self, a: Row | None, b: Row | None) -> Iterator[tuple[str, Spot]]:
        if a == b:
            return
        if a is None or b is None or len(a) != len(b) or len(a) != len(self._leaves):
            yield "obs", _presence(a, b)
            return
        for spec, first, second in zip(self._leaves, a, b, strict=True):
            if first != second and not _is_ignored(spec, self._facts):
                spot = leaf_spot(spec, first, second, self._facts.ulps)
                if spot is not None:
                    yield leaf_name("obs", spec.path), spot

    def _records(self, x: Answer, y: Answer, lanes: tuple[int, int]) -> Iterator[tuple[Part, str, Spot]]:
        first, second = (
            side.record(answer, lane) for side, answer, lane in zip(self._sides, (x, y), lanes, strict=True)
        )
        if first is None or second is None:
            if first is not second:
                yield "record", "record", _presence(first, second)
            return
        a, b = self._sides
        fields: list[tuple[str, object, object]] = [
            ("episode_id", a.is_named(first, lanes[0]), b.is_named(second, lanes[1])),
            ("seed", first.seed, second.seed),
            ("step_count", first.step_count, second.step_count),
            ("terminated", first.terminated, second.terminated),
            ("truncated", first.truncated, second.truncated),
        ]
        if not self._facts.ulps:  # The rewards were compared one by one, and their errors add up.
            fields.append(("cumulative_reward", first.cumulative_reward, second.cumulative_reward))
        for name, of_first, of_second in fields:
            spot = value_spot(of_first, of_second)
            if spot is not None:
                yield "record", f"record.{name}", spot
        infos = [compared_infos(record.final_info or {}, self._facts) for record in (first, second)]
        found = info_spot(infos[0], infos[1], "record.final_info", self._facts.ulps)
        if found is not None:
            yield "info", *found


def _ended(answer: Answer, lane: int) -> bool:
    place = answer.lanes.index(lane)
    return bool(_get(answer.terminated, place) or _get(answer.truncated, place))


def _get(values: Sequence[T], place: int) -> T | None:
    return values[place] if place < len(values) else None


def _presence(a: object, b: object) -> Spot:
    return Spot((ABSENT if a is None else "something", ABSENT if b is None else "something"))


def _is_ignored(spec: LeafSpec, facts: Facts) -> bool:
    """Whether the user left this leaf of the observation out, by its name or that of what it is in."""
    name = leaf_name("obs", spec.path)
    return any(covers(left, name) for left in facts.ignored_leaves)


def lane_fingerprint(trace: Trace, lane: int, facts: Facts) -> tuple[object, ...]:
    """What *lane* answered with, hashable: rows, reward bits and flags, up to the first answer that is a refusal.

    Infos and records are left out, and so is what follows an end that nobody restarts.
    """
    space = facts.contract.observation_space
    kept = () if space is None else [i for i, spec in enumerate(space.leaves) if not _is_ignored(spec, facts)]
    seen: list[object] = []
    over = False
    for answer in trace.answers:
        if answer.refusal is not None:
            break
        if lane not in answer.lanes:
            continue
        over = over and not isinstance(trace.script.ops[answer.op], Reset)
        if over:
            continue
        place = answer.lanes.index(lane)
        row: Row = _get(answer.observation, place) or ()
        reward = _get(answer.rewards, place)
        seen.append(
            (
                tuple([row[i] for i in kept if i < len(row)]),
                None if reward is None else struct.pack("<d", reward),
                _get(answer.terminated, place),
                _get(answer.truncated, place),
            )
        )
        over = facts.contract.autoreset_mode not in _RESTARTING and _ended(answer, lane)
    return tuple(seen)


def without(trace: Trace, ops: Collection[int]) -> Trace:
    """*trace* as if the ops at these places, and their answers, had never been.

    Records of episodes that only those ops started are left out, too. ``without(trace, range(n))`` is what follows the
    first ``n`` ops.
    """
    left = [place for place in range(len(trace.script.ops)) if place not in ops]
    places = {place: number for number, place in enumerate(left)}
    answers = [answer for answer in trace.answers if answer.op in places]
    known = {name for answer in answers for name in answer.episode_ids}
    dropped = {name for answer in trace.answers if answer.op in ops for name in answer.episode_ids} - known
    script = Script(trace.script.lanes, tuple([trace.script.ops[place] for place in left]))
    return Trace(
        script,
        tuple(
            [
                attrs.evolve(
                    answer,
                    op=places[answer.op],
                    completed=tuple([record for record in answer.completed if record.episode_id not in dropped]),
                )
                for answer in answers
            ]
        ),
        trace.lost,
    )
