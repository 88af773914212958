"""A recording as a LeRobot data set of format v3.0: frames in Parquet, cameras as MP4, and what describes them.

A frame is a step: the observation acted on, the action, and what came of it. Many episodes share a file; a file ends
with the episode in which it outgrows its limit. Memory holds one episode, without its images.
"""

import os
from collections.abc import Sequence
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any, Final

import attrs
import numpy as np

from rlmesh_trio.errors import InvalidSpec, SpaceError
from rlmesh_trio.export.destination import appearing_folder
from rlmesh_trio.export.episodes import Exported, Played, Source, Transition, open_source, run_facts_of
from rlmesh_trio.export.errors import ExportError
from rlmesh_trio.export.features import DEFAULT_FEATURES, Feature, action_features, observation_features
from rlmesh_trio.export.lerobot_files import (
    CHUNK_FILES,
    DATA_MEGABYTES,
    DATA_PATH,
    VIDEO_MEGABYTES,
    VIDEO_PATH,
    CameraFiles,
    EpisodeFiles,
    FrameFiles,
    frame_array,
    write_json,
    write_task,
)
from rlmesh_trio.export.statistics import ImageStatistics, Statistics, number_statistics, statistics_of_all
from rlmesh_trio.export.video import VideoKind, video_facts
from rlmesh_trio.messages import Leaf, Metadata
from rlmesh_trio.observers.extras import load_extra

__all__ = ("export_lerobot",)

_FORMAT: Final = "v3.0"

_OUTCOME: Final = {"next.reward": "float64", "next.done": "bool", "next.truncated": "bool"}
_USUAL_FPS: Final = 30
_DEEPEST: Final = 5


def export_lerobot(
    path: str | os.PathLike[str],
    out: str | os.PathLike[str],
    *,
    fps: int | None = None,
    task: str | None = None,
    video: VideoKind = "exact",
    everything: bool = False,
    force: bool = False,
) -> Exported:
    """Write the recording at *path*, which must be of level ``full``, as the data set *out*; with *force* over one.

    *out* is a folder, for ``LeRobotDataset(NAME, root=out)``. A recording has no times: frame ``i`` of an episode gets
    the timestamp ``i / fps``, where *fps* is by default the env's ``render_fps``, or 30. *task* is what the episodes
    are said to be about, by default the env's id. Images become videos: ``exact`` (H.264, lossless RGB), ``small``
    (H.264 4:2:0, which loses, and any player shows), or stay numbers (``none``).

    An observation of one leaf is ``observation.state`` or ``observation.image``. ``next.done`` is true of an episode's
    last frame and ``next.truncated`` besides where it was not terminated, also of one that the env did not end
    (``capped``, ``interrupted``, with *everything* also ``error``). The format has no place for the observation after
    the last step. ``meta/episodes`` has more columns than LeRobot's: ``ordinal``, ``seed``, ``end``.

    Raises :exc:`ExportError`, ``RecordingError``, :exc:`InvalidSpec` for an *fps* below 1, and ``MissingExtra`` without
    the extra ``lerobot``.
    """
    load_extra("pyarrow.parquet", extra="lerobot", wanted_by="an export to LeRobot")
    if fps is not None and fps < 1:
        raise InvalidSpec(f"fps must be 1 or more, not {fps}")
    with (
        open_source(path, everything=everything, observations_for="a LeRobot data set") as source,
        appearing_folder(out, mark="meta/info.json", force=force) as draft,
    ):
        contract = source.recording.header.contract
        dataset = _Dataset(source, Path(draft), fps=fps or _render_fps(contract.metadata), video=video)
        write_task(Path(draft), task or contract.env_id)
        dataset.write(task or contract.env_id)
        return Exported(dataset.episodes, dataset.frames, tuple(source.remarks))


def _render_fps(metadata: Metadata) -> int:
    told = metadata.get("render_fps")
    return round(told) if isinstance(told, int | float) and 1 <= told < 1e6 else _USUAL_FPS


@attrs.define(eq=False)
class _Rows:
    """The leaves of one feature, row by row, of one episode."""

    feature: Feature
    leaves: list[Leaf] = attrs.field(factory=list[Leaf])


