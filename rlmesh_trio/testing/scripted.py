"""Scripted endpoints: envs and models whose every answer is known beforehand, and the specs that go with them.

Payloads are leaves of one byte per row. What was asked is kept in plain lists; what shall go wrong is a fault plan.
"""

from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Any, TypeVar

import attrs
import numpy as np
import trio
from gymnasium import spaces

from rlmesh_trio.editions import CURRENT_EDITION
from rlmesh_trio.messages import (
    EnvReply,
    EpisodeRecord,
    Leaves,
    Metadata,
    Phases,
    PredictReply,
    PredictRequest,
    ReleaseAdapterRequest,
    ResetAdapterRequest,
    ResetRequest,
    StepTarget,
)
from rlmesh_trio.spec import AutoresetMode, EnvContract, LeafSpec, SessionSpec, ValueSpace
from rlmesh_trio.testing.faults import Action, Fault, FaultPlan

__all__ = (
    "BYTE_SPACE",
    "EchoEnv",
    "LaneScript",
    "ScriptedEnv",
    "ScriptedModel",
    "contract",
    "lane_spec",
    "one",
    "pause",
    "space_of",
    "vector_spec",
)

R = TypeVar("R")


def space_of(dtype: str) -> ValueSpace:
    """A space of one byte a row whose one leaf claims to hold *dtype*, a wire name: what a relay judges by."""
    return ValueSpace(spaces.Box(0, 255, (1,), np.uint8), (LeafSpec("$", "box", dtype, (1,)),), b"")


BYTE_SPACE = space_of("uint8")


def contract(mode: AutoresetMode = AutoresetMode.UNSPECIFIED, width: int = 1, **fields: Any) -> EnvContract:
    """The contract of an env of *width* lanes whose spaces hold one byte; *fields* replace its fields."""
    return attrs.evolve(
        EnvContract("TestEnv-v0", BYTE_SPACE, BYTE_SPACE, num_envs=width, autoreset_mode=mode), **fields
    )


def one(budget: int | None = 1, **fields: Any) -> SessionSpec:
    """One lane whose resets the engine sends: *budget* episodes (``None``: no end), then the env is closed.

    The session is ``session-1``, the env ``TestEnv-v0``, the components ``env-1`` and ``model-1``; *fields* replace
    any field of the spec.
    """
    base = SessionSpec(
        env_contract=contract(),
        session_id="session-1",
        env_id="TestEnv-v0",
        env_component_id="env-1",
        model_component_id="model-1",
        max_episodes=budget,
        close_env_on_end=True,
    )
    return attrs.evolve(base, **fields)


def vector_spec(lanes: int, budget: int | None, **fields: Any) -> SessionSpec:
    """As :func:`one` for a lockstep vector that restarts its own lanes, in ``session-vec``."""
    base = one(budget, session_id="session-vec", num_envs=lanes, env_contract=contract(AutoresetMode.NEXT_STEP, lanes))
    return attrs.evolve(base, **fields)


def lane_spec(lanes: int, budget: int | None, seeds: Iterable[int] = (), **fields: Any) -> SessionSpec:
    """As :func:`vector_spec` for lanes driven one by one, whose resets the engine sends with *seeds* by slot."""
    base = vector_spec(
        lanes,
        budget,
        env_contract=contract(AutoresetMode.DISABLED, lanes),
        subset_step=True,
        episode_seeds=tuple(seeds),
    )
    return attrs.evolve(base, **fields)


@attrs.define
class LaneScript:
    """One lane's episodes: their length in steps (``None``: they never end), and how many seconds a step takes.

    ``step``, ``episode_id`` and ``done`` tell how far the current one is.
    """

    length: int | None
    delay: float = 0.0
    step: int = 0
    episode_id: str = ""
    done: bool = False


