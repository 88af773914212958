"""``--on-env-error`` and ``--on-timeout``: what a run recovers from, and what it says of it."""

import json
from pathlib import Path

import pytest

from tests.cli.program import run
from tests.cli.schema import complaints

BROKEN = "tests.cli.toys:BrokenWalk"
LIMPING = "tests.cli.toys:limping"


def test_a_retry_is_told_three_times(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = tmp_path / "report.json"
    ran = run(capsys, "run", BROKEN, "--seeds", "1,2,3", "--on-env-error", "retry", "--json", str(path))
    assert ran.status == 0
    assert ran.err.splitlines() == [
        "warning: retry of lane 0, whose episode 2 is started again (attempt 1): environment env.step failed at "
        "runtime step 2: step failed: RuntimeError: a leg broke in two."
    ]
    assert (ran.rows()["episodes"], ran.rows()["recovered"]) == ("3", "1 retry")
    document = json.loads(path.read_text())
    assert complaints(document) == []
    (incident,) = document["incidents"]
    assert (incident["kind"], incident["episode_index"], incident["error"]) == ("retry", 2, "EnvRpcError")
    assert [(one["seed"], one["step_count"]) for one in document["episodes"]] == [(1, 4), (2, 4), (3, 4)]
    assert run(capsys, "run", BROKEN, "--seeds", "1,2,3", "--on-env-error", "retry", "--quiet").err == ""


def test_the_last_failure_says_that_it_was_the_last(capsys: pytest.CaptureFixture[str]) -> None:
    ran = run(capsys, "run", "tests.cli.toys:UnresettableWalk", "--on-env-error", "retry:2")
    assert ran.status == 1
    assert ran.error == (
        "env.reset failed at step 0 of episode 1 (lane 0, no seed): reset failed: RuntimeError: no way back; its "
        "episode was started again 2 time(s), as often as the policy allows"
    )
    assert ran.rows() == {"episodes": "0 of 10 finished", "steps": ran.rows()["steps"], "recovered": "2 retries"}


def test_another_lane_plays_what_a_stuck_one_had(capsys: pytest.CaptureFixture[str]) -> None:
    job = ("--lanes", "3", "--episodes", "6", "--step-timeout", "100ms", "--on-timeout", "quarantine", "--json", "-")
    ran = run(capsys, "run", LIMPING, *job)
    assert ran.status == 0
    document = json.loads(ran.out)
    assert [(one["kind"], one["env_index"]) for one in document["incidents"]] == [("quarantine", 1)]
    assert [one["episode_index"] for one in document["episodes"]] == [1, 2, 3, 4, 5, 6]
    assert {one["env_index"] for one in document["episodes"]} == {0, 2}


def test_without_another_lane_there_is_nobody_to_play_it(capsys: pytest.CaptureFixture[str]) -> None:
    job = ("--step-timeout", "50ms", "--on-timeout", "quarantine", "--quiet")
    ran = run(capsys, "run", "tests.cli.toys:StuckWalk", *job)
    assert ran.status == 1
    assert ran.error.endswith(
        "--step-timeout sets this limit; no other lane is left to play its episode, and quarantine needs one"
    )


def test_finished_lanes_of_a_vector_are_reset_alone(capsys: pytest.CaptureFixture[str]) -> None:
    job = ("--partial-reset", "--seeds", "1,2,3,4,5", "--json", "-")
    ran = run(capsys, "run", "tests.cli.toys:disabled_vector", *job)
    assert (ran.status, ran.err) == (0, "")
    assert [(one["seed"], one["step_count"]) for one in json.loads(ran.out)["episodes"]] == [
        (k, 4) for k in range(1, 6)
    ]
