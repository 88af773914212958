"""The two decisions behind a blame, by their tables."""

import pytest

from rlmesh_trio.replay.blame import Blame, Verdict, blame_of, verdict_of


@pytest.mark.parametrize(
    ("env", "model", "blame"),
    [
        (True, True, "both"),
        (True, False, "env"),
        (True, None, "env"),
        (False, True, "model"),
        (None, True, "model"),
        (False, False, "pair"),
        (False, None, "unknown"),
        (None, False, "unknown"),
        (None, None, "unknown"),
    ],
)
def test_who_is_to_blame(env: bool | None, model: bool | None, blame: Blame) -> None:
    assert blame_of(env, model) == blame


@pytest.mark.parametrize(
    ("batched", "single", "again", "verdict"),
    [
        (True, None, None, "repeats"),
        (True, True, None, "repeats"),
        (True, False, True, "batch"),
        (True, False, False, "random"),
        (False, True, True, "batch"),
        (False, False, True, "other"),
        (False, None, True, "other"),
        (False, None, False, "random"),
        (False, True, False, "random"),
    ],
)
def test_what_kind_of_model_it_is(batched: bool, single: bool | None, again: bool | None, verdict: Verdict) -> None:
    assert verdict_of(batched=batched, single=single, again=again) == verdict
