import json
import math
from typing import Any

import attrs
import pytest

from rlmesh_trio.cli.report_json import json_text, report_document
from rlmesh_trio.errors import EnvRpcError, InvalidSpec
from rlmesh_trio.report import Incident, Report
from tests.cli.reports import episode, report
from tests.cli.schema import complaints

FACTS = {"env": "Toy-v0", "base_seed": 7, "max_episode_seconds": "Infinity"}


def document_of(run: Report, wall_seconds: float, error: Exception | None = None, *, resumed: int = 0) -> Any:
    return strict(json_text(report_document(run, wall_seconds, error, facts=FACTS, resumed=resumed)))


def strict(text: str) -> Any:
    def refuse(name: str) -> None:
        raise AssertionError(f"{name} is not JSON")

    return json.loads(text, parse_constant=refuse)


def test_the_document_of_a_run() -> None:
    episodes = [episode(2, success=True), episode(1, seed=None, step_ms=None, predict_ms=None)]
    document = document_of(report(episodes, round_ms=2.0), 4.0)
    assert complaints(document) == []
    assert list(document) == [
        "schema_version",
        "session_id",
        "env_id",
        "run",
        "total_steps",
        "total_episodes",
        "resumed_episodes",
        "wall_seconds",
        "steps_per_second",
        "episodes",
        "telemetry",
        "advisories",
        "incidents",
    ]
    assert document["schema_version"] == 1
    assert document["steps_per_second"] == 5.0
    assert document["run"] == FACTS
    assert [one["episode_index"] for one in document["episodes"]] == [1, 2]
    assert document["telemetry"]["rows"][0]["op"] == "runner.round"


def test_a_failure_stands_beside_what_was_finished() -> None:
    error = EnvRpcError("env.step", 12, "it broke", recoverable=True)
    document = document_of(report([episode(1)]), 1.0, error)
    assert complaints(document) == []
    assert len(document["episodes"]) == 1
    assert document["error"] == {
        "type": "EnvRpcError",
        "message": str(error),
        "recoverable": True,
        "operation": "env.step",
    }


def test_what_was_recovered_from_is_in_it() -> None:
    incidents = (
        Incident("reconnect", None, None, None, 2, "EnvRpcError", "connection closed"),
        Incident("retry", 1, 3, "id-3", 1, "EnvRpcError", "connection closed"),
        Incident("quarantine", 0, 4, "id-4", 2, "OperationTimeout", "too late"),
    )
    document = document_of(attrs.evolve(report(), incidents=incidents), 1.0)
    assert complaints(document) == []
    assert [tuple(incident.values()) for incident in document["incidents"]] == [attrs.astuple(one) for one in incidents]


def test_pace_is_that_of_what_this_run_played() -> None:
    document = document_of(report([episode(1), episode(2), episode(3)]), 4.0, resumed=2)
    assert complaints(document) == []
    assert (document["resumed_episodes"], document["total_episodes"], document["total_steps"]) == (2, 3, 30)
    assert document["steps_per_second"] == 2.5


def test_a_failure_outside_an_operation_names_none() -> None:
    document = document_of(report(), 0.0, InvalidSpec("no"))
    assert complaints(document) == []
    assert set(document["error"]) == {"type", "message", "recoverable"}


@pytest.mark.parametrize(("reward", "text"), [(math.nan, "NaN"), (math.inf, "Infinity"), (-math.inf, "-Infinity")])
def test_numbers_json_has_not_are_text(reward: float, text: str) -> None:
    document = document_of(report([episode(1, cumulative_reward=reward)]), 1.0)
    assert complaints(document) == []
    assert document["episodes"][0]["cumulative_reward"] == text


def test_the_schema_refuses_what_is_not_a_report() -> None:
    document = document_of(report([episode(1)]), 1.0)
    assert complaints(document) == []
    assert complaints(document | {"schema_version": 2})
    assert complaints(document | {"surprise": 1})
    assert complaints({key: value for key, value in document.items() if key != "env_id"})
    assert complaints(document | {"episodes": [{"episode_index": 1}]})
    assert complaints(document | {"wall_seconds": "4"})
