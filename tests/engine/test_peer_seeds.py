"""What the public rlmesh runtime promises of seeds, trial ordinals and the relay between the peers."""

import pytest
import trio
import trio.testing

from rlmesh_trio.engine.relay import Convert, Forward, Leg, PayloadFacts, Refuse, RefuseExcess, Verdict
from rlmesh_trio.engine.session import run_session
from rlmesh_trio.errors import ProtocolError
from rlmesh_trio.events import ActionReceived, EpisodeCompleted, EpisodeStarted, RelayAdvised, SessionFailed
from rlmesh_trio.messages import MetaValue
from rlmesh_trio.report import Advisory, Report
from rlmesh_trio.spec import (
    ENV_RESET_OPTIONS_KEY,
    TRIAL_INDEX_OPTION,
    WIRE_DTYPES,
    AutoresetMode,
    PeerCeiling,
    SessionSpec,
)
from rlmesh_trio.testing.scripted import ScriptedEnv, ScriptedModel, contract, one, space_of, vector_spec
from tests.engine.peer import peer
from tests.engine.recorder import Recorder


def trial_spec(budget: int, declared: MetaValue, base: int | None) -> SessionSpec:
    metadata = {} if declared is None else {ENV_RESET_OPTIONS_KEY: declared}
    return one(budget, env_contract=contract(metadata=metadata), trial_index_base=base)


async def run(spec: SessionSpec, env: ScriptedEnv | None = None) -> tuple[Report, ScriptedEnv, Recorder]:
    env, hooks = env or ScriptedEnv(1), Recorder()
    return await run_session(spec, env, ScriptedModel(), hooks=hooks), env, hooks


def options_of(env: ScriptedEnv) -> list[object]:
    return [None if reset.options is None else dict(reset.options) for reset in env.resets]


@peer(51)
async def test_a_base_seed_means_the_same_in_every_run(autojump_clock: trio.testing.MockClock) -> None:
    seeds: list[list[tuple[int, ...]]] = []
    for _ in range(2):
        _, env, hooks = await run(one(2, base_seed=1234))
        sent = [reset.seeds for reset in env.resets]
        assert [len(batch) for batch in sent] == [1, 1]
        assert [(event.seed,) for event in hooks.of(EpisodeStarted)] == sent
        assert [(event.seed,) for event in hooks.of(EpisodeCompleted)] == sent
        seeds.append(sent)
    assert seeds[0] == seeds[1]
    assert seeds[0][0] != seeds[0][1]


@peer(52)
async def test_the_seeds_of_session_1(autojump_clock: trio.testing.MockClock) -> None:
    _, env, _ = await run(one(2, base_seed=1234))
    assert [reset.seeds for reset in env.resets] == [(5827150907976557851,), (6673286045664998248,)]


@peer(53)
@pytest.mark.parametrize("declared", ["trial_index", ["other", "trial_index"]])
async def test_trials_from_a_base(declared: MetaValue, autojump_clock: trio.testing.MockClock) -> None:
    report, env, hooks = await run(trial_spec(3, declared, 100))
    assert options_of(env) == [{"trial_index": 100}, {"trial_index": 101}, {"trial_index": 102}]
    assert [s.trial_index for s in report.episodes] == [100, 101, 102]
    assert [event.trial_index for event in hooks.of(EpisodeStarted)] == [100, 101, 102]
    assert [event.trial_index for event in hooks.of(EpisodeCompleted)] == [100, 101, 102]
    assert report.total_episodes == 3


@peer(54)
async def test_trials_without_a_base(autojump_clock: trio.testing.MockClock) -> None:
    report, env, hooks = await run(trial_spec(3, [TRIAL_INDEX_OPTION], None))
    assert options_of(env) == [{"trial_index": 0}, {"trial_index": 1}, {"trial_index": 2}]
    assert [s.trial_index for s in report.episodes] == [0, 1, 2]
    assert [event.trial_index for event in hooks.of(EpisodeStarted)] == [0, 1, 2]
    assert [event.trial_index for event in hooks.of(EpisodeCompleted)] == [0, 1, 2]


@peer(55)
async def test_trials_are_counted_but_not_sent_undeclared(
    caplog: pytest.LogCaptureFixture, autojump_clock: trio.testing.MockClock
) -> None:
    report, env, _ = await run(trial_spec(2, None, None))
    assert options_of(env) == [None, None]
    assert [s.trial_index for s in report.episodes] == [0, 1]
    assert not caplog.messages
    report, env, _ = await run(trial_spec(2, None, 7))
    assert options_of(env) == [None, None]
    assert [s.trial_index for s in report.episodes] == [7, 8]
    assert len([text for text in caplog.messages if "declares no such reset option" in text]) == 1


