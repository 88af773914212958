import json
import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import attrs
import pytest

from rlmesh_trio.errors import HookError, InvalidSpec
from rlmesh_trio.events import ActionReceived
from rlmesh_trio.hooks import Hooks
from rlmesh_trio.messages import Leaves
from rlmesh_trio.observers.group import HookGroup
from rlmesh_trio.observers.identity import UNDECISIVE, run_facts
from rlmesh_trio.observers.journal import JournalEnding, JournalHooks, read_journal
from rlmesh_trio.report import EpisodeSummary
from rlmesh_trio.resume import read_finished
from rlmesh_trio.spec import EnvContract, Limits, SessionSpec, ValueSpace
from tests.cli.reports import episode
from tests.observers.full_disk import FullDisk
from tests.observers.telling import ENDED, FAILED, RETRIED, completed, play, spec


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "run.jsonl"


async def write(path: Path, *indices: int, last: bytes = b"", **fields: Any) -> None:
    with JournalHooks(path, spec(**fields)) as journal:
        for index in indices:
            await journal.episode_completed(completed(index))
    with path.open("ab") as stream:
        stream.write(last)


def kinds(path: Path) -> list[str]:
    return [json.loads(line)["kind"] for line in path.read_text().splitlines()]


def content(path: Path) -> bytes:
    return path.read_bytes()


def indices(episodes: tuple[EpisodeSummary, ...]) -> list[int]:
    return [summary.episode_index for summary in episodes]


async def test_an_episode_is_in_the_file_as_it_finishes(path: Path) -> None:
    with JournalHooks(path, spec()) as journal:
        assert kinds(path) == ["header"]
        await journal.episode_completed(completed(2, cumulative_reward=float("-inf")))
        assert kinds(path) == ["header", "episode"]
        assert read_journal(path).episodes == (episode(2, cumulative_reward=float("-inf")),)
        assert read_journal(path).ending is None


async def test_the_header_says_which_run_it_is(path: Path) -> None:
    await write(path)
    header = read_journal(path).header
    assert (header.schema_version, header.session_id, header.env_id, header.num_envs) == (1, "local", "route-1", 1)
    assert header.run == run_facts(spec(), execution_horizon=1, prefetch_lead=0)
    assert header.run.items() >= {"base_seed": 7, "max_episodes": 10, "env": "Toy-v0", "lockstep_lanes": 1}.items()


@pytest.mark.parametrize(
    ("event", "ending"),
    [
        (ENDED, JournalEnding("ended", "session ended", 40, 2)),
        (FAILED, JournalEnding("failed", "env.step timed out", None, 1)),
    ],
)
async def test_the_last_line_says_how_it_ended(path: Path, event: Any, ending: JournalEnding) -> None:
    with JournalHooks(path, spec()) as journal:
        await journal.episode_completed(completed(1))
        await (journal.session_ended(event) if event is ENDED else journal.session_failed(event))
    assert read_journal(path).ending == ending


async def test_incidents_stand_where_they_happened(path: Path) -> None:
    with JournalHooks(path, spec()) as journal:
        await journal.episode_completed(completed(2))
        await journal.incident_happened(RETRIED)
        await journal.episode_completed(completed(1))
    assert kinds(path) == ["header", "episode", "retry", "episode"]
    assert read_journal(path).incidents == (RETRIED.incident,)


async def test_a_real_run_is_journaled_as_it_is_reported(path: Path) -> None:
    facts = spec(max_episodes=4, base_seed=3)
    with JournalHooks(path, facts) as journal:
        report = await play(journal)
    assert read_journal(path).episodes == tuple(report.episodes)
    assert read_journal(path).ending == JournalEnding("ended", "completed requested episodes", report.total_steps, 4)


class Breaking(Hooks):
    """Fails the route in the third episode."""

    async def transform_action(self, event: ActionReceived) -> Leaves:
        if event.episode_record_id == "ep-000003":
            raise LookupError("no such unit")
        return event.action


