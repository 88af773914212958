"""From two places to a running session: the order of its steps, what it refuses, what it passes on."""

import inspect
import logging
import uuid
from collections.abc import AsyncGenerator, Collection, Sequence
from contextlib import asynccontextmanager
from typing import Any

import attrs
import numpy as np
import pytest
import trio

from rlmesh_trio import EagerScheduler, Hooks, LocalEnv, Recovery, open_local_env, open_local_model, run_local
from rlmesh_trio.errors import ConnectError, EnvRpcError, HandshakeError, InvalidSpec, ModelRpcError, SessionError
from rlmesh_trio.events import EnvConnected, EpisodeStarted, ModelConnected, SessionFailed, SessionStarted
from rlmesh_trio.one_call import open_run
from rlmesh_trio.spec import AutoresetMode, Limits
from tests.cli.toys import Walk, next_step_vector
from tests.peers import start_env_peer


class Policy:
    """Always 0; ``calls`` is what was asked of it."""

    def __init__(self) -> None:
        self.calls: list[str] = []

    def load(self) -> None:
        self.calls.append("load")

    def predict_chunk_batch(self, observations: Any, execution_horizon: int) -> Any:
        self.calls.append(f"predict {execution_horizon}")
        return np.zeros((len(observations), 5), np.int64)

    def close(self) -> None:
        self.calls.append("close")


class Diary(Hooks):
    """Notes what happens in its order; ``events`` are the records."""

    def __init__(self) -> None:
        self.events: list[Any] = []

    async def env_connected(self, event: EnvConnected) -> None:
        self.events.append(event)

    async def model_connected(self, event: ModelConnected) -> None:
        self.events.append(event)

    async def session_started(self, event: SessionStarted) -> None:
        self.events.append(event)

    async def episode_started(self, event: EpisodeStarted) -> None:
        self.events.append(event)

    async def session_failed(self, event: SessionFailed) -> None:
        self.events.append(event)

    def names(self) -> list[str]:
        return [type(event).__name__ for event in self.events]


@attrs.define
class Door:
    """Stands where a server would be: what was asked of it, and the env behind it."""

    source: Any = Walk
    lanes: int = 1
    changes: dict[str, Any] = attrs.Factory(dict[str, Any])
    asked: dict[str, Any] = attrs.Factory(dict[str, Any])
    env: LocalEnv | None = None

    @asynccontextmanager
    async def open(self, address: str, **words: Any) -> AsyncGenerator[LocalEnv]:
        self.asked = {"address": address, **words}
        async with open_local_env(self.source, lanes=self.lanes) as self.env:
            self.env.contract = attrs.evolve(self.env.contract, **self.changes)
            yield self.env


@pytest.fixture
def door(monkeypatch: pytest.MonkeyPatch) -> Door:
    door = Door()
    monkeypatch.setattr("rlmesh_trio.one_call.connect_env", door.open)
    return door


def test_options_and_defaults() -> None:
    parameters = inspect.signature(run_local).parameters
    assert list(parameters)[:2] == ["policy", "env_address"]
    assert {name: parameter.default for name, parameter in list(parameters.items())[2:]} == {
        "token": None,
        "workflow_edition": None,
        "max_episodes": None,
        "base_seed": None,
        "episode_seeds": (),
        "trial_index_base": None,
        "max_episode_steps": None,
        "max_episode_seconds": None,
        "close_env": False,
        "execution_horizon": 1,
        "prefetch_lead": 0,
        "session_id": "local",
        "limits": Limits(),
        "on_env_error": Recovery(),
        "on_timeout": Recovery(),
        "journal": None,
        "resume": None,
        "record": None,
        "record_level": "digest",
        "hooks": None,
        "scheduler": None,
    }
    assert all(parameter.kind is parameter.KEYWORD_ONLY for parameter in list(parameters.values())[2:])


async def test_the_steps_of_a_run_are_told_in_their_order(door: Door) -> None:
    policy, diary = Policy(), Diary()
    report = await run_local(policy, "somewhere:1", max_episodes=2, hooks=diary)
    assert diary.names() == ["EnvConnected", "ModelConnected", "SessionStarted", "EpisodeStarted", "EpisodeStarted"]
    routes = {
        (event.session_id, event.route.env_component_id, event.route.model_component_id) for event in diary.events
    }
    assert routes == {("local", "local-env", "local-model")}
    assert {event.route.env_id for event in diary.events} == {report.env_id}
    assert uuid.UUID(report.env_id).version == 7
    assert (report.session_id, report.total_episodes) == ("local", 2)
    assert [policy.calls[0], policy.calls[-1]] == ["load", "close"]


