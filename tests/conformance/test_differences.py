"""The first difference of two traces: what counts, what does not, and how it is told."""

import struct
from collections.abc import Callable, Sequence
from typing import Any

import attrs
import numpy as np
import pytest
from gymnasium import spaces
from hypothesis import given
from hypothesis import strategies as st

from rlmesh_trio.conformance.differences import Difference, first_difference, lane_fingerprint, without
from rlmesh_trio.conformance.registry import Facts
from rlmesh_trio.conformance.rows import row_of
from rlmesh_trio.conformance.scripts import Reset, Script, Step, Wait
from rlmesh_trio.conformance.traces import Refusal, Trace
from rlmesh_trio.contract import AutoresetMode, LeafSpec
from rlmesh_trio.messages import EpisodeRecord
from rlmesh_trio.spaces import space_from_gymnasium
from rlmesh_trio.spaces.bits import ABSENT, leaf_spot, number_spot
from tests.conformance.making import facts_for, row, script_of, trace_of

FACTS = facts_for()
FLOAT32 = LeafSpec("$", "box", "float32", ())


def parted(traces: Sequence[Trace], facts: Facts, **options: Any) -> Difference | None:
    a, b = traces
    return first_difference(a, b, facts, **options)


def nan(payload: int) -> float:
    return struct.unpack("<d", struct.pack("<Q", 0x7FF8_0000_0000_0000 | payload))[0]


def ended(**record: Any) -> dict[str, Any]:
    told = EpisodeRecord("e0", 0, 0, 1, 1.0, terminated=True, start_timestamp_ns=1, final_info={"x": 1})
    return {"terminated": (True,), "completed": (attrs.evolve(told, **record),)}


@pytest.mark.parametrize(
    ("told", "part", "path"),
    [
        ({"observation": (row(1, 0.5),)}, "observation", "obs"),
        ({"observation": (row(1, -0.0),)}, "observation", "obs"),
        ({"observation": (row(1, np.nan),)}, "observation", "obs"),
        ({"observation": ()}, "observation", "obs"),
        ({"rewards": (1.5,)}, "reward", "reward"),
        ({"rewards": (np.nan,)}, "reward", "reward"),
        ({"rewards": ()}, "reward", "reward"),
        ({"terminated": (True,)}, "flag", "terminated"),
        ({"truncated": (True,)}, "flag", "truncated"),
        ({"infos": {"a": {"b": [1, 2.0]}}}, "info", "info.a"),
        ({"refusal": Refusal("INVALID_ACTION", "", recoverable=True)}, "refusal", "refusal"),
    ],
)
def test_whatever_an_answer_holds_counts(told: dict[str, Any], part: str, path: str) -> None:
    plain, other = trace_of({}, {}, {}), trace_of({}, told, {})
    difference = first_difference(plain, other, FACTS)
    assert difference is not None
    assert (difference.part, difference.path, difference.ops, difference.lanes) == (part, path, (1, 1), (0, 0))
    assert first_difference(other, other, FACTS) is None


def test_an_element_is_told_with_both_values_their_bits_and_distance() -> None:
    near = float(np.nextafter(np.float32(0.0917), np.float32(1)))
    difference = first_difference(trace_of({}, {}), trace_of({}, {"observation": (row(1, near),)}), FACTS)
    assert difference is not None
    assert (difference.index, difference.values) == ((1,), (0.0, np.float32(near).item()))
    assert difference.bits == ("0x00000000", f"0x{np.float32(near).view(np.uint32):08x}")
    spot = leaf_spot(FLOAT32, np.float32(0.0917).tobytes(), np.float32(near).tobytes())
    assert spot is not None
    assert spot.ulps == 1


@given(st.floats(width=32), st.floats(width=32), st.integers(0, 3))
def test_floats_are_equal_by_bits_or_within_the_tolerance(a: float, b: float, ulps: int) -> None:
    first, second = np.float32(a), np.float32(b)
    spot = leaf_spot(FLOAT32, first.tobytes(), second.tobytes(), ulps)
    if first.tobytes() == second.tobytes():
        assert spot is None
    elif np.isnan(first) or np.isnan(second):
        assert spot is not None
        assert spot.ulps is None
    else:
        reached = first
        for _ in range(ulps):
            reached = np.nextafter(reached, second)
        assert (spot is None) == (ulps > 0 and reached == second and _signs_agree(first, second, ulps))