class ScriptedEnv:
    """Lanes that end after a known number of steps, each given by its length or its :class:`LaneScript`.

    The observation byte is 1 on a reset, else the episode's step modulo 256; every step is worth 1; infos are
    ``{"phase": "reset"}``, ``"step"``, or ``"roll"`` on a step that restarted a lane. Under ``next_step`` a finished
    lane restarts on the following step: reward 0, and the id pushed for it is adopted. ``final_info(lane)`` goes with
    each completion, ``total_ns`` and ``phases`` with each reply.

    *faults* are on ``reset``, ``step`` and ``close``. What no fault expresses may go into ``before_reset(lanes)``,
    ``before_step(lane, step)`` or ``before_close()``, which may raise or wait.

    ``SessionSpec.for_env(env, …)`` takes the lanes as it would a served env's: one lane, with ``next_step`` a lockstep
    vector, else lanes driven one by one. ``resets``, ``targets``, ``actions`` (lanes and leaves of each step) and
    ``closes`` tell what was asked.
    """

    def __init__(
        self,
        *lanes: LaneScript | int | None,
        next_step: bool = False,
        faults: Iterable[Fault] = (),
        final_info: Callable[[int], Metadata | None] = lambda _lane: None,
        total_ns: int | None = None,
        phases: Phases | None = None,
    ) -> None:
        self.lanes = [lane if isinstance(lane, LaneScript) else LaneScript(lane) for lane in lanes]
        self.next_step = next_step
        self._plan = FaultPlan(faults, ("reset", "step", "close"))
        self.final_info = final_info
        self.total_ns = total_ns
        self.phases = phases
        self.resets: list[ResetRequest] = []
        self.actions: list[tuple[tuple[int, ...], Leaves]] = []
        self.targets: list[StepTarget] = []
        self.closes = 0
        self.before_reset: Callable[[tuple[int, ...]], Awaitable[None]] | None = None
        self.before_step: Callable[[int, int], Awaitable[None]] | None = None
        self.before_close: Callable[[], Awaitable[None]] | None = None

    @property
    def contract(self) -> EnvContract:
        """One byte in, one byte out, in as many lanes as there are scripts."""
        return contract(AutoresetMode.NEXT_STEP if self.next_step else AutoresetMode.DISABLED, len(self.lanes))

    @property
    def edition(self) -> str:
        """The current edition."""
        return CURRENT_EDITION.name

    @property
    def subset_step(self) -> bool:
        """Whether the lanes are driven one by one."""
        return not self.next_step

    @property
    def ceiling(self) -> None:
        """No ceiling: anything may be sent."""

    async def reset(self, request: ResetRequest) -> EnvReply:
        """Start the episodes of the request on the lanes it names (all where it names none)."""
        await trio.lowlevel.checkpoint()
        self.resets.append(request)
        indices = request.env_indices or tuple(range(len(self.lanes)))
        if self.before_reset is not None:
            await self.before_reset(indices)
        actions = await self._plan.arrive("reset", indices)
        for position, index in enumerate(indices):
            lane = self.lanes[index]
            lane.step = 0
            lane.done = False
            lane.episode_id = request.episode_ids[position]
        return _changed(self._reply(bytes([1] * len(indices)), {"phase": "reset"}), actions)

    async def step(self, action: Leaves, target: StepTarget) -> EnvReply:
        """Step the lanes the target names (all where it names none)."""
        indices = target.env_indices or tuple(range(len(self.lanes)))
        self.actions.append((indices, action))
        self.targets.append(target)
        if self.before_step is not None:
            for index in indices:
                await self.before_step(index, self.lanes[index].step + 1)
        actions = await self._plan.arrive("step", indices)
        delay = max(self.lanes[index].delay for index in indices)
        await pause(delay)
        completed: list[EpisodeRecord] = []
        rewards: list[float] = []
        seen: list[int] = []
        rolled = False
        for position, index in enumerate(indices):
            lane = self.lanes[index]
            if lane.done and self.next_step:
                lane.done, lane.step, rolled = False, 0, True
                lane.episode_id = target.episode_ids[position]
                rewards.append(0.0)
                seen.append(1)
                continue
            lane.step += 1
            rewards.append(1.0)
            seen.append(lane.step % 256)
            if lane.length is not None and lane.step >= lane.length:
                lane.done = True
                completed.append(self._record(index, terminated=True))
        reply = self._reply(bytes(seen), {"phase": "roll" if rolled else "step"})
        reply.rewards = rewards
        reply.completed = completed
        return _changed(reply, actions)

    def _record(self, index: int, *, terminated: bool) -> EpisodeRecord:
        lane = self.lanes[index]
        return EpisodeRecord(
            episode_id=lane.episode_id,
            env_index=index,
            step_count=lane.step,
            cumulative_reward=float(lane.step),
            terminated=terminated,
            truncated=not terminated,
            final_info=self.final_info(index),
        )

    def _reply(self, observation: bytes, infos: Metadata) -> EnvReply:
        return EnvReply(
            observation=[observation],
            infos=infos,
            endpoint_total_ns=self.total_ns,
            phases=self.phases,
            request_bytes=50,
            response_bytes=60,
        )

    async def close(self) -> None:
        """Count the call."""
        await trio.lowlevel.checkpoint()
        if self.before_close is not None:
            await self.before_close()
        await self._plan.arrive("close")
        self.closes += 1


class EchoEnv(ScriptedEnv):
    """One lane that never ends. An episode a reset interrupts is reported, under its old id, by the next step."""

    def __init__(self) -> None:
        super().__init__(None)
        self._interrupted: list[EpisodeRecord] = []

    async def reset(self, request: ResetRequest) -> EnvReply:
        """Start an episode; the one it interrupts is put by for the next step."""
        if self.lanes[0].step:
            self._interrupted.append(self._record(0, terminated=False))
        return await super().reset(request)

    async def step(self, action: Leaves, target: StepTarget) -> EnvReply:
        """Step, and report the interrupted episodes."""
        reply = await super().step(action, target)
        reply.completed, self._interrupted = [*reply.completed, *self._interrupted], []
        return reply


