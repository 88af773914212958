"""The route's books: slots, ids, seeds, trials, totals and summaries. Pure: time and ids are handed in.

A *slot* is the route-wide start ordinal of an episode. It fixes the episode's index and its seed, so results do not
depend on which lane played it or when.
"""

import logging
from bisect import insort
from collections.abc import Callable, Iterator, Sequence
from itertools import count, islice
from math import inf

import attrs

from rlmesh_trio.engine.final_infos import lane_final_info, read_success
from rlmesh_trio.engine.seeds import episode_seed, slot_seed
from rlmesh_trio.messages import EpisodeInfo, EpisodeRecord, Metadata
from rlmesh_trio.report import EpisodeInFlight, EpisodeSummary
from rlmesh_trio.spec import SessionSpec, reset_options_for

__all__ = (
    "EpisodeStart",
    "LaneSlot",
    "RecordBook",
    "ResetPlan",
    "Route",
    "episode_info",
    "lane_final_info",
    "read_success",
)

logger = logging.getLogger("rlmesh_trio")

_MAX_TRIAL = 2**64 - 1


@attrs.frozen
class EpisodeStart:
    """What an episode begins with."""

    episode_id: str
    slot: int | None
    seed: int | None
    trial_index: int | None


@attrs.define(eq=False)
class LaneSlot:
    """What is known of the episode one lane is playing.

    ``pending_id`` is minted when an env-owned lane has ended, and becomes the lane's id on the step that restarts it.
    ``planned`` is what a reset under way is to start.
    """

    env_index: int
    episode_id: str = ""
    record_id: str = ""
    episode_index: int = 0
    slot: int | None = None
    seed: int | None = None
    trial_index: int | None = None
    started_at_ns: int = 0
    step: int = 0
    reset: bool = True
    cumulative_reward: float = 0.0
    predict_ns: int = 0
    step_ns: int = 0
    predicted: bool = False
    ended: bool = False
    completed: bool = False
    pending_id: str | None = None
    planned: EpisodeStart | None = None

    @property
    def newest_id(self) -> str:
        """The id the env knows the lane by, or is about to."""
        return self.planned.episode_id if self.planned is not None else self.pending_id or self.episode_id

    @property
    def surplus(self) -> bool:
        """Whether the lane plays an episode the budget had no slot for: stepped, but never announced or counted."""
        return self.slot is None

    def mean_ms(self, total_ns: int) -> float | None:
        """A per-step mean in milliseconds; ``None`` before the first step."""
        return total_ns / 1e6 / self.step if self.step > 0 else None


class RecordBook:
    """Names episodes for people: ``ep-000001`` and on, by slot where there is one, else by count of ids seen."""

    def __init__(self) -> None:
        self._known: dict[str, tuple[str, int]] = {}
        self._count = 0

    def register(self, episode_id: str, slot: int | None = None) -> tuple[str, int, bool]:
        """The record id, the 1-based index, and whether the id is new. An empty id has an empty record id."""
        if not episode_id:
            return "", 0, False
        if (known := self._known.get(episode_id)) is not None:
            return *known, False
        self._count += 1
        index = self._count if slot is None else slot + 1
        record = f"ep-{index:06d}"
        self._known[episode_id] = (record, index)
        return record, index, True

    def forget(self, episode_id: str) -> None:
        """Drop an id that no lane holds any more."""
        self._known.pop(episode_id, None)


@attrs.frozen
class ResetPlan:
    """What one driver-owned reset sends: per lane of the group an id, and where they apply a slot, seed and trial.

    ``seeds`` is empty or complete: a batch is seeded as a whole or not at all.
    """

    episode_ids: tuple[str, ...]
    slots: tuple[int | None, ...]
    seeds: tuple[int, ...]
    trials: tuple[int, ...]
    options: Metadata | None
    partly_covered: bool