class _Dataset:
    """The data set under way."""

    def __init__(self, source: Source, root: Path, *, fps: int, video: VideoKind) -> None:
        self._source, self._root, self._fps = source, root, fps
        self._video: VideoKind = video
        self._observed = observation_features(source.observation_space, cameras=video != "none")
        self._acted = action_features(source.action_space)
        self._check_features()
        self._statistics: dict[str, list[Statistics]] = {}
        self.episodes = self.frames = 0

    def _check_features(self) -> None:
        features = (*self._observed, *self._acted)
        for feature in features:
            leaf = f"the leaf {feature.column.spec.path}"
            if len(feature.shape) > _DEEPEST:
                raise self._refusal(f"{leaf} has {len(feature.shape)} dimensions, and LeRobot takes {_DEEPEST}")
            if 0 in feature.shape:
                raise self._refusal(f"{leaf} has no values, and LeRobot takes one or more")
            if feature.is_camera and self._video == "small" and (feature.shape[0] % 2 or feature.shape[1] % 2):
                raise self._refusal(f"{leaf} has an odd side, and small videos take even ones: --video exact")
        names = [feature.name for feature in features]
        if len(set(names)) < len(names):
            raise self._refusal(f"two of its leaves would have one name: {', '.join(names)}")

    def _refusal(self, why: str) -> ExportError:
        return ExportError(self._source.recording.path, why)

    def write(self, task: str) -> None:
        """Write all episodes, and then what describes them; *task* is that of each."""
        cameras = {feature.name: feature for feature in self._observed if feature.is_camera}
        with ExitStack() as stack:
            frames = stack.enter_context(closing(FrameFiles(self._root)))
            rows = stack.enter_context(closing(EpisodeFiles(self._root)))
            films = {
                name: stack.enter_context(
                    closing(CameraFiles(self._root, name, feature.shape, fps=self._fps, kind=self._video))
                )
                for name, feature in cameras.items()
            }
            for played in self._source.played():
                try:
                    rows.add({**self._episode(played, frames, films), "tasks": [task]})
                except SpaceError as error:
                    ordinal = played.entry.ordinal
                    raise self._refusal(
                        f"episode {ordinal} has a value that does not fit its space: {error}"
                    ) from error
        self._describe()

    def _episode(self, played: Played, frames: FrameFiles, films: dict[str, CameraFiles]) -> dict[str, Any]:
        """Write one episode; its row in the table of episodes."""
        kept, images, outcomes = self._read(played, films)
        values = self._values(kept, outcomes)
        statistics = {name: number_statistics(found) for name, found in values.items() if not isinstance(found, list)}
        statistics |= {name: counted.figures() for name, counted in images.items()}
        for name, told in statistics.items():
            self._statistics.setdefault(name, []).append(told)
        shapes = {feature.name: feature.shape for feature in (*self._observed, *self._acted)}
        columns = {name: frame_array(found, shapes.get(name, (1,))) for name, found in values.items()}
        row: dict[str, Any] = {
            "episode_index": self.episodes,
            "length": len(outcomes),
            "dataset_from_index": self.frames,
            "dataset_to_index": self.frames + len(outcomes),
            "ordinal": played.entry.ordinal,
            "seed": played.seed,
            "end": played.entry.end,
            **frames.add(columns),
        }
        for film in films.values():
            row |= film.end()
        for name, told in statistics.items():
            row |= {f"stats/{name}/{figure}": value.tolist() for figure, value in told.items()}
        self.episodes += 1
        self.frames += len(outcomes)
        return row

    def _read(
        self, played: Played, films: dict[str, CameraFiles]
    ) -> tuple[list[_Rows], dict[str, ImageStatistics], list[Transition]]:
        """Film the images of one episode; its other leaves by feature, its images counted, its steps without leaves."""
        observed = [_Rows(feature) for feature in self._observed]
        acted = [_Rows(feature) for feature in self._acted]
        images = {name: ImageStatistics() for name in films}
        outcomes: list[Transition] = []
        for film in films.values():
            film.begin()
        for transition in played.transitions():
            for rows, leaf in zip(observed, transition.before, strict=True):
                if rows.feature.is_camera:
                    image = rows.feature.column.values([leaf])[0]
                    films[rows.feature.name].add(image)
                    images[rows.feature.name].add(image)
                else:
                    rows.leaves.append(leaf)
            for rows, leaf in zip(acted, transition.action, strict=True):
                rows.leaves.append(leaf)
            outcomes.append(attrs.evolve(transition, before=(), after=None, action=(), infos=None))
        return [*(rows for rows in observed if not rows.feature.is_camera), *acted], images, outcomes

    def _values(self, columns: Sequence[_Rows], outcomes: Sequence[Transition]) -> dict[str, Any]:
        """By feature the values of one episode's frames."""
        count = len(outcomes)
        numbers = np.arange(count)
        done = np.array([each.terminated or each.truncated for each in outcomes])
        outcome = {
            "next.reward": np.array([each.reward for each in outcomes], np.float64),
            "next.done": done,
            "next.truncated": np.array([each.truncated for each in outcomes]),
        }
        default = {
            "timestamp": (numbers / self._fps).astype(np.float32),
            "frame_index": numbers,
            "episode_index": np.full(count, self.episodes),
            "index": numbers + self.frames,
            "task_index": np.zeros(count, np.int64),
        }
        return {rows.feature.name: rows.feature.column.values(rows.leaves) for rows in columns} | outcome | default

    def _describe(self) -> None:
        described = {feature.name: feature.described() for feature in (*self._observed, *self._acted)}
        for feature in described.values():
            if feature["dtype"] == "video":
                feature["info"] = video_facts(self._video, self._fps, feature["shape"])
        for name, dtype in (_OUTCOME | DEFAULT_FEATURES).items():
            described[name] = {"dtype": dtype, "shape": [1], "names": None}
        has_cameras = any(feature.is_camera for feature in self._observed)
        info = {
            "codebase_version": _FORMAT,
            "robot_type": None,
            "total_episodes": self.episodes,
            "total_frames": self.frames,
            "total_tasks": 1,
            "chunks_size": CHUNK_FILES,
            "data_files_size_in_mb": DATA_MEGABYTES,
            "video_files_size_in_mb": VIDEO_MEGABYTES,
            "fps": self._fps,
            "splits": {"train": f"0:{self.episodes}"},
            "data_path": DATA_PATH,
            "video_path": VIDEO_PATH if has_cameras else None,
            "features": described,
        }
        together = {name: statistics_of_all(parts) for name, parts in self._statistics.items()}
        told = {name: {figure: value.tolist() for figure, value in part.items()} for name, part in together.items()}
        write_json(self._root / "meta" / "stats.json", told)
        write_json(self._root / "meta" / "rlmesh_trio.json", run_facts_of(self._source.recording))
        write_json(self._root / "meta" / "info.json", info)
