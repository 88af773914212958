import contextlib
import json
from pathlib import Path
from typing import Any

import attrs
import pytest

from rlmesh_trio.cli.report_json import json_text, report_document
from rlmesh_trio.errors import InvalidSpec
from rlmesh_trio.observers.identity import run_facts
from rlmesh_trio.observers.journal import JournalHooks
from rlmesh_trio.report import EpisodeSummary, Incident
from rlmesh_trio.resume import Finished, read_finished, read_report
from tests.cli.reports import episode, report
from tests.observers.telling import RETRIED, completed, spec

REPORT = '{{"schema_version": 1, "run": {}, "episodes": {}, "incidents": {}}}'
FACTS = run_facts(spec(), execution_horizon=1, prefetch_lead=0)


def write_report(
    path: Path, episodes: tuple[EpisodeSummary, ...], *, incidents: tuple[Incident, ...] = (), **changes: Any
) -> Path:
    whole = attrs.evolve(report(episodes), incidents=incidents)
    document = report_document(whole, 1.0, None, facts=FACTS, resumed=0) | changes
    path.write_text(json_text(document))
    return path


async def write_journal(path: Path, *events: Any) -> Path:
    with JournalHooks(path, spec()) as journal:
        for event in events:
            await journal.episode_completed(event)
    return path


def test_a_report_gives_its_episodes_exactly(tmp_path: Path) -> None:
    episodes = (episode(1, cumulative_reward=float("inf"), success=True), episode(2, seed=None, predict_ms=None))
    incidents = (RETRIED.incident, attrs.evolve(RETRIED.incident, kind="reconnect", env_index=None))
    path = write_report(tmp_path / "report.json", episodes, incidents=incidents)
    assert read_report(path) == read_finished(path) == Finished(str(path), FACTS, episodes, incidents)


async def test_a_journal_gives_its_episodes_by_index(tmp_path: Path) -> None:
    path = await write_journal(tmp_path / "run.jsonl", completed(3), completed(1))
    finished = read_finished(path)
    assert finished.episodes == (episode(1), episode(3))
    assert finished.facts["base_seed"] == 7


async def test_a_run_may_go_on_from_its_own_file(tmp_path: Path) -> None:
    read_finished(await write_journal(tmp_path / "run.jsonl", completed(1))).check(spec(num_envs=4, subset_step=True))
    read_finished(write_report(tmp_path / "report.json", (episode(1),))).check(spec())


async def test_another_run_may_not(tmp_path: Path) -> None:
    finished = read_finished(await write_journal(tmp_path / "run.jsonl"))
    with pytest.raises(InvalidSpec, match=r"run\.jsonl is of another run: base_seed is 7 there and 8 here"):
        finished.check(spec(base_seed=8))
    with pytest.raises(InvalidSpec, match="execution_horizon is 1 there and 2 here"):
        finished.check(spec(), execution_horizon=2)
    with pytest.raises(InvalidSpec, match="prefetch_lead is 0 there and 1 here"):
        finished.check(spec(), prefetch_lead=1)


def test_a_report_knows_its_run_as_well(tmp_path: Path) -> None:
    finished = read_finished(write_report(tmp_path / "report.json", (episode(1),)))
    with pytest.raises(InvalidSpec, match=r"report\.json is of another run: session_id is 'local' there and 'b' here"):
        finished.check(spec(session_id="b"))
    with pytest.raises(InvalidSpec, match="execution_horizon is 1 there and 3 here"):
        finished.check(spec(), execution_horizon=3)


