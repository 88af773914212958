"""The files are plain MCAP: the standard library reads them, and google protobuf their messages by their schemas."""

from pathlib import Path
from typing import Any

import pytest
from google.protobuf import descriptor_pb2, descriptor_pool, json_format, message_factory
from mcap.reader import make_reader
from mcap.stream_reader import StreamReader

from rlmesh_trio.messages import EnvReply, ResetRequest
from rlmesh_trio.observers import MissingExtra
from rlmesh_trio.recording import (
    Batch,
    BatchRow,
    Header,
    Mishap,
    RecordingError,
    RecordingWriter,
    open_recording,
    verify,
)
from tests.recording.plays import Op, contract_of, episodes, record, recorded


def messages(path: Path) -> list[tuple[str, int, Any]]:
    """Topic, log time and what google reads, with nothing but the file at hand."""
    found: list[tuple[str, int, Any]] = []
    with path.open("rb") as stream:
        for schema, channel, message in make_reader(stream, validate_crcs=True).iter_messages():
            assert schema is not None
            pool = descriptor_pool.DescriptorPool()
            for file in descriptor_pb2.FileDescriptorSet.FromString(schema.data).file:
                pool.Add(file)
            kind = message_factory.GetMessageClass(pool.FindMessageTypeByName(schema.name))
            told: Any = json_format.MessageToDict(kind.FromString(message.data), preserving_proto_field_name=True)
            found.append((channel.topic, message.log_time, told))
    return found


def test_a_recording_explains_itself(tmp_path: Path) -> None:
    path = tmp_path / "run.mcap"
    with RecordingWriter(
        path, Header(contract=contract_of(1), machine={"cpu": "x"}, settings={"b": 1}), "full"
    ) as writer:
        for op in episodes(1, 1, 2):
            record(writer, op)
        writer.record_decision(5, Batch((BatchRow(1, 2, 0, 1),), 77))
        writer.record_decision(6, Mishap("retry", 1, 1, "EnvRpcError", "lost"))
    told = messages(path)
    assert [(topic, time) for topic, time, _ in told] == [
        ("/run", 0),
        ("/tick", 1),
        ("/tick", 2),
        ("/tick", 3),
        ("/episode", 3),
        ("/decision", 3),
        ("/decision", 3),
        ("/run", 3),
    ]
    header = told[0][2]["header"]
    assert header["contract"]["spec"]["id"] == "Toy-v0"
    assert (header["machine"], header["settings"]) == ({"cpu": "x"}, '{"b":1}')
    reset, step, episode = told[1][2], told[2][2], told[4][2]
    assert reset["begins"] == ["1"]
    assert reset["request"]["reset"]["seeds"] == ["41"]
    assert reset["response"]["reset"]["infos"]["entries"]["b"] == {"integer": "1"}
    assert step["episodes"] == ["1"]
    assert step["response"]["step"]["rewards"] == [0.1]
    assert len(step["response"]["step"]["observation"]["leaves"]) == 1
    assert (episode["ordinal"], episode["seed"], episode["steps"], episode["end"]) == ("1", "41", "2", "END_TRUNCATED")
    batch = {"ordinals": ["1"], "steps": ["2"], "requests": [0], "frames": [1], "took_ns": "77"}
    assert told[5][2] == {"unix_ns": "5", "batch": batch}
    assert told[6][2]["incident"]["error"] == "EnvRpcError"
    footer = told[7][2]["footer"]
    assert footer["episodes"][0]["root"] == episode["root"]


def test_the_library_finds_every_checksum_right(tmp_path: Path) -> None:
    recorded(tmp_path / "run.mcap", episodes(3, 9, 5), Header(contract=contract_of(3)), chunk_ticks=7)
    with (tmp_path / "run.mcap").open("rb") as stream:
        assert len(list(StreamReader(stream, validate_crcs=True).records)) > 60
    with (tmp_path / "run.mcap").open("rb") as stream:
        summary = make_reader(stream).get_summary()
        assert summary is not None
        assert summary.statistics is not None
        assert summary.statistics.channel_message_counts == {1: 2, 2: 9, 3: 54}
        assert summary.statistics.chunk_count == len(summary.chunk_indexes) == 9


def test_less_than_full_keeps_no_values_of_observations(tmp_path: Path) -> None:
    recorded(tmp_path / "run.mcap", episodes(1, 1, 2), Header(contract=contract_of(1)))
    step = messages(tmp_path / "run.mcap")[2][2]
    assert step["response"]["step"].keys() == {"rewards", "terminated_mask", "truncated_mask"}
    assert step.keys() >= {"observation_digests", "info_digests"}


def test_the_newest_observations_of_an_episode_that_fails_are_kept(tmp_path: Path) -> None:
    ops = [*episodes(1, 1, 9)[:-1], Op((0,), actions=(1,), refused="CRASHED")]
    recorded(tmp_path / "run.mcap", ops, Header(contract=contract_of(1)), "ring=3")
    (episode,) = [told for topic, _, told in messages(tmp_path / "run.mcap") if topic == "/episode"]
    assert (episode["end"], episode["error_code"], episode["steps"]) == ("END_ERROR", "CRASHED", "8")
    assert [kept["tick"] for kept in episode["kept"]] == ["7", "8", "9"]
    assert all(len(kept["observation"]["leaves"]) == 1 for kept in episode["kept"])


@pytest.mark.parametrize("package", ["zstandard", "xxhash"])
def test_a_missing_package_is_named_with_the_extra_that_brings_it(
    package: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("zstandard", "xxhash"):
        if name.partition(".")[0] == package:
            monkeypatch.setitem(__import__("sys").modules, name, None)
    with pytest.raises(MissingExtra) as caught:
        RecordingWriter(tmp_path / "run.mcap", Header(contract=contract_of(1)))
    assert str(caught.value) == (
        f"a recording needs the package {package}, which is not installed: pip install 'rlmesh_trio[mcap]'"
    )
    assert not (tmp_path / "run.mcap").exists()


@pytest.mark.parametrize("place", ["/dev/full", "/nowhere/run.mcap", "/"])
def test_a_place_that_cannot_be_written_is_refused(place: str) -> None:
    with pytest.raises(RecordingError, match=f"recording {place}: it cannot be written: "):
        RecordingWriter(place, Header(contract=contract_of(1)))


def test_a_disk_that_fills_up_is_one_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    def record_something() -> None:
        with RecordingWriter(tmp_path / "run.mcap", Header(contract=contract_of(1))) as writer:
            monkeypatch.setattr("rlmesh_trio.recording.mcap_file.McapFile.flush", full)
            writer.flush()

    with pytest.raises(RecordingError, match="it cannot be written: No space left on device"):
        record_something()
    with open_recording(tmp_path / "run.mcap") as recording:
        assert recording.footer is None


def test_an_answer_with_leaves_beyond_number_is_recorded(tmp_path: Path) -> None:
    with RecordingWriter(tmp_path / "run.mcap", Header(contract=contract_of(1)), "full") as writer:
        writer.record_reset(ResetRequest(), EnvReply(observation=[b"x"] * 5000), (1,))
        writer.record_step([b"y"] * 5000, EnvReply(observation=[b"x"] * 5000, rewards=(1.0,)))
    assert verify(tmp_path / "run.mcap").problems == ()