async def test_a_failed_run_keeps_what_it_finished(path: Path) -> None:
    with JournalHooks(path, spec()) as journal, pytest.raises(HookError) as caught:
        await play(HookGroup(Breaking(), journal), lanes=1)
    report, written = caught.value.report, read_journal(path)
    assert report is not None
    assert len(report.episodes) == 2
    assert written.episodes == tuple(report.episodes)
    assert written.ending == JournalEnding("failed", str(caught.value), None, 2)


def test_every_field_of_a_spec_is_decisive_or_known_not_to_be() -> None:
    facts = run_facts(spec(episode_seeds=(1, 2)), execution_horizon=4, prefetch_lead=1)
    fields = {field.name for field in attrs.fields(SessionSpec)}
    assert fields - UNDECISIVE <= facts.keys()
    assert json.loads(json.dumps(facts)) == facts


@pytest.mark.parametrize(
    "torn", [b'{"kind":"episode","episode_ind', b"{", b"\x00\x00", json.dumps({"kind": "ended"}).encode()]
)
async def test_a_torn_last_line_is_dropped_and_then_cut_off(path: Path, torn: bytes) -> None:
    await write(path, 1, 2, last=torn)
    journal = read_journal(path)
    assert indices(journal.episodes) == [1, 2]
    await write(path, 3, finished=journal.episodes)
    assert kinds(path) == ["header", "episode", "episode", "resumed", "episode"]
    assert indices(read_journal(path).episodes) == [1, 2, 3]


@pytest.mark.parametrize(
    ("line", "why"),
    [
        (b"{not json\n", "line 3: it is not JSON"),
        (b"\n", "line 3: it is not JSON"),
        (b"7\n", "line 3: it is no JSON object"),
        (b"{}\n", "line 3: a journal has no lines of kind None here"),
        (b'{"kind":"surprise"}\n', "line 3: a journal has no lines of kind 'surprise' here"),
        (b'{"kind":"episode"}\n', "line 3: it has no 'episode_index'"),
        (b'{"kind":"quarantine"}\n', "line 3: it has no 'env_index'"),
        (b'{"kind":"ended"}\n', "line 3: it has no 'reason'"),
        (b'{"kind":"resumed"}\n', "line 3: it has no 'run'"),
        (b'{"kind":"resumed","run":7}\n', "line 3: it is no JSON object"),
        (b'{"kind":"header"}\n', "line 3: a journal has no lines of kind 'header' here"),
        (b"\xff\xfe\n", "line 3: it is not JSON"),
    ],
)
async def test_any_other_bad_line_is_named(path: Path, line: bytes, why: str) -> None:
    await write(path, 1, last=line + b"{torn")
    with pytest.raises(InvalidSpec, match=why) as caught:
        read_journal(path)
    assert str(path) in caught.value.why
    assert "\n" not in caught.value.why


