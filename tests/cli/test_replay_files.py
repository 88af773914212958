"""``replay verify``, ``canon`` and ``diff``: exit statuses, a line for each problem, no broken file gets past them."""

import itertools
import json
import random
import re
from collections.abc import Callable
from pathlib import Path

import attrs
import pytest

from rlmesh_trio.recording import Header, open_recording
from rlmesh_trio.recording import message_codec as codec
from tests.cli.program import Ran, run
from tests.recording.plays import DICT, Op, contract_of, episodes, recorded

Run = Callable[..., Ran]


@pytest.fixture
def replay(capsys: pytest.CaptureFixture[str]) -> Run:
    return lambda *args: run(capsys, "replay", *map(str, args))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Six episodes, every other one on lane 1."""
    ops = [attrs.evolve(op, lanes=(place // 6 % 2,)) for place, op in enumerate(episodes(1, 6, 5))]
    recorded(tmp_path / "run.mcap", ops, Header(contract=contract_of(2)), "full", chunk_ticks=6)
    return tmp_path / "run.mcap"


def other(path: Path, ops: list[Op] | None = None) -> Path:
    """Another recording of the same episodes, on one lane, or of *ops*."""
    recorded(path, episodes(1, 6, 5) if ops is None else ops, Header(contract=contract_of(1)), "full")
    return path


def test_a_whole_file_is_told_in_one_line(replay: Run, path: Path, tmp_path: Path) -> None:
    ran = replay("verify", path, "--repair", tmp_path / "out.mcap")
    with open_recording(path) as recording:
        assert recording.footer is not None
        root = recording.footer.run_root.hex()
    assert (ran.status, ran.out) == (0, f"whole: 6 episodes, 36 ticks, run root {root}\n")
    assert ran.err == f"nothing to repair: {tmp_path / 'out.mcap'} was not written\n"
    assert not (tmp_path / "out.mcap").exists()


def test_a_broken_file_is_told_and_repaired(replay: Run, path: Path, tmp_path: Path) -> None:
    with open_recording(path) as recording:
        span, before = recording.container.spans[4], recording.container.spans[3]
    damaged = bytearray(path.read_bytes())
    damaged[span.start + span.length // 2] ^= 4
    path.write_bytes(damaged)
    out = tmp_path / "out.mcap"
    ran = replay("verify", path, "--repair", out)
    *problems, extent, repaired = ran.out.splitlines()
    assert ran.status == 1
    assert problems[0] == "its data is damaged: the checksum is another"
    assert extent == f"not whole: 3 episodes, {before.last} ticks can be read, up to a whole tick"
    assert repaired.startswith(f"repaired: {out} has 3 episodes, {before.last} ticks, run root ")
    assert replay("verify", out).status == 0
    ran = replay("verify", path, "--repair", path)
    assert (ran.status, ran.error) == (2, f"recording {path}: it cannot be repaired in place; name another file")


def test_a_file_whose_last_chunk_is_broken_is_still_a_recording(replay: Run, path: Path) -> None:
    with open_recording(path) as recording:
        span, before = recording.container.spans[-1], recording.container.spans[-2]
    damaged = bytearray(path.read_bytes())
    damaged[span.start + span.length // 2] ^= 4
    path.write_bytes(damaged)
    ran = replay("verify", path)
    assert ran.status == 1
    assert f"{before.last} ticks can be read" in ran.out.splitlines()[-1]
    for command in (("canon", path, path.with_suffix(".out")), ("diff", path, path)):
        ran = replay(*command)
        assert ran.status == 2
        assert ran.error.endswith(
            "; rlmesh-trio replay verify FILE --repair OUT writes a whole one of what can be read"
        )


@pytest.mark.parametrize("seed", range(3))
def test_no_flipped_byte_gets_past_verify(replay: Run, path: Path, seed: int) -> None:
    chance = random.Random(seed)
    whole = path.read_bytes()
    for _ in range(100):
        place = chance.randrange(len(whole))
        damaged = bytearray(whole)
        damaged[place] ^= 1 << chance.randrange(8)
        path.write_bytes(damaged)
        ran = replay("verify", path)
        assert ran.status in (1, 2), f"nobody noticed a flip at byte {place} of {len(whole)}"
        assert ran.status == 1 or len(ran.err.splitlines()) == 1
        assert "bug" not in ran.err


def text(path: Path) -> None:
    path.write_text("no recording\n")


def cut_before_its_header(path: Path) -> None:
    other(path)
    path.write_bytes(path.read_bytes()[:700])


def cut(path: Path) -> None:
    recorded(path, episodes(1, 4, 5), Header(contract=contract_of(1)), chunk_ticks=6)
    with open_recording(path) as recording:
        last = recording.container.spans[-1]
    path.write_bytes(path.read_bytes()[: last.start + 9])


def foreign_version(path: Path) -> None:
    version = codec.FORMAT_VERSION
    try:
        codec.FORMAT_VERSION = 7  # pyright: ignore[reportConstantRedefinition]
        other(path, [])
    finally:
        codec.FORMAT_VERSION = version  # pyright: ignore[reportConstantRedefinition]


NO_RECORDINGS: dict[Callable[[Path], object], str] = {
    Path.touch: "it is empty",
    text: "it is no MCAP file",
    Path.mkdir: "it cannot be read: Is a directory",
    str: "it cannot be read: No such file or directory",
    cut_before_its_header: "it holds no whole chunk: it was cut off before its header was written",
    foreign_version: "it is of format version 7; this build reads version 1",
}
COMMANDS = ("show", "show --episode 1", "show --json", "verify", "verify --repair OUT", "canon OUT", "diff GOOD")


@pytest.mark.parametrize(("command", "make"), [*itertools.product(COMMANDS, NO_RECORDINGS)])
def test_what_is_no_recording_is_refused_in_one_line_by_each(
    command: str, make: Callable[[Path], object], replay: Run, path: Path, tmp_path: Path
) -> None:
    make(tmp_path / "x")
    name, *rest = command.replace("OUT", str(tmp_path / "out")).replace("GOOD", str(path)).split()
    ran = replay(name, tmp_path / "x", *rest)
    assert (ran.status, ran.out) == (2, "")
    assert ran.err == f"error: recording {tmp_path / 'x'}: {NO_RECORDINGS[make]}\n"
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(("command", "status"), [*zip(COMMANDS, (1, 1, 1, 1, 1, 2, 2), strict=True)])
def test_a_cut_file_is_shown_and_checked_as_far_as_it_goes_and_else_refused(
    command: str, status: int, replay: Run, path: Path, tmp_path: Path
) -> None:
    cut(tmp_path / "x")
    name, *rest = command.replace("OUT", str(tmp_path / "out")).replace("GOOD", str(path)).split()
    ran = replay(name, tmp_path / "x", *rest)
    assert ran.status == status
    if status == 2:
        assert (ran.out, len(ran.err.splitlines())) == ("", 1)
    else:
        assert re.search("it ends in the middle of a record|it has no end", ran.out)


def test_equal_runs_have_one_canonical_file(replay: Run, path: Path, tmp_path: Path) -> None:
    one, two = tmp_path / "one", tmp_path / "two"
    root = replay("canon", path, one).out
    assert replay("canon", other(tmp_path / "other.mcap"), two).out == root
    assert one.read_bytes() == two.read_bytes()
    assert root.strip() in replay("verify", one).out
    assert replay("canon", path, path).error.endswith("cannot be written in place; name another file")
    ran = replay("canon", path, tmp_path / "no" / "out")
    assert (ran.status, ran.error) == (
        2,
        f"recording {tmp_path / 'no' / 'out'}: it cannot be written: No such file or directory",
    )


def test_a_difference_is_told_and_tolerated_if_wished(replay: Run, path: Path, tmp_path: Path) -> None:
    ops = episodes(1, 6, 5)
    ops[8] = attrs.evolve(ops[8], rewards=(ops[8].rewards[0] + 1e-9,))
    there = other(tmp_path / "there.mcap", ops)
    assert replay("diff", path, path).status == 0
    ran = replay("diff", path, there)
    assert ran.status == 1
    assert ran.out.startswith("DIVERGED  episode 2 of 6")
    assert replay("diff", path, there, "--tol", "abs=1e-6").status == 0
    assert replay("diff", path, there, "--ignore", "reward").status == 0
    document = json.loads(replay("diff", path, there, "--json").out)
    assert (document["equal"], document["divergences"][0]["ordinal"]) == (False, 2)


def test_another_contract_is_a_difference_and_stops_the_comparison(replay: Run, path: Path, tmp_path: Path) -> None:
    there = tmp_path / "there.mcap"
    recorded(there, episodes(1, 6, 5, observation=DICT), Header(contract=contract_of(1, DICT)), "full")
    ran = replay("diff", path, there)
    assert (ran.status, ran.out.splitlines()[0].split("  ")[0]) == (1, "CONTRACT CHANGED")
    assert ran.out.splitlines()[-1] == "--force compares the episodes all the same"
    assert json.loads(replay("diff", path, there, "--json").out)["contract"]
    forced = replay("diff", path, there, "--force")
    assert forced.status == 1
    assert "6 episodes, 30 steps" in forced.out


def test_nothing_to_compare_is_no_success(replay: Run, path: Path, tmp_path: Path) -> None:
    ran = replay("diff", path, other(tmp_path / "none.mcap", []))
    assert ran.status == 2
    assert "NOTHING COMPARED" in ran.out
    assert replay("diff", path, other(tmp_path / "none.mcap", []), "--stats").status == 2


def test_stats_compare_returns_and_lengths_alone(replay: Run, path: Path, tmp_path: Path) -> None:
    salted = other(tmp_path / "salted.mcap", episodes(1, 6, 5, salt=9))
    assert replay("diff", path, salted).status == 1
    assert replay("diff", path, salted, "--stats").status == 0
    longer = other(tmp_path / "longer.mcap", episodes(1, 12, 9))
    shorter = other(tmp_path / "shorter.mcap", episodes(1, 12, 5))
    ran = replay("diff", shorter, longer, "--stats", "--json")
    assert ran.status == 1
    assert json.loads(ran.out)["lengths"]["higher"] == 12


@pytest.mark.parametrize(
    ("options", "why"),
    [
        (("--tol", "ulp=many"), "ulp=many"),
        (("--ignore", "weather"), "weather"),
        (("--stats", "--tol", "ulp=1"), "--stats compares no values: leave --tol and --ignore out"),
    ],
)
def test_options_that_mean_nothing_are_refused(options: tuple[str, ...], why: str, replay: Run, path: Path) -> None:
    ran = replay("diff", path, path, *options)
    assert (ran.status, ran.out) == (2, "")
    assert why in ran.error
