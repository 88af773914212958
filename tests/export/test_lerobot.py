"""The files are those of LeRobot's format v3.0, and their values those of the recording."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gymnasium import spaces

from rlmesh_trio.errors import InvalidSpec
from rlmesh_trio.export import ExportError, VideoKind, export_lerobot
from rlmesh_trio.export.lerobot_files import CameraFiles, FrameFiles, frame_array
from rlmesh_trio.recording import Header, open_recording
from tests.export.foreign import av, pq
from tests.export.recordings import member, members, of_each_end, restarted, seen, steps_of
from tests.recording.plays import contract_of, episodes, recorded

CAMERA = "observation.images.camera"


def described(out: Path) -> Any:
    return json.loads((out / "meta" / "info.json").read_text())


def frames_of(out: Path) -> Any:
    return pq.read_table(out / "data" / "chunk-000" / "file-000.parquet")


def episodes_of(out: Path) -> list[dict[str, Any]]:
    return pq.read_table(out / "meta" / "episodes" / "chunk-000" / "file-000.parquet").to_pylist()


def film_of(out: Path, key: str = CAMERA) -> tuple[list[float], Any]:
    """The times of a video's frames, and the frames."""
    with av.open(str(out / "videos" / key / "chunk-000" / "file-000.mp4")) as file:
        decoded = list(file.decode(video=0))
    return [frame.time for frame in decoded], np.stack([frame.to_ndarray(format="rgb24") for frame in decoded])


def test_the_frames_are_the_recorded_steps(tmp_path: Path) -> None:
    path, out = seen(tmp_path / "a.mcap"), tmp_path / "data"
    exported = export_lerobot(path, out, fps=10)
    assert (exported.episodes, exported.steps, exported.remarks) == (3, 12, ())
    rows = frames_of(out).to_pylist()
    times, images = film_of(out)
    assert np.allclose(times, np.arange(12) / 10, atol=1e-4)
    with open_recording(path) as recording:
        contract = recording.header.contract
        assert contract.action_space is not None
        index = 0
        for place, ordinal in enumerate(recording.entries):
            first, steps = steps_of(recording, ordinal)
            before = members(recording, [first, *steps[:-1]])
            for frame, (step, observation) in enumerate(zip(steps, before, strict=True)):
                row = rows[index]
                np.testing.assert_array_equal(images[index], observation["camera"])
                assert row["observation.note"] == observation["note"]
                assert row["observation.room"] == observation["room"]
                for name, value in (
                    ("observation.place", observation["place"]),
                    ("observation.half", observation["half"]),
                    ('observation.["a key"][1]', observation["a key"][1]),
                ):
                    np.testing.assert_array_equal(row[name], value)
                assert row["action"] == member(contract.action_space, step.action)
                assert row["next.reward"] == step.reward
                assert (row["next.done"], row["next.truncated"]) == (frame == 3, frame == 3)
                counted = (row["episode_index"], row["frame_index"], row["index"], row["task_index"])
                assert counted == (place, frame, index, 0)
                assert row["timestamp"] == pytest.approx(frame / 10)
                index += 1
    assert index == len(rows)


def test_what_is_described_is_what_is_there(tmp_path: Path) -> None:
    out = tmp_path / "data"
    export_lerobot(seen(tmp_path / "a.mcap"), out, fps=10, task="look around")
    info, frames = described(out), frames_of(out)
    totals = (info["codebase_version"], info["total_episodes"], info["total_frames"], info["total_tasks"], info["fps"])
    assert totals == ("v3.0", 3, 12, 1, 10)
    assert info["splits"] == {"train": "0:3"}
    features = info["features"]
    assert features.keys() == {*frames.column_names, CAMERA}
    assert (features[CAMERA]["dtype"], features[CAMERA]["shape"]) == ("video", [32, 35, 3])
    assert features["observation.half"] == {"dtype": "float16", "shape": [2, 3], "names": None}
    assert features["action"] == {"dtype": "int64", "shape": [1], "names": None}
    with av.open(str(out / info["video_path"].format(video_key=CAMERA, chunk_index=0, file_index=0))) as film:
        stream, told = film.streams.video[0], features[CAMERA]["info"]
        assert (told["video.height"], told["video.width"], told["video.fps"]) == (stream.height, stream.width, 10)
        assert (told["video.codec"], told["video.pix_fmt"]) == (stream.codec.canonical_name, stream.pix_fmt)
    tasks = pq.read_table(out / "meta" / "tasks.parquet")
    assert tasks.to_pylist() == [{"task_index": 0, "task": "look around"}]
    assert json.loads(tasks.schema.metadata[b"pandas"])["index_columns"] == ["task"]
    assert json.loads((out / "meta" / "rlmesh_trio.json").read_text())["env"]["id"] == "Toy-v0"