async def test_every_run_is_a_route_of_its_own(door: Door) -> None:
    first, second = [await run_local("zero", "somewhere:1", max_episodes=1) for _ in range(2)]
    assert first.env_id != second.env_id


async def test_options_reach_whom_they_concern(door: Door) -> None:
    door.lanes = 2
    policy, limits = Policy(), Limits(env_step_timeout=9.0)
    plans: list[Sequence[int]] = []

    class Noting(EagerScheduler):
        def plan(self, waiting: Sequence[int], busy: int) -> Collection[int]:
            plans.append(waiting)
            return waiting

    report = await run_local(
        policy,
        "somewhere:1",
        token="hush",
        workflow_edition="2026.06",
        max_episodes=3,
        base_seed=1234,
        trial_index_base=40,
        max_episode_steps=3,
        close_env=True,
        execution_horizon=2,
        session_id="session-1",
        limits=limits,
        scheduler=Noting(),
    )
    assert door.asked == {"address": "somewhere:1", "token": "hush", "edition": "2026.06", "limits": limits}
    episodes = sorted(report.episodes, key=lambda one: one.episode_index)
    assert [one.seed for one in episodes][:2] == [5827150907976557851, 6673286045664998248]
    assert [one.trial_index for one in episodes] == [40, 41, 42]
    assert [(one.step_count, one.truncated) for one in episodes] == [(3, True)] * 3
    assert set(policy.calls) == {"load", "predict 2", "close"}
    assert plans
    assert door.env is not None
    assert door.env.closed


async def test_explicit_seeds_win_and_the_env_stays_open(door: Door) -> None:
    report = await run_local("zero", "somewhere:1", max_episodes=2, base_seed=1, episode_seeds=(8, 9))
    assert [one.seed for one in report.episodes] == [8, 9]
    assert door.env is not None
    assert not door.env.closed


async def test_episodes_end_at_the_time_limit(door: Door) -> None:
    report = await run_local("zero", "somewhere:1", max_episodes=1, max_episode_seconds=1e-9)
    assert [(one.step_count, one.truncated) for one in report.episodes] == [(1, True)]


async def test_a_horizon_that_a_lockstep_vector_cannot_play_is_refused_before_the_model_is_loaded(door: Door) -> None:
    door.source = next_step_vector
    policy, diary = Policy(), Diary()
    with pytest.raises(InvalidSpec) as refused:
        await run_local(policy, "somewhere:1", max_episodes=2, execution_horizon=4, hooks=diary)
    why = refused.value.why
    assert why.startswith("execution_horizon=4 cannot be combined with a lockstep vector env (num_envs=2)")
    assert why.endswith("Use num_envs=1, a lane endpoint, or execution_horizon=1.")
    assert policy.calls == []
    assert diary.names() == ["EnvConnected"]


async def test_lanes_play_any_horizon_and_a_lockstep_vector_one(door: Door) -> None:
    door.lanes = 2
    assert (await run_local(Policy(), "somewhere:1", max_episodes=2, execution_horizon=4)).total_episodes == 2
    door.source, door.lanes = next_step_vector, 1
    assert (await run_local(Policy(), "somewhere:1", max_episodes=2)).total_episodes == 2


@pytest.mark.parametrize(
    ("changes", "options", "kind", "told"),
    [
        (
            {"action_space": None},
            {},
            HandshakeError,
            "env contract has no action_space; a model cannot encode actions without it",
        ),
        ({"observation_space": None}, {}, InvalidSpec, "missing observation_space"),
        ({"autoreset_mode": AutoresetMode.SAME_STEP}, {}, InvalidSpec, "SAME_STEP autoreset is reserved"),
        ({}, {"execution_horizon": 0}, InvalidSpec, "execution_horizon must be from 1 to 1024, not 0"),
        ({}, {"execution_horizon": 1025}, InvalidSpec, "execution_horizon must be from 1 to 1024, not 1025"),
        ({}, {"max_episodes": 0}, InvalidSpec, "max_episodes must be greater than zero"),
        ({}, {"session_id": ""}, InvalidSpec, "session_id must not be empty"),
        ({}, {"base_seed": 2**63}, InvalidSpec, "base_seed must fit a signed 64-bit integer"),
    ],
)
async def test_what_does_not_fit_is_refused_before_the_model_is_loaded(
    changes: dict[str, Any], options: dict[str, Any], kind: type[SessionError], told: str, door: Door
) -> None:
    door.changes = changes
    policy, diary = Policy(), Diary()
    one_episode: dict[str, Any] = {"max_episodes": 1}
    with pytest.raises(kind) as refused:
        await run_local(policy, "somewhere:1", hooks=diary, **(one_episode | options))
    assert told in str(refused.value)
    assert policy.calls == []
    assert "SessionStarted" not in diary.names()