class Route:
    """One env session paired with one model session. Methods that refuse an illegal call change nothing.

    The books of a spec with finished episodes begin with these: summarised, counted, and their slots taken.
    ``has_caps`` says whether episodes may end here that the env goes on with.
    """

    def __init__(self, spec: SessionSpec, *, new_id: Callable[[], str], unix_ns: Callable[[], int]) -> None:
        self.spec = spec
        self.new_id = new_id
        self.unix_ns = unix_ns
        self.total_steps = sum(episode.step_count for episode in spec.finished)
        self.total_episodes = len(spec.finished)
        self.summaries: list[EpisodeSummary] = list(spec.finished)
        self.records = RecordBook()
        self.session_id = spec.session_id
        self.env_id = spec.env_id
        self._requests = 0
        self._unplayed = _slots_except({episode.episode_index - 1 for episode in spec.finished})
        self._given_back: list[int] = []
        self._startable = inf if spec.max_episodes is None else spec.max_episodes - len(spec.finished)
        self._surplus_trials = count(spec.max_episodes or 0)
        self._success_keys = spec.edition.success_keys
        self._trial_option = spec.edition.trial_index_option
        self._max_seconds = spec.max_episode_seconds
        self._step_cap = inf if spec.step_cap is None else spec.step_cap
        self.has_caps = spec.step_cap is not None or spec.max_episode_seconds is not None

    def request_id(self, phase: str) -> str:
        """The next request id; one counter serves the whole route, and it advances for every observation."""
        self._requests = number = self._requests + 1
        return f"{self.env_id}:{phase}:{number:06d}"

    @property
    def budget_spent(self) -> bool:
        """Whether as many episodes completed as were asked for."""
        return self.spec.max_episodes is not None and self.total_episodes >= self.spec.max_episodes

    @property
    def owes_episodes(self) -> bool:
        """Whether slots were given back that nobody has claimed since."""
        return bool(self._given_back)

    def give_back(self, slot: int) -> None:
        """Return a claimed slot whose episode was not finished."""
        insort(self._given_back, slot)
        self._startable += 1

    def claim(self, wanted: int) -> tuple[int, ...]:
        """Take the *wanted* lowest slots left, or none at all when the budget cannot grant them."""
        return self._take(wanted) if wanted <= self._startable else ()

    def claim_up_to(self, wanted: int) -> tuple[int, ...]:
        """Take as many of the *wanted* lowest slots left as the budget still has."""
        return self._take(int(min(wanted, self._startable)))

    def _take(self, granted: int) -> tuple[int, ...]:
        self._startable -= granted
        again = self._given_back[:granted]
        del self._given_back[:granted]
        return (*again, *islice(self._unplayed, granted - len(again)))

    def trials_of(self, slots: Sequence[int | None]) -> tuple[int, ...]:
        """The trial ordinals of episodes by slot, those without one counting on from the budget.

        None at all under env-owned resets.
        """
        if not self.spec.driver_owns_resets:
            return ()
        base = self.spec.trial_index_base or 0
        ordinals = [next(self._surplus_trials) if slot is None else slot for slot in slots]
        return tuple([min(base + ordinal, _MAX_TRIAL) for ordinal in ordinals])

    def plan_reset(
        self, lanes: Sequence[LaneSlot], generation: int, *, single_lane_group: bool, others_play: bool = False
    ) -> ResetPlan | None:
        """Claim what a reset of *lanes* needs; ``None`` when the budget grants it no slot.

        While *others_play* on in the same vector the lanes cannot stay as they are: they are reset as surplus then.
        """
        width = len(lanes)
        granted = self.claim(1) if single_lane_group else self.claim_up_to(width)
        if not granted and not others_play:
            return None
        slots = granted + (None,) * (width - len(granted))
        trials = self.trials_of(slots)
        seeds, partly = self._seeds(lanes, slots, generation)
        return ResetPlan(
            episode_ids=tuple(self.new_id() for _ in lanes),
            slots=slots,
            seeds=seeds,
            trials=trials,
            options=reset_options_for(self.spec.env_contract, self._trial_option, trials),
            partly_covered=partly,
        )

    def plan_again(self, lanes: Sequence[LaneSlot]) -> ResetPlan | None:
        """What a reset of the group sends that starts its episodes again: as they were, under fresh ids.

        An episode that a failed reset was to start counts as one. A lane whose episode was finished, which the env was
        to restart by itself, gets the next slot, if there is one, and no seed. A surplus lane without a seed takes
        another's, so that these keep theirs. ``None`` when nothing was in play.
        """
        if self.spec.driver_owns_resets and all(lane.completed and lane.planned is None for lane in lanes):
            return None
        starts = [lane.planned or self._start_after(lane) for lane in lanes]
        if all(start.slot is None for start in starts):
            return None
        first = next(start.seed for start in starts if start.slot is not None)
        wanted = [first if start.slot is None and start.seed is None else start.seed for start in starts]
        seeds = tuple([seed for seed in wanted if seed is not None])
        trials = tuple(start.trial_index for start in starts if start.trial_index is not None)
        return ResetPlan(
            episode_ids=tuple(self.new_id() for _ in lanes),
            slots=tuple(start.slot for start in starts),
            seeds=seeds if len(seeds) == len(lanes) else (),
            trials=trials,
            options=reset_options_for(self.spec.env_contract, self._trial_option, trials),
            partly_covered=False,
        )

    def _start_after(self, lane: LaneSlot) -> EpisodeStart:
        if not lane.completed:
            return EpisodeStart(lane.episode_id, lane.slot, lane.seed, lane.trial_index)
        slots = self.claim(1) or (None,)
        return EpisodeStart("", slots[0], None, next(iter(self.trials_of(slots)), None))

    def note_plan(self, lanes: Sequence[LaneSlot], plan: ResetPlan) -> None:
        """A reset of *lanes* by *plan* goes out: until it has succeeded they hold what they are to play."""
        for position, lane in enumerate(lanes):
            lane.planned = EpisodeStart(
                plan.episode_ids[position],
                plan.slots[position],
                plan.seeds[position] if plan.seeds else None,
                plan.trials[position] if plan.trials else None,
            )

    def in_flight(self, lanes: Sequence[LaneSlot]) -> tuple[EpisodeInFlight, ...]:
        """The episodes that *lanes* play, or that a reset under way is to start; none that is finished or surplus."""
        playing = [(lane.env_index, lane.planned or lane) for lane in lanes if lane.planned or not lane.completed]
        return tuple(
            [EpisodeInFlight(one.slot + 1, env_index, one.seed) for env_index, one in playing if one.slot is not None]
        )

    def start_planned(self, lane: LaneSlot) -> None:
        """The reset of *lane* has succeeded."""
        assert lane.planned is not None
        self.start(lane, *attrs.astuple(lane.planned, recurse=False))

    def _seeds(
        self, lanes: Sequence[LaneSlot], slots: tuple[int | None, ...], generation: int
    ) -> tuple[tuple[int, ...], bool]:
        """A seed for every lane or none at all, and whether a list could have given some of them.

        Where seeds go by slot a surplus lane takes the first one's: nobody counts what it plays.
        """
        spec = self.spec
        if spec.episode_seeds or spec.seeds_by_slot:
            by_slot = [slot_seed(spec, slot) for slot in slots if slot is not None]
            known = [seed for seed in by_slot if seed is not None]
            if not known or len(known) < len(by_slot):
                return (), bool(known)
            return (*known, *known[:1] * (len(slots) - len(known))), False
        if spec.base_seed is None:
            return (), False
        base, session_id, route_id = spec.base_seed, spec.session_id, spec.seed_route_id
        return tuple([episode_seed(base, session_id, generation, x.env_index, route_id=route_id) for x in lanes]), False

    def start(self, lane: LaneSlot, episode_id: str, slot: int | None, seed: int | None, trial: int | None) -> None:
        """Move *lane* to a new episode: what was known of the old one is forgotten now and not earlier."""
        self.records.forget(lane.episode_id)
        lane.record_id, lane.episode_index, _ = self.records.register(episode_id, slot)
        lane.episode_id = episode_id
        lane.slot = slot
        lane.seed = seed
        lane.trial_index = trial
        lane.started_at_ns = self.unix_ns()
        lane.step = 0
        lane.reset = True
        lane.cumulative_reward = 0.0
        lane.predict_ns = lane.step_ns = 0
        lane.predicted = lane.ended = lane.completed = False
        lane.pending_id = None
        lane.planned = None

    def account_step(self, lanes: Sequence[LaneSlot], rewards: Sequence[float], predict_ns: int, step_ns: int) -> None:
        """Count one group step: one for the route, one for every lane of the group. A missing reward is 0."""
        self.total_steps += 1
        if len(lanes) == 1:
            lane = lanes[0]
            lane.step += 1
            lane.reset = False
            lane.predict_ns += predict_ns
            lane.step_ns += step_ns
            if rewards:
                lane.cumulative_reward += rewards[0]
            return
        if len(rewards) < len(lanes):
            rewards = [*rewards, *[0.0] * (len(lanes) - len(rewards))]
        for lane, reward in zip(lanes, rewards, strict=False):
            lane.step += 1
            lane.reset = False
            lane.cumulative_reward += reward
            lane.predict_ns += predict_ns
            lane.step_ns += step_ns

    def ended_lanes(
        self, lanes: Sequence[LaneSlot], reported: Sequence[EpisodeRecord], infos: Metadata | None
    ) -> list[tuple[LaneSlot, EpisodeRecord]]:
        """The lanes whose episode ends with this step: those the env reported, then those that reach a cap.

        A reported completion counts only under the id its lane holds now; anything else is a stale echo.
        """
        if not reported and len(lanes) == 1 and lanes[0].step < self._step_cap and self._max_seconds is None:
            return []
        ended: list[tuple[LaneSlot, EpisodeRecord]] = []
        done: list[LaneSlot] = []
        for record in reported:
            lane = next((lane for lane in lanes if lane.episode_id == record.episode_id), None)
            if lane is None or lane.completed or lane in done:
                logger.debug("dropped a stale completion echo of episode %r", record.episode_id)
                continue
            done.append(lane)
            ended.append((lane, record))
        for position, lane in enumerate(lanes):
            if lane not in done and self._at_cap(lane):
                ended.append((lane, self._capped(lane, lane_final_info(infos, position, len(lanes)))))
        return ended

    def _at_cap(self, lane: LaneSlot) -> bool:
        if lane.step >= self._step_cap:
            return True
        return self._max_seconds is not None and (self.unix_ns() - lane.started_at_ns) / 1e9 >= self._max_seconds

    def _capped(self, lane: LaneSlot, final_info: Metadata | None) -> EpisodeRecord:
        return EpisodeRecord(
            episode_id=lane.episode_id,
            env_index=lane.env_index,
            step_count=lane.step,
            cumulative_reward=lane.cumulative_reward,
            truncated=True,
            start_timestamp_ns=lane.started_at_ns,
            end_timestamp_ns=self.unix_ns(),
            final_info=final_info,
        )

    def complete(self, lane: LaneSlot, record: EpisodeRecord) -> EpisodeSummary:
        """Count a finished episode and summarise it; the summary is kept only under a budget."""
        self.total_episodes += 1
        summary = EpisodeSummary(
            episode_index=lane.episode_index,
            env_index=lane.env_index,
            seed=lane.seed,
            trial_index=lane.trial_index,
            step_count=record.step_count,
            cumulative_reward=record.cumulative_reward,
            terminated=record.terminated,
            truncated=record.truncated,
            duration_ms=max(0, record.end_timestamp_ns - record.start_timestamp_ns) // 1_000_000,
            success=read_success(record.final_info, self._success_keys),
            predict_ms=lane.mean_ms(lane.predict_ns),
            step_ms=lane.mean_ms(lane.step_ns),
        )
        if self.spec.max_episodes is not None:
            self.summaries.append(summary)
        return summary


def _slots_except(taken: set[int]) -> Iterator[int]:
    """All slots but those in *taken*, ascending."""
    return (slot for slot in count() if slot not in taken)


def episode_info(lanes: Sequence[LaneSlot]) -> tuple[EpisodeInfo, ...]:
    """One entry per lane of a group, as a predict carries them."""
    return tuple(EpisodeInfo(lane.episode_id, lane.seed) for lane in lanes)
