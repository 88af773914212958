"""What counts as a difference between two recordings, where it is found, and how much is read for it."""

import math
import struct
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import attrs
import numpy as np
import pytest
from gymnasium import spaces
from hypothesis import given, settings
from hypothesis import strategies as st

from rlmesh_trio.errors import InvalidSpec
from rlmesh_trio.recording import Header, RecordingWriter, Row, open_recording
from rlmesh_trio.recording.container import Container
from rlmesh_trio.recording.records import EndKind
from rlmesh_trio.replay.comparing import compare
from rlmesh_trio.replay.steps import Seen, StepComparison
from rlmesh_trio.replay.tolerance import Tolerance, parse_tolerance
from tests.recording.plays import DICT, Op, contract_of, episodes, plays, record, recorded
from tests.replay.runs import changed, compared, dealt, episode, header, nudged, opened, planted, run, seen

Plant = Callable[[Op], Op]


def flipped(leaf: str, index: int, bit: int) -> Plant:
    def change(values: Any) -> Any:
        stored = values.view(np.uint32).copy()
        stored[index] ^= np.uint32(1 << bit)
        return stored.view(np.float32)

    return lambda op: changed(op, leaf, change)


def ordered(value: Any) -> int:
    (bits,) = struct.unpack("<i", np.float32(value).tobytes())
    return bits if bits >= 0 else -(bits & 0x7FFFFFFF) - 1


@settings(max_examples=40)
@given(st.integers(1, 3), st.integers(0, 5), st.sampled_from(["qpos", "qvel"]), st.integers(0, 8), st.integers(0, 31))
def test_one_bit_is_found_where_it_was_changed(ordinal: int, step: int, leaf: str, index: int, bit: int) -> None:
    plant = flipped(leaf, index, bit)
    with tempfile.TemporaryDirectory() as folder:
        found = planted(Path(folder), (ordinal, step), plant)
    (told,) = found.first.leaves
    was = seen(ordinal, step)[leaf][index]
    now = plant(run()[ordinal - 1][step]).rows[0][leaf][index]
    assert (found.ordinal, found.seed, found.first.step) == (ordinal, 1000 + ordinal, step)
    assert (told.part, told.path, told.index) == ("observation", f"obs.{leaf}", (index,))
    assert (told.differing, told.size, told.tolerated) == (1, 9, False)
    assert told.bits == tuple(f"0x{struct.unpack('<I', value.tobytes())[0]:08x}" for value in (was, now))
    assert (found.beyond, found.equal_before, found.values_known) == (found.first, ordinal - 1, True)
    if math.isfinite(now):
        assert told.values == (was.item(), now.item())
        assert told.ulps == abs(ordered(was) - ordered(now))
    else:
        assert (told.ulps, told.relative) == (None, math.inf)


