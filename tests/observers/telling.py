"""Events made by hand, and a real session in this process, for tests of those who listen."""

from typing import Any

import attrs

from rlmesh_trio.endpoints.local_env import open_local_env
from rlmesh_trio.endpoints.local_model import open_local_model
from rlmesh_trio.engine.session import run_session
from rlmesh_trio.events import (
    EpisodeCompleted,
    EpisodeStarted,
    IncidentHappened,
    Route,
    SessionEnded,
    SessionFailed,
    SessionStarted,
    StepCompleted,
    TelemetryTaken,
)
from rlmesh_trio.hooks import Hooks
from rlmesh_trio.report import Incident, Report, TelemetryRow, TelemetrySnapshot
from rlmesh_trio.spec import AutoresetMode, EnvContract, SessionSpec, ValueSpace
from tests.cli.reports import episode

ROUTE = Route("route-1", "local-env", "local-model")
STARTED = SessionStarted("local", ROUTE, "route-1")
ENDED = SessionEnded("local", ROUTE, "session ended", 40, 2)
RETRIED = IncidentHappened("local", ROUTE, Incident("retry", 0, 1, "id-1-1", 1, "OperationTimeout", "env.step is late"))
FAILED = SessionFailed("local", ROUTE, "env.step timed out")


def spec(**fields: Any) -> SessionSpec:
    space = ValueSpace(None, (), b"a space")  # pyright: ignore[reportArgumentType] - nobody looks into it here
    contract = EnvContract(
        env_id="Toy-v0", observation_space=space, action_space=space, autoreset_mode=AutoresetMode.DISABLED
    )
    defaults: dict[str, Any] = {"env_contract": contract, "max_episodes": 10, "base_seed": 7, "env_id": "route-1"}
    return SessionSpec(**(defaults | fields))


def started(index: int, *, lane: int | None = None, attempt: int = 1, **fields: Any) -> EpisodeStarted:
    event = EpisodeStarted(
        "local", attrs.evolve(ROUTE, lane=lane), f"id-{index}-{attempt}", f"ep-{index:06d}", index, 0, False, 7, 0
    )
    return attrs.evolve(event, **fields)


def completed(index: int, *, lane: int | None = None, **fields: Any) -> EpisodeCompleted:
    return EpisodeCompleted(
        session_id="local",
        route=attrs.evolve(ROUTE, lane=lane),
        episode_id=f"id-{index}-1",
        episode_record_id=f"ep-{index:06d}",
        final_info=None,
        **attrs.asdict(episode(index, **fields)),
    )


def stepped(step: int) -> StepCompleted:
    return StepCompleted(
        "local", ROUTE, "id-1-1", "ep-000001", step, 0, (1.0,), None, (False,), (False,), (False,), 0.1, 0.2
    )


def telemetry(horizon: str, **counts: int) -> TelemetryTaken:
    """A snapshot with ``env_step`` and ``model_predict`` counts, each of a mean of 2 ms and a p95 of 4 ms."""
    rows = [
        TelemetryRow(op.replace("_", "."), op.split("_")[0], "rpc.total", "duration_ms", count, 2.0, 1.5, 4.0, 5.0)
        for op, count in counts.items()
    ]
    return TelemetryTaken("local", ROUTE, TelemetrySnapshot(horizon, tuple(rows)))  # pyright: ignore[reportArgumentType]


async def play(hooks: Hooks, source: object = "CartPole-v1", *, lanes: int = 2, **fields: Any) -> Report:
    async with open_local_env(source, lanes=lanes) as env, open_local_model("random") as model:
        chosen = SessionSpec.for_env(env, **({"max_episodes": 4, "base_seed": 3} | fields))
        await model.resolve(chosen)
        return await run_session(chosen, env, model, hooks=hooks)
