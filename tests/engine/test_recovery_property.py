"""Whatever goes wrong with the env, with enough attempts the episodes are those of a run in which nothing does."""

import functools
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence

import attrs
import trio
import trio.testing
from hypothesis import given, settings
from hypothesis import strategies as st

from rlmesh_trio.engine.schedulers import FullBatch
from rlmesh_trio.engine.session import run_session
from rlmesh_trio.errors import ConnectError, EndpointError
from rlmesh_trio.messages import EnvReply, Leaves, PredictReply, PredictRequest, ResetAdapterRequest, ResetRequest
from rlmesh_trio.messages import StepTarget as Target
from rlmesh_trio.recovery import Recovery
from rlmesh_trio.report import EpisodeSummary, Report
from rlmesh_trio.spec import AutoresetMode, Limits
from rlmesh_trio.testing.scripted import contract, one
from tests.engine.pure_worlds import Delays, PurePolicy, SeededEnv

EPISODES = 9
LIMITS = Limits(env_reset_timeout=4, env_step_timeout=4)


class FaultyEnv(SeededEnv):
    """Resets and steps are counted as they arrive; *faults* says which of them go wrong, and how."""

    def __init__(self, lanes: int, delays: Delays, faults: Mapping[int, str]) -> None:
        super().__init__(lanes, delays)
        self.faults = faults
        self.arrived = 0
        self.lost = False
        self.ready = [False] * lanes
        self.under_way: set[trio.CancelScope] = set()
        self.wrong: list[str] = []

    async def reset(self, request: ResetRequest) -> EnvReply:
        reply = await self.call(lambda: super(FaultyEnv, self).reset(request))
        for lane in request.env_indices or (0,):
            self.ready[lane] = True
        return reply

    async def step(self, action: Leaves, target: Target) -> EnvReply:
        await trio.lowlevel.checkpoint_if_cancelled()
        [lane] = target.env_indices or (0,)
        if not self.ready[lane] and not self.lost:
            self.wrong.append(f"lane {lane} was stepped before it was reset")
        return await self.call(lambda: super(FaultyEnv, self).step(action, target))

    async def call(self, call: Callable[[], Awaitable[EnvReply]]) -> EnvReply:
        self.arrived += 1
        fault = self.faults.get(self.arrived)
        if fault == "loss":
            self.lost, self.ready = True, [False] * len(self.lanes)
            for scope in self.under_way:
                scope.cancel()
        if not self.lost:
            with trio.CancelScope() as scope:
                self.under_way.add(scope)
                try:
                    if fault == "early":
                        raise EndpointError("INTERNAL", "broken before")
                    reply = await call()
                    if fault == "late":
                        raise EndpointError("INTERNAL", "broken after")
                    if fault == "hang":
                        await trio.sleep_forever()
                    return reply
                finally:
                    self.under_way.discard(scope)
        await trio.lowlevel.checkpoint()
        raise EndpointError("CONNECTION", "transport error: connection closed")

    async def reconnect(self) -> None:
        await trio.sleep(self.delays.pick(0, 0.1, 3.0))
        if self.delays.pick(0, 0, 1):
            raise ConnectError("not yet")
        self.lost = False


class Remembering(PurePolicy):
    """Keeps which episodes it was asked about and told the end of, and whether it was asked after the end."""

    def __init__(self, *, horizon: int, fuses: bool, delays: Delays) -> None:
        super().__init__(horizon=horizon, fuses=fuses, delays=delays)
        self.asked: set[str] = set()
        self.ended: Counter[str] = Counter()
        self.late: list[str] = []

    async def predict_group(self, requests: Sequence[PredictRequest]) -> Sequence[PredictReply | Exception]:
        for request in requests:
            for info in request.episode_info:
                self.asked.add(info.episode_id)
                if info.episode_id in self.ended:
                    self.late.append(info.episode_id)
        return await super().predict_group(requests)

    async def reset_adapter(self, request: ResetAdapterRequest) -> None:
        self.ended.update(request.episode_ids)
        await super().reset_adapter(request)


@attrs.frozen
class World:
    """One way to run the same episodes, and what goes wrong."""

    lanes: int
    horizon: int
    lead: int
    fuses: bool
    seed: int
    faults: dict[int, str]
    on_env_error: Recovery
    on_timeout: Recovery
    patient: bool = False

    def play(self) -> Report:
        delays = Delays(self.seed)
        env = FaultyEnv(self.lanes, delays, self.faults)
        policy = Remembering(horizon=self.horizon, fuses=self.fuses, delays=delays)
        spec = attrs.evolve(
            one(EPISODES, base_seed=11),
            env_contract=contract(AutoresetMode.DISABLED, self.lanes),
            num_envs=self.lanes,
            subset_step=self.lanes > 1,
            on_env_error=self.on_env_error,
            on_timeout=self.on_timeout,
            limits=LIMITS,
        )

        async def main() -> Report:
            scheduler = FullBatch(self.lanes, 2.0) if self.patient else None
            return await run_session(spec, env, policy, prefetch_lead=self.lead, scheduler=scheduler)

        report = trio.run(main, clock=trio.testing.MockClock(autojump_threshold=0))
        assert env.wrong == policy.late == []
        assert set(policy.ended) == policy.asked
        assert set(policy.ended.values()) == {1}
        return report


def outcomes(report: Report) -> list[EpisodeSummary]:
    unlike = {"duration_ms": 0, "predict_ms": None, "step_ms": None, "env_index": 0}
    return [attrs.evolve(one, **unlike) for one in sorted(report.episodes, key=lambda one: one.episode_index)]


PATIENT = Recovery("retry", 10_000)


@functools.cache
def undisturbed(horizon: int, lead: int) -> list[EpisodeSummary]:
    return outcomes(World(1, horizon, lead, True, 0, {}, Recovery(), Recovery()).play())


worlds = st.builds(
    World,
    lanes=st.sampled_from([1, 2, 4]),
    horizon=st.sampled_from([1, 3]),
    lead=st.integers(0, 2),
    fuses=st.booleans(),
    seed=st.integers(0, 2**32),
    faults=st.dictionaries(st.integers(1, 90), st.sampled_from(["early", "late", "hang", "loss"]), max_size=12),
    on_env_error=st.just(PATIENT),
    on_timeout=st.just(PATIENT),
    patient=st.booleans(),
)


@given(worlds)
@settings(max_examples=60, deadline=None)
def test_faults_with_retries_change_no_episode(world: World) -> None:
    report = world.play()
    assert outcomes(report) == undisturbed(world.horizon, world.lead)
    kinds = Counter(incident.kind for incident in report.incidents)
    assert kinds["reconnect"] <= sum(fault == "loss" for fault in world.faults.values())
    assert kinds["quarantine"] == 0


@given(worlds, st.booleans(), st.dictionaries(st.integers(1, 60), st.sampled_from(["early", "hang"]), max_size=3))
@settings(max_examples=60, deadline=None)
def test_lanes_that_are_taken_out_change_no_episode(world: World, losses: bool, faults: dict[int, str]) -> None:
    if losses:
        faults[70] = "loss"
    policy = Recovery("quarantine", 10_000)
    report = attrs.evolve(world, lanes=4, faults=faults, on_env_error=policy, on_timeout=policy).play()
    assert outcomes(report) == undisturbed(world.horizon, world.lead)
    out = [incident.env_index for incident in report.incidents if incident.kind == "quarantine"]
    assert len(out) == len(set(out)) <= 3
