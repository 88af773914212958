"""What people and programs are told of a comparison."""

import json
import math
from pathlib import Path
from typing import Any

import attrs
import numpy as np
import pytest

from rlmesh_trio.replay.findings import Comparison, FieldDifference
from rlmesh_trio.replay.returns import compare_returns
from rlmesh_trio.replay.told import comparison_document, comparison_lines, returns_document, returns_lines
from rlmesh_trio.replay.tolerance import parse_tolerance
from tests.recording.plays import Op
from tests.replay.runs import changed, compared, episode, header, nudged, opened, run


def growing(steps: int) -> list[list[Op]]:
    after = run(3, steps)
    for step in range(12, steps + 1):
        after[1][step] = changed(after[1][step], "qvel", nudged(min((step - 11) ** 3, 2000), 3))
    after[1][12] = changed(after[1][12], "qvel", nudged(1, 7))
    return after


def test_the_first_divergence_is_told_in_one_block(tmp_path: Path) -> None:
    after = growing(50)
    after[1] = [*after[1][:46], attrs.evolve(after[1][46], flags=(1,), rewards=(-3.5,))]
    found = compared(
        tmp_path, run(3, 50), after, now=header(machine={"numpy": "2"}), fields={"machine": {"numpy": "1"}}
    )
    assert comparison_lines(found, mode="mode (ii)") == [
        "DIVERGED  mode (ii)  episode 2 of 3 (seed 1002)  step 12 of 50  1 episode before it equal",
        "  leaf obs.qvel  index [3]   recorded -2.602046 0xc02687ec   now -2.6020458 0xc02687eb   1 ulp, rel 9e-08",
        "  leaves that differ here: qvel (2 of 9 values); equal: action, qpos, room, reward, flags, info",
        "  after it: step 13 8 ulp, 20 729 ulp, 44 2e3 ulp, end truncated -> terminated, end step 50 -> 46,"
        " return 318.75 -> 255.25",
        "  shape: starts at one ulp and grows: arithmetic (threads, BLAS, CPU), not a seed that was lost",
        "what else differs between the two: machine.numpy 1 -> 2",
    ]


def test_within_a_tolerance_both_firsts_are_told(tmp_path: Path) -> None:
    found = compared(tmp_path, run(3, 50), growing(50), tolerance=parse_tolerance(["ulp=100"]))
    lines = comparison_lines(found)
    assert lines[0].startswith("DIVERGED  episode 2 of 3 (seed 1002)  step 16 of 50  ")
    assert "125 ulp" in lines[1]
    assert lines[3] == "  before it, within ulp=100: from step 12 on, obs.qvel 1 ulp"
    assert lines[4].startswith("  after it: step 20 729 ulp")
    found = compared(tmp_path, run(3, 50), growing(50), tolerance=parse_tolerance(["ulp=9999"]))
    assert comparison_lines(found) == [
        "EQUAL within ulp=9999  3 episodes, 150 steps",
        "  episode 2 not in every bit: first at step 12, obs.qvel 1 ulp, rel 9e-08",
    ]


def test_equal_is_one_line(tmp_path: Path) -> None:
    found = compared(tmp_path, run(), run())
    assert comparison_lines(found) == [f"EQUAL  3 episodes, 15 steps, run root {found.run_roots[0].hex()}"]
    assert comparison_lines(attrs.evolve(found, compared=1, steps=5321, run_roots=(b"", b""))) == [
        "EQUAL  1 episode, 5,321 steps"
    ]


def test_digests_alone_say_what_they_cannot_tell(tmp_path: Path) -> None:
    lines = comparison_lines(compared(tmp_path, run(3, 50), growing(50), level="digest"))
    assert (
        lines[1]
        == "  leaf obs.qvel   another digest; its values are not recorded on both sides, which takes level full"
    )
    assert lines[3].startswith("  after it: step 13 differs, 20 differs")
    assert lines[4].endswith("arithmetic, or a random draw too many or too few; only level full tells")


def test_many_episodes_are_counted_and_each_takes_few_lines(tmp_path: Path) -> None:
    before, after = run(9), run(9)
    for ops in after[1:6] + after[7:]:
        ops[2] = attrs.evolve(
            changed(ops[2], "qvel", lambda old: np.full_like(old, np.nan)), infos={f"k{i}": i for i in range(30)}
        )
    lines = comparison_lines(compared(tmp_path, before, after))
    assert lines[-1] == "and 4 more episodes that differ: 5-6, 8-9"
    assert len(lines) == 3 * 5 + 1
    assert all(len(line) < 200 for line in lines)
    assert "24 more" not in lines[2]
    assert "28 more" in lines[2]


