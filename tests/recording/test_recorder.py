"""Sessions recorded: the file tells what the report tells, and its root hangs on nothing but what was played."""

import logging
from functools import partial
from pathlib import Path
from typing import Any

import attrs
import gymnasium
import numpy as np
import pytest
import trio
import trio.testing

from rlmesh_trio.endpoints.env import Env, ReconnectingEnv
from rlmesh_trio.endpoints.local_env import open_local_env
from rlmesh_trio.endpoints.local_model import open_local_model
from rlmesh_trio.engine.session import run_session
from rlmesh_trio.errors import OperationTimeout
from rlmesh_trio.recording import (
    Batch,
    Decision,
    Footer,
    Mishap,
    Recorder,
    canon,
    header_of,
    open_recording,
    verify,
)
from rlmesh_trio.recovery import Recovery
from rlmesh_trio.report import Report
from rlmesh_trio.spec import Limits, SessionSpec
from rlmesh_trio.testing import Fail, Fault, Hang, ScriptedEnv, ScriptedModel
from rlmesh_trio.testing.schedule import run_virtual
from rlmesh_trio.testing.scripted import LaneScript, lane_spec, one, vector_spec


def lean(observation: Any) -> Any:
    return (np.asarray(observation)[:, 2] > 0).astype(np.int64)


async def cart_poles(path: Path, source: Any, level: str = "digest", **fields: Any) -> tuple[Report, Footer]:
    lanes = fields.pop("lanes", 1)
    async with open_local_env(source, lanes=lanes) as env, open_local_model(lean) as model:
        spec = SessionSpec.for_env(env, max_episodes=8, **fields)
        await model.resolve(spec)
        recorder = Recorder(path, header_of(spec, env, model), level)
        report = await run_session(spec, recorder.wrap(env), recorder.wrap_model(model), hooks=recorder.hooks)
        footer = recorder.finish()
        assert footer is not None
        assert verify(path).problems == ()
        return report, footer


async def scripted(path: Path, spec: SessionSpec, env: Env, level: str = "digest") -> Footer:
    recorder = Recorder(path, header_of(spec), level)
    model = recorder.wrap_model(ScriptedModel())
    try:
        await run_session(spec, recorder.wrap(env), model, hooks=recorder.hooks)
    finally:
        footer = recorder.finish()
        assert footer is not None
        assert verify(path).problems == ()
    return footer


def played(path: Path) -> list[tuple[int, int | None, int, float, str]]:
    """Ordinal, seed, steps, return and end of each episode, in order of ordinals."""
    with open_recording(path) as recording:
        told = recording.episodes()
    return sorted((each.ordinal, each.seed, each.steps, each.cumulative_reward, each.end) for each in told)


@pytest.mark.parametrize("level", ["digest", "full"])
@pytest.mark.parametrize(("cap", "end"), [(None, "terminated"), (12, "capped")])
async def test_lanes_do_not_matter(level: str, cap: int | None, end: str, tmp_path: Path) -> None:
    roots: set[bytes] = set()
    canonical: set[bytes] = set()
    for lanes in (1, 2, 7, 16):
        path = tmp_path / f"{lanes}.mcap"
        report, footer = await cart_poles(path, "CartPole-v1", level, lanes=lanes, base_seed=5, max_episode_steps=cap)
        assert played(path) == sorted(
            (each.episode_index, each.seed, each.step_count, each.cumulative_reward, end) for each in report.episodes
        )
        roots.add(footer.run_root)
        canon(path, tmp_path / "canon")
        canonical.add((tmp_path / "canon").read_bytes())
    assert len(roots) == 1
    assert len(canonical) == 1


async def test_a_vector_whose_lanes_are_reset_by_name_plays_what_single_lanes_play(tmp_path: Path) -> None:
    def vector() -> Any:
        return gymnasium.make_vec(
            "CartPole-v1", 3, "sync", vector_kwargs={"autoreset_mode": gymnasium.vector.AutoresetMode.DISABLED}
        )

    seeds = tuple(range(70, 78))
    _, lanes = await cart_poles(tmp_path / "a", "CartPole-v1", lanes=2, episode_seeds=seeds)
    _, whole = await cart_poles(tmp_path / "b", vector(), episode_seeds=seeds, partial_reset=True)
    assert whole.run_root == lanes.run_root


async def test_another_seed_has_another_root(tmp_path: Path) -> None:
    roots = {(await cart_poles(tmp_path / "a", "CartPole-v1", base_seed=seed))[1].run_root for seed in (1, 2)}
    assert len(roots) == 2


