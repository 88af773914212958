"""Whatever is recorded is read back, agrees with itself, and survives being cut off, repaired and made canonical."""

import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rlmesh_trio.errors import EndpointError
from rlmesh_trio.messages import EnvReply
from rlmesh_trio.recording import (
    Decision,
    Episode,
    Header,
    Mishap,
    RecordingError,
    RecordingWriter,
    Tick,
    canon,
    open_recording,
    repair,
    verify,
)
from rlmesh_trio.recording.message_codec import encode_episode
from rlmesh_trio.recording.tick_codec import encode_tick
from rlmesh_trio.replay.shown import show_run
from rlmesh_trio.spaces import contract_from_gymnasium
from tests.recording.plays import BOX, DICT, Op, contract_of, plays, record, recorded

LEVELS = st.sampled_from(["digest", "full", "ring=2"])


@settings(max_examples=30)
@given(plays(), LEVELS, st.sampled_from([(), ("$.place",)]))
def test_what_is_recorded_is_whole_in_every_form(
    play: tuple[int, list[Op]], level: str, unstable: tuple[str, ...]
) -> None:
    lanes, ops = play
    with tempfile.TemporaryDirectory() as folder:
        path, again, repaired = (Path(folder, name) for name in ("a.mcap", "b.mcap", "c.mcap"))
        footer = recorded(path, ops, Header(contract=contract_of(lanes, DICT), unstable_leaves=unstable), level)
        assert verify(path).problems == ()
        assert verify(path).footer == footer
        assert repair(path, repaired) == footer
        assert repaired.read_bytes() == path.read_bytes()
        assert canon(path, again).run_root == footer.run_root
        assert verify(again).problems == ()
        canon(again, repaired)
        assert repaired.read_bytes() == again.read_bytes()


@settings(max_examples=30)
@given(plays(), LEVELS, st.data())
def test_a_run_that_was_killed_and_went_on_has_the_root_of_one_that_never_was(
    play: tuple[int, list[Op]], level: str, data: st.DataObject
) -> None:
    lanes, ops = play
    header = Header(contract=contract_of(lanes, DICT))
    with tempfile.TemporaryDirectory() as folder:
        whole, killed, resumed = (Path(folder, name) for name in ("a.mcap", "b.mcap", "c.mcap"))
        footer = recorded(whole, ops, header, level, chunk_ticks=3)
        cut = data.draw(st.integers(0, whole.stat().st_size))
        killed.write_bytes(whole.read_bytes()[:cut])
        try:
            recording = open_recording(killed)
        except RecordingError:
            return
        with recording, RecordingWriter(resumed, recording.header) as writer:
            writer.copy(recording)
            for op in ops[writer.ticks :]:
                record(writer, op)
            assert writer.finish().run_root == footer.run_root
        assert verify(resumed).problems == ()


@settings(max_examples=25)
@given(plays(), st.booleans())
def test_entries_are_read_as_they_were_written(play: tuple[int, list[Op]], full: bool) -> None:
    lanes, ops = play
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "a.mcap")
        with RecordingWriter(path, Header(contract=contract_of(lanes, DICT)), "full" if full else "digest") as writer:
            for number, op in enumerate(ops, 1):
                record(writer, op)
                writer.record_decision(number, Mishap("retry", number, 1, "EnvRpcError", "gone"))
        with open_recording(path) as recording:
            entries = list(recording)
            messages = [m for span in recording.container.spans for m in recording.container.messages(span)]
    written = [message.data for message in messages if message.topic == "/tick"]
    ticks = [entry for entry in entries if isinstance(entry, Tick)]
    assert [encode_tick(tick, full=full) for tick in ticks] == written
    assert [tick.number for tick in ticks] == list(range(1, len(ops) + 1))
    for tick, op in zip(ticks, ops, strict=True):
        assert tick.lanes == op.lanes
        assert (tick.reset is not None) == op.is_reset
        answered = EnvReply if op.rows else EndpointError if op.refused else type(None)
        assert type(tick.reply or tick.error) is answered
        if tick.error is not None:
            assert (tick.error.code, tick.error.recoverable) == (op.refused, True)
    ended = [message.data for message in messages if message.topic == "/episode"]
    assert sorted(map(encode_episode, (e for e in entries if isinstance(e, Episode)))) == sorted(ended)
    decided = [entry for entry in entries if isinstance(entry, Decision)]
    assert [(entry.tick, entry.unix_ns) for entry in decided] == [(number, number) for number in range(1, len(ops) + 1)]


def test_the_order_in_which_a_server_tells_of_itself_is_in_no_canonical_form(tmp_path: Path) -> None:
    """rlmesh writes the entries of its metadata in another order each time it is asked."""
    metadata = [{"fps": 4, "modes": {"a": 1, "b": [2]}}, {"modes": {"b": [2], "a": 1}, "fps": 4}]
    forms: set[bytes] = set()
    digests: set[bytes] = set()
    for number, told in enumerate(metadata):
        contract = contract_from_gymnasium(
            DICT, BOX, env_id="Toy-v0", metadata=told, num_envs=1, autoreset_mode=3, render_mode=""
        )
        path = tmp_path / str(number)
        recorded(path, [], Header(contract=contract))
        canon(path, tmp_path / "canon")
        forms.add((tmp_path / "canon").read_bytes())
        with open_recording(path) as recording:
            assert recording.header.contract.encoded_spec == contract.encoded_spec, "the file has it as it came"
            digests.add(show_run(recording).contract_digest)
    assert len(forms) == 1
    assert len(digests) == 1


@pytest.mark.parametrize("level", ["digest", "full", "ring=3"])
def test_the_same_records_make_the_same_bytes(level: str, tmp_path: Path) -> None:
    ops = [Op((0,), ({"note": "a", "place": [1, 2], "room": 3},), (1,), (4,), True)]
    for name in ("a", "b"):
        recorded(tmp_path / name, ops, Header(contract=contract_of(1, DICT), machine={"b": "1", "a": "2"}), level)
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()