async def test_an_episode_stands_in_a_journal_once(path: Path) -> None:
    await write(path, 1, 1)
    with pytest.raises(InvalidSpec, match="line 3: an earlier line has episode 1 already"):
        read_journal(path)


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b'{"kind":"episode"}\n', "line 1: a journal begins with its header"),
        (b'{"kind":"header","schema_version":2}\n', "line 1: schema_version is 2; this build reads 1"),
        (b'{"kind":"header","schema_version":1}\n', "line 1: it has no 'session_id'"),
        (b'{"kind":"header","sche', "has no whole line, and so no finished episode: delete it, and start anew"),
        (b"somebody's notes", "has no whole line"),
    ],
)
def test_a_file_that_is_no_journal_is_refused_and_left_alone(path: Path, content: bytes, why: str) -> None:
    path.write_bytes(content)
    with pytest.raises(InvalidSpec, match=why):
        read_journal(path)
    with pytest.raises(InvalidSpec, match=why):
        JournalHooks(path, spec())
    assert path.read_bytes() == content


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        ({"base_seed": 8}, "base_seed is 7 there and 8 here"),
        ({"session_id": "other"}, "session_id is 'local' there and 'other' here"),
        ({"max_episodes": 9}, "max_episodes is 10 there and 9 here"),
        ({"max_episodes": None}, "max_episodes is 10 there and None here"),
        ({"episode_seeds": tuple(range(1000))}, r"episode_seeds is \[\] there and \[0, 1, 2, 3, 4, 5, \.\.\.\] here"),
        ({"trial_index_base": 5}, "trial_index_base is None there and 5 here"),
        ({"max_episode_seconds": float("inf")}, "max_episode_seconds is None there and 'Infinity' here"),
        ({"seed_route_id": "r"}, "seed_route_id is None there and 'r' here"),
        ({"partial_reset": True}, "partial_reset is False there and True here"),
        ({"num_envs": 3}, "lockstep_lanes is 1 there and 3 here"),
        ({"env_contract": EnvContract("Toy-v0", None, ValueSpace(None, (), b""))}, "observation_space is"),  # pyright: ignore[reportArgumentType]
    ],
)
async def test_the_journal_of_another_run_is_refused(path: Path, fields: dict[str, Any], why: str) -> None:
    await write(path, 1)
    before = content(path)
    with pytest.raises(InvalidSpec, match=f"is of another run: {why}"):
        JournalHooks(path, spec(finished=(episode(1),), **fields))
    assert content(path) == before


async def test_how_a_chunk_is_played_is_part_of_the_run(path: Path) -> None:
    await write(path, 1)
    with pytest.raises(InvalidSpec, match="execution_horizon is 1 there and 4 here"):
        JournalHooks(path, spec(finished=(episode(1),)), execution_horizon=4)
    with pytest.raises(InvalidSpec, match="prefetch_lead is 0 there and 2 here"):
        JournalHooks(path, spec(finished=(episode(1),)), prefetch_lead=2)


async def test_what_does_not_decide_an_episode_may_change(path: Path) -> None:
    await write(path, 1)
    changed = spec(
        finished=(episode(1),), env_id="route-2", num_envs=8, subset_step=True, limits=Limits(env_step_timeout=1)
    )
    with JournalHooks(path, changed) as journal:
        await journal.episode_completed(completed(2))
    assert indices(read_journal(path).episodes) == [1, 2]


async def test_going_on_forgets_how_it_ended_before(path: Path) -> None:
    with JournalHooks(path, spec()) as journal:
        await journal.session_failed(FAILED)
    JournalHooks(path, spec()).close()
    assert read_journal(path).ending is None


async def test_a_journal_is_continued_with_more_episodes_and_knows_it(path: Path) -> None:
    await write(path, 1, episode_seeds=(7, 8), max_episodes=2)
    await write(path, 3, episode_seeds=(7, 8, 9), max_episodes=3, finished=(episode(1),))
    journal = read_journal(path)
    assert (journal.header.run["max_episodes"], journal.header.run["episode_seeds"]) == (3, [7, 8, 9])
    assert indices(journal.episodes) == [1, 3]
    with pytest.raises(InvalidSpec, match="max_episodes is 3 there and 2 here"):
        JournalHooks(path, spec(episode_seeds=(7, 8, 9), max_episodes=2, finished=(episode(1),)))
    with pytest.raises(InvalidSpec, match=r"episode_seeds is \[7, 8, 9\] there and \[7, 8\] here"):
        JournalHooks(path, spec(episode_seeds=(7, 8), max_episodes=3, finished=(episode(1),)))


async def test_a_journal_without_an_episode_begins_anew_for_any_run(path: Path) -> None:
    with JournalHooks(path, spec()) as journal:
        await journal.incident_happened(RETRIED)
        await journal.session_failed(FAILED)
    await write(path, 1, base_seed=8)
    assert kinds(path) == ["header", "episode"]
    assert read_journal(path).header.run["base_seed"] == 8


