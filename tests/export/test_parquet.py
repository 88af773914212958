"""What the Parquet file says is what the recording says, row by row; and the file tells the run it is of."""

import json
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rlmesh_trio.errors import SpaceError
from rlmesh_trio.export import ExportError, export_parquet
from rlmesh_trio.export.columns import LeafColumn, leaf_columns
from rlmesh_trio.messages import Leaves
from rlmesh_trio.recording import Header, Recording, Row, open_recording
from tests.export.foreign import pa, pq
from tests.export.recordings import of_each_end, restarted, seen
from tests.recording.plays import DICT, Op, contract_of, plays, recorded, space_of


def expect_rows(table: Any, recording: Recording, entries: Any, level: str) -> None:
    """Compare a whole table with the rows of *entries*."""
    contract = recording.header.contract
    assert contract.action_space is not None
    observed, acted = leaf_columns(space_of(contract), "observation"), leaf_columns(contract.action_space, "action")
    told = iter(table.to_pylist())
    for entry in entries:
        steps, seed = 0, None
        for row in recording.rows(entry.ordinal):
            cells = next(told)
            if row.reset is not None:
                seed = row.reset.seeds[0] if row.reset.seeds else None
            assert (cells["episode"], cells["end"], cells["seed"]) == (entry.ordinal, entry.end, seed)
            assert cells["step"] == (0 if row.reset is not None else steps + 1)
            steps += row.reset is None and row.error is None and row.answered
            expect_outcome(cells, row)
            expect_leaves(cells, acted, row.action)
            if level == "full":
                expect_leaves(cells, observed, row.observation)
            else:
                digests = [cells[leaf.name.replace("observation", "observation_digest")] or b"" for leaf in observed]
                assert b"".join(digests) == row.observation_digests
    assert next(told, None) is None


def expect_outcome(cells: dict[str, Any], row: Row) -> None:
    np.testing.assert_equal(cells["reward"], row.reward)
    assert (cells["terminated"], cells["truncated"]) == (row.terminated, row.truncated)
    assert (cells["error"] is None) == (row.error is None and row.answered)
    assert row.error is None or cells["error"] == row.error.code


def expect_leaves(cells: dict[str, Any], columns: tuple[LeafColumn, ...], leaves: Leaves | None) -> None:
    for place, column in enumerate(columns):
        cell = cells[column.name]
        if leaves is None:
            assert cell is None
        else:
            value = column.values([leaves[place]])[0]
            np.testing.assert_array_equal(np.ravel(cell), np.ravel(value))


@settings(max_examples=40)
@given(plays(), st.sampled_from(["digest", "full", "ring=2"]))
def test_a_table_has_the_rows_of_any_recording(play: tuple[int, list[Op]], level: str) -> None:
    lanes, ops = play
    with tempfile.TemporaryDirectory() as folder:
        path, out = Path(folder, "a.mcap"), Path(folder, "a.parquet")
        footer = recorded(path, ops, Header(contract=contract_of(lanes, DICT)), level)
        if not footer.episodes:
            with pytest.raises(ExportError, match="no episode to export"):
                export_parquet(path, out, everything=True)
            assert not out.exists()
            return
        exported = export_parquet(path, out, everything=True)
        table = pq.read_table(out)
        assert exported.episodes == len(footer.episodes)
        assert exported.steps == sum(row["step"] > 0 and row["error"] is None for row in table.to_pylist())
        with open_recording(path) as recording:
            expect_rows(table, recording, footer.episodes, level)


def test_leaves_have_their_dtypes_and_shapes(tmp_path: Path) -> None:
    export_parquet(seen(tmp_path / "a.mcap"), tmp_path / "a.parquet")
    table = pq.read_table(tmp_path / "a.parquet")
    schema = table.schema
    assert schema.field("observation.camera").type == pa.fixed_shape_tensor(pa.uint8(), (32, 35, 3))
    assert schema.field("observation.half").type == pa.fixed_shape_tensor(pa.float16(), (2, 3))
    assert schema.field("observation.place").type == pa.list_(pa.float32(), 2)
    assert schema.field("observation.room").type == pa.int64()
    assert schema.field("observation.note").type == pa.string()
    assert schema.field('observation["a key"][0]').type == pa.list_(pa.int8(), 3)
    assert schema.field("action").type == pa.int64()
    told = schema.field("observation.camera").metadata
    assert told == {b"path": b"$.camera", b"kind": b"box", b"dtype": b"uint8", b"shape": b"(32, 35, 3)"}
    images = table["observation.camera"].combine_chunks().to_numpy_ndarray()
    assert images.shape == (3 * 5, 32, 35, 3)