@settings(max_examples=15)
@given(st.integers(1, 4), st.integers(1, 4), st.booleans(), st.sampled_from(["digest", "full", "ring=2"]))
def test_equal_episodes_are_equal_on_any_lanes(mine: int, others: int, read: bool, level: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        paths = [Path(folder, name) for name in ("a", "b")]
        for path, lanes, unstable in zip(paths, (mine, others), ((), ("$.room",) * read), strict=True):
            # With unlike headers no root is trusted.
            recorded(path, dealt(lanes, 5, 4), header(lanes, unstable_leaves=unstable), level)
        with open_recording(paths[0]) as first, open_recording(paths[1]) as second:
            found = compare(first, second)
    assert found.equal
    assert (found.divergences, found.compared, found.steps) == ((), 5, 20)


@settings(max_examples=30)
@given(plays(), st.sampled_from(["digest", "full", "ring=2"]))
def test_whatever_happened_is_equal_to_itself(play: tuple[int, list[Op]], level: str) -> None:
    lanes, ops = play
    with tempfile.TemporaryDirectory() as folder:
        paths = [Path(folder, name) for name in ("a", "b")]
        for path, unstable in zip(paths, ((), ("$.room",)), strict=True):
            recorded(path, ops, Header(contract=contract_of(lanes, DICT), unstable_leaves=unstable), level)
        with open_recording(paths[0]) as first, open_recording(paths[1]) as second:
            assert compare(first, second).divergences == ()


@pytest.mark.parametrize(
    ("step", "change", "part", "path", "values"),
    [
        (0, {"seeds": (5,)}, "seed", "seed", (1002, 5)),
        (0, {"infos": {"mass": 2.5}}, "info", "info.mass", (1.5, 2.5)),
        (0, {"infos": {}}, "info", "info.mass", (1.5, "nothing")),
        (0, {"infos": None}, "info", "info.mass", (1.5, "nothing")),
        (2, {"actions": (0,)}, "action", "action", (2, 0)),
        (2, {"rewards": (-0.0,)}, "reward", "reward", (0.5, -0.0)),
        (2, {"flags": (1,)}, "flag", "terminated", (False, True)),
        (2, {"infos": {"height": 1.0, "touching": True, "forces": [0.5, 3.0]}}, "info", "info.forces", (2.0, 3.0)),
        (2, {"infos": {"height": 1.0, "touching": 1, "forces": [0.5, 2.0]}}, "info", "info.touching", (True, 1)),
        (2, {"rows": (), "refused": "BUSY"}, "error", "error", ("an answer", "BUSY")),
    ],
)
def test_all_that_an_answer_holds_counts(
    step: int, change: dict[str, Any], part: str, path: str, values: tuple[Any, Any], tmp_path: Path
) -> None:
    found = planted(tmp_path, (2, step), lambda op: attrs.evolve(op, **change))
    told = found.first.leaves[0]
    assert (found.ordinal, found.first.step, told.part, told.path) == (2, step, part, path)
    assert told.values is not None
    assert tuple(value if isinstance(value, int | float | str) else str(value) for value in told.values) == values


def test_zeros_of_both_signs_differ_and_one_nan_is_equal_to_itself(tmp_path: Path) -> None:
    def with_value(value: float) -> Plant:
        return lambda op: attrs.evolve(changed(op, "qvel", lambda old: np.full_like(old, value)), rewards=(value,))

    def played(value: float) -> list[list[Op]]:
        ops = run(1)
        ops[0][1] = with_value(value)(ops[0][1])
        return ops

    assert compared(tmp_path, played(math.nan), played(math.nan)).equal
    (found,) = compared(tmp_path, played(0.0), played(-0.0)).divergences
    assert [(leaf.path, leaf.ulps, leaf.differing) for leaf in found.first.leaves] == [
        ("obs.qvel", 1, 9),
        ("reward", 1, 1),
    ]


def test_an_action_comes_before_what_follows_from_it(tmp_path: Path) -> None:
    other = attrs.evolve(changed(run()[0][3], "qvel", lambda old: old + 1), actions=(2,), rewards=(9.0,))
    found = planted(tmp_path, (1, 3), lambda op: other)
    assert [leaf.path for leaf in found.first.leaves] == ["action", "obs.qvel", "reward"]
    assert found.first.equal == ("obs.qpos", "obs.room", "terminated", "truncated", "info")


def test_both_firsts_are_found_and_growth_after_them(tmp_path: Path) -> None:
    after = run(1, 50)
    for step in range(3, 51):
        after[0][step] = changed(after[0][step], "qvel", nudged(step, 4))
    after[0][7] = changed(after[0][7], "qvel", nudged(1, 1))
    for standard, where in (("exact", (3, (4,))), ("ulp=6", (7, (4,))), ("ulp=50", None)):
        found = compared(tmp_path, run(1, 50), after, tolerance=parse_tolerance([standard]))
        (told,) = found.divergences
        assert (told.first.step, told.first.tolerated) == (3, standard != "exact")
        assert found.equal == (where is None)
        if told.beyond is not None:
            assert (told.beyond.step, told.beyond.leaves[0].index) == where
        assert [(later.step, later.leaves[0].ulps) for later in told.later] == [(4, 4), (11, 11), (35, 35)]
    assert compared(tmp_path, run(1, 50), after, fields={"tolerance": "ulp=50"}).equal


def test_a_tolerance_is_for_floats_of_its_leaf_rewards_and_infos_and_nothing_else(tmp_path: Path) -> None:
    def plant(op: Op) -> Op:
        op = changed(changed(op, "qpos", nudged(2, 0)), "qvel", nudged(2, 0))
        return attrs.evolve(op, rewards=(0.5 + 2**-24,), infos={**(op.infos or {}), "height": 1 + 2**-23})

    every = ["obs.qpos", "obs.qvel", "reward", "info.height"]
    for texts, beyond in (
        (["ulp=2"], []),
        (["ulp=1"], every[:2]),
        (["ulp=2 leaf:obs.qpos=exact"], every[:1]),
        (["leaf:obs=ulp=2"], every[2:]),
        (["leaf:obs=abs=1 leaf:reward=rel=1e-6"], every[3:]),
    ):
        told = planted(tmp_path, (1, 2), plant, tolerance=parse_tolerance(texts)).first
        assert [leaf.path for leaf in told.leaves] == every
        assert [leaf.path for leaf in told.leaves if not leaf.tolerated] == beyond
    widest = parse_tolerance(["abs=9 leaf:obs=abs=9"])
    rooms = planted(tmp_path, (1, 2), lambda op: changed(op, "room", lambda _: np.int64(4)), tolerance=widest)
    assert rooms.beyond is not None


def test_what_shows_beyond_the_tolerance_is_what_is_beyond_it(tmp_path: Path) -> None:
    def plant(op: Op) -> Op:
        return changed(op, "qvel", lambda old: nudged(9, 5)(nudged(1, 2)(old)))

    found = planted(tmp_path, (1, 2), plant, tolerance=parse_tolerance(["ulp=4"]))
    assert found.beyond is not None
    assert (found.first.step, found.first.leaves[0].index) == (2, (2,))
    assert (found.beyond.step, found.beyond.leaves[0].index, found.beyond.leaves[0].differing) == (2, (5,), 2)


@pytest.mark.parametrize("level", ["digest", "ring=3"])
def test_digests_tell_the_leaf_and_the_step_and_no_values(level: str, tmp_path: Path) -> None:
    def plant(op: Op) -> Op:
        return changed(op, "qvel", nudged(1, 0))

    found = planted(tmp_path, (2, 3), plant, level=level)
    (told,) = found.first.leaves
    assert (found.first.step, told.path, told.values, told.size) == (3, "obs.qvel", None, 0)
    assert not found.values_known
    found = planted(tmp_path, (2, 3), plant, level=level, fields={"tolerance": "ulp=9"})
    assert found.beyond is not None, "who knows how far apart they are"


def test_a_ring_has_the_values_of_an_episode_that_failed(tmp_path: Path) -> None:
    before = [episode(1, 5)]
    before[0][5] = attrs.evolve(before[0][5], rows=(), refused="CRASHED")
    after = [list(before[0])]
    after[0][4] = changed(after[0][4], "qvel", nudged(3, 8))
    (found,) = compared(tmp_path, before, after, level="ring=2").divergences
    (told,) = found.first.leaves
    assert (found.first.step, told.path, told.index, told.ulps, found.values_known) == (4, "obs.qvel", (8,), 3, True)
    assert found.ends == ("error", "error")


@pytest.mark.parametrize(
    ("ignored", "level", "is_equal"),
    [
        (["obs.qvel"], "digest", True),
        (["$.qvel"], "full", True),
        (["obs"], "digest", True),
        (["obs.qpos", "reward", "action"], "full", False),
    ],
)
def test_what_is_ignored_is_not_compared(ignored: list[str], level: str, is_equal: bool, tmp_path: Path) -> None:
    after = run()
    after[1][2] = changed(after[1][2], "qvel", nudged(1, 0))
    assert compared(tmp_path, run(), after, level=level, ignored=ignored).equal == is_equal


def test_leaves_and_infos_that_one_header_leaves_out_are_left_out(tmp_path: Path) -> None:
    after = run()
    after[1][2] = attrs.evolve(changed(after[1][2], "qvel", nudged(1, 0)), infos={"height": 7.0})
    out: dict[str, Any] = {"unstable_leaves": ("$.qvel",), "ignored_infos": ("height", "touching", "forces")}
    assert compared(tmp_path, run(), after, fields=out, level="digest").equal
    assert compared(tmp_path, run(), after, now=header(**out)).equal
    named = ["obs.qvel", "info.height", "info.touching", "info.forces"]
    assert compared(tmp_path, run(), after, ignored=named).equal
    (found,) = compared(tmp_path, run(), after, ignored=named, level="digest").divergences
    assert [leaf.path for leaf in found.first.leaves] == ["info"], "a digest covers all infos"
    assert compared(tmp_path, run(), after, ignored=["obs", "info"], level="digest").equal


@pytest.mark.parametrize("name", ["qvel", "obs.qvell", "action.x", "terminated"])
def test_a_name_of_nothing_is_refused(name: str, tmp_path: Path) -> None:
    with pytest.raises(InvalidSpec, match=r"there is no leaf|names nothing"):
        compared(tmp_path, run(1), run(1), ignored=[name])


def test_episodes_that_one_side_lacks_are_named_and_some_may_be_chosen(tmp_path: Path) -> None:
    with opened(tmp_path, run(4)[:3], run(5)[1:]) as (first, second):
        found = compare(first, second)
        assert (found.missing, found.surplus, found.compared, found.equal) == ((1,), (4, 5), 2, False)
        assert compare(first, second, episodes={2, 3}).equal
        assert compare(first, second, episodes={5}).surplus == (5,)
        with pytest.raises(InvalidSpec, match="has an episode 9"):
            compare(first, second, episodes={2, 9})


def test_an_interrupted_episode_is_compared_as_far_as_both_go(tmp_path: Path) -> None:
    short = run(2)
    del short[1][3:]
    found = compared(tmp_path, run(2), short)
    assert (found.equal, found.unfinished, found.steps) == (True, (2,), 7)
    short[1][2] = changed(short[1][2], "qvel", nudged(1, 0))
    (told,) = compared(tmp_path, short, run(2)).divergences
    assert (told.first.step, told.steps, told.ends) == (2, (2, 5), ("interrupted", "truncated"))


def test_an_episode_that_was_capped_earlier_differs_where_it_lacks_a_step(tmp_path: Path) -> None:
    short = run(2)
    del short[1][4:]
    short[1][3] = attrs.evolve(short[1][3], capped=True)
    (told,) = compared(tmp_path, run(2), short).divergences
    (leaf,) = told.first.leaves
    assert (told.first.step, leaf.part, leaf.values) == (4, "length", ("a step", "no step"))
    assert (told.ends, told.steps, told.returns) == (("truncated", "capped"), (5, 3), (3.75, 1.5))


def test_a_file_without_its_end_is_compared_too(tmp_path: Path) -> None:
    recorded(tmp_path / "a", [op for ops in run(3) for op in ops], header(), "full")
    writer = RecordingWriter(tmp_path / "b", header(), "full")
    for op in [*run(1)[0], *episode(2, 5)[:3]]:
        record(writer, op)
    writer.flush()
    writer.close()
    with open_recording(tmp_path / "a") as first, open_recording(tmp_path / "b") as second:
        found = compare(first, second)
    assert (found.compared, found.missing, found.unfinished, found.run_roots[1]) == (2, (3,), (2,), b"")


def test_what_a_changed_contract_still_has_in_common_is_compared_by_name(tmp_path: Path) -> None:
    wider = spaces.Dict({"extra": spaces.Discrete(3), "place": spaces.Box(-1, 1, (2,), np.float32)})
    plain = spaces.Dict({"place": spaces.Box(-1, 1, (2,), np.float32)})
    for name, space in (("a", plain), ("b", wider)):
        row = {"extra": np.int64(1), "place": np.array([0.5, 0.25], np.float32)}
        row = {key: row[key] for key in space}
        ops = [Op((0,), (row,), (1,), (7,), is_reset=True), Op((0,), (row,), actions=(1,), rewards=(1.0,), flags=(1,))]
        recorded(tmp_path / name, ops, Header(contract=contract_of(1, space)), "full")
    with open_recording(tmp_path / "a") as first, open_recording(tmp_path / "b") as second:
        found = compare(first, second)
    assert [field.path for field in found.contract] == ["obs.extra"]
    assert found.divergences == ()
    assert not found.equal


def test_of_equal_episodes_nothing_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[Any] = []
    chunks = Container.messages

    def counted(container: Container, span: Any) -> Any:
        read.append(span)
        return chunks(container, span)

    monkeypatch.setattr(Container, "messages", counted)
    ops = episodes(1, 400, 4)
    for name in ("a", "b", "c"):
        if name == "c":
            ops[5 * 199 + 2] = attrs.evolve(ops[5 * 199 + 2], rewards=(7.0,))
        recorded(tmp_path / name, ops, Header(contract=contract_of(1)), "full", chunk_ticks=5)
    with open_recording(tmp_path / "a") as first, open_recording(tmp_path / "b") as second:
        assert len(first.container.spans) > 400
        assert compare(first, second).equal
    assert len(read) == 4, "the header and the footer of each"
    read.clear()
    with open_recording(tmp_path / "a") as first, open_recording(tmp_path / "c") as second:
        (found,) = compare(first, second).divergences
    assert (found.ordinal, found.first.step) == (200, 2)
    assert len(read) <= 4 + 2 * 3


def test_roots_that_cover_other_leaves_say_nothing(tmp_path: Path) -> None:
    place = spaces.Box(0, 9, (1,), np.float32)
    contract = contract_of(1, spaces.Dict({"a": place, "b": place, "c": place}))
    for name, values, unstable in (("x", (0, 1, 2), "$.a"), ("y", (1, 2, 0), "$.c")):
        row = {key: np.array([value], np.float32) for key, value in zip("abc", values, strict=True)}
        ops = [Op((0,), (row,), (1,), (7,), is_reset=True)]
        recorded(tmp_path / name, ops, Header(contract=contract, unstable_leaves=(unstable,)), "full")
    with open_recording(tmp_path / "x") as first, open_recording(tmp_path / "y") as second:
        assert first.entries[1].root == second.entries[1].root
        (found,) = compare(first, second).divergences
    assert [leaf.path for leaf in found.first.leaves] == ["obs.b"]


def test_equal_episodes_before_a_divergence_are_counted(tmp_path: Path) -> None:
    after = run(5)
    for ordinal in (2, 4):
        after[ordinal - 1] = episode(ordinal, 5, seed=1)
    found = compared(tmp_path, run(5), after)
    assert [(each.ordinal, each.equal_before) for each in found.divergences] == [(2, 1), (4, 2)]


@pytest.mark.parametrize(("end", "differs"), [("interrupted", False), ("terminated", True), ("capped", None)])
def test_an_end_that_no_flag_tells_counts_unless_it_is_an_interruption(
    end: EndKind, differs: bool | None, tmp_path: Path
) -> None:
    ends: dict[str, EndKind] = {"a": "capped", "b": end}
    for name, kind in ends.items():
        with RecordingWriter(tmp_path / name, header(), "full") as writer:
            for op in episode(1, 5)[:4]:
                record(writer, op)
            writer.record_end(0, 1, kind)
    with open_recording(tmp_path / "a") as first, open_recording(tmp_path / "b") as second:
        found = compare(first, second)
    assert [leaf.path for each in found.divergences for leaf in each.first.leaves] == ["end"] * (differs is True)
    assert found.unfinished == ((1,) if differs is False else ())


def test_a_step_is_counted_when_it_is_taken(tmp_path: Path) -> None:
    before, after = run(1), run(1)
    refused = attrs.evolve(before[0][3], rows=(), refused="BUSY")
    before[0].insert(3, refused)
    after[0].insert(3, refused)
    after[0].insert(3, attrs.evolve(refused, refused=""))
    assert compared(tmp_path, before, after).equal, "one was asked in vain as well, and that is nothing to compare"
    after[0][5] = changed(after[0][5], "qvel", nudged(1, 0))
    (found,) = compared(tmp_path, before, after).divergences
    assert (found.first.step, found.first.leaves[0].path) == (3, "obs.qvel")
    before[0][3] = attrs.evolve(refused, refused="OTHER")
    (found,) = compared(tmp_path, before, after).divergences
    assert (found.first.step, found.first.leaves[0].values) == (3, ("OTHER", "BUSY"))


@pytest.mark.parametrize(
    ("leaves", "part", "values"), [(0, "observation", ("something", "nothing")), (2, "observation", None)]
)
def test_an_observation_that_lacks_leaves_differs_as_a_whole(
    leaves: int, part: str, values: tuple[str, str] | None
) -> None:
    by_step = StepComparison(header(), header(), Tolerance(), ())
    sides = [Seen(Row(tick=1, lane=0, action=[b"1"], observation_digests=b"x" * 16 * count)) for count in (3, leaves)]
    difference = by_step.difference(1, *sides)
    assert difference is not None
    (told,) = difference.leaves
    assert (told.part, told.path) == (part, "obs")
    assert (told.values and tuple(map(str, told.values))) == values