def test_an_episode_tells_where_its_frames_are(tmp_path: Path) -> None:
    out = tmp_path / "data"
    export_lerobot(seen(tmp_path / "a.mcap"), out, fps=10)
    rows = episodes_of(out)
    for place, row in enumerate(rows):
        assert (row["episode_index"], row["length"], row["tasks"]) == (place, 4, ["Toy-v0"])
        assert (row["dataset_from_index"], row["dataset_to_index"]) == (4 * place, 4 * place + 4)
        assert row[f"videos/{CAMERA}/from_timestamp"] == pytest.approx(0.4 * place)
        assert row[f"videos/{CAMERA}/to_timestamp"] == pytest.approx(0.4 * place + 0.4)
        for files in ("data", "meta/episodes", f"videos/{CAMERA}"):
            assert (row[f"{files}/chunk_index"], row[f"{files}/file_index"]) == (0, 0)
        assert (row["ordinal"], row["seed"], row["end"]) == (place + 1, place + 41, "truncated")


def test_statistics_are_those_of_the_values(tmp_path: Path) -> None:
    out = tmp_path / "data"
    export_lerobot(seen(tmp_path / "a.mcap"), out)
    stats = json.loads((out / "meta" / "stats.json").read_text())
    values = np.array(frames_of(out)["observation.place"].to_pylist())
    told = stats["observation.place"]
    for name, expected in (("min", values.min(0)), ("max", values.max(0)), ("mean", values.mean(0))):
        assert np.allclose(told[name], expected)
    assert np.allclose(told["std"], values.std(0))
    assert told["count"] == [12]
    _, images = film_of(out)
    channels = images.reshape(-1, 3) / 255
    seen_by = stats[CAMERA]
    for name, expected in (("min", channels.min(0)), ("max", channels.max(0)), ("mean", channels.mean(0))):
        assert np.allclose(np.ravel(seen_by[name]), expected)
    assert np.allclose(np.ravel(seen_by["std"]), channels.std(0))
    assert np.shape(seen_by["q50"]) == (3, 1, 1)
    row = episodes_of(out)[1]
    assert np.allclose(row["stats/observation.place/q50"], np.quantile(values[4:8], 0.5, axis=0))
    part = images[4:8].reshape(-1, 3) / 255
    assert np.allclose(np.ravel(row[f"stats/{CAMERA}/q90"]), np.quantile(part, 0.9, axis=0), atol=1 / 255)


def test_how_each_episode_ended(tmp_path: Path) -> None:
    out = tmp_path / "data"
    exported = export_lerobot(of_each_end(tmp_path / "a.mcap"), out, everything=True)
    assert (exported.episodes, exported.steps) == (5, 6)
    assert exported.remarks == (
        "left out: episode 5 without a step",
        "told as truncated: 2 episodes (4, 6) that an interruption or an error cut off",
    )
    rows = frames_of(out).to_pylist()
    assert [row["observation.state"] for row in rows] == [[1, 0], [2, 0], [3, 0], [4, 0], [4, 1], [6, 0]]
    assert [row["next.done"] for row in rows] == [True, True, True, False, True, True]
    assert [row["next.truncated"] for row in rows] == [False, True, True, False, True, True]
    assert [row["end"] for row in episodes_of(out)] == ["terminated", "truncated", "capped", "error", "interrupted"]
    info = described(out)
    assert (info["video_path"], info["fps"]) == (None, 30)


def test_a_restarted_lane_loses_no_frame(tmp_path: Path) -> None:
    export_lerobot(restarted(tmp_path / "a.mcap"), tmp_path / "data")
    assert [row["observation.state"] for row in frames_of(tmp_path / "data").to_pylist()] == [[1, 0], [1, 1], [2, 0]]
    assert [row["seed"] for row in episodes_of(tmp_path / "data")] == [41, None]


