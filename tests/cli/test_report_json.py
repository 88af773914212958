import json
import math
from typing import Any

import attrs
import pytest

from rlmesh_trio.cli.report_json import json_text, report_document
from rlmesh_trio.errors import EnvRpcError, InvalidSpec
from rlmesh_trio.report import Incident
from tests.cli.reports import episode, report
from tests.cli.schema import complaints


def strict(text: str) -> Any:
    def refuse(name: str) -> None:
        raise AssertionError(f"{name} is not JSON")

    return json.loads(text, parse_constant=refuse)


def test_the_document_of_a_run() -> None:
    episodes = [episode(2, success=True), episode(1, seed=None, step_ms=None, predict_ms=None)]
    document = strict(json_text(report_document(report(episodes, round_ms=2.0), 4.0, None)))
    assert complaints(document) == []
    assert list(document) == [
        "schema_version",
        "session_id",
        "env_id",
        "total_steps",
        "total_episodes",
        "wall_seconds",
        "steps_per_second",
        "episodes",
        "telemetry",
        "advisories",
        "incidents",
    ]
    assert document["schema_version"] == 1
    assert document["steps_per_second"] == 5.0
    assert [one["episode_index"] for one in document["episodes"]] == [1, 2]
    assert document["telemetry"]["rows"][0]["op"] == "runner.round"


def test_a_failure_stands_beside_what_was_finished() -> None:
    error = EnvRpcError("env.step", 12, "it broke", recoverable=True)
    document = strict(json_text(report_document(report([episode(1)]), 1.0, error)))
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
    document = strict(json_text(report_document(attrs.evolve(report(), incidents=incidents), 1.0, None)))
    assert complaints(document) == []
    assert [tuple(incident.values()) for incident in document["incidents"]] == [attrs.astuple(one) for one in incidents]


def test_a_failure_outside_an_operation_names_none() -> None:
    document = strict(json_text(report_document(report(), 0.0, InvalidSpec("no"))))
    assert complaints(document) == []
    assert set(document["error"]) == {"type", "message", "recoverable"}


@pytest.mark.parametrize(("reward", "text"), [(math.nan, "NaN"), (math.inf, "Infinity"), (-math.inf, "-Infinity")])
def test_numbers_json_has_not_are_text(reward: float, text: str) -> None:
    document = strict(json_text(report_document(report([episode(1, cumulative_reward=reward)]), 1.0, None)))
    assert complaints(document) == []
    assert document["episodes"][0]["cumulative_reward"] == text


def test_the_schema_refuses_what_is_not_a_report() -> None:
    document = strict(json_text(report_document(report([episode(1)]), 1.0, None)))
    assert complaints(document) == []
    assert complaints(document | {"schema_version": 2})
    assert complaints(document | {"surprise": 1})
    assert complaints({key: value for key, value in document.items() if key != "env_id"})
    assert complaints(document | {"episodes": [{"episode_index": 1}]})
    assert complaints(document | {"wall_seconds": "4"})
