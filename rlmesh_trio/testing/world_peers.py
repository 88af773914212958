"""The peers of a simulated world: an env and a model that answer as planned, and note each breach of their rules."""

import random
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import TypeVar

import attrs
import trio

from rlmesh_trio.errors import EndpointError
from rlmesh_trio.messages import (
    EnvReply,
    EpisodeRecord,
    Leaves,
    Metadata,
    PredictReply,
    PredictRequest,
    ReleaseAdapterRequest,
    ResetAdapterRequest,
    ResetRequest,
    StepTarget,
)
from rlmesh_trio.spec import TRIAL_INDEX_OPTION
from rlmesh_trio.testing.faults import Action
from rlmesh_trio.testing.scripted import pause
from rlmesh_trio.testing.world_mishaps import Call, Line, Mishaps
from rlmesh_trio.testing.world_plan import EnvPlan, ModelPlan
from rlmesh_trio.testing.world_toy import Draws, Toy, ToyAction, ToyObservation, frames_for

__all__ = ("Asked", "Played", "SimulatedEnv", "SimulatedModel", "unix_ns")

R = TypeVar("R")


def unix_ns() -> int:
    """The virtual time as nanoseconds."""
    return round(trio.current_time() * 1e9)


@attrs.define
class Played:
    """An episode the env began: serial number, lane, the seed of its reset, whether the lane restarted by itself."""

    serial: int
    lane: int
    seed: int | None
    rolled: bool
    trial: int | None
    started_ns: int
    steps: list[int] = attrs.field(factory=list[int])
    """When each of its steps was answered, in virtual nanoseconds."""


@attrs.define(eq=False)
class _Lane:
    index: int
    draws: Draws
    toy: Toy | None = None
    episode_id: str = ""
    before: int = 0
    busy: bool = False


_Named = Sequence[tuple[_Lane, str]]


