"""Lanes whose episodes are a function of their seed and their actions, driven by name or in lockstep, and a policy."""

from collections.abc import Sequence
from typing import Any

import attrs
import trio

from rlmesh_trio.engine.session import run_session
from rlmesh_trio.messages import EnvReply, EpisodeRecord, Leaves, PredictReply, PredictRequest, ResetRequest, StepTarget
from rlmesh_trio.report import EpisodeSummary, Report
from rlmesh_trio.spec import AutoresetMode, SessionSpec
from rlmesh_trio.testing.scripted import ScriptedModel, contract, vector_spec
from tests.engine.pure_worlds import SeededLane

UNSEEDED = 77


class SeededVector:
    """Lanes that can be reset and stepped by name or all together, but not stepped once they are over."""

    def __init__(self, width: int) -> None:
        self.lanes = [SeededLane() for _ in range(width)]
        self.resets: list[ResetRequest] = []

    def named(self, indices: Sequence[int]) -> list[SeededLane]:
        return [self.lanes[index] for index in indices or range(len(self.lanes))]

    async def reset(self, request: ResetRequest) -> EnvReply:
        await trio.lowlevel.checkpoint()
        self.resets.append(request)
        lanes = self.named(request.env_indices)
        for lane, seed in zip(lanes, request.seeds or [UNSEEDED] * len(lanes), strict=True):
            lane.reset(seed)
        return EnvReply([bytes(lane.state for lane in lanes)])

    async def step(self, action: Leaves, target: StepTarget) -> EnvReply:
        await trio.lowlevel.checkpoint()
        lanes = self.named(target.env_indices)
        assert not any(lane.step and lane.over for lane in lanes), "a lane that is over was stepped"
        rewards = [lane.move(own) for lane, own in zip(lanes, action[0], strict=True)]
        completed = [
            EpisodeRecord(id_, step_count=lane.step, cumulative_reward=lane.total, terminated=True)
            for lane, id_ in zip(lanes, target.episode_ids, strict=True)
            if lane.over
        ]
        return EnvReply([bytes(lane.state for lane in lanes)], None, rewards, completed=completed)

    async def close(self) -> None:
        await trio.lowlevel.checkpoint()


class RowPolicy(ScriptedModel):
    """Answers each row with an action that is a function of the row."""

    def answer(self, request: PredictRequest) -> PredictReply:
        assert request.observation is not None
        reply = super().answer(request)
        return attrs.evolve(reply, actions=[[bytes(row * 5 % 256 for row in request.observation[0])]])


def partial_spec(lanes: int, budget: int | None, seeds: Sequence[int] = (), **fields: Any) -> SessionSpec:
    """A lockstep vector whose finished lanes the driver resets by name."""
    disabled = contract(AutoresetMode.DISABLED, lanes)
    fields = {"env_contract": disabled, "partial_reset": True, "episode_seeds": tuple(seeds)} | fields
    return vector_spec(lanes, budget, **fields)


async def played(spec: SessionSpec) -> tuple[Report, SeededVector]:
    """A whole session of *spec*, which the budget must end."""
    env = SeededVector(spec.num_envs)
    with trio.fail_after(1000):
        return await run_session(spec, env, RowPolicy()), env


def by_slot(episodes: Sequence[EpisodeSummary]) -> list[tuple[object, ...]]:
    """What of each episode must not depend on the lane or the time it was played."""
    return [
        (e.episode_index, e.seed, e.trial_index, e.step_count, e.cumulative_reward, e.terminated, e.truncated)
        for e in sorted(episodes, key=lambda e: e.episode_index)
    ]
