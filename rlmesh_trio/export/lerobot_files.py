"""The files of a LeRobot data set: frames, episodes and videos, many episodes to a file, and where each lies."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from rlmesh_trio.export.video import Film, VideoKind
from rlmesh_trio.observers.extras import load_extra

__all__ = (
    "CHUNK_FILES",
    "DATA_MEGABYTES",
    "DATA_PATH",
    "VIDEO_MEGABYTES",
    "VIDEO_PATH",
    "CameraFiles",
    "EpisodeFiles",
    "FrameFiles",
    "frame_array",
    "write_json",
    "write_task",
)

CHUNK_FILES: Final = 1000
DATA_MEGABYTES: Final = 100
VIDEO_MEGABYTES: Final = 200
DATA_PATH: Final = "data/chunk-{chunk_index:03d}/file-{file_index:03d}.parquet"
VIDEO_PATH: Final = "videos/{video_key}/chunk-{chunk_index:03d}/file-{file_index:03d}.mp4"

_EPISODES_PATH: Final = "meta/episodes/chunk-{chunk_index:03d}/file-{file_index:03d}.parquet"
_TASKS_PATH: Final = "meta/tasks.parquet"
_EPISODES_HELD: Final = 100


def write_json(path: Path, document: Mapping[str, Any]) -> None:
    """Write *document* as the file *path*, whose folder is made."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(document, indent=4) + "\n", encoding="utf-8")


def write_task(root: Path, task: str) -> None:
    """Write the table of tasks, which holds *task* alone: pandas takes the task as the index of its row."""
    pa, parquet = _arrow()
    column = {"name": "task", "field_name": "task", "pandas_type": "unicode", "numpy_type": "object", "metadata": None}
    index = {"name": "task_index", "field_name": "task_index", "pandas_type": "int64", "numpy_type": "int64"}
    pandas = {
        "index_columns": ["task"],
        "column_indexes": [],
        "columns": [{**index, "metadata": None}, column],
        "pandas_version": "2.0.0",
    }
    table = pa.table({"task_index": pa.array([0], pa.int64()), "task": pa.array([task], pa.string())})
    path = root / _TASKS_PATH
    path.parent.mkdir(parents=True, exist_ok=True)
    parquet.write_table(table.replace_schema_metadata({"pandas": json.dumps(pandas)}), path)


def frame_array(values: Any, shape: Sequence[int]) -> Any:
    """An Arrow array of *values*, rows of *shape*: numbers or texts, lists of a fixed size, or lists of lists."""
    pa, _ = _arrow()
    if isinstance(values, list):
        return pa.array(values, pa.string())
    array = pa.array(values.reshape(-1))
    if tuple(shape) == (1,):
        return array
    if len(shape) == 1:
        return pa.FixedSizeListArray.from_arrays(array, shape[0])
    for length in reversed(shape):
        array = pa.ListArray.from_arrays(np.arange(0, len(array) + 1, length, dtype=np.int32), array)
    return array


def _arrow() -> tuple[Any, Any]:
    wanted_by = "an export to LeRobot"
    pa = load_extra("pyarrow", extra="lerobot", wanted_by=wanted_by)
    return pa, load_extra("pyarrow.parquet", extra="lerobot", wanted_by=wanted_by)


class FrameFiles:
    """The Parquet files of the frames."""

    def __init__(self, root: Path, *, limit: int = DATA_MEGABYTES << 20) -> None:
        _, self._parquet = _arrow()
        self._root, self._limit = root, limit
        self._files = 0
        self._path = root
        self._writer: Any = None

    def add(self, columns: Mapping[str, Any]) -> dict[str, int]:
        """Write the frames of one episode, Arrow arrays by feature; where they lie."""
        pa, _ = _arrow()
        table = pa.table(dict(columns))
        if self._writer is not None and self._path.stat().st_size >= self._limit:
            self.close()
        if self._writer is None:
            self._path = self._root / DATA_PATH.format(**_place(self._files))
            self._path.parent.mkdir(parents=True, exist_ok=True)
            self._writer = self._parquet.ParquetWriter(self._path, table.schema, compression="zstd")
            self._files += 1
        self._writer.write_table(table)
        return {f"data/{name}": value for name, value in _place(self._files - 1).items()}

    def close(self) -> None:
        """End the file under way."""
        writer, self._writer = self._writer, None
        if writer is not None:
            writer.close()


class CameraFiles:
    """The videos of the camera *key*, whose frames have this *shape*."""

    def __init__(
        self,
        root: Path,
        key: str,
        shape: Sequence[int],
        *,
        fps: int,
        kind: VideoKind,
        limit: int = VIDEO_MEGABYTES << 20,
    ) -> None:
        self._root, self._key, self._fps, self._limit = root, key, fps, limit
        self._kind: VideoKind = kind
        self._height, self._width = shape[:2]
        self._films = 0
        self._film: Film | None = None
        self._first = 0

    def begin(self) -> None:
        """An episode begins."""
        if self._film is not None and self._film.size >= self._limit:
            self.close()
        self._first = self._film.frames if self._film is not None else 0

    def add(self, frame: npt.NDArray[np.uint8]) -> None:
        """The next frame of the episode."""
        if self._film is None:
            path = self._root / VIDEO_PATH.format(video_key=self._key, **_place(self._films))
            self._film = Film(path, fps=self._fps, height=self._height, width=self._width, kind=self._kind)
            self._films += 1
        self._film.add(frame)

    def end(self) -> dict[str, Any]:
        """The episode is over; where its frames lie."""
        assert self._film is not None
        place: dict[str, Any] = {
            **_place(self._films - 1),
            "from_timestamp": self._first / self._fps,
            "to_timestamp": self._film.frames / self._fps,
        }
        return {f"videos/{self._key}/{name}": value for name, value in place.items()}

    def close(self) -> None:
        """End the film under way."""
        film, self._film = self._film, None
        if film is not None:
            film.close()


class EpisodeFiles:
    """The Parquet file of the episodes: a row each."""

    def __init__(self, root: Path) -> None:
        self._pa, self._parquet = _arrow()
        self._place = _place(0)
        self._path = root / _EPISODES_PATH.format(**self._place)
        self._path.parent.mkdir(parents=True, exist_ok=True)
        self._rows: list[dict[str, Any]] = []
        self._writer: Any = None

    def add(self, row: Mapping[str, Any]) -> None:
        """Write one episode."""
        self._rows.append({**row, **{f"meta/episodes/{name}": value for name, value in self._place.items()}})
        if len(self._rows) >= _EPISODES_HELD:
            self._write()

    def _write(self) -> None:
        if self._writer is None:
            found = self._pa.Table.from_pylist(self._rows).schema
            seed = found.get_field_index("seed")
            schema = found.set(seed, self._pa.field("seed", self._pa.int64()))
            self._writer = self._parquet.ParquetWriter(self._path, schema, compression="zstd")
        self._writer.write_table(self._pa.Table.from_pylist(self._rows, schema=self._writer.schema))
        self._rows.clear()

    def close(self) -> None:
        """End the file."""
        if self._rows:
            self._write()
        if self._writer is not None:
            self._writer.close()


def _place(number: int) -> dict[str, int]:
    """Chunk and file of the file of *number*, which counts from 0."""
    return {"chunk_index": number // CHUNK_FILES, "file_index": number % CHUNK_FILES}
