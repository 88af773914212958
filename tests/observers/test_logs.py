import json
import logging
from collections.abc import Iterator
from typing import Any

import pytest

from rlmesh_trio.engine.listeners import Listeners
from rlmesh_trio.events import EnvConnected, LogEmitted, ModelConnected, RelayAdvised
from rlmesh_trio.observers import LoggingHooks
from rlmesh_trio.report import Advisory
from tests.observers.telling import ENDED, FAILED, RETRIED, ROUTE, STARTED, completed, play, started, stepped


class Kept(logging.Handler):
    """Keeps what a JSON formatter would print."""

    def __init__(self) -> None:
        super().__init__()
        self.records: list[logging.LogRecord] = []

    def emit(self, record: logging.LogRecord) -> None:
        json.dumps(vars(record), default=None)
        self.records.append(record)

    @property
    def texts(self) -> list[tuple[int, str]]:
        return [(record.levelno, record.getMessage()) for record in self.records]

    def fields(self) -> list[dict[str, Any]]:
        return [vars(record) for record in self.records]


@pytest.fixture
def logger() -> logging.Logger:
    logger = logging.Logger("test", logging.INFO)
    logger.addHandler(Kept())
    return logger


@pytest.fixture
def kept(logger: logging.Logger) -> Iterator[Kept]:
    (handler,) = logger.handlers
    assert isinstance(handler, Kept)
    yield handler
    assert all(vars(record)["session_id"] == "local" for record in handler.records)
    assert all(vars(record)["env_id"] == "route-1" for record in handler.records)


async def test_what_matters_is_one_record_each(logger: logging.Logger, kept: Kept) -> None:
    hooks = LoggingHooks(logger)
    await hooks.env_connected(EnvConnected("local", ROUTE, "route-1"))
    await hooks.model_connected(ModelConnected("local", ROUTE))
    await hooks.session_started(STARTED)
    await hooks.episode_started(started(3))
    await hooks.episode_completed(completed(3, cumulative_reward=21.5))
    await hooks.relay_advisory(RelayAdvised("local", ROUTE, "env_to_model", Advisory("info", "float64 to float32")))
    await hooks.relay_advisory(RelayAdvised("local", ROUTE, "model_to_env", Advisory("caution", "clipped")))
    await hooks.incident_happened(RETRIED)
    await hooks.log(LogEmitted("local", ROUTE, "warn", "100% slow", "runtime"))
    await hooks.session_ended(ENDED)
    await hooks.session_failed(FAILED)
    assert kept.texts == [
        (logging.INFO, "env route-1 connected"),
        (logging.INFO, "model local-model connected"),
        (logging.INFO, "session local started"),
        (logging.INFO, "episode 3 started"),
        (logging.INFO, "episode 3 finished: return 21.5 in 10 steps"),
        (logging.INFO, "float64 to float32"),
        (logging.WARNING, "clipped"),
        (logging.WARNING, "retry after OperationTimeout: env.step is late"),
        (logging.WARNING, "100% slow"),
        (logging.INFO, "session local ended: 2 episodes, 40 steps"),
        (logging.ERROR, "session local failed: env.step timed out"),
    ]


async def test_facts_are_fields_of_the_record(logger: logging.Logger, kept: Kept) -> None:
    await LoggingHooks(logger, logging.WARNING).episode_completed(completed(3, lane=2, success=True))
    (fields,) = kept.fields()
    expected = {"event": "episode_completed", "lane": 2, "episode_index": 3, "episode_id": "id-3-1", "success": True}
    assert fields.items() >= (expected | {"levelno": logging.WARNING, "seed": 7, "step_count": 10}).items()
    assert fields.keys().isdisjoint({"route", "final_info"})


async def test_below_the_loggers_level_nothing_is_written(logger: logging.Logger, kept: Kept) -> None:
    await LoggingHooks(logger, logging.DEBUG).episode_completed(completed(1))
    assert kept.records == []


async def test_steps_are_only_heard_by_a_debug_logger(logger: logging.Logger, kept: Kept) -> None:
    assert Listeners(LoggingHooks(logger)).step_completed is None
    chatty = logging.Logger("chatty", logging.DEBUG)
    chatty.addHandler(kept)
    hooks = LoggingHooks(chatty)
    assert Listeners(hooks).step_completed is not None
    await hooks.step_completed(stepped(4))
    assert kept.texts == [(logging.DEBUG, "step 4 of ep-000001")]
    assert kept.fields()[0]["rewards"] == (1.0,)


async def test_a_session_is_logged_to_the_packages_own_logger(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG, "rlmesh_trio.run"):
        report = await play(LoggingHooks(), max_episodes=2)
    events = [vars(record)["event"] for record in caplog.records if record.name == "rlmesh_trio.run"]
    assert events[0] == "session_started"
    assert events[-1] == "session_ended"
    assert events.count("step_completed") == report.total_steps
    assert events.count("episode_completed") == 2
