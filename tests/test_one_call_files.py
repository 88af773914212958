"""One call that writes a journal, and one that goes on from what another left."""

import os
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import attrs
import pytest

from rlmesh_trio import Hooks, Recovery, Report, open_local_env, open_local_model, run_local
from rlmesh_trio.errors import EnvRpcError, InvalidSpec
from rlmesh_trio.events import EpisodeCompleted
from rlmesh_trio.observers import read_journal
from rlmesh_trio.one_call import open_run
from rlmesh_trio.report import EpisodeSummary
from rlmesh_trio.spec import Limits
from rlmesh_trio.testing import Fail, Fault, Hang, ScriptedEnv
from tests.cli.toys import BrokenWalk, Walk


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "run.jsonl"


class Doors:
    """What was opened, in order."""

    def __init__(self, env: Any = Walk, lanes: int = 1) -> None:
        self.opened: list[str] = []
        self._source, self._lanes = env, lanes

    @asynccontextmanager
    async def env(self) -> AsyncGenerator[Any]:
        self.opened.append("env")
        async with open_local_env(self._source, lanes=self._lanes) as env:
            yield env

    @asynccontextmanager
    async def model(self) -> AsyncGenerator[Any]:
        self.opened.append("model")
        async with open_local_model("random") as model:
            yield model


def content(path: Path) -> bytes:
    return path.read_bytes()


async def play(doors: Doors, *, hooks: Hooks | None = None, base_seed: int = 7, **options: Any) -> Report:
    async with open_run(doors.env(), doors.model(), hooks=hooks, base_seed=base_seed, **options) as run:
        return await run.wait()


def outcomes(report: Report) -> list[EpisodeSummary]:
    """The episodes by index, without lane and time."""
    unlike = {"duration_ms": 0, "predict_ms": None, "step_ms": None, "env_index": 0}
    return [attrs.evolve(one, **unlike) for one in sorted(report.episodes, key=lambda one: one.episode_index)]


async def test_a_run_that_failed_goes_on_to_what_it_would_have_been(path: Path) -> None:
    with pytest.raises(EnvRpcError):
        await play(Doors(BrokenWalk), journal=path, max_episodes=5)
    assert len(read_journal(path).episodes) == 1
    report = await play(Doors(lanes=2), journal=path, resume=path, max_episodes=5)
    undisturbed = await play(Doors(), max_episodes=5)
    assert outcomes(report) == outcomes(undisturbed)
    assert (report.total_episodes, report.total_steps) == (undisturbed.total_episodes, undisturbed.total_steps)
    assert read_journal(path).episodes == tuple(report.episodes)


async def test_more_episodes_are_those_of_a_longer_run(path: Path) -> None:
    first = await play(Doors(), journal=path, max_episodes=3)
    longer = await play(Doors(lanes=3), journal=path, resume=path, max_episodes=7)
    assert longer.episodes[:3] == first.episodes
    assert outcomes(longer) == outcomes(await play(Doors(), max_episodes=7))
    with pytest.raises(InvalidSpec, match="max_episodes is 7 there and 3 here"):
        await play(Doors(), resume=path, max_episodes=3)


async def test_nothing_is_opened_for_files_that_cannot_be(path: Path, tmp_path: Path) -> None:
    doors = Doors()
    with pytest.raises(InvalidSpec, match=r"the run to resume .* cannot be read"):
        await play(doors, resume=path, max_episodes=5)
    with pytest.raises(InvalidSpec, match="there is no folder"):
        await play(doors, journal=tmp_path / "gone" / "run.jsonl", max_episodes=5)
    assert doors.opened == []
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"base_seed": 8}, "base_seed is 7 there and 8 here"),
        ({"resume": None}, "holds 2 finished episodes of this run already"),
        ({"resume": None, "base_seed": 8}, "base_seed is 7 there and 8 here"),
        ({"prefetch_lead": 2}, "prefetch_lead is 0 there and 2 here"),
    ],
)
async def test_another_runs_files_are_refused_before_the_model_is_opened(
    path: Path, options: dict[str, Any], told: str
) -> None:
    await play(Doors(), journal=path, max_episodes=2)
    before, doors = content(path), Doors()
    files: dict[str, Any] = {"journal": path, "resume": path}
    with pytest.raises(InvalidSpec, match=told):
        await play(doors, max_episodes=2, **(files | options))
    assert doors.opened == ["env"]
    assert content(path) == before


async def test_the_report_holds_what_the_earlier_run_recovered_from(path: Path) -> None:
    retry = Recovery("retry", 1)
    first = await play(Doors(BrokenWalk), journal=path, max_episodes=2, on_env_error=retry)
    longer = await play(Doors(), resume=path, max_episodes=3)
    assert [one.kind for one in first.incidents] == ["retry"]
    assert longer.incidents == first.incidents
    with pytest.raises(EnvRpcError) as failed:
        await play(Doors(BrokenWalk), resume=path, max_episodes=9, journal=path.with_name("new"))
    assert failed.value.report is not None
    assert failed.value.report.incidents == first.incidents
    assert read_journal(path.with_name("new")).incidents == first.incidents


async def test_who_hears_of_an_episode_may_rely_on_its_line(path: Path) -> None:
    written: list[int] = []

    class Counting(Hooks):
        async def episode_completed(self, event: EpisodeCompleted) -> None:
            written.append(len(read_journal(path).episodes))

    await play(Doors(), journal=path, hooks=Counting(), max_episodes=3)
    assert written == [1, 2, 3]


async def test_the_one_call_form_takes_all_of_it(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    faults = [Fault("step", Fail(), call=1, lane=1), Fault("step", Hang(), call=3, lane=1)]

    @asynccontextmanager
    async def scripted(address: str, **words: Any) -> AsyncGenerator[ScriptedEnv]:
        yield ScriptedEnv(3, 3, faults=faults)

    monkeypatch.setattr("rlmesh_trio.one_call.connect_env", scripted)
    options: dict[str, Any] = {
        "limits": Limits(env_step_timeout=0.05),
        "on_env_error": Recovery("retry"),
        "on_timeout": Recovery("quarantine"),
        "journal": path,
    }
    report = await run_local("zero", "somewhere:1", max_episodes=6, **options)
    assert sorted(one.kind for one in report.incidents) == ["quarantine", "retry"]
    faults.clear()
    longer = await run_local("zero", "somewhere:1", max_episodes=8, resume=path, **options)
    assert longer.episodes[:6] == tuple(sorted(report.episodes, key=lambda one: one.episode_index))
    assert (longer.total_episodes, longer.incidents) == (8, report.incidents)
