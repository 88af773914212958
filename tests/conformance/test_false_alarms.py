"""Nothing is found of envs that keep their contract: gymnasium's own, in each form, here and served by our own server.

All of it, real servers too, with more cases and every check: ``python -m tests.conformance.gym_matrix``.
"""

import itertools

import pytest

from rlmesh_trio.conformance.settings import Settings
from tests.conformance.gym_matrix import ENVS, FORMS, Cell, complaints_of, played

OF_EACH_KIND = ("CartPole-v1", "Pendulum-v1", "Taxi-v4", "Blackjack-v1")
"""One env for each kind of spaces; the others differ from these in what happens, which no form changes."""
HERE = [
    Cell(env, form, "local") for env, form in itertools.product(ENVS, FORMS) if form == "single" or env in OF_EACH_KIND
]
SERVED = [
    Cell("CartPole-v1", "single", "factory"),
    Cell("Blackjack-v1", "lanes", "factory"),
    Cell("FrozenLake-v1", "vector", "factory"),
]
SLOW = "seed.timing-independent", "acct.interrupted"


@pytest.mark.filterwarnings("ignore:.*even though this environment has already returned")
@pytest.mark.parametrize("cell", [*HERE, *SERVED], ids=lambda cell: cell.name)
def test_nothing_is_found_of_an_env_that_is_right(cell: Cell) -> None:
    outcome = played(cell, Settings(time=300.0, examples=1, seed=1), skip=SLOW)
    assert complaints_of(outcome) == []
    assert {finding.verdict for finding in outcome.findings} == {"pass", "note", "skip"}
    families = {finding.check.partition(".")[0] for finding in outcome.findings if finding.verdict == "pass"}
    assert families >= {"contract", "space", "value", "seed", "life", "acct", "py"}
