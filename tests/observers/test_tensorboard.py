import struct
from pathlib import Path
from typing import Any

import pytest

from rlmesh_trio.errors import InvalidSpec
from rlmesh_trio.observers import TensorBoardHooks
from tests.observers.telling import ENDED, FAILED, STARTED, completed, play, telemetry

event_pb2: Any = pytest.importorskip("tensorboardX.proto.event_pb2")
crc32c: Any = pytest.importorskip("tensorboardX.record_writer").masked_crc32c


def read_scalars(path: Path) -> dict[str, list[tuple[int, float]]]:
    """The (step, value) pairs by tag of one event file; its checksums are compared."""
    data = path.read_bytes()
    scalars: dict[str, list[tuple[int, float]]] = {}
    while data:
        length, checksum = struct.unpack_from("<QI", data)
        assert checksum == crc32c(data[:8])
        body, checksum = data[12 : 12 + length], struct.unpack_from("<I", data, 12 + length)[0]
        assert checksum == crc32c(body)
        event = event_pb2.Event.FromString(body)
        for value in event.summary.value:
            scalars.setdefault(value.tag, []).append((event.step, value.simple_value))
        data = data[16 + length :]
    return scalars


def files(folder: Path) -> list[Path]:
    return list(folder.iterdir())


def only_file(folder: Path) -> Path:
    (path,) = files(folder)
    assert path.name.startswith("events.out.tfevents.")
    return path


async def test_an_episode_is_a_point_of_each_scalar(tmp_path: Path) -> None:
    hooks = TensorBoardHooks(tmp_path / "new" / "folder")
    await hooks.session_started(STARTED)
    await hooks.episode_completed(completed(2, cumulative_reward=1.5, success=True, duration_ms=250))
    await hooks.episode_completed(completed(1, cumulative_reward=-2.0, predict_ms=None, step_ms=None))
    await hooks.session_ended(ENDED)
    assert read_scalars(only_file(tmp_path / "new" / "folder")) == {
        "episode/return": [(2, 1.5), (1, -2.0)],
        "episode/length": [(2, 10.0), (1, 10.0)],
        "episode/seconds": [(2, 0.25), (1, pytest.approx(0.005))],
        "episode/success": [(2, 1.0)],
        "episode/predict_ms": [(2, pytest.approx(0.2))],
        "episode/step_ms": [(2, 0.5)],
    }


async def test_a_window_is_a_point_of_each_series(tmp_path: Path) -> None:
    hooks = TensorBoardHooks(tmp_path)
    await hooks.session_started(STARTED)
    for event in (telemetry("window", env_step=3), telemetry("window", env_step=4), telemetry("session", env_step=7)):
        await hooks.on_telemetry(event)
    await hooks.session_failed(FAILED)
    assert read_scalars(only_file(tmp_path)) == {
        "telemetry/env.step/env/rpc.total/avg": [(1, 2.0), (2, 2.0)],
        "telemetry/env.step/env/rpc.total/p95": [(1, 4.0), (2, 4.0)],
    }


async def test_every_session_has_its_own_file(tmp_path: Path) -> None:
    hooks = TensorBoardHooks(tmp_path)
    reports = [await play(hooks, base_seed=seed) for seed in (1, 2)]
    returns = sorted(sorted(read_scalars(path)["episode/return"]) for path in files(tmp_path))
    assert returns == sorted(sorted((e.episode_index, e.cumulative_reward) for e in one.episodes) for one in reports)


async def test_outside_a_session_nothing_is_written(tmp_path: Path) -> None:
    await TensorBoardHooks(tmp_path).episode_completed(completed(1))
    assert files(tmp_path) == []


def test_a_folder_that_cannot_be_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(InvalidSpec, match="cannot be made: File exists"):
        TensorBoardHooks(tmp_path / "file")