def _signs_agree(a: np.float32, b: np.float32, ulps: int) -> bool:
    """Across zero there is one step more than numpy takes: from -0.0 to 0.0."""
    if np.signbit(a) == np.signbit(b):
        return True
    keys = [int(abs(value).view(np.uint32)) for value in (a, b)]
    return sum(keys) + 1 <= ulps


def test_the_same_nan_is_equal_and_another_is_not() -> None:
    assert number_spot(nan(1), nan(1)) is None
    assert number_spot(nan(1), nan(2)) is not None
    assert number_spot(nan(1), nan(2), ulps=9) is not None


def test_a_reward_of_float32_is_measured_in_ulps_of_float32() -> None:
    reward = np.float32(0.1)
    spot = number_spot(float(reward), float(np.nextafter(reward, np.float32(1))))
    assert spot is not None
    assert (spot.ulps, len(spot.bits[0])) == (1, 10)


def test_a_tolerance_is_for_floats_only() -> None:
    space = spaces.Dict({"f": spaces.Box(-1, 1, (), np.float32), "n": spaces.Discrete(9)})
    facts = facts_for(space, ulps=4)
    wire = space_from_gymnasium(space)

    def told(f: float, n: int, **more: Any) -> dict[str, Any]:
        return {"observation": (row_of(wire, {"f": np.float32(f), "n": n}),), **more}

    near = float(np.nextafter(np.float32(0.5), np.float32(1)))
    start = told(0, 0)
    plain = trace_of(start, told(0.5, 3))
    assert first_difference(plain, trace_of(start, told(near, 3)), facts) is None
    assert first_difference(plain, trace_of(start, told(0.5, 3, rewards=(1.0000000000000002,))), facts) is None
    different = first_difference(plain, trace_of(start, told(0.5, 4)), facts)
    assert different is not None
    assert (different.path, different.values, different.ulps) == ("obs.n", (3, 4), None)
    counts = [trace_of(start, told(0.5, 3), told(0.5, 3, **ended(step_count=n))) for n in (2, 3)]
    assert parted(counts, facts) is not None


@pytest.mark.parametrize(("ignored", "equal"), [("obs.a", True), ("obs.a.deep", True), ("obs.b", False)])
def test_leaves_are_left_out_by_name(ignored: str, equal: bool) -> None:
    inner: Any = spaces.Dict({"deep": spaces.Discrete(2)})
    space = spaces.Dict({"a": inner, "b": spaces.Discrete(2)})
    wire = space_from_gymnasium(space)
    traces = [trace_of({"observation": (row_of(wire, {"a": {"deep": n}, "b": 0}),)}) for n in (0, 1)]
    facts = facts_for(space, ignored_leaves=frozenset({ignored}))
    assert (parted(traces, facts) is None) == equal


def test_texts_and_malformed_leaves_are_told() -> None:
    spec = LeafSpec("$", "text", "uint8", ())
    wire = space_from_gymnasium(spaces.Text(9))
    spot = leaf_spot(spec, row_of(wire, "abc")[0], row_of(wire, "abd")[0])
    assert spot is not None
    assert spot.values == ("abc", "abd")
    short = leaf_spot(FLOAT32, b"\0\0\0\0", b"\0")
    assert short is not None
    assert short.values == ("4 bytes", "1 bytes")


def test_infos_alone_count_only_where_nothing_else_differs() -> None:
    plain = trace_of({}, {"infos": {"a": 1}}, {})
    told_first = trace_of({}, {"infos": {"a": 2}}, {"rewards": (2.0,)})
    difference = first_difference(plain, told_first, FACTS)
    assert difference is not None
    assert (difference.part, difference.op) == ("reward", 2)
    only = first_difference(plain, trace_of({}, {"infos": {}}, {}), FACTS)
    assert only is not None
    assert only.info_only
    assert only.values == (1, ABSENT)


