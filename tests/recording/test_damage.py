"""Files that are not as they were written: no flipped byte goes unnoticed, and what is whole of a cut file is read."""

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import mcap.writer
import pytest

from rlmesh_trio.messages import EnvReply
from rlmesh_trio.recording import Header, RecordingError, RecordingWriter, Tick, open_recording, repair, verify
from rlmesh_trio.recording import message_codec as codec
from rlmesh_trio.recording.reader import Entry
from tests.recording.plays import contract_of, episodes, recorded

OPS = episodes(2, 6, 7)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    recorded(tmp_path / "run.mcap", OPS, Header(contract=contract_of(2)), "full", chunk_ticks=6)
    return tmp_path / "run.mcap"


def problems(path: Path) -> tuple[str, ...]:
    try:
        return verify(path).problems
    except RecordingError as error:
        return (error.why,)


@pytest.mark.parametrize("seed", range(4))
def test_every_flipped_byte_is_noticed(path: Path, seed: int) -> None:
    chance = random.Random(seed)
    whole = path.read_bytes()
    edges = [*range(40), *range(len(whole) - 60, len(whole))] if seed == 0 else []
    for place in [*edges, *(chance.randrange(len(whole)) for _ in range(100))]:
        damaged = bytearray(whole)
        damaged[place] ^= 1 << chance.randrange(8)
        path.write_bytes(damaged)
        told = problems(path)
        assert told, f"nobody noticed a flip at byte {place} of {len(whole)}"
        assert all(len(line.splitlines()) == 1 for line in told)


def test_a_file_cut_anywhere_is_read_up_to_its_last_whole_chunk(path: Path, tmp_path: Path) -> None:
    whole = path.read_bytes()
    with open_recording(path) as recording:
        ticks = [tick.number for tick in recording.ticks()]
        spans = recording.container.spans
    edges = {max(0, min(len(whole) - 1, span.start + span.length + off)) for span in spans for off in (-1, 0, 1)}
    cut_file = tmp_path / "cut.mcap"
    for cut in sorted({*range(0, len(whole), 401), *edges, *range(20), *range(len(whole) - 40, len(whole))}):
        cut_file.write_bytes(whole[:cut])
        kept = [span.last for span in spans if span.start + span.length <= cut]
        if not kept:
            with pytest.raises(RecordingError) as caught:
                open_recording(cut_file)
            assert "\n" not in str(caught.value)
            continue
        with open_recording(cut_file) as recording:
            assert [tick.number for tick in recording.ticks()] == ticks[: kept[-1]]
            assert recording.damage
            if kept[-1] < len(ticks):
                assert recording.footer is None
        assert verify(cut_file).problems


def test_what_is_whole_of_a_broken_file_can_be_had_as_a_recording(path: Path, tmp_path: Path) -> None:
    with open_recording(path) as recording:
        broken, before = recording.container.spans[4], recording.container.spans[3]
    damaged = bytearray(path.read_bytes())
    damaged[broken.start + broken.length // 2] ^= 4
    path.write_bytes(damaged)
    with open_recording(path) as recording:
        assert recording.footer is not None, "the index of the file is whole"
        with pytest.raises(RecordingError, match=f"between ticks {broken.first} and {broken.last}: a chunk is damaged"):
            list(recording)
    footer = repair(path, tmp_path / "out.mcap")
    assert footer.ticks == before.last
    assert verify(tmp_path / "out.mcap").problems == ()
    with pytest.raises(RecordingError, match="it cannot be repaired in place; name another file"):
        repair(path, path)


def text(path: Path) -> None:
    path.write_text("no recording\n")


def foreign_version(path: Path) -> None:
    version = codec.FORMAT_VERSION
    try:
        codec.FORMAT_VERSION = 7  # pyright: ignore[reportConstantRedefinition]
        recorded(path, [], Header(contract=contract_of(1)))
    finally:
        codec.FORMAT_VERSION = version  # pyright: ignore[reportConstantRedefinition]


def foreign_profile(path: Path) -> None:
    with path.open("wb") as stream:
        writer = mcap.writer.Writer(stream)
        writer.start("ros2", "somebody")
        writer.finish()


@pytest.mark.parametrize(
    ("make", "why"),
    [
        (Path.touch, "it is empty"),
        (text, "it is no MCAP file"),
        (Path.mkdir, "it cannot be read: Is a directory"),
        (str, "it cannot be read: No such file or directory"),
        (foreign_profile, "it is an MCAP file of another kind: its profile is 'ros2', not 'rlmesh_trio.recording.v1'"),
        (foreign_version, "it is of format version 7; this build reads version 1"),
    ],
)
def test_what_is_no_recording_is_refused_in_one_line(make: Callable[[Path], object], why: str, tmp_path: Path) -> None:
    make(tmp_path / "x")
    with pytest.raises(RecordingError) as caught:
        open_recording(tmp_path / "x")
    assert str(caught.value) == f"recording {tmp_path / 'x'}: {why}"


def rewrite(path: Path, out: Path, change: Callable[[int, EnvReply], None]) -> None:
    """Copy a recording, each answer changed as *change* does."""
    with open_recording(path) as recording, RecordingWriter(out, recording.header) as writer:

        def changed() -> Iterator[Entry]:
            for entry in recording:
                if isinstance(entry, Tick) and entry.reply is not None:
                    change(entry.number, entry.reply)
                yield entry

        writer.copy(changed())


def test_a_value_that_is_not_what_its_digest_is_of_is_noticed(path: Path, tmp_path: Path) -> None:
    def change(tick: int, reply: EnvReply) -> None:
        if tick == 5:
            reply.observation = [bytes(8)]
        if tick == 6:
            reply.infos = {"step": 99}

    rewrite(path, tmp_path / "out.mcap", change)
    assert verify(tmp_path / "out.mcap").problems == (
        "tick 5: the observation is not what its digest is of",
        "tick 6: the infos are not what their digest is of",
    )


def test_an_episode_that_is_not_what_its_ticks_amount_to_is_noticed(path: Path, tmp_path: Path) -> None:
    def change(tick: int, reply: EnvReply) -> None:
        if tick == 5:
            reply.rewards = (9.0,)

    rewrite(path, tmp_path / "out.mcap", change)
    assert verify(tmp_path / "out.mcap").problems == ("episode 1 is not what its ticks amount to",)


WRITE = """
import sys
from itertools import cycle
from tests.recording.plays import contract_of, episodes, record
from rlmesh_trio.messages import EnvReply
from rlmesh_trio.recording import Header, RecordingWriter
writer = RecordingWriter(sys.argv[1], Header(contract=contract_of(2)), "full", chunk_ticks=16)
for count, op in enumerate(cycle(episodes(2, 40, 7))):
    record(writer, op)
    if count == 500:
        print("on it", flush=True)
"""


def test_a_killed_process_leaves_a_recording_of_whole_ticks(tmp_path: Path) -> None:
    path = tmp_path / "killed.mcap"
    with subprocess.Popen([sys.executable, "-c", WRITE, str(path)], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"on it\n"
        time.sleep(0.05)
        os.kill(process.pid, signal.SIGKILL)
    with open_recording(path) as recording:
        ticks = list(recording.ticks())
        assert recording.footer is None
        assert len(ticks) >= 480
        assert [tick.number for tick in ticks] == list(range(1, len(ticks) + 1))
    assert repair(path, tmp_path / "whole.mcap").ticks == len(ticks)
    assert verify(tmp_path / "whole.mcap").problems == ()