async def test_a_vector_that_restarts_its_lanes_repeats(tmp_path: Path) -> None:
    for name in ("a", "b"):
        report, footer = await cart_poles(
            tmp_path / name, gymnasium.make_vec("CartPole-v1", 3, "sync"), "full", base_seed=5
        )
        assert [each.ordinal for each in footer.episodes] == list(range(1, 9))
        told = [(ordinal, steps, total) for ordinal, _, steps, total, _end in played(tmp_path / name)]
        assert told == sorted((each.episode_index, each.step_count, each.cumulative_reward) for each in report.episodes)
        canon(tmp_path / name, tmp_path / f"{name}.canon")
    assert (tmp_path / "a.canon").read_bytes() == (tmp_path / "b.canon").read_bytes()
    assert (tmp_path / "a").read_bytes() != (tmp_path / "b").read_bytes(), "ids differ, and are noted"


@pytest.mark.parametrize("budget", [1, 2, 3, 4, 5, 9])
@pytest.mark.parametrize("lengths", [(1, 2), (2, 1), (1, 3, 2), (4, 4, 1)])
async def test_an_episode_that_ends_while_other_lanes_restart_has_its_last_step(
    lengths: tuple[int, ...], budget: int, tmp_path: Path
) -> None:
    path = tmp_path / "a"
    spec = vector_spec(len(lengths), budget)
    recorder = Recorder(path, header_of(spec))
    report = await run_session(
        spec, recorder.wrap(ScriptedEnv(*lengths, next_step=True)), ScriptedModel(), hooks=recorder.hooks
    )
    recorder.finish()
    told = [(ordinal, steps, total, end) for ordinal, _, steps, total, end in played(path)]
    assert [each for each in told if each[-1] != "interrupted"] == sorted(
        (each.episode_index, each.step_count, each.cumulative_reward, "terminated") for each in report.episodes
    )


def test_the_order_of_tasks_does_not_matter(tmp_path: Path) -> None:
    """Lanes of one length, so that nobody can tell who played what."""
    roots: set[bytes] = set()
    orders: set[tuple[int, ...]] = set()
    for seed in range(10):
        lanes = [LaneScript(4, 0.1 * (1 + (seed + lane) % 3)) for lane in range(3)]
        path = tmp_path / str(seed)
        footer = run_virtual(seed, partial(scripted, path, lane_spec(3, 9, range(9)), ScriptedEnv(*lanes)))
        roots.add(footer.run_root)
        with open_recording(path) as recording:
            orders.add(tuple(ordinal for tick in recording.ticks() for ordinal in tick.begins))
    assert len(roots) == 1
    assert len(orders) > 1, "they were played in different orders"


@pytest.mark.parametrize(
    ("spec", "env"),
    [
        (lane_spec(2, 6, range(6)), partial(ScriptedEnv, 3, LaneScript(3, 0.1))),
        (vector_spec(2, 6), partial(ScriptedEnv, 3, 3, next_step=True)),
        (one(4), partial(ScriptedEnv, 3)),
    ],
    ids=["lanes", "restarting vector", "single"],
)
@pytest.mark.parametrize("action", [Fail(), Hang()], ids=["error", "timeout"])
@pytest.mark.parametrize("call", [2, 5, 7])
async def test_an_episode_that_was_played_again_counts_once(
    spec: SessionSpec, env: Any, action: Any, call: int, tmp_path: Path, autojump_clock: trio.testing.MockClock
) -> None:
    retrying = attrs.evolve(spec, on_env_error=Recovery("retry"), on_timeout=Recovery("retry"))
    limited = attrs.evolve(retrying, limits=Limits(env_step_timeout=2))
    footer = await scripted(tmp_path / "a", limited, env(faults=[Fault("step", action, call)]), "ring=2")
    undisturbed = await scripted(tmp_path / "b", spec, env())
    assert footer.run_root == undisturbed.run_root or not spec.driver_owns_resets
    assert [each.ordinal for each in footer.episodes] == list(range(1, (spec.max_episodes or 0) + 1))
    with open_recording(tmp_path / "a") as recording:
        given_up = [each for each in recording.episodes() if each.end not in ("terminated", "truncated")]
        mishaps = [entry.what for entry in recording if isinstance(entry, Decision) and isinstance(entry.what, Mishap)]
        failed = [tick for tick in recording.ticks() if tick.reply is None]
    assert {each.end for each in given_up} == {"error" if isinstance(action, Fail) else "interrupted"}
    assert {each.attempt for each in given_up} == {0}
    assert all(each.kept for each in given_up)
    assert [each.ordinal for each in mishaps] == [each.ordinal for each in given_up]
    assert [tick.error is not None for tick in failed] == [isinstance(action, Fail)]