@pytest.mark.parametrize(
    ("policy", "options", "kind", "told"),
    [
        ("no_such_module:policy", {}, ConnectError, "no module named"),
        (len, {"execution_horizon": 2}, InvalidSpec, "needs a policy with predict_chunk"),
        ("zero", {"prefetch_lead": -1}, InvalidSpec, "prefetch_lead must not be negative"),
    ],
)
async def test_a_model_that_cannot_serve_is_refused_before_the_session(
    policy: Any, options: dict[str, Any], kind: type[SessionError], told: str, door: Door
) -> None:
    diary = Diary()
    with pytest.raises(kind, match=told):
        await run_local(policy, "somewhere:1", max_episodes=1, hooks=diary, **options)
    assert "SessionStarted" not in diary.names()
    assert diary.names()[0] == "EnvConnected"


async def test_a_hook_that_fails_on_connecting_is_logged(door: Door, caplog: pytest.LogCaptureFixture) -> None:
    class Grumbling(Hooks):
        async def env_connected(self, event: EnvConnected) -> None:
            raise ValueError("no env, please")

        async def model_connected(self, event: ModelConnected) -> None:
            raise ValueError("no model either")

    with caplog.at_level(logging.WARNING, "rlmesh_trio"):
        report = await run_local("zero", "somewhere:1", max_episodes=1, hooks=Grumbling())
    assert report.total_episodes == 1
    assert caplog.messages == [
        "runtime hook env_connected failed: no env, please",
        "runtime hook model_connected failed: no model either",
    ]


class Own(SessionError):
    """A policy's own typed error."""

    recoverable = True


async def test_a_policys_own_error_comes_out_as_it_was_raised(door: Door) -> None:
    own = Own("not today")

    def refuse(observations: Any) -> Any:
        raise own

    with pytest.raises(Own) as failed:
        await run_local(refuse, "somewhere:1", max_episodes=1)
    assert failed.value is own
    assert own.report is not None
    assert own.report.episodes == ()


async def test_a_failure_keeps_what_was_finished(door: Door) -> None:
    asked = 0

    def tiring(observations: Any) -> Any:
        nonlocal asked
        asked += 1
        if asked > 6:
            raise ValueError("tired")
        return np.zeros(len(observations), np.int64)

    diary = Diary()
    with pytest.raises(ModelRpcError, match="ValueError: tired") as failed:
        await run_local(tiring, "somewhere:1", max_episodes=3, hooks=diary)
    assert failed.value.code == "INTERNAL"
    assert failed.value.report is not None
    assert [one.step_count for one in failed.value.report.episodes] == [4]
    assert diary.names()[-1] == "SessionFailed"


async def test_being_cancelled_ends_the_session_in_order(door: Door) -> None:
    policy, diary = Policy(), Diary()
    with trio.move_on_after(0.1) as scope:
        await run_local(policy, "somewhere:1", hooks=diary)
    assert scope.cancelled_caught
    assert diary.names()[-1] == "SessionFailed"
    assert policy.calls[-1] == "close"


async def test_any_two_open_places_make_a_run() -> None:
    async with open_run(open_local_env(Walk), open_local_model("random"), max_episodes=1, env_id="mine") as run:
        report = await run.wait()
    assert (report.env_id, report.total_episodes) == ("mine", 1)


@pytest.mark.interop
async def test_a_real_server_driven_in_one_call() -> None:
    with start_env_peer("--kind", "lanes", "--num-envs", "2", "--env", "counter", "--length", "5") as peer:
        report = await run_local(Policy(), peer.address, max_episodes=4, base_seed=7, execution_horizon=3)
        assert [one.step_count for one in report.episodes] == [5, 5, 5, 5]
        peer.kill()
        with pytest.raises(ConnectError, match="no connection"):
            await run_local(Policy(), peer.address, max_episodes=1, limits=Limits(env_connect_timeout=0.2))


@pytest.mark.interop
async def test_a_servers_failure_keeps_its_kind() -> None:
    with start_env_peer("--env", "counter", "--length", "5", "--fault", "raise", "--fault-at", "3") as peer:
        with pytest.raises(EnvRpcError, match=r"environment env\.step failed at runtime step 3") as failed:
            await run_local("zero", peer.address, max_episodes=1)
        assert (failed.value.code, failed.value.operation) == ("INTERNAL", "env.step")
