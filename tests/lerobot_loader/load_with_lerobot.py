"""LeRobot itself loads what was exported, and pandas the Parquet file. Run by ``make test-lerobot``, beside the suite.

LeRobot needs torch and other versions of some packages than the suite does, so it has a virtual environment of its own.
"""

from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rlmesh_trio.export import export_lerobot, export_parquet
from rlmesh_trio.recording import open_recording
from tests.export.recordings import members, of_each_end, seen, steps_of

CAMERA = "observation.images.camera"


@pytest.fixture(autouse=True)
def hub_out_of_reach(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setenv("HF_HOME", str(tmp_path / "hub"))


def loaded(root: Path, **options: Any) -> Any:
    module = import_module("lerobot.datasets.lerobot_dataset")
    return module.LeRobotDataset("local/exported", root=root, video_backend="pyav", **options)


def test_every_frame_is_the_recorded_step(tmp_path: Path) -> None:
    path, out = seen(tmp_path / "a.mcap"), tmp_path / "data"
    export_lerobot(path, out, fps=10, task="look around")
    dataset = loaded(out)
    assert (dataset.num_episodes, dataset.num_frames, dataset.fps, len(dataset)) == (3, 12, 10, 12)
    index = 0
    with open_recording(path) as recording:
        for place, ordinal in enumerate(recording.entries):
            first, steps = steps_of(recording, ordinal)
            before = members(recording, [first, *steps[:-1]])
            for frame, (step, observation) in enumerate(zip(steps, before, strict=True)):
                item = dataset[index]
                image = np.rint(item[CAMERA].numpy().transpose(1, 2, 0) * 255).astype(np.uint8)
                np.testing.assert_array_equal(image, observation["camera"])
                np.testing.assert_array_equal(item["observation.half"].numpy(), observation["half"])
                np.testing.assert_array_equal(item["observation.place"].numpy(), observation["place"])
                assert item["observation.room"].item() == observation["room"]
                assert item["observation.note"] == observation["note"]
                assert item["next.reward"].item() == pytest.approx(step.reward)
                assert item["next.done"].item() == item["next.truncated"].item() == (frame == 3)
                counted = (item["episode_index"].item(), item["frame_index"].item(), item["index"].item())
                assert (counted, item["task"]) == ((place, frame, index), "look around")
                index += 1


def test_frames_are_found_by_time_and_episode(tmp_path: Path) -> None:
    path, out = seen(tmp_path / "a.mcap"), tmp_path / "data"
    export_lerobot(path, out, fps=10)
    whole, second = loaded(out), loaded(out, episodes=[1])
    assert len(second) == 4
    np.testing.assert_array_equal(second[0][CAMERA].numpy(), whole[4][CAMERA].numpy())
    paired = loaded(out, delta_timestamps={CAMERA: [-0.1, 0.0], "observation.place": [-0.1, 0.0]})
    item = paired[5]
    np.testing.assert_array_equal(item[CAMERA][0].numpy(), whole[4][CAMERA].numpy())
    np.testing.assert_array_equal(item["observation.place"][1].numpy(), whole[5]["observation.place"].numpy())


def test_what_describes_it_is_read(tmp_path: Path) -> None:
    export_lerobot(of_each_end(tmp_path / "a.mcap"), tmp_path / "data", everything=True)
    meta = loaded(tmp_path / "data").meta
    assert meta.episodes["end"][:] == ["terminated", "truncated", "capped", "error", "interrupted"]
    assert meta.episodes["seed"][:] == [41, 42, 43, 44, 46]
    assert meta.stats["observation.state"]["max"].tolist() == [6, 1]
    assert meta.get_task_index("Toy-v0") == 0


def test_pandas_reads_the_parquet_file(tmp_path: Path) -> None:
    path = seen(tmp_path / "a.mcap")
    export_parquet(path, tmp_path / "a.parquet")
    frame: Any = import_module("pandas").read_parquet(tmp_path / "a.parquet")
    assert frame[frame.step > 0].groupby("episode").reward.sum().tolist() == pytest.approx([1.0] * 3)
    with open_recording(path) as recording:
        first, steps = steps_of(recording, 1)
        expected = members(recording, [first, *steps])
    for row, observation in enumerate(expected):
        np.testing.assert_array_equal(frame["observation.place"][row], observation["place"])
        np.testing.assert_array_equal(np.reshape(frame["observation.camera"][row], (32, 35, 3)), observation["camera"])