@pytest.mark.parametrize(
    ("a", "b"),
    [
        ({"episode": {"t": 1.5, "r": 1.0}}, {"episode": {"t": 1.7, "r": 1.0}}),
        ({"endpoint_total_ns": 1}, {}),
        ({"rlmesh.conformance.warning": [{"kind": "observation"}]}, {}),
        ({"mine": 1, "deep": {"mine": 1}}, {"mine": 2, "deep": {"mine": 3}}),
        ({"who": "<Thing at 0x7f00>"}, {"who": "<Thing at 0x7fff>"}),
        ({"nan": nan(3)}, {"nan": nan(3)}),
    ],
)
def test_infos_that_equal_runs_differ_in_do_not_count(a: dict[str, Any], b: dict[str, Any]) -> None:
    facts = facts_for(ignored_infos=frozenset({"mine"}))
    assert first_difference(trace_of({"infos": a}), trace_of({"infos": b}), facts) is None


@pytest.mark.parametrize(
    ("a", "b", "path"),
    [
        ({"n": 1}, {"n": 1.0}, "info.n"),
        ({"n": 0.0}, {"n": -0.0}, "info.n"),
        ({"n": True}, {"n": 1}, "info.n"),
        ({"n": [1, [2]]}, {"n": [1, [3]]}, "info.n[1][0]"),
        ({"episode": {"r": 1.0}}, {"episode": {"r": 2.0}}, "info.episode.r"),
    ],
)
def test_infos_are_compared_by_type_and_bits(a: dict[str, Any], b: dict[str, Any], path: str) -> None:
    difference = first_difference(trace_of({"infos": a}), trace_of({"infos": b}), FACTS)
    assert difference is not None
    assert difference.path == path


def vector_form(n: int) -> dict[str, Any]:
    return {"x": [n, 5], "_x": [True, True]}


def lane_form(n: int) -> dict[str, Any]:
    return {"final_info": [{"x": n}, {"x": 5}], "_final_info": [False, False]}


@pytest.mark.parametrize(("subset_step", "tell"), [(False, vector_form), (True, lane_form)])
def test_each_lane_has_its_own_infos(subset_step: bool, tell: Callable[[int], dict[str, Any]]) -> None:
    facts = facts_for(lanes=2, subset_step=subset_step)
    traces = [trace_of({"infos": tell(n)}, lanes=2) for n in (1, 2)]
    assert parted(traces, facts, lanes={1: 1}) is None
    difference = parted(traces, facts)
    assert difference is not None
    assert (difference.lane, difference.path) == (0, "info.x")


def test_records_count_but_for_times_and_ids_we_did_not_send() -> None:
    plain = trace_of({}, ended())
    assert first_difference(plain, trace_of({}, ended(start_timestamp_ns=5, end_timestamp_ns=6)), FACTS) is None
    unknown = [trace_of({}, ended(episode_id=name)) for name in ("theirs", "other")]
    assert parted(unknown, FACTS) is None
    for path, value in (("episode_id", "theirs"), ("seed", None), ("step_count", 2), ("cumulative_reward", 2.0)):
        difference = first_difference(plain, trace_of({}, ended(**{path: value})), FACTS)
        assert difference is not None
        assert difference.path == f"record.{path}"
    missing = first_difference(plain, trace_of({}, {"terminated": (True,)}), FACTS)
    assert missing is not None
    assert missing.path == "record"
    told = first_difference(plain, trace_of({}, ended(final_info={"x": 2})), FACTS)
    assert told is not None
    assert told.info_only


def test_records_of_episodes_that_were_cut_short_come_when_they_like() -> None:
    cut = EpisodeRecord("old", 0, 0, 7, truncated=True)
    assert first_difference(trace_of({}, {}), trace_of({}, {"completed": (cut,)}), FACTS) is None


@pytest.mark.parametrize(
    ("mode", "autoresets", "equal"),
    [
        (AutoresetMode.DISABLED, True, True),
        (AutoresetMode.UNSPECIFIED, True, True),
        (AutoresetMode.NEXT_STEP, True, False),
        (AutoresetMode.NEXT_STEP, False, True),
        (AutoresetMode.SAME_STEP, False, True),
    ],
)
def test_after_an_end_only_what_the_env_began_counts(mode: AutoresetMode, autoresets: bool, equal: bool) -> None:
    end = {"terminated": (True,)}
    traces = [trace_of({}, end, {"observation": (row(n, n),)}) for n in (0, 1)]
    assert (parted(traces, facts_for(mode=mode), autoresets=autoresets) is None) == equal