async def test_a_session_that_fails_leaves_a_whole_recording(
    tmp_path: Path, autojump_clock: trio.testing.MockClock
) -> None:
    path = tmp_path / "a"
    spec = lane_spec(2, 6, range(6), limits=Limits(env_step_timeout=2))
    with pytest.raises(OperationTimeout):
        await scripted(path, spec, ScriptedEnv(3, 3, faults=[Fault("step", Hang(), 8)]))
    with open_recording(path) as recording:
        last = list(recording)[-3:]
        unanswered = [tick for tick in recording.ticks() if tick.reply is None and tick.error is None]
        ends = {each.ordinal: each.end for each in recording.episodes()}
    assert len(unanswered) == 1
    assert sorted(ends) == list(range(1, len(ends) + 1))
    assert set(ends.values()) == {"terminated", "interrupted"}
    assert any(isinstance(entry, Decision) and getattr(entry.what, "kind", "") == "failed" for entry in last)


async def test_steps_outside_the_budget_are_in_no_episode(tmp_path: Path) -> None:
    """Two episodes for three lanes in lockstep: the third lane plays one that nobody counts."""
    footer = await scripted(tmp_path / "a", vector_spec(3, 2), ScriptedEnv(2, 3, 4, next_step=True))
    assert [each.ordinal for each in footer.episodes] == [1, 2]
    with open_recording(tmp_path / "a") as recording:
        ticks = list(recording.ticks())
    assert ticks[0].begins == (1, 2, 0)
    assert ticks[1].episodes == (1, 2, 0)


async def test_batches_are_told_in_the_order_of_their_rows(tmp_path: Path) -> None:
    await cart_poles(tmp_path / "a", "CartPole-v1", lanes=3, base_seed=5)
    with open_recording(tmp_path / "a") as recording:
        batches = [entry.what for entry in recording if isinstance(entry, Decision) and isinstance(entry.what, Batch)]
    assert [(row.ordinal, row.step, row.frames) for row in batches[0].rows] == [(1, 0, 1), (2, 0, 1), (3, 0, 1)]
    assert [row.request for row in batches[0].rows] == [0, 1, 2]
    assert {row.ordinal for batch in batches for row in batch.rows} == set(range(1, 9))


async def test_a_disk_that_fills_up_fails_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec = one(3)
    recorder = Recorder(tmp_path / "a", header_of(spec))

    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("rlmesh_trio.recording.mcap_file.McapFile.add", full)
    with caplog.at_level(logging.WARNING, "rlmesh_trio"):
        report = await run_session(spec, recorder.wrap(ScriptedEnv(3)), ScriptedModel(), hooks=recorder.hooks)
    assert report.total_episodes == 3
    assert recorder.finish() is None
    assert str(recorder.failure) == f"recording {tmp_path / 'a'}: it cannot be written: No space left on device"
    assert [line.getMessage() for line in caplog.records] == [f"{recorder.failure}; the run goes on without it"]
    with open_recording(tmp_path / "a") as recording:
        assert list(recording) == []


async def test_finishing_again_does_nothing(tmp_path: Path) -> None:
    with Recorder(tmp_path / "a", header_of(one(3))) as recorder:
        await run_session(one(3), recorder.wrap(ScriptedEnv(3)), ScriptedModel(), hooks=recorder.hooks)
        assert recorder.finish() is not None
        assert recorder.finish() is None
    assert verify(tmp_path / "a").problems == ()


class Reconnectable(ScriptedEnv):
    reconnects = 0

    async def reconnect(self) -> None:
        self.reconnects += 1


async def test_a_wrapped_env_reconnects_if_it_can(tmp_path: Path) -> None:
    with Recorder(tmp_path / "a", header_of(one(3))) as recorder:
        assert not isinstance(recorder.wrap(ScriptedEnv(3)), ReconnectingEnv)
        env = Reconnectable(3)
        wrapped = recorder.wrap(env)
        assert isinstance(wrapped, ReconnectingEnv)
        await wrapped.reconnect()
        await wrapped.close()
        assert (env.reconnects, env.closes) == (1, 1)
