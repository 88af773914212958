"""The program on real servers: killed and resumed, left by its server, and with a lane that hangs."""

import json
import random
import time
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest

from rlmesh_trio.observers import read_journal
from tests.cli.program import run, started
from tests.cli.schema import complaints
from tests.peers import Peer, start_env_peer

LANES = ("--kind", "lanes", "--num-envs", "4", "--env", "CartPole-v1", "--sleep", "0.002")
JOB = ("--model", "tests.cli.toys:Telling", "--episodes", "40", "--seed", "11")
FACTS = ("episode_index", "seed", "step_count", "cumulative_reward", "terminated", "truncated", "trial_index")


def episodes(document: dict[str, Any]) -> list[list[Any]]:
    """The episodes of a report, without lane and time."""
    assert complaints(document) == []
    return [[one[fact] for fact in FACTS] for one in document["episodes"]]


@pytest.fixture(scope="module")
def server() -> Generator[Peer]:
    with start_env_peer(*LANES) as peer:
        yield peer


@pytest.fixture(scope="module")
def undisturbed(server: Peer, tmp_path_factory: pytest.TempPathFactory) -> list[list[Any]]:
    report = tmp_path_factory.mktemp("undisturbed") / "report.json"
    with started("run", server.address, *JOB, "--json", str(report)) as process:
        process.communicate(timeout=30)
    return episodes(json.loads(report.read_text()))


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_what_a_killed_run_had_not_finished_is_played_by_the_next(
    server: Peer, undisturbed: list[list[Any]], seed: int, tmp_path: Path
) -> None:
    moment = random.Random(seed)
    journal, report = str(tmp_path / "run.jsonl"), tmp_path / "report.json"
    job = ("run", server.address, *JOB, "--journal", journal)
    seen = moment.randrange(2, 30)
    with started(*job) as process:
        assert process.stdout is not None
        for _ in range(seen):
            assert process.stdout.readline().startswith("ended")
        time.sleep(moment.uniform(0, 0.02))
        process.kill()
        seen += process.stdout.read().count("ended")
    finished = read_journal(journal).episodes
    assert seen <= len(finished) < 40, "whose end was told had its line before"
    with started(*job, "--resume", journal, "--json", str(report)) as process:
        out, err = process.communicate(timeout=30)
    assert (process.returncode, err) == (0, "")
    assert out.count("ended") == 40 - len(finished)
    document = json.loads(report.read_text())
    assert episodes(document) == undisturbed
    assert (document["resumed_episodes"], document["total_episodes"]) == (len(finished), 40)
    assert document["total_steps"] == sum(steps for _, _, steps, *_ in undisturbed)
    assert len(read_journal(journal).episodes) == 40


def test_a_server_that_is_killed_and_started_again(undisturbed: list[list[Any]], tmp_path: Path) -> None:
    report = tmp_path / "report.json"
    with start_env_peer(*LANES) as first:
        job = ("run", first.address, *JOB, "--on-env-error", "retry", "--json", str(report))
        with started(*job) as process:
            assert process.stdout is not None
            for _ in range(9):
                assert process.stdout.readline().startswith("ended")
            first.kill()
            with start_env_peer(*LANES, "--port", first.address.rpartition(":")[2]):
                out, err = process.communicate(timeout=30)
    assert process.returncode == 0, err
    document = json.loads(report.read_text())
    assert episodes(document) == undisturbed
    kinds = [one["kind"] for one in document["incidents"]]
    assert (kinds.count("reconnect"), kinds.count("quarantine")) == (1, 0)
    assert f"recovered      {kinds.count('retry')} retr" in out
    warnings = err.splitlines()
    assert warnings[0].startswith("warning: the env connection was lost")
    assert [line.split()[1] for line in warnings[1:]] == ["reconnected", *["retry"] * kinds.count("retry")]


def test_a_server_that_stays_away(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rlmesh_trio.cli.run_job.RECONNECT_LIMIT", 0.4)
    journal = str(tmp_path / "run.jsonl")
    with start_env_peer("--kind", "lanes", "--length-stagger", "40", "--fault", "exit", "--fault-at", "60") as peer:
        job = ("--episodes", "50", "--on-env-error", "retry", "--journal", journal)
        ran = run(capsys, "run", peer.address, *job)
    assert ran.status == 1
    assert "the env could not be reconnected within 400ms; try " in ran.error
    assert ran.error.endswith(f"; the same command with --resume {journal} goes on")
    assert int(ran.rows()["episodes"].split()[0]) == len(read_journal(journal).episodes) > 0


def test_the_other_lanes_play_what_a_hung_one_had(capsys: pytest.CaptureFixture[str]) -> None:
    hung = ("--fault", "hang", "--fault-lane", "1", "--fault-at", "3")
    with start_env_peer("--kind", "lanes", "--num-envs", "4", "--length", "4", "--sleep", "0.01", *hung) as peer:
        job = ("--episodes", "12", "--on-timeout", "quarantine", "--step-timeout", "1s", "--json", "-")
        ran = run(capsys, "run", peer.address, *job)
    assert ran.status == 0
    document = json.loads(ran.out)
    assert [one[0] for one in episodes(document)] == list(range(1, 13))
    assert [(one["kind"], one["env_index"]) for one in document["incidents"]] == [("quarantine", 1)]
    assert {one["env_index"] for one in document["episodes"]} == {0, 2, 3}
    assert ran.err.startswith("warning: quarantine of lane 1, whose episode 2 is started again (attempt 1): env.step")
