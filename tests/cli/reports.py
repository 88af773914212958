"""Reports made by hand, for tests that need one."""

from collections.abc import Sequence

import attrs

from rlmesh_trio.report import EpisodeSummary, Report, TelemetryRow, TelemetrySnapshot

SUMMARY = EpisodeSummary(
    episode_index=1,
    env_index=0,
    seed=7,
    trial_index=0,
    step_count=10,
    cumulative_reward=1.0,
    terminated=True,
    truncated=False,
    duration_ms=5,
    success=None,
    predict_ms=0.2,
    step_ms=0.5,
)


def episode(index: int, **fields: object) -> EpisodeSummary:
    return attrs.evolve(SUMMARY, episode_index=index, **fields)


def report(episodes: Sequence[EpisodeSummary] = (), *, round_ms: float | None = None) -> Report:
    rows = (
        ()
        if round_ms is None
        else (TelemetryRow("runner.round", "runner", "rpc.total", "duration_ms", 1, *[round_ms] * 4),)
    )
    return Report(
        session_id="local",
        env_id="0198a5b2-0000-7000-8000-000000000000",
        total_steps=sum(one.step_count for one in episodes),
        total_episodes=len(episodes),
        episodes=tuple(episodes),
        telemetry=TelemetrySnapshot("session", rows),
        advisories=(),
    )
