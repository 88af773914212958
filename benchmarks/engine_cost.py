"""Claim: a lane step costs the engine the same few microseconds whether it drives one lane or a thousand.

In process and in CPU time, so that nothing else is measured: a scripted env that yields once per step and a model
that answers at once. The goals are for a machine on which a trio checkpoint takes 3 us: the first row tells.
"""

# ruff: noqa: ARG002 - the Protocol's signature

import time
from collections.abc import Sequence
from functools import partial

import trio
from gymnasium import spaces

from benchmarks.bare_trio import run_bare
from benchmarks.budgets import Budget
from benchmarks.listeners import EveryHook
from rlmesh_trio import Hooks, SessionSpec, run_session
from rlmesh_trio.messages import (
    EnvReply,
    EpisodeRecord,
    Leaves,
    PredictReply,
    PredictRequest,
    ReleaseAdapterRequest,
    ResetAdapterRequest,
    ResetRequest,
    StepTarget,
)
from rlmesh_trio.spec import AutoresetMode, EnvContract, LeafSpec, ValueSpace

__all__ = ("BUDGETS",)

OBSERVATION: Leaves = (bytes(16),)
ACTION: Leaves = (bytes(8),)
LANE_COUNTS = (1, 4, 16, 64, 256, 1024)
SINGLE_GOAL, LANES_GOAL, HOOKS_EXTRA = 18.0, 11.0, 5.0
STEPS = 60_000


class ScriptedLanes:
    """Lanes that end by truncation after *length* steps; every operation yields exactly once."""

    def __init__(self, lanes: int, length: int) -> None:
        self.length = length
        self.clocks = [0] * lanes

    async def reset(self, request: ResetRequest) -> EnvReply:
        await trio.lowlevel.checkpoint()
        for lane in request.env_indices or (0,):
            self.clocks[lane] = 0
        return EnvReply(observation=OBSERVATION)

    async def step(self, action: Leaves, target: StepTarget) -> EnvReply:
        await trio.lowlevel.checkpoint()
        lane = target.env_indices[0] if target.env_indices else 0
        clock = self.clocks[lane] = self.clocks[lane] + 1
        reply = EnvReply(observation=OBSERVATION, rewards=(1.0,), terminated_mask=b"\0", truncated_mask=b"\0")
        if clock == self.length:
            record = EpisodeRecord(target.episode_ids[0], env_index=lane, step_count=clock, truncated=True)
            reply.truncated_mask = b"\1"
            reply.completed = (record,)
        return reply

    async def close(self) -> None:
        await trio.lowlevel.checkpoint()


class PromptModel:
    """Answers a whole group at once, without yielding."""

    async def predict(self, request: PredictRequest) -> PredictReply:
        return PredictReply(request.session_id, request.env_id, request.request_id, (ACTION,))

    async def predict_group(self, requests: Sequence[PredictRequest]) -> Sequence[PredictReply | Exception]:
        return [PredictReply(r.session_id, r.env_id, r.request_id, (ACTION,)) for r in requests]

    def fuses_predicts(self) -> bool:
        return True

    def wants_history(self) -> bool:
        return False

    async def reset_adapter(self, request: ResetAdapterRequest) -> None: ...

    async def release_adapter(self, request: ReleaseAdapterRequest) -> None: ...


def run_scripted(lanes: int, with_hooks: bool, steps: int) -> float:
    """Drive about *steps* lane steps and return the microseconds each took."""
    length = min(500, max(20, steps // lanes))
    spec = SessionSpec(
        env_contract=CONTRACT,
        num_envs=lanes,
        subset_step=True,
        max_episodes=max(lanes, steps // length // lanes * lanes),
    )
    hooks: Hooks | None = EveryHook() if with_hooks else None
    before = time.process_time()
    report = trio.run(partial(run_session, spec, ScriptedLanes(lanes, length), PromptModel(), hooks=hooks))
    return (time.process_time() - before) / report.total_steps * 1e6


def leaf(shape: tuple[int, ...]) -> ValueSpace:
    return ValueSpace(spaces.Box(-1.0, 1.0, shape), (LeafSpec("$", "box", "float32", shape),), b"")


CONTRACT = EnvContract(observation_space=leaf((4,)), action_space=leaf((2,)), autoreset_mode=AutoresetMode.DISABLED)


def goal(lanes: int, with_hooks: bool) -> float:
    return (SINGLE_GOAL if lanes == 1 else LANES_GOAL) + (HOOKS_EXTRA if with_hooks else 0.0)


def run_checkpoints(count: int) -> float:
    """Microseconds per trio checkpoint."""

    async def pass_checkpoints() -> float:
        before = time.process_time()
        for _ in range(count):
            await trio.lowlevel.checkpoint()
        return (time.process_time() - before) / count * 1e6

    return trio.run(pass_checkpoints)


LANE_BUDGETS = tuple(
    Budget(
        f"engine {lanes} lanes" + (", all hooks" if with_hooks else ""),
        goal(lanes, with_hooks),
        max(STEPS, 100 * lanes),
        partial(run_scripted, lanes, with_hooks),
    )
    for with_hooks in (False, True)
    for lanes in LANE_COUNTS
)
BARE = tuple(
    Budget(f"engine scale: trio alone, {lanes} lanes", None, max(STEPS, 100 * lanes), partial(run_bare, lanes))
    for lanes in LANE_COUNTS
)
BUDGETS = (Budget("engine scale: checkpoint", 3.0, STEPS, run_checkpoints), *BARE, *LANE_BUDGETS)
