"""What judges read out of answers: live lanes, masks, warnings, observations that were withheld, ranges seen."""

from typing import Any, cast

import attrs
import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

from rlmesh_trio.conformance.action_masks import MaskReader
from rlmesh_trio.conformance.live_lanes import moments
from rlmesh_trio.conformance.python_types import has_dtype, unplain_parts
from rlmesh_trio.conformance.refused_observations import withheld
from rlmesh_trio.conformance.rows import row_of
from rlmesh_trio.conformance.scripts import Reset, Script, Step
from rlmesh_trio.conformance.seen_ranges import ranges_seen
from rlmesh_trio.conformance.server_warnings import warnings_in
from rlmesh_trio.conformance.traces import Answer, Refusal, Trace
from rlmesh_trio.contract import AutoresetMode
from rlmesh_trio.spaces import space_from_gymnasium
from tests.conformance.making import facts_for

KEY = "rlmesh.conformance.warning"
BOTH = (0, 1)
STEP = Step(((b"",), (b"",)))


def played(*answers: tuple[Any, Answer]) -> Trace:
    """A trace of two lanes of these ops and answers."""
    ops = tuple(op for op, _ in answers)
    return Trace(Script(2, ops), tuple(attrs.evolve(answer, op=place) for place, (_, answer) in enumerate(answers)))


def stepped(*ended: bool, refusal: Refusal | None = None, lanes: tuple[int, ...] = BOTH) -> Answer:
    return Answer(0, lanes, terminated=ended, truncated=(False,) * len(ended), refusal=refusal)


@pytest.mark.parametrize(
    ("mode", "live"),
    [
        (AutoresetMode.DISABLED, [BOTH, BOTH, (0,), (0,)]),
        (AutoresetMode.NEXT_STEP, [BOTH, BOTH, BOTH, BOTH]),
    ],
)
def test_a_lane_is_live_until_its_end_unless_it_is_restarted(mode: AutoresetMode, live: list[tuple[int, ...]]) -> None:
    trace = played(
        (Reset(), Answer(0, BOTH)),
        (STEP, stepped(False, True)),
        (STEP, stepped(False, False)),
        (STEP, stepped(False, False)),
    )
    assert [moment.lanes for moment in moments(trace, facts_for(lanes=2, mode=mode))] == live


def test_a_lane_is_live_again_after_its_own_reset() -> None:
    trace = played(
        (Reset(), Answer(0, BOTH)),
        (STEP, stepped(True, True)),
        (Reset(lanes=(1,)), Answer(0, (1,))),
        (STEP, stepped(False, False)),
    )
    assert [moment.lanes for moment in moments(trace, facts_for(lanes=2))] == [BOTH, BOTH, (1,), (1,)]


@pytest.mark.parametrize(("code", "live"), [("INVALID_ACTION", BOTH), ("TIMEOUT", ()), ("INTERNAL", ())])
def test_after_some_errors_nobody_knows(code: str, live: tuple[int, ...]) -> None:
    trace = played(
        (Reset(), Answer(0, BOTH)),
        (STEP, stepped(refusal=Refusal(code, "no", recoverable=True))),
        (STEP, stepped(False, False)),
    )
    assert [moment.lanes for moment in moments(trace, facts_for(lanes=2))] == [BOTH, BOTH, live]


def test_a_step_before_any_reset_finds_nobody() -> None:
    trace = played((STEP, stepped(False, False)))
    assert [(moment.lanes, moment.whole) for moment in moments(trace, facts_for(lanes=2))] == [((), False)]


DISCRETE, PAIR = spaces.Discrete(3, start=-1), spaces.MultiDiscrete([2, 3])


@pytest.mark.parametrize(
    ("actions", "told", "allowed"),
    [
        (DISCRETE, [0, 1, 0], [0]),
        (DISCRETE, [True, False, True], [-1, 1]),
        (DISCRETE, [0.0, 0.0, 0.0], []),
        (PAIR, [[1, 0], [0, 1, 1]], [[0, 1], [0, 2]]),
        (PAIR, [1, 0, 0, 1, 1], [[0, 1], [0, 2]]),
        (PAIR, [[1, 1], [0, 0, 0]], []),
        (spaces.MultiDiscrete([2]), [[0, 1]], [[1]]),
        (spaces.MultiDiscrete([2]), [0, 1], [[1]]),
    ],
)
def test_a_mask_says_what_is_allowed(actions: gymnasium.Space[Any], told: Any, allowed: list[Any]) -> None:
    reader = MaskReader(facts_for(actions=actions))
    mask = reader.of(Answer(0, (0,), infos={"action_mask": told}), 0)
    assert mask is not None
    assert mask.is_empty == (not allowed)
    space = space_from_gymnasium(actions)
    every = range(-1, 2) if actions is DISCRETE else np.ndindex(*cast("Any", actions).nvec)
    found = [value for value in every if reader.allows(mask, row_of(space, np.array(value)))]
    assert [np.array(value).tolist() for value in found] == allowed


@pytest.mark.parametrize(
    ("actions", "told"),
    [
        (DISCRETE, [0, 1]),
        (DISCRETE, [0, 1, 2]),
        (DISCRETE, ["0", "1", "1"]),
        (DISCRETE, 1),
        (DISCRETE, None),
        (PAIR, [1, 0]),
        (spaces.Box(0, 1, (3,)), [0, 1, 0]),
        (spaces.Dict({"a": DISCRETE, "b": DISCRETE}), [0, 1, 0]),
    ],
)
def test_what_has_another_shape_is_no_mask(actions: gymnasium.Space[Any], told: Any) -> None:
    reader = MaskReader(facts_for(actions=actions))
    assert reader.of(Answer(0, (0,), infos={"action_mask": told}), 0) is None