def test_a_file_tells_the_run_it_is_of(tmp_path: Path) -> None:
    path = seen(tmp_path / "a.mcap", "digest")
    export_parquet(path, tmp_path / "a.parquet")
    facts = json.loads(pq.read_schema(tmp_path / "a.parquet").metadata[b"rlmesh_trio"])
    with open_recording(path) as recording:
        assert recording.footer is not None
        assert facts["run_root"] == recording.footer.run_root.hex()
    assert (facts["level"], facts["env"]["id"], facts["env"]["num_envs"]) == ("digest", "Toy-v0", 2)
    columns = pq.ParquetFile(tmp_path / "a.parquet").metadata.row_group(0)
    assert {columns.column(i).compression for i in range(columns.num_columns)} == {"ZSTD"}


@pytest.mark.parametrize("limit", ["_GROUP_ROWS", "_GROUP_BYTES"])
def test_row_groups_are_written_as_they_fill(limit: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = seen(tmp_path / "a.mcap")
    export_parquet(path, tmp_path / "a.parquet")
    monkeypatch.setattr(f"rlmesh_trio.export.parquet.{limit}", 4 if limit == "_GROUP_ROWS" else 4 * 32 * 35 * 3)
    export_parquet(path, tmp_path / "b.parquet")
    file = pq.ParquetFile(tmp_path / "b.parquet")
    assert [file.metadata.row_group(i).num_rows for i in range(file.num_row_groups)] == [4, 4, 4, 3]
    assert file.read() == pq.read_table(tmp_path / "a.parquet")


def test_errors_are_left_out_unless_asked_for(tmp_path: Path) -> None:
    path = of_each_end(tmp_path / "a.mcap")
    exported = export_parquet(path, tmp_path / "a.parquet")
    assert (exported.episodes, exported.steps) == (5, 4)
    assert exported.remarks == ("left out: episode 4 that ended in an error; --all exports them too",)
    assert set(pq.read_table(tmp_path / "a.parquet")["episode"].to_pylist()) == {1, 2, 3, 5, 6}
    exported = export_parquet(path, tmp_path / "b.parquet", everything=True)
    assert (exported.episodes, exported.steps, exported.remarks) == (6, 6, ())
    rows = [row for row in pq.read_table(tmp_path / "b.parquet").to_pylist() if row["episode"] == 4]
    assert [(row["step"], row["error"], row["action"]) for row in rows] == [
        (0, None, None),
        (1, None, 1),
        (2, "BUSY", 2),
        (2, None, 2),
        (3, "CONNECTION", 1),
    ]


def test_an_observation_that_is_the_next_episodes_is_null(tmp_path: Path) -> None:
    export_parquet(restarted(tmp_path / "a.mcap"), tmp_path / "a.parquet")
    rows = pq.read_table(tmp_path / "a.parquet").to_pylist()
    assert [(row["episode"], row["step"], row["observation"]) for row in rows] == [
        (1, 0, [1, 0]),
        (1, 1, [1, 1]),
        (1, 2, None),
        (2, 0, [2, 0]),
        (2, 1, [2, 1]),
    ]
    assert [row["seed"] for row in rows] == [41, 41, 41, None, None]


def test_infos_are_json(tmp_path: Path) -> None:
    export_parquet(seen(tmp_path / "a.mcap", lanes=1, count=1, steps=2), tmp_path / "a.parquet")
    infos = pq.read_table(tmp_path / "a.parquet")["infos"].to_pylist()
    assert [json.loads(text) if text else None for text in infos] == [{"a": [1], "b": 1}, {"step": 1}, None]


def test_a_recording_without_its_end_is_exported_as_far_as_it_goes(tmp_path: Path) -> None:
    path, cut = seen(tmp_path / "a.mcap"), tmp_path / "cut.mcap"
    cut.write_bytes(path.read_bytes()[:-100])
    exported = export_parquet(cut, tmp_path / "a.parquet")
    assert exported.episodes == 3
    assert exported.remarks[0].startswith("the recording is not whole: ")
    assert json.loads(pq.read_schema(tmp_path / "a.parquet").metadata[b"rlmesh_trio"])["run_root"] is None


def test_a_value_that_breaks_its_layout_leaves_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> Any:
        raise SpaceError("$.place", "a wrong length")

    path = seen(tmp_path / "a.mcap")
    monkeypatch.setattr(LeafColumn, "values", broken)
    with pytest.raises(ExportError, match=r"a\.mcap: a value does not fit its space: .*a wrong length"):
        export_parquet(path, tmp_path / "a.parquet")
    assert list(tmp_path.iterdir()) == [path]
