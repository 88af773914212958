"""A recording as a Minari data set (HDF5): written by Minari's own storage, one episode at a time."""

import os
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final, cast

import gymnasium
from gymnasium import spaces
from gymnasium.envs.registration import EnvSpec

from rlmesh_trio.contract import ValueSpace
from rlmesh_trio.errors import SpaceError
from rlmesh_trio.export.destination import appearing_folder
from rlmesh_trio.export.episodes import Exported, Played, Source, open_source, plain_infos, run_facts_of
from rlmesh_trio.export.errors import ExportError
from rlmesh_trio.export.infos import has_place, info_columns
from rlmesh_trio.messages import Leaves
from rlmesh_trio.observers.extras import load_extra
from rlmesh_trio.spaces import codec_for

__all__ = ("export_minari",)

_NAME: Final = re.compile(r"[-\w]+-v\d+")


def export_minari(
    path: str | os.PathLike[str],
    out: str | os.PathLike[str],
    *,
    everything: bool = False,
    force: bool = False,
) -> Exported:
    """Write the recording at *path*, which must be of level ``full``, as the data set *out*; with *force* over one.

    *out* is a folder whose name is the data set's id, ``NAME-v0``: ``minari.load_dataset`` finds it with its parent as
    ``MINARI_DATASETS_PATH``, and ``minari.MinariDataset(out/data)`` anywhere. An episode has its seed, and as metadata
    its ``ordinal`` and ``end``. One that the env did not end (``capped``, ``interrupted``, with *everything* also
    ``error``) ends as truncated. Where the env restarted the lane in the last step, the last observation is unknown:
    the one before stands in its place, and the episode's metadata says ``final_observation_known = False``. Infos are
    there where they are numbers or texts; where a step lacks one it is NaN, or empty.

    Raises :exc:`ExportError`, ``RecordingError``, and ``MissingExtra`` without the extra ``minari``.
    """
    minari = load_extra("minari", extra="minari", wanted_by="an export to Minari")
    storages = load_extra("minari.dataset.minari_storage", extra="minari", wanted_by="an export to Minari")
    buffers = load_extra("minari.data_collector", extra="minari", wanted_by="an export to Minari")
    name = os.path.basename(os.path.realpath(out))
    if not _NAME.fullmatch(name):
        raise ExportError(os.fspath(out), f"a Minari data set is a folder named as its id, as in {_suggested(name)}")
    with (
        open_source(path, everything=everything, observations_for="a Minari data set") as source,
        appearing_folder(out, mark="data/metadata.json", force=force) as draft,
    ):
        _refuse_keys(source)
        env_id = source.recording.header.contract.env_id
        both = source.observation_space.space, source.action_space.space
        storage = storages.MinariStorage.new(
            Path(draft, "data"), *both, _registered(env_id), "hdf5", jpeg_encoding=False
        )
        exported = _write(source, storage, buffers.EpisodeBuffer)
        storage.update_metadata(
            {
                "dataset_id": name,
                "minari_version": minari.__version__,
                "rlmesh_trio": run_facts_of(source.recording),
                "description": f"Recorded by rlmesh_trio from {env_id}.",
            }
        )
        return exported


def _write(source: Source, storage: Any, maker: Any) -> Exported:
    """Write all episodes into *storage*, each as a buffer of Minari's that *maker* makes."""
    episodes = steps = unknown = 0
    left_out: set[str] = set()
    for played in source.played():
        episode = _Episode(source, played)
        storage.update_episodes([episode.buffer(maker)])
        storage.update_episode_metadata([episode.metadata()], [episodes])
        left_out.update(episode.infos_left_out)
        steps += len(episode.taken)
        episodes += 1
        unknown += not episode.final_is_known
    remarks = [*source.remarks]
    if unknown:
        remarks.append(f"episodes whose last observation is not known, the one before in its place: {unknown}")
    if left_out:
        remarks.append(f"infos left out, as they are neither numbers nor texts: {', '.join(sorted(left_out))}")
    return Exported(episodes, steps, tuple(remarks))


def _registered(env_id: str) -> EnvSpec | None:
    """What gymnasium knows of the env here, if it knows it and it can be written down."""
    spec = gymnasium.registry.get(env_id)
    try:
        return EnvSpec.from_json(spec.to_json()) if spec is not None else None
    except Exception:  # it may hold code of any kind
        return None


def _suggested(name: str) -> str:
    return re.sub(r"[^-\w]+", "-", name).strip("-") + "-v0"


def _refuse_keys(source: Source) -> None:
    for space in (source.observation_space.space, source.action_space.space):
        for key in _keys(space):
            if not has_place(key):
                why = f"HDF5 has no place for a key like {key!r}; export to parquet"
                raise ExportError(source.recording.path, why)


def _keys(space: gymnasium.Space[Any]) -> Iterator[str]:
    """The keys of *space*, at any depth."""
    match space:
        case spaces.Dict():
            for key, inner in space.spaces.items():
                yield key
                yield from _keys(inner)
        case spaces.Tuple():
            for inner in cast("Any", space).spaces:
                yield from _keys(inner)
        case _:
            pass


class _Episode:
    """One episode, whole."""

    def __init__(self, source: Source, played: Played) -> None:
        self._source = source
        self._played = played
        self.taken = list(played.transitions())
        self.final_is_known = self.taken[-1].after is not None
        self._infos, self.infos_left_out = info_columns(
            [plain_infos(played.first.infos), *(plain_infos(each.infos) for each in self.taken)]
        )

    def buffer(self, maker: Any) -> Any:
        """It as Minari takes it."""
        taken, played = self.taken, self._played
        last = taken[-1].after or taken[-1].before
        return maker(
            seed=played.seed,
            observations=self._values(self._source.observation_space, [*(each.before for each in taken), last]),
            actions=self._values(self._source.action_space, [each.action for each in taken]),
            rewards=[each.reward for each in taken],
            terminations=[each.terminated for each in taken],
            truncations=[each.truncated for each in taken],
            infos=self._infos,
        )

    def metadata(self) -> dict[str, Any]:
        """What stands beside its values."""
        entry = self._played.entry
        return {"ordinal": entry.ordinal, "end": entry.end, "final_observation_known": self.final_is_known}

    def _values(self, space: ValueSpace, rows: Sequence[Leaves]) -> Any:
        codec = codec_for(space)
        try:
            return codec.unpack_batch(codec.concatenate(rows, [1] * len(rows)), len(rows))
        except SpaceError as error:
            why = f"episode {self._played.entry.ordinal} has a value that does not fit its space: {error}"
            raise ExportError(self._source.recording.path, why) from error