def test_what_one_side_lacks_and_what_was_cut_short(tmp_path: Path) -> None:
    found = compared(tmp_path, run(4)[1:], [*run(3), episode(7, 3), episode(8, 3)])
    assert comparison_lines(found) == [
        "MISSING  episode 4: recorded, and not there now",
        "SURPLUS  episodes 1, 7-8: there now, and not recorded",
        "otherwise equal: 2 episodes, 10 steps",
    ]
    short = run(2)
    del short[1][3:]
    lines = comparison_lines(compared(tmp_path, run(2), short))
    assert lines == ["EQUAL  2 episodes, 7 steps", "  episode 2 as far as both go: interrupted on one side"]


def test_a_changed_contract_is_told_field_by_field() -> None:
    fields = tuple(FieldDifference(f"metadata.{number}", "", "1") for number in range(10))
    lines = comparison_lines(Comparison(contract=fields))
    assert lines[:2] == ["CONTRACT CHANGED  10 fields", "  metadata.0   recorded ''   now 1"]
    assert lines[-2:] == ["  and 2 more", "NOTHING COMPARED"]
    assert comparison_lines(Comparison()) == ["NOTHING COMPARED  the two have no episode in common"]


@pytest.mark.parametrize(
    ("step", "change", "line"),
    [
        (0, {"seeds": (5,)}, "  leaf seed   recorded 1002   now 5"),
        (0, {"infos": {"mass": "heavy " * 30}}, f"  leaf info.mass   recorded 1.5   now '{'heavy ' * 9}heavy..."),
        (1, {"flags": (1,)}, "  leaf terminated   recorded False   now True"),
        (1, {"rewards": (math.inf,)}, "  leaf reward   recorded 0.25 0x3e800000   now inf 0x7f800000"),
        (1, {"rewards": (0.1,)}, "  leaf reward   recorded 0.25 0x3fd0000000000000   now 0.1 0x3fb999999999999a   "),
        (1, {"rows": (), "refused": "BUSY"}, "  leaf error   recorded 'an answer'   now 'BUSY'"),
    ],
)
def test_values_are_told_as_they_are(step: int, change: dict[str, Any], line: str, tmp_path: Path) -> None:
    after = run()
    after[1][step] = attrs.evolve(after[1][step], **change)
    found = compared(tmp_path, run(), after)
    assert comparison_lines(found)[1].startswith(line)
    json.dumps(comparison_document(found), allow_nan=False)


def test_the_document_holds_all_of_it(tmp_path: Path) -> None:
    after = growing(50)
    after[2][5] = changed(after[2][5], "qpos", lambda old: np.full_like(old, np.nan))
    found = compared(tmp_path, run(3, 50), after)
    document = json.loads(json.dumps(comparison_document(found), allow_nan=False))
    assert document.keys() == {field.name for field in attrs.fields(Comparison)} | {"equal"}
    assert (document["equal"], document["compared"], document["steps"]) == (False, 3, 150)
    assert document["run_roots"] == [root.hex() for root in found.run_roots]
    first, second = document["divergences"]
    assert first["told"].startswith("starts at one ulp")
    assert (first["ordinal"], first["shape"], first["seed"]) == (2, "growing from one ulp", 1002)
    leaf = first["first"]["leaves"][0]
    assert (leaf["path"], leaf["index"], leaf["ulps"], leaf["bits"]) == (
        "obs.qvel",
        [3],
        1,
        ["0xc02687ec", "0xc02687eb"],
    )
    lost = second["first"]["leaves"][0]
    assert (lost["values"][1], lost["relative"], lost["ulps"]) == ("NaN", "Infinity", None)


def test_returns_are_told_in_two_lines(tmp_path: Path) -> None:
    before, after = run(4), [*run(3), episode(5, 3)]
    after[1][5] = attrs.evolve(after[1][5], rewards=(9.25,))
    with opened(tmp_path, before, after, level="digest") as (first, second):
        found = compare_returns(first, second)
    assert returns_lines(found) == [
        "returns  3 pairs: mean 3.75 -> 6.41667 (difference +2.66667); 1 higher, 0 lower, 2 equal; sign test p = 1",
        "lengths  3 pairs: mean 5 -> 5 (difference +0); 0 higher, 0 lower, 3 equal; sign test p = 1",
        "  left out: episodes 4-5, not finished on both sides",
    ]
    assert returns_document(found)["returns"]["higher"] == 1
