"""What is shown of a run and of an episode, whatever was recorded of them, and what is drawn."""

import json
import math
from pathlib import Path

import attrs
import pytest

from rlmesh_trio.cli.report_json import json_text
from rlmesh_trio.recording import Header, Mishap, RecordingError, RecordingWriter, open_recording
from rlmesh_trio.replay.plots import Panel, Series, episode_panels, run_panels, terminal_plot, write_png
from rlmesh_trio.replay.shown import EpisodeShown, RunShown, episode_document, run_document, show_episode, show_run
from tests.recording.plays import DICT, Op, contract_of, episodes, record, recorded


def begin(ordinal: int, value: float = 0.5) -> Op:
    return Op((0,), ((value, value),), (ordinal,), (ordinal + 40,), True)


def step(reward: float = 1.0, *, flag: int = 0, value: float = 0.25, capped: bool = False) -> Op:
    return Op((0,), ((value, value),), actions=(1,), rewards=(reward,), flags=(flag,), capped=capped)


def failed(code: str) -> Op:
    return Op((0,), actions=(1,), refused=code)


def shown(path: Path, ops: list[Op], level: str = "full") -> EpisodeShown:
    recorded(path, ops, Header(contract=contract_of(1)), level)
    with open_recording(path) as recording:
        return show_episode(recording, 1)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "run.mcap"


def run_of(path: Path) -> RunShown:
    with open_recording(path) as recording:
        return show_run(recording)


def test_a_run_shows_last_attempts_by_ordinal_and_what_befell_it(path: Path) -> None:
    with RecordingWriter(path, Header(contract=contract_of(1))) as writer:
        for op in (begin(2), step(), begin(1), step(3.0, flag=1)):
            record(writer, op)
        writer.record_decision(7, Mishap("retry", 2, 1, "EnvRpcError", "gone"))
        for op in (begin(2), step(), step(flag=2)):
            record(writer, op)
    run = run_of(path)
    assert [(one.ordinal, one.attempt, one.steps, one.end) for one in run.episodes] == [
        (1, 0, 1, "terminated"),
        (2, 1, 2, "truncated"),
    ]
    assert [(one.ordinal, one.end) for one in run.given_up] == [(2, "interrupted")]
    assert [(one.tick, getattr(one.what, "kind", "")) for one in run.mishaps] == [(4, "retry")]
    assert (run.ticks, run.damage, len(run.run_root)) == (7, "", 16)


def test_a_file_without_its_end_shows_what_is_whole(path: Path) -> None:
    recorded(path, episodes(1, 2, 3), Header(contract=contract_of(1)), chunk_ticks=3)
    path.write_bytes(path.read_bytes()[:-1200])
    run = run_of(path)
    assert run.damage
    assert run.run_root == b""
    assert sum(one.steps for one in run.episodes) == run.ticks - len(run.episodes) > 0


def test_steps_have_values_sums_and_marks(path: Path) -> None:
    ops = [begin(1), step(1.5), failed("BUSY"), failed(""), step(2.0, capped=True)]
    episode = shown(path, ops)
    told = [(one.step, one.reward, one.cumulative_reward, one.marks) for one in episode.steps]
    assert told == [
        (0, None, 0.0, ("reset",)),
        (1, 1.5, 1.5, ()),
        (2, None, 1.5, ("BUSY",)),
        (3, None, 1.5, ("unanswered",)),
        (4, 2.0, 3.5, ("capped",)),
    ]
    assert episode.observation(episode.steps[1])["obs"].tolist() == [0.25, 0.25]
    assert episode.action(episode.steps[1])["action"].tolist() == 1
    assert episode.action(episode.steps[0]) == {}


def test_at_level_digest_there_are_digests_by_leaf_alone(path: Path) -> None:
    recorded(path, episodes(1, 1, 2, observation=DICT), Header(contract=contract_of(1, DICT)))
    with open_recording(path) as recording:
        episode = show_episode(recording, 1)
    assert all(one.observation is None and len(one.digests) == 3 for one in episode.steps)
    assert [panel.title for panel in episode_panels(episode)] == ["reward", "cumulative reward"]


def test_at_level_ring_the_last_observations_of_an_error_are_shown(path: Path) -> None:
    ops = [begin(1), step(value=0.1), step(value=0.2), step(value=0.3), failed("INTERNAL")]
    episode = shown(path, ops, level="ring=2")
    assert episode.episode.end == "error"
    values = [episode.observation(one).get("obs") for one in episode.steps]
    assert [None if value is None else round(float(value[0]), 2) for value in values] == [None, None, 0.2, 0.3, None]


