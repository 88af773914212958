"""Runs that are recorded by the one call, and that go on from what a recording holds, wherever it ends."""

import os
import random
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
from rlmesh_trio.recording import (
    Decision,
    Footer,
    Header,
    Mishap,
    Record,
    RecordingError,
    RecordingWriter,
    canon,
    open_recording,
    verify,
    why_not_repeatable,
)
from rlmesh_trio.report import EpisodeSummary
from rlmesh_trio.resume import read_finished
from tests.cli.toys import BrokenWalk, Furnished, Walk
from tests.recording.plays import contract_of


@pytest.fixture
def small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Files of a few episodes that have many chunks."""
    defaults = RecordingWriter.__init__.__kwdefaults__
    assert defaults is not None
    monkeypatch.setitem(defaults, "chunk_ticks", 5)


async def play(
    record: Record | None, *, env: Any = "CartPole-v1", lanes: int = 1, episodes: int = 6, **options: Any
) -> tuple[Report, Footer | None]:
    options = {"base_seed": 7, "max_episode_steps": 22} | options
    source = open_local_env(env, lanes=lanes)
    async with open_run(source, open_local_model("random"), record=record, max_episodes=episodes, **options) as run:
        report = await run.wait()
    return report, None if run.recorder is None else run.recorder.footer


def outcomes(report: Report) -> list[EpisodeSummary]:
    """The episodes by index, without lane and time."""
    unlike = {"duration_ms": 0, "predict_ms": None, "step_ms": None, "env_index": 0}
    return [attrs.evolve(one, **unlike) for one in sorted(report.episodes, key=lambda one: one.episode_index)]


def canonical(path: Path) -> bytes:
    out = path.with_suffix(".canon")
    canon(path, out)
    return out.read_bytes()


@pytest.mark.usefixtures("small_chunks")
@pytest.mark.parametrize(("level", "seed"), [("digest", 1), ("full", 2), ("ring=3", 3)])
async def test_a_recording_cut_anywhere_goes_on_to_the_root_of_the_run_that_was_never_killed(
    level: str, seed: int, tmp_path: Path
) -> None:
    chance, path = random.Random(seed), tmp_path / "run.mcap"
    whole_report, whole = await play(Record(path, level), lanes=2)
    assert whole is not None
    assert {entry.end for entry in whole.episodes} == {"terminated", "capped"}
    content, same = path.read_bytes(), canonical(path)
    with open_recording(path) as recording:
        spans = recording.container.spans
    header_end = spans[0].start + spans[0].length
    edges = [span.start + span.length + off for span in chance.sample(spans[1:], 2) for off in (-1, 0, 1)]
    for cut in [header_end, *edges, *(chance.randrange(header_end, len(content)) for _ in range(5)), len(content) - 1]:
        path.write_bytes(content[:cut])
        last = max(span.last for span in spans if span.start + span.length <= cut)
        assert verify(path).footer.ticks == last, "it ends at a whole tick"
        before = read_finished(path).episodes
        report, footer = await play(Record(path, level), lanes=chance.randint(1, 3), resume=path)
        assert footer is not None
        assert footer.run_root == whole.run_root
        assert report.episodes[: len(before)] == before, "they were not played again"
        assert outcomes(report) == outcomes(whole_report)
        assert verify(path).problems == ()
        assert canonical(path) == same
        assert sorted(os.listdir(tmp_path)) == ["run.canon", "run.mcap"]


async def test_a_file_cut_before_its_header_is_whole_cannot_be_resumed_from(tmp_path: Path) -> None:
    path = tmp_path / "run.mcap"
    await play(Record(path))
    path.write_bytes(path.read_bytes()[:200])
    with pytest.raises(RecordingError, match="it was cut off before its header was written"):
        await play(None, resume=path)
    with pytest.raises(InvalidSpec, match="delete it, or name another file"):
        await play(Record(path))


async def test_a_failed_run_goes_on_in_the_same_file_or_another(tmp_path: Path) -> None:
    path, other = tmp_path / "run.mcap", tmp_path / "other.mcap"
    _, whole = await play(Record(tmp_path / "whole.mcap"), env=Walk)
    with pytest.raises(EnvRpcError):
        await play(Record(path), env=BrokenWalk)
    left = path.read_bytes()
    assert len(read_finished(path).episodes) == 1
    _, first = await play(Record(other), env=Walk, lanes=2, resume=path)
    assert path.read_bytes() == left
    report, again = await play(Record(path), env=Walk, resume=path)
    assert whole is not None
    assert first is not None
    assert again is not None
    assert first.run_root == again.run_root == whole.run_root
    assert [summary.success for summary in outcomes(report)] == [bool((one.seed or 0) % 2) for one in outcomes(report)]
    with open_recording(path) as recording:
        assert [episode.end for episode in recording.episodes()].count("error") == 1
        mishaps = [one.what for one in recording if isinstance(one, Decision) and isinstance(one.what, Mishap)]
    assert [mishap.kind for mishap in mishaps] == ["failed", "resumed"]


async def test_more_episodes_are_those_of_a_longer_run(tmp_path: Path) -> None:
    path = tmp_path / "run.mcap"
    await play(Record(path), episodes=2)
    _, longer = await play(Record(path), lanes=3, resume=path, episodes=5)
    _, whole = await play(Record(tmp_path / "whole.mcap"), episodes=5)
    assert longer is not None
    assert whole is not None
    assert longer.run_root == whole.run_root
    with open_recording(path) as recording:
        assert recording.header.settings["max_episodes"] == 5
        assert recording.header.contract.num_envs == 3
    with pytest.raises(InvalidSpec, match="max_episodes is 5 there and 2 here"):
        await play(None, resume=path, episodes=2)


async def test_what_was_recovered_from_is_told_again(tmp_path: Path) -> None:
    path = tmp_path / "run.mcap"
    first, _ = await play(Record(path), env=BrokenWalk, episodes=3, on_env_error=Recovery("retry", 1))
    longer, _ = await play(None, env=Walk, episodes=4, resume=path)
    assert [one.kind for one in first.incidents] == ["retry"]
    assert longer.incidents == first.incidents
    assert longer.episodes[:3] == first.episodes


async def test_a_crash_while_the_old_recording_is_copied_loses_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "run.mcap"
    await play(Record(path), episodes=2)
    before = path.read_bytes()

    def refuse(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", refuse)
    with pytest.raises(RecordingError, match="it cannot be written: No space left on device"):
        await play(Record(path), resume=path, episodes=4)
    assert path.read_bytes() == before
    assert os.listdir(tmp_path) == ["run.mcap"]


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


class Opened:
    """An env that must not be opened, or may, and notes it."""

    def __init__(self, source: Any = Walk) -> None:
        self.opened: list[str] = []
        self._source = source

    @asynccontextmanager
    async def env(self) -> AsyncGenerator[Any]:
        self.opened.append("env")
        async with open_local_env(self._source) as env:
            yield env

    @asynccontextmanager
    async def model(self) -> AsyncGenerator[Any]:
        self.opened.append("model")
        async with open_local_model("zero") as model:
            yield model


@pytest.mark.parametrize(
    ("place", "record", "told"),
    [
        ("gone/a", {}, "there is no folder"),
        (".", {}, "is no regular file"),
        ("a", {"level": "most"}, "the level of a recording is digest, full or ring=K"),
        ("run.mcap", {}, "holds 2 finished episodes already: resume from it, or name another file"),
        ("text", {}, "it is no MCAP file; delete it, or name another file"),
        ("run.mcap", {"level": "full"}, "level digest; this run asks for full"),
        ("b", {"ignored_infos": ("x",)}, r"infos to ignore \[\]; this run asks for \['x'\]"),
    ],
)
async def test_what_cannot_be_recorded_is_refused_before_anything_is_opened(
    place: str, record: dict[str, Any], told: str, tmp_path: Path
) -> None:
    await play(Record(tmp_path / "run.mcap"), env=Walk, episodes=2)
    (tmp_path / "text").write_text("no recording")
    before, opened = contents(tmp_path), Opened()
    resume = tmp_path / "run.mcap" if "this run asks" in told else None
    with pytest.raises(InvalidSpec, match=told):
        async with open_run(
            opened.env(), opened.model(), record=Record(tmp_path / place, **record), resume=resume, max_episodes=2
        ):
            pass
    assert opened.opened == []
    assert contents(tmp_path) == before


async def test_a_leaf_is_named_with_or_without_its_root(tmp_path: Path) -> None:
    for number, name in enumerate(("say", "$.say")):
        path = tmp_path / str(number)
        with pytest.raises(EnvRpcError):  # it has these leaves, and does not show them
            await play(Record(path, unstable_leaves=(name,), ignored_infos=("at",), tolerance="ulp=4"), env=Furnished)
        with open_recording(path) as recording:
            header = recording.header
        assert (header.unstable_leaves, header.ignored_infos, header.tolerance) == (("$.say",), ("at",), "ulp=4")
    opened = Opened(Furnished)
    with pytest.raises(InvalidSpec, match=r"no leaf 'sy' to ignore; it has \$\.bits, "):
        async with open_run(
            opened.env(), opened.model(), record=Record(tmp_path / "x", unstable_leaves=("sy",)), max_episodes=1
        ):
            pass
    assert opened.opened == ["env"]
    assert not (tmp_path / "x").exists()


async def test_the_files_know_of_an_episode_before_anybody_else(tmp_path: Path) -> None:
    seen: list[tuple[int, int]] = []

    class Counting(Hooks):
        async def episode_completed(self, event: EpisodeCompleted) -> None:
            seen.append((event.episode_index, len(read_journal(tmp_path / "run.jsonl").episodes)))

    record = Record(tmp_path / "run.mcap")
    files: dict[str, Any] = {"journal": tmp_path / "run.jsonl", "hooks": Counting()}
    await play(record, env=Walk, episodes=2, **files)
    assert seen == [(1, 1), (2, 2)]
    assert read_finished(tmp_path / "run.mcap").episodes == read_finished(tmp_path / "run.jsonl").episodes
    await play(record, env=Walk, episodes=3, resume=tmp_path / "run.mcap", **files)
    assert read_finished(tmp_path / "run.mcap").episodes == read_finished(tmp_path / "run.jsonl").episodes


async def test_a_canonical_form_says_of_no_run_what_it_finished(tmp_path: Path) -> None:
    await play(Record(tmp_path / "run.mcap"), env=Walk, episodes=2)
    canon(tmp_path / "run.mcap", tmp_path / "canon.mcap")
    with pytest.raises(InvalidSpec, match="does not say what run it is of"):
        await play(None, env=Walk, resume=tmp_path / "canon.mcap")


async def test_the_one_call_form_records(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def local(_address: str, **_: Any) -> Any:
        return open_local_env(Walk)

    monkeypatch.setattr("rlmesh_trio.one_call.connect_env", local)
    path = tmp_path / "run.mcap"
    await run_local("zero", "somewhere:1", max_episodes=2, record=path, record_level="full", base_seed=1)
    report = await run_local(
        "zero", "somewhere:1", max_episodes=3, record=path, record_level="full", resume=path, base_seed=1
    )
    assert report.total_episodes == 3
    with open_recording(path) as recording:
        assert recording.header.level == "full"
        assert sorted(recording.entries) == [1, 2, 3]


def test_why_a_run_need_not_repeat() -> None:
    seeded = Header(contract=contract_of(2), base_seed=5)
    assert why_not_repeatable(seeded) == ()
    assert why_not_repeatable(Header(contract=contract_of(2), settings={"episode_seeds": [1]})) == ()
    timed = attrs.evolve(seeded, settings={"max_episode_seconds": 2.5})
    assert why_not_repeatable(timed) == ("its episodes are capped by the clock, after 2.5 s: cap steps instead",)
    assert why_not_repeatable(Header(contract=contract_of(2))) == (
        "it has no seed: what the env draws is drawn anew each time",
    )
    (by_lane,) = why_not_repeatable(attrs.evolve(seeded, seed_rule="by=lane"))
    assert by_lane.endswith("with 2 lanes only")
    ahead = attrs.evolve(seeded, seed_rule="by=lane", settings={"prefetch_lead": 1})
    assert why_not_repeatable(ahead)[1].endswith("play without prefetch")
    assert why_not_repeatable(attrs.evolve(ahead, seed_rule="by=slot")) == ()
