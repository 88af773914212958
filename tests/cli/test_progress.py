from rlmesh_trio.cli.progress import Progress
from rlmesh_trio.events import EpisodeCompleted, Route, SessionStarted, TelemetryTaken
from rlmesh_trio.report import TelemetryRow, TelemetrySnapshot
from tests.cli.reports import episode

ROUTE = Route("env", "local-env", "local-model")


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


def completed(reward: float, success: bool | None) -> EpisodeCompleted:
    return EpisodeCompleted(
        session_id="local",
        route=ROUTE,
        episode_id="id",
        episode_record_id="ep-000001",
        episode_index=1,
        env_index=0,
        step_count=10,
        cumulative_reward=reward,
        terminated=True,
        truncated=False,
        duration_ms=1,
        final_info=None,
        success=success,
        seed=None,
        trial_index=None,
        predict_ms=None,
        step_ms=None,
    )


def window(steps: int, horizon: str = "window") -> TelemetryTaken:
    figures = (1.0, 1.0, 1.0, 1.0)
    rows = (
        TelemetryRow("env.step", "env", "endpoint.total", "duration_ms", steps, *figures),
        TelemetryRow("env.step", "env", "rpc.total", "duration_ms", steps, *figures),
        TelemetryRow("model.predict", "model", "rpc.total", "duration_ms", steps, *figures),
    )
    assert horizon in ("window", "session")
    return TelemetryTaken("local", ROUTE, TelemetrySnapshot(horizon, rows))


async def started(clock: Clock, total: int = 10) -> Progress:
    progress = Progress("CartPole-v1", total, clock)
    await progress.session_started(SessionStarted("local", ROUTE, "env"))
    return progress


async def test_the_stages_before_a_session() -> None:
    progress = Progress("CartPole-v1", 10, Clock())
    assert progress.line() == "opening CartPole-v1 …"
    await progress.session_started(SessionStarted("local", ROUTE, "env"))
    assert progress.line() == "0/10 episodes"


async def test_the_line_of_a_run() -> None:
    clock = Clock()
    progress = await started(clock)
    clock.now += 2.0
    await progress.on_telemetry(window(3000))
    await progress.episode_completed(completed(1.0, True))
    await progress.episode_completed(completed(2.0, None))
    await progress.episode_completed(completed(6.0, False))
    await progress.episode_completed(completed(6.0, False))
    clock.now += 2.0
    assert progress.line() == "4/10 episodes  1,500 steps/s  return 3.75  success 33%  0:06 left"


async def test_what_an_earlier_run_finished_counts_in_all_but_the_pace() -> None:
    clock = Clock()
    progress = Progress("CartPole-v1", 10, clock)
    progress.resume([episode(3, cumulative_reward=1.0, success=True), episode(1, cumulative_reward=3.0), episode(2)])
    clock.now += 50.0
    await progress.session_started(SessionStarted("local", ROUTE, "env"))
    assert progress.line() == "3/10 episodes  return 1.667  success 100%"
    clock.now += 2.0
    await progress.episode_completed(completed(7.0, False))
    assert progress.line() == "4/10 episodes  return 3  success 50%  0:12 left"


async def test_pace_is_that_of_the_last_seconds() -> None:
    clock = Clock()
    progress = await started(clock)
    for steps in [1000] * 20 + [10] * 6:
        clock.now += 1.0
        await progress.on_telemetry(window(steps))
    assert progress.steps_per_second() == 10.0


async def test_pace_falls_while_nothing_is_told() -> None:
    clock = Clock()
    progress = await started(clock)
    clock.now += 1.0
    await progress.on_telemetry(window(1000))
    clock.now += 1.0
    assert progress.steps_per_second() == 1000.0
    clock.now += 98.0
    assert progress.steps_per_second() == 10.0


async def test_a_lockstep_vector_moves_all_its_lanes_in_a_step() -> None:
    clock = Clock()
    progress = await started(clock)
    progress.lanes_per_step = 16
    clock.now += 1.0
    await progress.on_telemetry(window(100))
    assert progress.steps_per_second() == 1600.0


async def test_the_sessions_own_telemetry_is_not_counted_again() -> None:
    clock = Clock()
    progress = await started(clock)
    clock.now += 1.0
    await progress.on_telemetry(window(100, horizon="session"))
    assert progress.steps_per_second() is None


async def test_long_waits_are_told_in_hours() -> None:
    clock = Clock()
    progress = await started(clock, total=11)
    clock.now += 1234.5
    await progress.episode_completed(completed(0.0, None))
    assert progress.line().endswith("3:25:45 left")