class SimulatedEnv:
    """Toy episodes on every lane.

    ``played`` has them by id, ``calls`` what was asked, ``breaches`` what must not be asked.
    """

    def __init__(self, plan: EnvPlan, line: Line, mishaps: Mishaps, source: random.Random) -> None:
        self._plan = plan
        self._line = line
        self._mishaps = mishaps
        self._source = source
        self._rolls = plan.autoreset == "NEXT_STEP"
        self._lanes = [_Lane(index, Draws(plan.salt, index)) for index in range(plan.lanes)]
        self._interrupted: list[EpisodeRecord] = []
        self.played: dict[str, Played] = {}
        self.calls: list[Call] = []
        self.breaches: list[str] = []

    async def reset(self, request: ResetRequest) -> EnvReply:
        """Start the named episodes."""
        named = self._named(request.env_indices, request.episode_ids)
        with self._called("reset", request.episode_ids), _Occupied(named):
            return await self._line.carry(lambda: self._reset(request, named))

    async def step(self, action: Leaves, target: StepTarget) -> EnvReply:
        """Step the named lanes."""
        named = self._named(target.env_indices, target.episode_ids)
        with self._called("step", target.episode_ids), _Occupied(named):
            return await self._line.carry(lambda: self._step(action, named))

    async def close(self) -> None:
        """Count the call."""
        with self._called("close", ()):
            await self._line.carry(self._close)

    def _called(self, part: str, episode_ids: tuple[str, ...]) -> Call:
        call = Call(part, episode_ids, trio.current_time())
        self.calls.append(call)
        return call

    def _named(self, indices: tuple[int, ...], episode_ids: tuple[str, ...]) -> _Named:
        lanes = [self._lanes[index] for index in indices] if indices else self._lanes
        if len(lanes) != len(episode_ids) or len(set(indices)) != len(indices):
            self.breaches.append(f"{len(episode_ids)} episode ids for lanes {indices}")
        for lane in lanes:
            if lane.busy:
                self.breaches.append(f"lane {lane.index} is asked twice at once")
        return list(zip(lanes, episode_ids, strict=False))

    async def _close(self) -> None:
        await trio.lowlevel.checkpoint()
        await self._mishaps.arrive("close")

    async def _reset(self, request: ResetRequest, named: _Named) -> EnvReply:
        if len(request.seeds) not in (0, len(named)):
            self.breaches.append(f"{len(request.seeds)} seeds for {len(named)} lanes")
        actions = await self._mishaps.arrive("reset")
        await pause(self._plan.reset.pick(self._source))
        for position, (lane, episode_id) in enumerate(named):
            if lane.toy is not None and not lane.toy.over and self._plan.echoes:
                self._interrupted.append(self._record(lane, lane.toy, truncated=True))
            seed = request.seeds[position] if request.seeds else None
            self._begin(lane, episode_id, seed, rolled=False, trial=_trial(request.options, position, len(named)))
        return _changed(EnvReply([self._rows(named)], self._infos(named)), actions)

    async def _step(self, action: Leaves, named: _Named) -> EnvReply:
        actions = await self._mishaps.arrive("step")
        await pause(self._plan.step.pick(self._source))
        try:
            (moves,) = [ToyAction.unpack_rows(leaf) for leaf in action]
            pairs = list(zip(named, moves, strict=True))
        except ValueError as error:
            raise EndpointError("INVALID_ARGUMENT", f"action outside its space: {error}") from error
        reply = EnvReply()
        completed, self._interrupted = self._interrupted, []
        rewards: list[float] = []
        for (lane, episode_id), move in pairs:
            rewards.append(self._move(lane, episode_id, move))
            if lane.toy is not None and lane.toy.over:
                completed.append(self._record(lane, lane.toy, truncated=not lane.toy.terminated))
        reply.observation, reply.infos = [self._rows(named)], self._infos(named)
        reply.rewards, reply.completed = rewards, completed
        return _changed(reply, actions)

    def _move(self, lane: _Lane, episode_id: str, action: ToyAction) -> float:
        toy = lane.toy
        if toy is None:
            self.breaches.append(f"lane {lane.index} is stepped before it was reset")
            raise EndpointError("INTERNAL", "no episode")
        playing = self.played[lane.episode_id].serial
        if action.serial not in (playing, lane.before) or (action.step > toy.step and action.serial == playing):
            self.breaches.append(f"lane {lane.index} at {playing}:{toy.step} gets a move made for {action}")
        if toy.over:
            if not self._rolls or episode_id in self.played:
                self.breaches.append(f"lane {lane.index} is stepped after its episode under {episode_id}")
            self._begin(lane, episode_id, None, rolled=True, trial=None)
            return 0.0
        if episode_id != lane.episode_id:
            self.breaches.append(f"lane {lane.index} plays {lane.episode_id} and is stepped as {episode_id}")
        toy.move(action.move)
        self.played[lane.episode_id].steps.append(unix_ns())
        return toy.reward

    def _begin(self, lane: _Lane, episode_id: str, seed: int | None, *, rolled: bool, trial: int | None) -> None:
        if episode_id in self.played:
            self.breaches.append(f"episode id {episode_id} is given a second time")
        lane.before = self.played[lane.episode_id].serial if rolled else 0
        lane.episode_id = episode_id
        lane.toy = Toy(lane.draws.token(seed), self._plan.longest)
        self.played[episode_id] = Played(len(self.played) + 1, lane.index, seed, rolled, trial, unix_ns())

    def _record(self, lane: _Lane, toy: Toy, *, truncated: bool) -> EpisodeRecord:
        played = self.played[lane.episode_id]
        return EpisodeRecord(
            episode_id=lane.episode_id,
            seed=played.seed,
            env_index=lane.index,
            step_count=toy.step,
            cumulative_reward=toy.total,
            terminated=not truncated,
            truncated=truncated,
            start_timestamp_ns=played.started_ns,
            end_timestamp_ns=unix_ns(),
            final_info=_success(toy),
        )

    def _rows(self, named: _Named) -> bytes:
        rows: list[bytes] = []
        for lane, _ in named:
            assert lane.toy is not None
            rows.append(ToyObservation(self.played[lane.episode_id].serial, lane.toy.step, lane.toy.state).pack())
        return b"".join(rows)

    def _infos(self, named: _Named) -> Metadata:
        told: list[Metadata] = [_success(lane.toy) for lane, _ in named]
        if len(named) == 1:
            return told[0]
        return {"final_info": told, "_final_info": [True] * len(named)}


def _success(toy: Toy | None) -> Metadata:
    return {} if toy is None or toy.success is None else {"success": toy.success}


def _trial(options: Metadata | None, position: int, width: int) -> int | None:
    """The trial ordinal that reset options hold for one of the *width* lanes they name."""
    ordinals = (options or {}).get(TRIAL_INDEX_OPTION)
    if width > 1 and isinstance(ordinals, Sequence):
        ordinals = ordinals[position]
    return ordinals if isinstance(ordinals, int) else None


class _Occupied:
    """Marks lanes as busy while an operation on them is under way."""

    def __init__(self, named: _Named) -> None:
        self._lanes = [lane for lane, _ in named]

    def __enter__(self) -> None:
        for lane in self._lanes:
            lane.busy = True

    def __exit__(self, *_: object) -> None:
        for lane in self._lanes:
            lane.busy = False