class ScriptedModel:
    """Answers a frame of byte 0 plus ``extra`` frames of bytes 100, 101, …, one row per row asked about.

    Every call takes ``delay`` seconds. ``fuses`` asks for the requests of all waiting lanes in one call, ``history``
    for earlier observations; ``total_ns`` and ``phases`` go with each reply.

    *faults* are on ``predict`` (each request), ``predict_group`` (each call), ``evict`` and ``release``. What no fault
    expresses may go into ``before_predict(n)``, ahead of the n-th ``predict_group`` call from 1, ``before_evict()`` or
    ``before_release()``, which may raise or wait.

    ``calls`` has each predict and evict with its episode ids in order of arrival, ``batches`` the number of requests
    in each call, ``requests`` the requests, ``released`` the reasons of the releases that were answered.
    """

    def __init__(
        self,
        *,
        extra: int = 0,
        delay: float = 0.0,
        fuses: bool = False,
        history: bool = False,
        faults: Iterable[Fault] = (),
        total_ns: int | None = None,
        phases: Phases | None = None,
    ) -> None:
        self.extra = extra
        self.delay = delay
        self.fuses = fuses
        self.history = history
        self._plan = FaultPlan(faults, ("predict", "predict_group", "evict", "release"))
        self.total_ns = total_ns
        self.phases = phases
        self.calls: list[tuple[str, tuple[str, ...]]] = []
        self.batches: list[int] = []
        self.requests: list[PredictRequest] = []
        self.released: list[str] = []
        self.before_predict: Callable[[int], Awaitable[None]] | None = None
        self.before_evict: Callable[[], Awaitable[None]] | None = None
        self.before_release: Callable[[], Awaitable[None]] | None = None

    def answer(self, request: PredictRequest) -> PredictReply:
        """What this model answers to *request*."""
        rows = len(request.episode_info)
        frames = [[bytes([0] * rows)], *([bytes([100 + k % 100] * rows)] for k in range(self.extra))]
        return PredictReply(
            request.session_id,
            request.env_id,
            request.request_id,
            frames,
            endpoint_total_ns=self.total_ns,
            phases=self.phases,
            request_bytes=20,
            response_bytes=10,
        )

    async def predict(self, request: PredictRequest) -> PredictReply:
        """Answer one request as a group of one."""
        (reply,) = await self.predict_group([request])
        if isinstance(reply, Exception):
            raise reply
        return reply

    async def predict_group(self, requests: Sequence[PredictRequest]) -> Sequence[PredictReply | Exception]:
        """Answer the requests, in their order."""
        self.batches.append(len(requests))
        for request in requests:
            self.requests.append(request)
            self.calls.append(("predict", tuple(info.episode_id for info in request.episode_info)))
        if self.before_predict is not None:
            await self.before_predict(len(self.batches))
        actions = await self._plan.arrive("predict_group")
        results = [await self._result(request) for request in requests]
        await pause(self.delay)
        return _changed(results, actions)

    async def _result(self, request: PredictRequest) -> PredictReply | Exception:
        try:
            actions = await self._plan.arrive("predict")
        except Exception as error:
            return error
        return _changed(self.answer(request), actions)

    def fuses_predicts(self) -> bool:
        """Whether several requests may come in one call."""
        return self.fuses

    def wants_history(self) -> bool:
        """Whether a request carries the observations since the last one."""
        return self.history

    async def reset_adapter(self, request: ResetAdapterRequest) -> None:
        """End episodes."""
        self.calls.append(("evict", request.episode_ids))
        await trio.lowlevel.checkpoint()
        if self.before_evict is not None:
            await self.before_evict()
        await self._plan.arrive("evict")

    async def release_adapter(self, request: ReleaseAdapterRequest) -> None:
        """End the route."""
        await trio.lowlevel.checkpoint()
        if self.before_release is not None:
            await self.before_release()
        await self._plan.arrive("release")
        self.released.append(request.reason)

    @property
    def predicted(self) -> list[str]:
        """Every episode id the model predicted on, by first mention."""
        return list(dict.fromkeys(id_ for kind, ids in self.calls if kind == "predict" for id_ in ids))

    @property
    def evicted(self) -> list[str]:
        """Every episode id ended on the model, in order, repeats included."""
        return [id_ for kind, ids in self.calls if kind == "evict" for id_ in ids]

    def ledger(self) -> list[tuple[list[tuple[int, int]], tuple[int, int]]]:
        """Per predict its history rows and its own observation, each as (step, first byte); an unset step is -1."""
        return [
            (
                [(row.step, _first_byte(row.observation)) for row in request.history],
                (-1 if request.step is None else request.step, _first_byte(request.observation)),
            )
            for request in self.requests
        ]


async def pause(delay: float) -> None:
    """Take *delay* seconds, and a checkpoint in any case."""
    if delay:
        await trio.sleep(delay)
    else:
        await trio.lowlevel.checkpoint()


def _changed(reply: R, actions: Iterable[Action]) -> R:
    for action in actions:
        reply = action.change(reply)
    return reply


def _first_byte(observation: Leaves | None) -> int:
    assert observation is not None
    return observation[0][0]