def image_recording(path: Path, shape: tuple[int, ...] = (32, 34, 3), steps: int = 3) -> Path:
    space = spaces.Box(0, 255, shape, np.uint8)
    ops = episodes(1, 2, steps, observation=space)
    recorded(path, ops, Header(contract=contract_of(1, space)), "full")
    return path


def test_a_small_video_is_small(tmp_path: Path) -> None:
    path = image_recording(tmp_path / "a.mcap")
    kinds: tuple[VideoKind, ...] = ("exact", "small", "none")
    for kind in kinds:
        export_lerobot(path, tmp_path / kind, video=kind)
    _, exact = film_of(tmp_path / "exact", "observation.image")
    _, small = film_of(tmp_path / "small", "observation.image")
    assert (exact != small).any()
    told = described(tmp_path / "small")["features"]["observation.image"]["info"]
    with av.open(str(tmp_path / "small" / "videos" / "observation.image" / "chunk-000" / "file-000.mp4")) as film:
        assert film.streams.video[0].pix_fmt == told["video.pix_fmt"] == "yuv420p"
    numbers = np.array(frames_of(tmp_path / "none")["observation.state"].to_pylist())
    np.testing.assert_array_equal(numbers, exact)
    assert not (tmp_path / "none" / "videos").exists()


@pytest.mark.parametrize(
    ("shape", "video", "why"),
    [
        ((33, 34, 3), "small", r"the leaf \$ has an odd side, and small videos take even ones"),
        ((3, 0), "exact", r"the leaf \$ has no values, and LeRobot takes one or more"),
        ((2, 2, 2, 2, 2, 2), "exact", r"the leaf \$ has 6 dimensions, and LeRobot takes 5"),
    ],
)
def test_what_the_format_cannot_hold_is_refused(
    shape: tuple[int, ...], video: VideoKind, why: str, tmp_path: Path
) -> None:
    path = image_recording(tmp_path / "a.mcap", shape, 1)
    with pytest.raises(ExportError, match=why):
        export_lerobot(path, tmp_path / "data", video=video)
    assert list(tmp_path.iterdir()) == [path]


def test_a_recording_that_cannot_be_exported_is_refused(tmp_path: Path) -> None:
    path = seen(tmp_path / "a.mcap", "digest")
    with pytest.raises(ExportError, match=r"its level is digest, and a LeRobot .*--record-level full"):
        export_lerobot(path, tmp_path / "data")
    with pytest.raises(InvalidSpec, match="fps must be 1 or more"):
        export_lerobot(path, tmp_path / "data", fps=0)
    empty = tmp_path / "empty.mcap"
    ops = [op for op in episodes(1, 1, 1) if op.is_reset]
    recorded(empty, ops, Header(contract=contract_of(1)), "full")
    with pytest.raises(ExportError, match="it holds no episode to export; left out: episode 1 without a step"):
        export_lerobot(empty, tmp_path / "data")
    assert not (tmp_path / "data").exists()


def test_files_end_where_they_outgrow_their_limit(tmp_path: Path) -> None:
    frames = FrameFiles(tmp_path, limit=1)
    places = [frames.add({"index": frame_array(np.arange(3), (1,))}) for _ in range(3)]
    frames.close()
    assert [place["data/file_index"] for place in places] == [0, 1, 2]
    assert len(list((tmp_path / "data" / "chunk-000").iterdir())) == 3
    camera = CameraFiles(tmp_path, "camera", (32, 32, 3), fps=5, kind="exact", limit=1)
    lying: list[dict[str, Any]] = []
    for _ in range(2):
        camera.begin()
        for level in range(3):
            camera.add(np.full((32, 32, 3), level, np.uint8))
        lying.append(camera.end())
    camera.close()
    assert [place["videos/camera/file_index"] for place in lying] == [0, 1]
    assert [place["videos/camera/from_timestamp"] for place in lying] == [0, 0]
    assert film_of(tmp_path, "camera")[1][:, 0, 0, 0].tolist() == [0, 1, 2]