@attrs.define(eq=False)
class Asked:
    """One request the model got, in which call and when, with what could be read of its observation and history."""

    call: int
    request: PredictRequest
    rows: list[ToyObservation]

    @property
    def episode_ids(self) -> tuple[str, ...]:
        """The episodes of its rows."""
        return tuple(info.episode_id for info in self.request.episode_info)


class SimulatedModel:
    """A pure policy.

    ``calls`` and ``asked`` have what was asked, ``breaches`` what must not be asked, ``reason`` what release was told.
    """

    def __init__(self, plan: ModelPlan, line: Line, mishaps: Mishaps, source: random.Random) -> None:
        self._plan = plan
        self._line = line
        self._mishaps = mishaps
        self._source = source
        self._under_way: Counter[str] = Counter()
        self.calls: list[Call] = []
        self.asked: list[Asked] = []
        self.reason: str | None = None
        self.breaches: list[str] = []

    async def predict(self, request: PredictRequest) -> PredictReply:
        """Refuse: the engine asks in groups only."""
        raise NotImplementedError

    async def predict_group(self, requests: Sequence[PredictRequest]) -> Sequence[PredictReply | Exception]:
        """Answer the requests, in their order."""
        self.asked += [Asked(len(self.calls), request, _readable(request)) for request in requests]
        ids = [info.episode_id for request in requests for info in request.episode_info]
        if self._plan.fuses and self._under_way.total():
            self.breaches.append("a model that fuses is asked while it predicts")
        if not self._plan.fuses and len(requests) != 1:
            self.breaches.append(f"a model that does not fuse is asked {len(requests)} at once")
        if len(set(ids)) != len(ids) or any(self._under_way[id_] for id_ in ids):
            self.breaches.append("the model is asked twice at once about an episode")
        self._under_way.update(ids)
        try:
            with self._called("predict_group", tuple(ids)) as call:
                results = await self._line.carry(lambda: self._predict(requests))
                call.wrong = len(results) != len(requests) or any(map(_is_wrong, results, requests))
                return results
        finally:
            self._under_way.subtract(ids)

    def fuses_predicts(self) -> bool:
        """As planned."""
        return self._plan.fuses

    def wants_history(self) -> bool:
        """As planned."""
        return self._plan.history

    async def reset_adapter(self, request: ResetAdapterRequest) -> None:
        """End episodes."""
        if self._under_way.total():
            self.breaches.append("episodes are ended while the model predicts")
        with self._called("evict", request.episode_ids):
            await self._line.carry(lambda: self._heed("evict"))

    async def release_adapter(self, request: ReleaseAdapterRequest) -> None:
        """End the route."""
        if self.reason is not None:
            self.breaches.append("the model is released twice")
        self.reason = request.reason
        with self._called("release", ()):
            await self._line.carry(lambda: self._heed("release"))

    def _called(self, part: str, episode_ids: tuple[str, ...]) -> Call:
        call = Call(part, episode_ids, trio.current_time())
        self.calls.append(call)
        return call

    async def _heed(self, part: str) -> None:
        await trio.lowlevel.checkpoint()
        await self._mishaps.arrive(part)

    async def _predict(self, requests: Sequence[PredictRequest]) -> Sequence[PredictReply | Exception]:
        actions = await self._mishaps.arrive("predict_group")
        results = [await self._result(request) for request in requests]
        await pause(self._plan.predict.pick(self._source))
        return _changed(results, actions)

    async def _result(self, request: PredictRequest) -> PredictReply | Exception:
        try:
            actions = await self._mishaps.arrive("predict")
        except Exception as error:
            return error
        rows = _readable(request)
        seeds = [info.seed for info in request.episode_info]
        if len(rows) != len(seeds):
            return EndpointError("INVALID_ARGUMENT", f"{len(rows)} rows for {len(seeds)} episodes")
        plan = self._plan
        frames = frames_for(rows, seeds, salt=plan.salt, longest=plan.chunk, varied=plan.varied)
        reply = PredictReply(
            request.session_id,
            request.env_id,
            request.request_id,
            [[b"".join(action.pack() for action in frame)] for frame in frames],
        )
        return _changed(reply, actions)


def _is_wrong(result: PredictReply | Exception, request: PredictRequest) -> bool:
    return isinstance(result, Exception) or not result.actions or result.request_id != request.request_id


def _readable(request: PredictRequest) -> list[ToyObservation]:
    """The rows of the request's observation; none if they cannot be read."""
    try:
        return [row for leaf in request.observation or () for row in ToyObservation.unpack_rows(leaf)]
    except ValueError:
        return []


def _changed(reply: R, actions: Iterable[Action]) -> R:
    for action in actions:
        reply = action.change(reply)
    return reply
