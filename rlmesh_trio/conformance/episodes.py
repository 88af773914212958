"""The episodes of a trace, by our own count: where each began and ended, by whom it was begun, and what it earned.

A reset begins one on each lane it names. Where the env restarts its lanes, the step after an end begins the next one:
under ``NEXT_STEP`` that step, a *roll*, is no step of it, under ``SAME_STEP`` it is the first. What an error may have
done to an episode nobody knows: such a one is left out, and its lane counts again from the next reset on.
"""

from collections.abc import Iterator

import attrs

from rlmesh_trio.conformance.live_lanes import ended_lanes
from rlmesh_trio.conformance.printing import place_text
from rlmesh_trio.conformance.registry import Facts
from rlmesh_trio.conformance.scripts import Reset, Script, Step
from rlmesh_trio.conformance.traces import Answer, Trace
from rlmesh_trio.contract import AutoresetMode

__all__ = ("Episode", "Played", "Roll", "played", "step_place")

_HARMLESS = ("INVALID_ACTION", "UNSUPPORTED", "NOT_READY")


@attrs.define(eq=False)
class Episode:
    """One episode of *lane*, begun by the op at ``start``, and by the env itself unless ``by_reset``.

    ``rewards`` are those of its steps, ``places`` where these stand. ``last`` is the answer that ended it, ``cut`` the
    place of the reset that did; of one that still runs neither is set.
    """

    lane: int
    start: int
    id: str
    seed: int | None
    by_reset: bool
    rewards: list[float] = attrs.field(factory=list[float])
    places: list[int] = attrs.field(factory=list[int])
    last: Answer | None = None
    cut: int | None = None
    terminated: bool = False
    truncated: bool = False

    @property
    def length(self) -> int:
        """How many steps it has."""
        return len(self.places)


@attrs.frozen
class Roll:
    """The step of *lane* that only restarts it: what came for it, at its position among the answer's lanes."""

    lane: int
    answer: Answer
    position: int


@attrs.frozen(eq=False)
class Played:
    """What a trace consists of: ``episodes`` in the order they began, and the ``rolls`` between them.

    ``left_out`` are the ids of episodes that an error may have changed.
    """

    episodes: tuple[Episode, ...]
    rolls: tuple[Roll, ...]
    left_out: frozenset[str]

    @property
    def ended(self) -> Iterator[tuple[Episode, Answer]]:
        """The episodes that came to an end by themselves, with the answers that ended them."""
        return ((each, each.last) for each in self.episodes if each.last is not None)


def played(trace: Trace, facts: Facts) -> Played:
    """The episodes of *trace*."""
    books = _Books(facts.contract.autoreset_mode)
    for answer in trace.answers:
        op = trace.script.ops[answer.op]
        assert isinstance(op, (Reset, Step))
        if answer.refusal is None:
            books.note(op, answer)
        elif answer.refusal.code not in _HARMLESS:
            books.lose(answer.lanes)
    return Played(tuple(books.episodes), tuple(books.rolls), frozenset(books.left_out))


def step_place(script: Script, place: int, lane: int) -> str:
    """Where that is, for people: ``step 3``, or ``step 3 lane 1`` where there are lanes."""
    text = place_text(script, place)
    return text if script.lanes == 1 else f"{text} lane {lane}"


class _Books:
    def __init__(self, mode: int) -> None:
        self._mode = mode
        self._running: dict[int, Episode] = {}
        self._over: set[int] = set()
        self.episodes: list[Episode] = []
        self.rolls: list[Roll] = []
        self.left_out: set[str] = set()

    def note(self, op: Reset | Step, answer: Answer) -> None:
        """Account an op that was answered."""
        ended = ended_lanes(answer)
        for position, lane in enumerate(answer.lanes):
            if isinstance(op, Reset):
                running = self._running.get(lane)
                if running is not None:
                    running.cut = answer.op
                seed = op.seeds[position] if position < len(op.seeds) else None
                self._begin(lane, position, answer, seed, by_reset=True)
                continue
            if lane in self._over and not self._restart(lane, position, answer):
                continue
            episode = self._running.get(lane)
            if episode is None:
                continue
            episode.places.append(answer.op)
            episode.rewards.append(answer.rewards[position] if position < len(answer.rewards) else 0.0)
            if lane in ended:
                episode.last = answer
                episode.terminated = position < len(answer.terminated) and answer.terminated[position]
                episode.truncated = position < len(answer.truncated) and answer.truncated[position]
                del self._running[lane]
                self._over.add(lane)

    def _restart(self, lane: int, position: int, answer: Answer) -> bool:
        """Whether a step of a lane that is over is the first of an episode."""
        if self._mode == AutoresetMode.NEXT_STEP:
            self._begin(lane, position, answer, None, by_reset=False)
            self.rolls.append(Roll(lane, answer, position))
            return False
        if self._mode == AutoresetMode.SAME_STEP:
            self._begin(lane, position, answer, None, by_reset=False)
            return True
        return False

    def _begin(self, lane: int, position: int, answer: Answer, seed: int | None, *, by_reset: bool) -> None:
        id = answer.episode_ids[position] if position < len(answer.episode_ids) else ""
        self._running[lane] = episode = Episode(lane, answer.op, id, seed, by_reset)
        self._over.discard(lane)
        self.episodes.append(episode)

    def lose(self, lanes: tuple[int, ...]) -> None:
        """Forget what runs on *lanes*."""
        for lane in lanes:
            self._over.discard(lane)
            episode = self._running.pop(lane, None)
            if episode is not None:
                self.left_out.add(episode.id)
                self.episodes.remove(episode)