@peer(56)
@pytest.mark.parametrize("base", [None, 0])
async def test_no_trials_under_env_owned_resets(base: int | None, autojump_clock: trio.testing.MockClock) -> None:
    declared = contract(AutoresetMode.NEXT_STEP, 2, metadata={ENV_RESET_OPTIONS_KEY: "trial_index"})
    spec = vector_spec(2, 4, env_contract=declared, trial_index_base=base)
    report, env, hooks = await run(spec, ScriptedEnv(2, 3, next_step=True))
    assert options_of(env) == [None]
    assert (
        {s.trial_index for s in report.episodes} == {event.trial_index for event in hooks.of(EpisodeStarted)} == {None}
    )


@peer(57)
async def test_one_trial_is_a_bare_integer(autojump_clock: trio.testing.MockClock) -> None:
    _, env, _ = await run(trial_spec(2, [TRIAL_INDEX_OPTION], 41))
    assert options_of(env) == [{"trial_index": 41}, {"trial_index": 42}]


FULL = PeerCeiling("2026.06")


def without(dtype: str) -> PeerCeiling:
    return PeerCeiling("2026.06", dtypes=frozenset(WIRE_DTYPES) - {dtype})


@peer(58)
def test_the_default_policy() -> None:
    policy = RefuseExcess()
    assert policy.judge("env_to_model", without("float64"), PayloadFacts(space_of("float32"), 4)) == Forward()
    refused = policy.judge("env_to_model", without("float64"), PayloadFacts(space_of("float64"), 8))
    assert isinstance(refused, Refuse)
    assert "float64" in refused.reason
    too_long = PayloadFacts(space_of("uint8"), FULL.max_message_size + 1)
    assert isinstance(policy.judge("env_to_model", FULL, too_long), Refuse)


@peer(59)
async def test_what_fits_both_ceilings_passes(autojump_clock: trio.testing.MockClock) -> None:
    model = ScriptedModel()
    report = await run_session(one(env_ceiling=FULL, model_ceiling=FULL), ScriptedEnv(1), model)
    assert report.advisories == ()
    assert [request.observation for request in model.requests] == [[b"\x01"]]


@peer(60)
async def test_a_contract_the_model_cannot_take(autojump_clock: trio.testing.MockClock) -> None:
    spec = one(env_contract=contract(observation_space=space_of("float64")), model_ceiling=without("float64"))
    env, hooks = ScriptedEnv(1), Recorder()
    with pytest.raises(ProtocolError, match=r"cannot relay this contract to the model.*float64"):
        await run_session(spec, env, ScriptedModel(), hooks=hooks)
    assert env.resets == []
    assert len(hooks.of(SessionFailed)) == 1


INT64_ACTIONS = one(env_contract=contract(action_space=space_of("int64")), env_ceiling=without("int64"))


@peer(61)
async def test_an_action_the_env_cannot_take(autojump_clock: trio.testing.MockClock) -> None:
    env, hooks = ScriptedEnv(1), Recorder()
    with pytest.raises(ProtocolError, match=r"cannot relay this payload to the env.*int64"):
        await run_session(INT64_ACTIONS, env, ScriptedModel(), hooks=hooks)
    assert env.actions == []
    assert len(hooks.of(SessionFailed)) == 1


@peer(62)
async def test_an_action_that_is_converted(autojump_clock: trio.testing.MockClock) -> None:
    caution = Advisory("caution", "int64 actions are sent as int32")
    int32 = space_of("int32")

    class Narrowing:
        def judge(self, leg: Leg, ceiling: PeerCeiling, facts: PayloadFacts) -> Verdict:
            return Convert([b"\x07"], caution, space=int32) if leg == "model_to_env" else Forward()

    env, hooks = ScriptedEnv(2), Recorder()
    report = await run_session(INT64_ACTIONS, env, ScriptedModel(), hooks=hooks, relay_policy=Narrowing())
    assert [action for _, action in env.actions] == [[b"\x07"], [b"\x07"]]
    assert report.advisories == (caution,)
    assert [(event.leg, event.advisory) for event in hooks.of(RelayAdvised)] == [("model_to_env", caution)]
    for event in hooks.of(ActionReceived):
        assert event.action_space is int32
        assert event.action == [b"\x07"]
        assert event.raw_action == [b"\0"]