def test_the_done_step_of_same_step_shows_the_next_episode() -> None:
    traces = [trace_of({}, {"terminated": (True,), "observation": (row(n, n),)}) for n in (0, 1)]
    facts = facts_for(mode=AutoresetMode.SAME_STEP)
    assert parted(traces, facts, autoresets=False) is None
    assert parted(traces, facts) is not None


def test_a_reset_makes_a_lane_count_again() -> None:
    script = Script(1, (*script_of(2).ops, Reset((5,))))
    end = {"terminated": (True,)}
    traces = [trace_of({}, end, {"rewards": (n,)}, {"observation": (row(n, n),)}, script=script) for n in (0.0, 1.0)]
    difference = parted(traces, FACTS)
    assert difference is not None
    assert difference.op == 3


def test_who_is_stepped_together_with_a_lane_that_is_over_may_be_refused() -> None:
    end = {"terminated": (False, True)}
    refused = {"refusal": Refusal("INTERNAL", "", recoverable=False)}
    facts = facts_for(lanes=2)
    traces = trace_of({}, end, refused, lanes=2), trace_of({}, {}, {}, lanes=2)
    assert parted(traces, facts, lanes={0: 0}) is None
    assert first_difference(trace_of({}, {}, refused, lanes=2), traces[1], facts, lanes={0: 0}) is not None


@pytest.mark.parametrize("code", ["TIMEOUT", "CONNECTION"])
def test_what_was_not_answered_tells_nothing(code: str) -> None:
    refused = {"refusal": Refusal(code, "", recoverable=False)}
    assert first_difference(trace_of({}, {}), trace_of({}, refused), FACTS) is None


def test_lanes_can_be_compared_with_others() -> None:
    a = trace_of({"observation": (row(1, 0), row(2, 0))}, lanes=2)
    b = trace_of({"observation": (row(2, 0), row(1, 0))}, lanes=2)
    facts = facts_for(lanes=2)
    assert first_difference(a, b, facts, lanes={0: 1, 1: 0}) is None
    difference = first_difference(a, b, facts, lanes={1: 1})
    assert difference is not None
    assert difference.lanes == (1, 1)


def test_waits_have_no_answer() -> None:
    script = script_of(2)
    waiting = Script(1, (*script.ops[:2], Wait(0.1), *script.ops[2:]))
    plain = trace_of({}, {}, {})
    last = attrs.evolve(plain.answers[2], op=3)
    paused = Trace(waiting, (*plain.answers[:2], last))
    assert first_difference(plain, paused, FACTS) is None
    later = attrs.evolve(last, rewards=(7.0,))
    difference = first_difference(plain, attrs.evolve(paused, answers=(*plain.answers[:2], later)), FACTS)
    assert difference is not None
    assert difference.ops == (2, 3)


def test_a_trace_without_some_ops_is_numbered_anew() -> None:
    script = Script(1, (*script_of(1).ops, *script_of(1).ops))
    ids = [{"episode_ids": (name,)} for name in ("a", "a", "b", "b")]
    ids[3]["completed"] = (EpisodeRecord("a"), EpisodeRecord("b"))  # pyright: ignore
    rest = without(trace_of(*ids, script=script), range(2))
    assert [answer.op for answer in rest.answers] == [0, 1]
    assert rest.script.ops == script.ops[2:]
    assert [record.episode_id for record in rest.answers[1].completed] == ["b"]


def test_a_fingerprint_is_what_a_lane_answered_up_to_its_end() -> None:
    end = {"terminated": (False, True)}
    trace = trace_of({}, end, {"rewards": (1.0, 9.0)}, lanes=2)
    facts = facts_for(lanes=2)
    assert [len(lane_fingerprint(trace, lane, facts)) for lane in (0, 1)] == [3, 2]
    other = trace_of({}, end, {"rewards": (1.0, 8.0), "infos": {"x": 1}}, lanes=2)
    assert lane_fingerprint(trace, 1, facts) == lane_fingerprint(other, 1, facts)
    assert isinstance(trace.script.ops[1], Step)
