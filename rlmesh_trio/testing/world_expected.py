"""The naive model of a session: what a calm world's episodes must come out as, worked out one step after the other.

No tasks and no time: slots are dealt, each lane plays its episodes, and a plan of frames is kept beside it.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

import attrs

from rlmesh_trio.engine.seeds import episode_seed
from rlmesh_trio.report import EpisodeSummary
from rlmesh_trio.testing.world_toy import Draws, Toy, ToyAction, ToyObservation, frames_for

if TYPE_CHECKING:
    from rlmesh_trio.testing.world import World

__all__ = ("ExpectedEpisode", "expected", "finished_earlier", "is_determined", "played_alone")


@attrs.frozen(order=True)
class ExpectedEpisode:
    """One episode as its summary must have it."""

    index: int
    lane: int
    seed: int | None
    trial: int | None
    steps: int
    reward: float
    terminated: bool
    truncated: bool
    success: bool | None


def is_determined(world: "World") -> bool:
    """Whether the episodes of *world* depend on nothing that time decides.

    They do where a cap counts seconds, and where a lane restarts itself while the next chunk is being prefetched: the
    chunk goes on into the new episode if it was asked for in time.
    """
    return world.session.time_cap is None and (world.owns_resets or not world.session.prefetch_lead)


def expected(world: "World", dealt: Sequence[int] | None = None) -> tuple[ExpectedEpisode, ...]:
    """All episodes that a bounded, undisturbed *world* that :func:`is_determined` has to play, by index.

    Where lanes are driven one by one, who plays which slot is a matter of time: *dealt* has the lane of each slot, by
    default in turns. A vector's and a single lane's episodes need no such help.
    """
    width, finished = world.env.lanes, world.session.finished
    slots = [slot for slot in range(world.session.budget or 0) if slot + 1 not in finished]
    if not world.drives_lanes:
        groups = {tuple(range(width)): slots}
    else:
        turns = [slot % width for slot in range(world.session.budget or 0)] if dealt is None else dealt
        groups = {(lane,): [slot for slot in slots if turns[slot] == lane] for lane in range(width)}
    play = _play_resetting if world.owns_resets else _play_rolling
    if world.resets_named_lanes:
        play = _play_partly
    return tuple(sorted(one for lanes, slots in groups.items() if slots for one in play(world, lanes, slots)))


def finished_earlier(world: "World") -> tuple[EpisodeSummary, ...]:
    """The summaries of the episodes that *world* takes over from an earlier, undisturbed run, as it names them."""
    finished = world.session.finished
    if not finished:
        return ()
    earlier = {
        one.index: one for one in expected(attrs.evolve(world, session=attrs.evolve(world.session, finished=())))
    }
    return tuple(
        EpisodeSummary(
            episode_index=one.index,
            env_index=one.lane,
            seed=one.seed,
            trial_index=one.trial,
            step_count=one.steps,
            cumulative_reward=one.reward,
            terminated=one.terminated,
            truncated=one.truncated,
            duration_ms=7,
            success=one.success,
            predict_ms=1.0,
            step_ms=2.0,
        )
        for one in map(earlier.__getitem__, finished)
    )


def _policy(world: "World", toys: Iterable[Toy], seeds: Iterable[int | None]) -> list[list[ToyAction]]:
    model = world.model
    rows = [ToyObservation(0, toy.step, toy.state) for toy in toys]
    return frames_for(rows, list(seeds), salt=model.salt, longest=model.chunk, varied=model.varied)


def _seed(world: "World", slot: int, generation: int, lane: int) -> int | None:
    session = world.session
    if session.episode_seeds:
        return session.episode_seeds[slot] if slot < len(session.episode_seeds) else None
    if session.base_seed is None:
        return None
    return episode_seed(session.base_seed, "world", generation, lane)


def _cold_seed(world: "World", lane: int, slot: int) -> int | None:
    """The seed of a lane that is reset once: by its slot where it is driven alone, in a vector by its number."""
    return _seed(world, slot, slot, 0) if world.drives_lanes else _seed(world, slot, 0, lane)


def _summary(
    world: "World", slot: int, lane: int, seed: int | None, toy: Toy, *, capped: bool = False
) -> ExpectedEpisode:
    return ExpectedEpisode(
        index=slot + 1,
        lane=lane,
        seed=seed,
        trial=(world.session.trial_base or 0) + slot if world.owns_resets else None,
        steps=toy.step,
        reward=toy.total,
        terminated=toy.terminated and not capped,
        truncated=not toy.terminated or capped,
        success=toy.success,
    )


class _Plan:
    """The frames still to be played, and those prefetched behind them."""

    def __init__(self, world: "World") -> None:
        self._world = world
        self._frames: list[list[ToyAction]] = []
        self._ahead: list[list[ToyAction]] | None = None

    def next_frame(self, toys: Sequence[Toy], seeds: Sequence[int | None]) -> list[ToyAction]:
        """What is played on the observation of *toys*; the next chunk is asked for if it is time.

        With history an observation leaves only once: one that was asked about does not serve for a prefetch.
        """
        world = self._world
        lead, history = world.session.prefetch_lead, world.model.history
        asked_about = not self._frames and self._ahead is None
        if asked_about:
            self._frames = _policy(world, toys, seeds)
        elif not self._frames and self._ahead is not None:
            self._frames, self._ahead = self._ahead, None
        frame = self._frames.pop(0)
        if lead and self._ahead is None and len(self._frames) <= lead and not (history and asked_about):
            self._ahead = _policy(world, toys, seeds)
        return frame


def _play_resetting(world: "World", lanes: Sequence[int], slots: Sequence[int]) -> list[ExpectedEpisode]:
    """One lane that is reset for each of its slots."""
    (lane,) = lanes
    draws = Draws(world.env.salt, lane)
    episodes: list[ExpectedEpisode] = []
    for slot in slots:
        seed = _seed(world, slot, slot, 0)
        episodes.append(played_alone(world, slot, lane, seed, draws.token(seed)))
    return episodes


def played_alone(world: "World", slot: int, lane: int, seed: int | None, token: int) -> ExpectedEpisode:
    """The episode of a lane that is driven alone and reset by the engine, once its *token* has been drawn."""
    toy, plan, capped = Toy(token, world.env.longest), _Plan(world), False
    while not (toy.over or capped):
        (action,) = plan.next_frame([toy], [seed])
        toy.move(action.move)
        capped = not toy.over and toy.step == world.session.step_cap
    return _summary(world, slot, lane, seed, toy, capped=capped)


def _play_partly(world: "World", lanes: Sequence[int], slots: Sequence[int]) -> list[ExpectedEpisode]:
    """Lanes in lockstep of which those that finish together are reset together, without a slot if none is left."""
    free = list(slots)
    draws = {lane: Draws(world.env.salt, lane) for lane in lanes}
    toys: dict[int, Toy] = {}
    held: dict[int, int | None] = {}
    seeds: dict[int, int | None] = {}
    episodes: list[ExpectedEpisode] = []
    due, generation = list(lanes), 0
    while True:
        granted = {lane: free.pop(0) if free else None for lane in due}
        for lane, seed in _batch_seeds(world, granted, generation).items():
            held[lane], seeds[lane] = granted[lane], seed
            toys[lane] = Toy(draws[lane].token(seed), world.env.longest)
        plan, due, generation = _Plan(world), list[int](), generation + 1
        while not due:
            frame = plan.next_frame([toys[lane] for lane in lanes], [seeds[lane] for lane in lanes])
            for lane, action in zip(lanes, frame, strict=True):
                toy = toys[lane]
                toy.move(action.move)
                capped = not toy.over and toy.step == world.session.step_cap
                if toy.over or capped:
                    due.append(lane)
                    if (slot := held[lane]) is not None:
                        episodes.append(_summary(world, slot, lane, seeds[lane], toy, capped=capped))
        if len(episodes) == len(slots):
            return episodes


def _batch_seeds(world: "World", granted: Mapping[int, int | None], generation: int) -> dict[int, int | None]:
    """The seeds of a reset of some lanes: all of them or none; by slot a lane without one takes the first one's."""
    if not (world.session.episode_seeds or world.session.seed_every):
        return {lane: _seed(world, 0, generation, lane) for lane in granted}
    wanted = [slot for slot in granted.values() if slot is not None]
    if not wanted or _seed(world, wanted[-1], wanted[-1], 0) is None:
        return dict.fromkeys(granted)
    by_slot = {lane: wanted[0] if slot is None else slot for lane, slot in granted.items()}
    return {lane: _seed(world, slot, slot, 0) for lane, slot in by_slot.items()}


