"""The recording hooks miss no notice, and their short form is what golden traces are written in."""

import inspect
from typing import Any

import trio.testing

from rlmesh_trio import Hooks, SessionSpec, run_session
from rlmesh_trio.events import ObservationEmitted, SessionEnded, StepCompleted
from rlmesh_trio.testing import EpisodeNumbers, RecordingHooks, ScriptedEnv, ScriptedModel, events_of, numbered


async def test_every_notice_is_recorded() -> None:
    notices = [name for name, _ in inspect.getmembers(Hooks, inspect.isfunction) if not name.startswith(("_", "trans"))]
    hooks = RecordingHooks()
    told: list[Any] = []
    for name in notices:
        told.append(object())
        await getattr(hooks, name)(told[-1])
    assert hooks.events == told


def test_the_transforms_are_left_alone() -> None:
    assert RecordingHooks.transform_observation is Hooks.transform_observation
    assert RecordingHooks.transform_action is Hooks.transform_action


async def test_a_run_in_short(autojump_clock: trio.testing.MockClock) -> None:
    env, hooks = ScriptedEnv(2, 1, next_step=True), RecordingHooks()
    await run_session(SessionSpec.for_env(env, max_episodes=2), env, ScriptedModel(), hooks=hooks)
    assert numbered(hooks.events) == [
        "started 1",
        "started 2",
        "observation 1 2",
        "step 1",
        "observation 1 2",
        "step 1",
        "completed 2",
        "completed 1",
    ]
    assert len(hooks.of(StepCompleted)) == len(events_of(ObservationEmitted, hooks.events)) == 2
    assert isinstance(hooks.events[-1], SessionEnded)
    assert hooks.kinds[-1] == "SessionEnded"
    second = hooks.of(ObservationEmitted)[0].episode_ids[1]
    assert hooks.under(second) == ["started", "observation", "observation", "completed"]


def test_numbers_go_by_first_mention() -> None:
    number = EpisodeNumbers()
    assert [number(["x", "y"]), number(["z", "x"])] == [[1, 2], [3, 1]]
