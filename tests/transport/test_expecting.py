"""When an answer is watched for: after one that came soon, and less and less often where that does no good."""

from hypothesis import given
from hypothesis import strategies as st

from rlmesh_trio.transport.expecting import Expecting

SOON, LATE = 200_000, 3_000_000


def tries(expecting: Expecting, answers: int, *, when_watched: int, when_slept: int = SOON) -> int:
    """How many of *answers* are watched for, if they take so long, in nanoseconds, when watched and when slept for."""
    watched = 0
    for _ in range(answers):
        is_watched = expecting.is_worth_watching
        watched += is_watched
        expecting.came(when_watched if is_watched else when_slept, watched=is_watched)
    return watched


def test_the_first_is_not_watched_for_and_quick_ones_are_from_then_on() -> None:
    expecting = Expecting()
    assert not expecting.is_worth_watching
    assert tries(expecting, 100, when_watched=SOON) == 99


def test_late_ones_are_not() -> None:
    assert tries(Expecting(), 100, when_watched=LATE, when_slept=LATE) == 0


def test_where_watching_makes_them_late_it_is_hardly_tried() -> None:
    expecting = Expecting()
    assert tries(expecting, 2046, when_watched=LATE) == 10
    assert tries(expecting, 10_000, when_watched=LATE) <= 10


def test_a_late_one_now_and_then_is_excused() -> None:
    expecting = Expecting()
    for _ in range(20):
        assert tries(expecting, 50, when_watched=SOON) >= 49
        expecting.came(LATE, watched=True)


def test_it_is_taken_up_again_when_the_others_are_gone() -> None:
    expecting = Expecting()
    tries(expecting, 5000, when_watched=LATE)
    assert tries(expecting, 2000, when_watched=SOON) >= 900


@given(st.lists(st.tuples(st.integers(0, 10_000_000), st.booleans())))
def test_a_thousand_quick_answers_always_suffice(record: list[tuple[int, bool]]) -> None:
    expecting = Expecting()
    for elapsed, watched in record:
        expecting.came(elapsed, watched=watched)
    for _ in range(1024):
        expecting.came(SOON, watched=False)
    assert expecting.is_worth_watching
