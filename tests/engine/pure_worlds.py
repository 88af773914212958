"""Episodes that are a function of their seeds and actions, and a policy that is one of what it sees."""

import random
from collections.abc import Callable, Sequence

import attrs
import trio
import trio.testing

from rlmesh_trio.engine.schedulers import EagerScheduler, Scheduler
from rlmesh_trio.engine.session import run_session
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
from rlmesh_trio.spec import AutoresetMode, SessionSpec
from rlmesh_trio.testing.scripted import contract, one

EPISODES = 17


class Delays:
    """Picks how long an operation takes, or the shortest time always."""

    def __init__(self, seed: int | None) -> None:
        self._random = None if seed is None else random.Random(seed)

    def pick(self, *options: float) -> float:
        return min(options) if self._random is None else self._random.choice(options)


@attrs.define
class SeededLane:
    """An episode that is a function of its seed and the actions it gets."""

    seed: int = 0
    state: int = 0
    step: int = 0
    total: float = 0.0
    actions: list[int] = attrs.field(factory=list[int])

    def reset(self, seed: int) -> None:
        self.seed, self.state, self.step, self.total, self.actions = seed, seed % 251, 0, 0.0, []

    def move(self, action: int) -> float:
        self.actions.append(action)
        self.step += 1
        self.state = (self.state * 7 + action + self.seed) % 251
        self.total += self.state
        return float(self.state)

    @property
    def over(self) -> bool:
        return self.step >= 1 + self.seed % 6


class SeededEnv:
    """Lanes whose operations take as long as *delays* says. Keeps the actions of every finished episode by seed."""

    def __init__(self, lanes: int, delays: Delays) -> None:
        self.lanes = [SeededLane() for _ in range(lanes)]
        self.delays = delays
        self.played: dict[int, tuple[int, ...]] = {}

    async def pause(self) -> None:
        await trio.sleep(self.delays.pick(0, 0, 0.25, 0.5, 1.0))

    async def reset(self, request: ResetRequest) -> EnvReply:
        await self.pause()
        indices = request.env_indices or tuple(range(len(self.lanes)))
        for index, seed in zip(indices, request.seeds, strict=True):
            self.lanes[index].reset(seed)
        return EnvReply([bytes(self.lanes[index].state for index in indices)])

    async def step(self, action: Leaves, target: StepTarget) -> EnvReply:
        await self.pause()
        [index] = target.env_indices or (0,)
        lane = self.lanes[index]
        reward = lane.move(action[0][0])
        reply = EnvReply([bytes([lane.state])], None, (reward,))
        if lane.over:
            self.played[lane.seed] = tuple(lane.actions)
            reply.completed = (
                EpisodeRecord(
                    target.episode_ids[0],
                    step_count=lane.step,
                    cumulative_reward=lane.total,
                    terminated=bool(lane.state % 2),
                    truncated=not lane.state % 2,
                    final_info={"success": lane.state > 100},
                ),
            )
        return reply

    async def close(self) -> None:
        await trio.lowlevel.checkpoint()


class PurePolicy:
    """Frames that are a function of the observation alone."""

    def __init__(self, *, horizon: int, fuses: bool, delays: Delays) -> None:
        self.horizon, self.fuses, self.delays = horizon, fuses, delays

    async def predict(self, request: PredictRequest) -> PredictReply:
        raise AssertionError("the engine asks in groups only")

    async def predict_group(self, requests: Sequence[PredictRequest]) -> Sequence[PredictReply | Exception]:
        await trio.sleep(self.delays.pick(0, 0.25, 1.0))
        return [
            PredictReply(
                request.session_id,
                request.env_id,
                request.request_id,
                [[bytes([(self.seen(request) * 5 + frame) % 256])] for frame in range(self.horizon)],
            )
            for request in requests
        ]

    def seen(self, request: PredictRequest) -> int:
        assert request.observation is not None
        return request.observation[0][0]

    def fuses_predicts(self) -> bool:
        return self.fuses

    def wants_history(self) -> bool:
        return False

    async def reset_adapter(self, request: ResetAdapterRequest) -> None:
        await trio.lowlevel.checkpoint()

    async def release_adapter(self, request: ReleaseAdapterRequest) -> None:
        await trio.lowlevel.checkpoint()


@attrs.frozen
class World:
    """One way to run the same episodes."""

    lanes: int = 1
    fuses: bool = False
    delay_seed: int | None = None
    horizon: int = 1
    scheduler: Callable[[], Scheduler] = EagerScheduler

    def spec(self) -> SessionSpec:
        return one(
            EPISODES,
            base_seed=42,
            num_envs=self.lanes,
            subset_step=self.lanes > 1,
            trial_index_base=9,
            env_contract=contract(AutoresetMode.DISABLED, self.lanes),
        )

    def run(self) -> list[tuple[object, ...]]:
        """The results by episode index."""
        delays = Delays(self.delay_seed)
        env = SeededEnv(self.lanes, delays)
        policy = PurePolicy(horizon=self.horizon, fuses=self.fuses, delays=delays)

        async def main() -> list[tuple[object, ...]]:
            report = await run_session(self.spec(), env, policy, scheduler=self.scheduler())
            return [
                (
                    s.episode_index,
                    s.seed,
                    s.trial_index,
                    s.step_count,
                    s.cumulative_reward,
                    s.terminated,
                    s.truncated,
                    s.success,
                    env.played[s.seed or 0],
                )
                for s in sorted(report.episodes, key=lambda s: s.episode_index)
            ]

        return trio.run(main, clock=trio.testing.MockClock(autojump_threshold=0))
