"""The env of a simulated world: it answers as planned, and notes each breach of its rules."""

import random
from collections.abc import Awaitable, Sequence
from types import TracebackType

import attrs
import trio

from rlmesh_trio.errors import ConnectError, EndpointError, HandshakeError
from rlmesh_trio.messages import EnvReply, EpisodeRecord, Leaves, Metadata, ResetRequest, StepTarget
from rlmesh_trio.spec import TRIAL_INDEX_OPTION
from rlmesh_trio.testing.scripted import pause
from rlmesh_trio.testing.world_mishaps import Call, Died, Line, Mishaps, depart
from rlmesh_trio.testing.world_plan import EnvPlan, Reconnects
from rlmesh_trio.testing.world_toy import Draws, Toy, ToyAction, ToyObservation

__all__ = ("Played", "ReconnectableEnv", "SimulatedEnv", "unix_ns")


def unix_ns() -> int:
    """The virtual time as nanoseconds."""
    return round(trio.current_time() * 1e9)


@attrs.define
class Played:
    """An episode the env began: serial number, lane, the token it drew, the seed of its reset.

    ``rolled`` tells that the lane restarted by itself.
    """

    serial: int
    lane: int
    token: int
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
    ready: bool = False
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
        with self._called("reset", named), _Occupied(named):
            return await self._line.carry(lambda: self._alive(self._reset(request, named)))

    async def step(self, action: Leaves, target: StepTarget) -> EnvReply:
        """Step the named lanes."""
        named = self._named(target.env_indices, target.episode_ids)
        with self._called("step", named), _Occupied(named):
            return await self._line.carry(lambda: self._alive(self._step(action, named)))

    async def close(self) -> None:
        """Count the call."""
        with self._called("close"):
            await self._line.carry(self._close)

    def _called(self, part: str, named: _Named = ()) -> Call:
        lanes = tuple(lane.index for lane, _ in named)
        call = Call(part, tuple(id_ for _, id_ in named), trio.current_time(), lanes)
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

    async def _alive(self, answer: Awaitable[EnvReply]) -> EnvReply:
        try:
            return await answer
        except Died:
            self._line.lose()
            raise

    async def _close(self) -> None:
        await trio.lowlevel.checkpoint()
        await self._mishaps.arrive("close")

    async def _reset(self, request: ResetRequest, named: _Named) -> EnvReply:
        if len(request.seeds) not in (0, len(named)):
            self.breaches.append(f"{len(request.seeds)} seeds for {len(named)} lanes")
        actions = await self._mishaps.arrive("reset", [lane.index for lane, _ in named])
        await pause(self._plan.reset.pick(self._source))
        for position, (lane, episode_id) in enumerate(named):
            if lane.toy is not None and not lane.toy.over and self._plan.echoes:
                self._interrupted.append(self._record(lane, lane.toy, truncated=True))
            seed = request.seeds[position] if request.seeds else None
            self._begin(lane, episode_id, seed, rolled=False, trial=_trial(request.options, position, len(named)))
        return await depart(EnvReply([self._rows(named)], self._infos(named)), actions)

    async def _step(self, action: Leaves, named: _Named) -> EnvReply:
        actions = await self._mishaps.arrive("step", [lane.index for lane, _ in named])
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
        return await depart(reply, actions)

    def _move(self, lane: _Lane, episode_id: str, action: ToyAction) -> float:
        toy = lane.toy
        if toy is None or not lane.ready:
            self.breaches.append(f"lane {lane.index} is stepped before it was reset, or after it failed")
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
        lane.ready = True
        lane.toy = Toy(lane.draws.token(seed), self._plan.longest)
        self.played[episode_id] = Played(
            len(self.played) + 1, lane.index, lane.toy.token, seed, rolled, trial, unix_ns()
        )

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
    """Marks lanes as busy while an operation on them is under way, and as spoilt if it fails."""

    def __init__(self, named: _Named) -> None:
        self._lanes = [lane for lane, _ in named]

    def __enter__(self) -> None:
        for lane in self._lanes:
            lane.busy = True

    def __exit__(self, kind: type[BaseException] | None, _error: BaseException | None, _: TracebackType | None) -> None:
        for lane in self._lanes:
            lane.busy = False
            lane.ready &= kind is None


class ReconnectableEnv(SimulatedEnv):
    """One that can be connected to again; nothing it played is left then."""

    def __init__(
        self, plan: EnvPlan, line: Line, mishaps: Mishaps, source: random.Random, *, reconnects: Reconnects
    ) -> None:
        super().__init__(plan, line, mishaps, source)
        self._reconnects = reconnects
        self._tries = 0

    async def reconnect(self) -> None:
        """As planned."""
        if any(call.part == "reconnect" and call.result == "under way" for call in self.calls):
            self.breaches.append("the env is reconnected twice at once")
        with self._called("reconnect"):
            self._line.hang_up()
            self._tries += 1
            await pause(self._reconnects.takes.pick(self._source))
            refusals = self._reconnects.refusals
            if refusals is None or self._tries <= refusals:
                raise ConnectError("scripted refusal")
            if self._reconnects.stranger:
                raise HandshakeError("scripted stranger")
            self._tries = 0
            self._line.mend()
            for lane in self._lanes:
                lane.toy, lane.ready = None, False
            self._interrupted.clear()