@pytest.mark.parametrize("name", ["run.jsonl", "report.json"])
async def test_a_run_may_ask_for_more_and_not_for_less(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    finished = read_finished(
        write_report(path, (episode(1),)) if name == "report.json" else await write_journal(path, completed(1))
    )
    finished.check(spec(max_episodes=11))
    with pytest.raises(InvalidSpec, match="max_episodes is 10 there and 9 here"):
        finished.check(spec(max_episodes=9))


@pytest.mark.parametrize(
    ("there", "here", "told"),
    [
        ((1, 2), (1, 2, 3), None),
        ((1, 2), (1, 3, 2), r"episode_seeds is \[1, 2\] there and \[1, 3, 2\] here"),
        ((1, 2), (1,), r"episode_seeds is \[1, 2\] there and \[1\] here"),
        ((1, 2), (), r"episode_seeds is \[1, 2\] there and \[\] here"),
        ((), (1, 2), r"episode_seeds is \[\] there and \[1, 2\] here"),
    ],
)
def test_a_list_of_seeds_may_grow(
    tmp_path: Path, there: tuple[int, ...], here: tuple[int, ...], told: str | None
) -> None:
    facts = run_facts(spec(episode_seeds=there), execution_horizon=1, prefetch_lead=0)
    finished = read_finished(write_report(tmp_path / "report.json", (), run=facts))
    with contextlib.nullcontext() if told is None else pytest.raises(InvalidSpec, match=told):
        finished.check(spec(episode_seeds=here))


async def test_what_was_recovered_from_is_known_too(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    with JournalHooks(path, spec()) as journal:
        await journal.incident_happened(RETRIED)
    assert read_finished(path).incidents == (RETRIED.incident,)


@pytest.mark.parametrize(
    ("content", "why"),
    [
        ("", "is empty: its run finished no episode, start it anew"),
        ("notes", "is neither a run's journal nor its JSON report: it is not JSON"),
        ("[]", "it is no JSON object"),
        ("{}", "its schema_version is None; this build reads 1"),
        (REPORT.format("1, 1", "[]", "[]"), "it is not JSON"),
        (REPORT.format("3", "[]", "[]"), "it has no run, no episodes or no incidents"),
        (REPORT.format("{}", "{}", "[]"), "it has no run, no episodes or no incidents"),
        (REPORT.format("{}", "[]", "null"), "it has no run, no episodes or no incidents"),
        (REPORT.format("{}", "[3]", "[]"), "entry 1 of episodes: it is no JSON object"),
        (REPORT.format("{}", "[]", "[{}]"), "entry 1 of incidents: it has no 'kind'"),
        ('{"kind":"header"}\n', "line 1: schema_version is None"),
    ],
)
def test_a_file_that_is_neither_is_refused(tmp_path: Path, content: str, why: str) -> None:
    path = tmp_path / "file"
    path.write_text(content)
    with pytest.raises(InvalidSpec, match=why) as caught:
        read_finished(path)
    assert str(path) in caught.value.why


def test_a_bad_episode_of_a_report_is_named(tmp_path: Path) -> None:
    broken = attrs.asdict(episode(2)) | {"seed": "7"}
    path = write_report(tmp_path / "report.json", ())
    path.write_text(json.dumps(json.loads(path.read_text()) | {"episodes": [attrs.asdict(episode(1)), broken]}))
    with pytest.raises(InvalidSpec, match="entry 2 of episodes: its 'seed' cannot be '7'"):
        read_finished(path)


def test_a_report_of_a_later_version_is_refused(tmp_path: Path) -> None:
    path = write_report(tmp_path / "report.json", (episode(1),), schema_version=2)
    with pytest.raises(InvalidSpec, match="its schema_version is 2; this build reads 1"):
        read_report(path)


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(InvalidSpec, match=r"the run to resume .*gone\.json cannot be read: No such file"):
        read_finished(tmp_path / "gone.json")
    with pytest.raises(InvalidSpec, match=r"report .*gone\.json cannot be read"):
        read_report(tmp_path / "gone.json")


def test_a_report_on_one_line_is_a_report(tmp_path: Path) -> None:
    path = write_report(tmp_path / "report.json", (episode(1),))
    path.write_text(json.dumps(json.loads(path.read_text())))
    assert read_finished(path).episodes == (episode(1),)