def test_a_leaf_that_does_not_fit_its_space_is_shown_as_its_bytes(path: Path) -> None:
    episode = shown(path, [begin(1), step(flag=1)])
    short, double = (attrs.evolve(episode.steps[1], observation=leaves) for leaves in ((b"abc",), (b"abc", b"")))
    assert episode.observation(short) == {"obs": b"abc"}
    assert episode.observation(double) == {"obs[0]": b"abc", "obs[1]": b""}


def test_documents_are_strict_json_and_complete(path: Path) -> None:
    header = Header(contract=contract_of(2, DICT), settings={"max_steps": 3}, machine={"cpu": "x"}, base_seed=4)
    recorded(path, episodes(2, 3, 4, observation=DICT), header, "full")
    with open_recording(path) as recording:
        run = json.loads(json_text(run_document(show_run(recording))))
        episode = json.loads(json_text(episode_document(show_episode(recording, 2))))
    assert [one["ordinal"] for one in run["episodes"]] == [1, 2, 3]
    assert (run["base_seed"], run["settings"], run["contract"]["lanes"]) == (4, {"max_steps": 3}, 2)
    assert run["contract"]["autoreset_mode"] == "DISABLED"
    assert len(episode["rows"]) == episode["steps"] + 1 == 5
    assert episode["root"] == run["episodes"][1]["root"]
    assert set(episode["rows"][1]["observation"]) == {"obs.note", "obs.place", "obs.room"}
    assert isinstance(episode["rows"][1]["observation"]["obs.note"], str)


def test_panels_have_rewards_small_leaves_and_the_end(path: Path) -> None:
    recorded(path, episodes(1, 1, 3, observation=DICT), Header(contract=contract_of(1, DICT)), "full")
    with open_recording(path) as recording:
        panels = episode_panels(show_episode(recording, 1))
    assert [panel.title for panel in panels] == ["reward", "cumulative reward", "obs.place", "obs.room"]
    line, end = panels[1].series
    assert line.x == (1, 2, 3)
    assert line.y == pytest.approx((0.1, 0.3, 0.6))
    assert (end.label, end.kind, end.x, end.y) == ("truncated", "points", (3,), line.y[-1:])
    assert [(series.label, series.x) for series in panels[2].series] == [("[0]", (0, 1, 2, 3)), ("[1]", (0, 1, 2, 3))]


def test_what_is_not_finite_is_left_out_of_a_plot(path: Path) -> None:
    episode = shown(path, [begin(1, math.nan), step(1.0), step(math.inf, value=math.nan), step(2.0, flag=1)])
    panels = episode_panels(episode)
    assert [panel.series[0].x for panel in panels] == [(1, 3), (1,), (1, 3)]
    plot = terminal_plot(panels, width=60, color=False)
    assert len(plot.splitlines()) == 33


def test_a_run_is_drawn_by_how_its_episodes_ended(path: Path) -> None:
    recorded(path, [begin(1), step(4.0, flag=1), begin(2), step(5.0), step(flag=2)], Header(contract=contract_of(1)))
    returns, lengths = run_panels(run_of(path))
    assert [(series.label, series.x, series.y) for series in returns.series] == [
        ("terminated", (1,), (4.0,)),
        ("truncated", (2,), (6.0,)),
    ]
    assert [series.y for series in lengths.series] == [(1.0,), (2.0,)]
    recorded(path, [], Header(contract=contract_of(1)))
    assert run_panels(run_of(path)) == []


@pytest.mark.parametrize("width", [40, 80, 120])
def test_a_plot_is_as_wide_as_it_may_be_and_plain_if_asked(width: int) -> None:
    x = tuple(range(20_000))
    spike = tuple(1e6 if place == 7_777 else math.sin(place / 900) for place in x)
    panel = Panel(title="reward", x_label="step", y_label="reward", series=(Series(x=x, y=spike),))
    plain = terminal_plot([panel], width=width, color=False)
    assert max(map(len, plain.splitlines())) == width
    assert "\x1b" not in plain
    assert "1e+06" in plain, "the highest value is drawn however many there are"
    assert "19999" in plain
    assert "\x1b[" in terminal_plot([panel], width=width, color=True)


def test_a_picture_is_a_png_or_says_in_one_line_why_not(path: Path, tmp_path: Path) -> None:
    panels = episode_panels(shown(path, [begin(1), step(), step(flag=1)]))
    write_png(panels, tmp_path / "out", title="one")
    assert (tmp_path / "out").read_bytes().startswith(b"\x89PNG")
    with pytest.raises(RecordingError, match=r"no/out\.png: it cannot be written: No such file or directory"):
        write_png(panels, tmp_path / "no" / "out.png", title="one")