def warning(kind: str, path: str) -> dict[str, str]:
    return {"kind": kind, "path": path, "detail": "too large"}


@pytest.mark.parametrize(
    ("infos", "found"),
    [
        (None, []),
        ({KEY: [warning("action", "$"), warning("action", "$")]}, [("action", "$")] * 2),
        ({KEY: [warning("action", "$")], "final_info": [{KEY: [warning("action", "$")]}, {}]}, [("action", "$")]),
        ({"final_info": [{KEY: [warning("action", "$")]}] * 2}, [("action", "$")]),
        ({"final_info": [None, {KEY: [warning("observation", "$.a")]}]}, [("observation", "$.a")]),
        ({KEY: "odd", "final_info": 3}, []),
    ],
)
def test_warnings_are_read_from_any_form_of_infos(infos: Any, found: list[tuple[str, str]]) -> None:
    assert warnings_in(Answer(0, BOTH, infos=infos)) == found


OURS = "the env's observation is not in its observation space: "


@pytest.mark.parametrize(
    ("message", "flaw", "path"),
    [
        (OURS + "$.a: row 0, index [1]: the value is NaN", "nan", "$.a"),
        (OURS + "$: row 0: the value 7 is above the highest value, 2", "outside", "$"),
        (OURS + "$: row 0: 4 characters, expected 1 to 3", "outside", "$"),
        (OURS + '$["a: b"]: expected the shape (2,), got (3,)', "structure", '$["a: b"]'),
        ("step failed: ValueError: $.a b[0]: Box value at element 0 is NaN", "nan", "$.a b[0]"),
        ("reset failed: ValueError: $: value 7 not in range [0, 3)", "outside", "$"),
        ("step failed: ValueError: $: value[1] = 3 not in range [0, 3)", "outside", "$"),
        ("step failed: KeyError: \"missing dict key 'b'\"", "structure", "$"),
        ("step failed: ValueError: Tuple space expected 2 items, got 1", "structure", "$"),
        (
            "step failed: ValueError: invalid box value: data is 12 bytes but shape and dtype require exactly 8",
            "structure",
            "$",
        ),
    ],
)
def test_what_a_server_says_of_an_observation_it_withholds(message: str, flaw: str, path: str) -> None:
    found = withheld(Refusal("INTERNAL", message, recoverable=False))
    assert found is not None
    assert (found.flaw, found.path) == (flaw, path)


@pytest.mark.parametrize(
    "refusal",
    [
        None,
        Refusal("INTERNAL", "step failed: ValueError: NaN in the physics", recoverable=False),
        Refusal("INTERNAL", "step failed: KeyError: 'b'", recoverable=False),
        Refusal("INVALID_ACTION", "$: Box value at element 0 is NaN", recoverable=True),
    ],
)
def test_an_env_that_raises_withholds_nothing(refusal: Refusal | None) -> None:
    assert withheld(refusal) is None


def test_ranges_are_told_with_what_never_moved_or_came() -> None:
    space = spaces.Dict(
        {
            "a": spaces.Box(np.array([-1, 0], np.float32), np.array([1, np.inf], np.float32)),
            "b": spaces.Discrete(4, start=2),
            "c": spaces.Box(0, 255, (3, 3), np.uint8),
            "d": spaces.Text(5),
            "e": spaces.Discrete(900),
        }
    )
    facts = facts_for(space)
    known = space_from_gymnasium(space)

    def seen(a: list[float], b: int, c: int, d: str, e: int) -> tuple[Any, Answer]:
        value = {"a": np.array(a, np.float32), "b": b, "c": np.full((3, 3), c, np.uint8), "d": d, "e": e}
        return Reset(), Answer(0, (0,), observation=(row_of(known, value),))

    ranges_seen(facts).note(played(seen([0.5, 2], 2, 7, "abc", 5), seen([-0.5, 2], 5, 7, "a", 6)))
    assert ranges_seen(facts).table() == (
        "obs.a[0]   declared -1 to 1    seen -0.5 to 0.5",
        "obs.a[1]   declared 0 to inf   seen 2 to 2              never moved",
        "obs.b      declared 2 to 5     seen 2 to 5              never 3, 4",
        "obs.c      declared 0 to 255   seen 7 to 7              9 of 9 elements never moved",
        "obs.d      declared 1 to 5     seen 1 to 3 characters",
        "obs.e      declared 0 to 899   seen 5 to 6              2 of 900 values",
    )


def test_where_nothing_was_seen_there_is_nothing_to_tell() -> None:
    assert ranges_seen(facts_for(spaces.Discrete(2))).table() == ()


@pytest.mark.parametrize(
    ("space", "value", "has"),
    [
        (spaces.Discrete(3), 1, True),
        (spaces.Discrete(3), np.int32(1), True),
        (spaces.Discrete(3), np.array(1), True),
        (spaces.Discrete(3), np.array([1]), False),
        (spaces.Discrete(3), 1.0, False),
        (spaces.Box(0, 1, ()), np.float32(0), True),
        (spaces.Box(0, 1, ()), 0.0, False),
        (spaces.MultiBinary(2), np.zeros(2, np.int8), True),
        (spaces.MultiBinary(2), np.zeros(2, np.bool_), False),
        (spaces.Text(3), "a", True),
        (spaces.Text(3), b"a", False),
    ],
)
def test_what_has_the_dtype_of_a_space(space: gymnasium.Space[Any], value: Any, has: bool) -> None:
    assert has_dtype(space, value) is has


def test_what_holds_itself_has_no_form_on_the_wire() -> None:
    endless: list[Any] = []
    endless.append(endless)
    assert next(unplain_parts("info", endless))[1].startswith("is nested deeper than")