async def test_a_new_journal_of_a_run_that_goes_on_holds_what_that_recovered_from(path: Path) -> None:
    with JournalHooks(path, spec(finished=(episode(1),)), incidents=(RETRIED.incident,)):
        pass
    assert kinds(path) == ["header", "retry", "episode"]
    assert read_journal(path).incidents == (RETRIED.incident,)
    with JournalHooks(path, spec(finished=(episode(1),)), incidents=(RETRIED.incident,)):
        pass
    assert kinds(path) == ["header", "retry", "episode", "resumed"], "a journal that is continued has them"


async def test_a_disk_that_is_full_for_a_while_costs_no_line(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rlmesh_trio.observers.line_file.FileIO", FullDisk)
    monkeypatch.setattr(FullDisk, "room", 10_000)
    with JournalHooks(path, spec()) as journal:
        await journal.episode_completed(completed(1))
        FullDisk.room = 100
        await journal.episode_completed(completed(2))
        assert journal.failure is not None
        assert indices(read_journal(path).episodes) == [1], "what is cut short is the last line"
        FullDisk.room = 10_000
        await journal.episode_completed(completed(3))
        assert journal.failure is None
    assert indices(read_journal(path).episodes) == [1, 2, 3]


async def test_a_journal_is_not_overwritten_by_a_run_that_does_not_resume_it(path: Path) -> None:
    await write(path, 1, 2)
    with pytest.raises(InvalidSpec, match="holds 2 finished episodes of this run already: resume from it"):
        JournalHooks(path, spec(finished=(episode(1),)))
    assert indices(read_journal(path).episodes) == [1, 2]


async def test_a_new_journal_holds_the_episodes_it_goes_on_from(path: Path) -> None:
    await write(path, 3, finished=(episode(1), episode(2, seed=None)))
    assert read_journal(path).episodes == (episode(1), episode(2, seed=None), episode(3))


async def test_a_run_that_goes_on_leaves_one_journal_of_all_episodes(path: Path) -> None:
    with JournalHooks(path, spec()) as journal, pytest.raises(HookError):
        await play(HookGroup(Breaking(), journal), lanes=1)
    finished = read_journal(path).episodes
    with JournalHooks(path, spec(finished=finished)) as journal:
        report = await play(journal, finished=finished)
    assert indices(finished) == [1, 2]
    assert read_journal(path).episodes == tuple(report.episodes)
    assert read_journal(path).ending == JournalEnding("ended", "completed requested episodes", report.total_steps, 4)


def test_places_that_cannot_hold_a_journal_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidSpec, match="is no regular file"):
        JournalHooks(tmp_path, spec())
    with pytest.raises(InvalidSpec, match=r"cannot be written: there is no folder .*nowhere"):
        JournalHooks(tmp_path / "nowhere" / "run.jsonl", spec())
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(InvalidSpec, match="is no regular file"):
        JournalHooks(tmp_path / "pipe", spec())
    with pytest.raises(InvalidSpec, match="cannot be read: No such file or directory"):
        read_journal(tmp_path / "run.jsonl")


def test_a_killed_process_loses_only_the_episodes_in_flight(path: Path) -> None:
    program = """
        import os, signal, sys, trio
        from rlmesh_trio.hooks import Hooks
        from rlmesh_trio.observers import HookGroup, JournalHooks
        from tests.observers.telling import play, spec

        class Killing(Hooks):
            async def episode_completed(self, event):
                print(event.episode_index, flush=True)
                if event.episode_index == 3:
                    os.kill(os.getpid(), signal.SIGKILL)

        hooks = HookGroup(JournalHooks(sys.argv[1], spec(base_seed=3)), Killing())
        trio.run(lambda: play(hooks, lanes=1, max_episodes=10))
    """
    command = [sys.executable, "-c", textwrap.dedent(program), str(path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == -signal.SIGKILL, done.stderr
    assert done.stdout.split() == ["1", "2", "3"]
    finished = read_finished(path)
    assert indices(finished.episodes) == [1, 2, 3]
    assert all(summary.step_count > 0 for summary in finished.episodes)