def _play_rolling(world: "World", lanes: Sequence[int], slots: Sequence[int]) -> list[ExpectedEpisode]:
    """Lanes in lockstep that restart themselves on the step after an end, and play on without a slot if none is left.

    A chunk is dropped when an episode ends. The one predicted from the observation after an end supplies the step that
    restarts the lane, and goes on into the new episode.
    """
    free = list(slots)
    draws = {lane: Draws(world.env.salt, lane) for lane in lanes}
    held = {lane: free.pop(0) if free else None for lane in lanes}
    seeds = {lane: _cold_seed(world, lane, held[lane] or 0) for lane in lanes}
    toys = {lane: Toy(draws[lane].token(seeds[lane]), world.env.longest) for lane in lanes}
    episodes: list[ExpectedEpisode] = []
    plan: list[list[ToyAction]] = []
    while len(episodes) < len(slots):
        plan = plan or _policy(world, toys.values(), seeds.values())
        frame = dict(zip(lanes, plan.pop(0), strict=True))
        for lane, toy in list(toys.items()):
            if toy.over:
                toys[lane], seeds[lane] = Toy(draws[lane].token(), world.env.longest), None
                held[lane] = free.pop(0) if free else None
                continue
            toy.move(frame[lane].move)
            if toy.over:
                plan = []
                if (slot := held[lane]) is not None:
                    episodes.append(_summary(world, slot, lane, seeds[lane], toy))
    return episodes
