"""Scripted endpoints: envs and models whose every answer is known beforehand."""

from collections.abc import Callable, Sequence

import attrs
import numpy as np
import trio
from gymnasium import spaces

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
from rlmesh_trio.spec import AutoresetMode, EnvContract, LeafSpec, SessionSpec, ValueSpace

BYTE_SPACE = ValueSpace(spaces.Box(0, 255, (1,), np.uint8), (LeafSpec("$", "box", "uint8", (1,)),), b"")


def contract(mode: AutoresetMode = AutoresetMode.UNSPECIFIED, width: int = 1, **fields: object) -> EnvContract:
    return attrs.evolve(
        EnvContract("TestEnv-v0", BYTE_SPACE, BYTE_SPACE, num_envs=width, autoreset_mode=mode), **fields
    )


def one(budget: int | None = 1, **fields: object) -> SessionSpec:
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


def vector_spec(lanes: int, budget: int | None, **fields: object) -> SessionSpec:
    base = one(
        budget, session_id="session-vec", num_envs=lanes, env_contract=contract(AutoresetMode.NEXT_STEP, lanes)
    )
    return attrs.evolve(base, **fields)


def lane_spec(lanes: int, budget: int | None, seeds: Sequence[int] = (), **fields: object) -> SessionSpec:
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
    """One lane's episodes: their length, and how long a step takes."""

    length: int
    delay: float = 0.0
    step: int = 0
    episode_id: str = ""
    done: bool = False


class ScriptedEnv:
    """Lanes that end after a known number of steps. Observation byte = step + 1 of the episode, reward 1.

    Under ``next_step`` a finished lane restarts on the following step: reward 0, the id pushed for it adopted.
    ``before_step(lane, step)`` may raise, wait or hang.
    """

    def __init__(
        self,
        *lanes: LaneScript | int,
        next_step: bool = False,
        final_info: Callable[[int], Metadata | None] = lambda lane: None,
        never_ends: bool = False,
    ) -> None:
        self.lanes = [LaneScript(lane) if isinstance(lane, int) else lane for lane in lanes]
        self.next_step = next_step
        self.final_info = final_info
        self.never_ends = never_ends
        self.resets: list[ResetRequest] = []
        self.actions: list[tuple[tuple[int, ...], Leaves]] = []
        self.closes = 0
        self.before_step: Callable[[int, int], object] | None = None

    async def reset(self, request: ResetRequest) -> EnvReply:
        await trio.lowlevel.checkpoint()
        self.resets.append(request)
        indices = request.env_indices or tuple(range(len(self.lanes)))
        for position, index in enumerate(indices):
            lane = self.lanes[index]
            lane.step = 0
            lane.done = False
            lane.episode_id = request.episode_ids[position]
        return EnvReply(observation=[bytes([1] * len(indices))], infos={"phase": "reset"}, request_bytes=40, response_bytes=30)

    async def step(self, action: Leaves, target: StepTarget) -> EnvReply:
        indices = target.env_indices or tuple(range(len(self.lanes)))
        self.actions.append((indices, action))
        delay = max(self.lanes[index].delay for index in indices)
        if self.before_step is not None:
            for index in indices:
                outcome = self.before_step(index, self.lanes[index].step + 1)
                if outcome is not None:
                    await outcome  # pyright: ignore[reportGeneralTypeIssues, reportUnknownVariableType]
        await (trio.sleep(delay) if delay else trio.lowlevel.checkpoint())
        completed: list[EpisodeRecord] = []
        rewards: list[float] = []
        bytes_seen: list[int] = []
        rolled = False
        for position, index in enumerate(indices):
            lane = self.lanes[index]
            if lane.done and self.next_step:
                lane.done, lane.step, rolled = False, 0, True
                lane.episode_id = target.episode_ids[position]
                rewards.append(0.0)
                bytes_seen.append(1)
                continue
            lane.step += 1
            rewards.append(1.0)
            bytes_seen.append(min(lane.step + 1, 255))
            if lane.step >= lane.length and not self.never_ends:
                lane.done = True
                completed.append(
                    EpisodeRecord(
                        episode_id=lane.episode_id,
                        env_index=index,
                        step_count=lane.step,
                        cumulative_reward=float(lane.step),
                        terminated=True,
                        final_info=self.final_info(index),
                    )
                )
        return EnvReply(
            observation=[bytes(bytes_seen)],
            infos={"phase": "roll" if rolled else "step"},
            rewards=rewards,
            completed=completed,
            request_bytes=50,
            response_bytes=60,
        )

    async def close(self) -> None:
        await trio.lowlevel.checkpoint()
        self.closes += 1


class ScriptedModel:
    """Answers frame 0 plus ``extra`` frames of bytes 100, 101, …; records every call in arrival order."""

    def __init__(self, *, extra: int = 0, delay: float = 0.0, fuses: bool = False, history: bool = False) -> None:
        self.extra = extra
        self.delay = delay
        self.fuses = fuses
        self.history = history
        self.calls: list[tuple[str, tuple[str, ...]]] = []
        self.batches: list[int] = []
        self.requests: list[PredictRequest] = []
        self.released: list[str] = []
        self.before_predict: Callable[[int], object] | None = None
        self.before_evict: Callable[[], object] | None = None

    async def predict(self, request: PredictRequest) -> PredictReply:
        self.requests.append(request)
        self.calls.append(("predict", tuple(info.episode_id for info in request.episode_info)))
        if self.before_predict is not None:
            outcome = self.before_predict(len(self.requests))
            if outcome is not None:
                await outcome  # pyright: ignore[reportGeneralTypeIssues, reportUnknownVariableType]
        await (trio.sleep(self.delay) if self.delay else trio.lowlevel.checkpoint())
        rows = len(request.episode_info)
        frames = [[bytes([0] * rows)], *([bytes([100 + k % 100] * rows)] for k in range(self.extra))]
        return PredictReply(
            request.session_id, request.env_id, request.request_id, frames, request_bytes=20, response_bytes=10
        )

    async def predict_group(self, requests: Sequence[PredictRequest]) -> Sequence[PredictReply | Exception]:
        self.batches.append(len(requests))
        return [await self.predict(request) for request in requests]

    def fuses_predicts(self) -> bool:
        return self.fuses

    def wants_history(self) -> bool:
        return self.history

    async def reset_adapter(self, request: ResetAdapterRequest) -> None:
        await trio.lowlevel.checkpoint()
        if self.before_evict is not None:
            outcome = self.before_evict()
            if outcome is not None:
                await outcome  # pyright: ignore[reportGeneralTypeIssues, reportUnknownVariableType]
        self.calls.append(("evict", request.episode_ids))

    async def release_adapter(self, request: ReleaseAdapterRequest) -> None:
        await trio.lowlevel.checkpoint()
        self.released.append(request.reason)
