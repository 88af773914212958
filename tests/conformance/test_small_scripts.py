"""What a reader gets to see of a failure is small: no script of a planted fault is long without a reason."""

import math
import statistics

import pytest

from rlmesh_trio.conformance.cases import ops_in
from rlmesh_trio.conformance.outcome import Outcome
from rlmesh_trio.conformance.verdicts import Finding
from tests.conformance.planted_runs import FAULTS, LEFT_LARGE, OF_SERVERS, PLANTED, failure, found, run_of

LONG = {
    "life.time-limit-exact": 7,  # a limit of 5 steps, and what comes after it
}
"""What takes more than 6 ops by nature."""


def ops(outcome: Outcome, check: str) -> int:
    finding: Finding = failure(outcome, check)
    assert not finding.cut
    return ops_in(finding.case)


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_what_shows_a_fault_has_at_most_six_ops_as_a_rule() -> None:
    sizes = [
        (check, ops(found(check, f"{PLANTED}.{env}", lanes), check))
        for check, env, lanes in FAULTS
        if check not in LEFT_LARGE
    ]
    sizes += [(check, ops(run_of(check, target, 2), check)) for check, target in OF_SERVERS]
    large = [math.inf for check, *_ in FAULTS if check in LEFT_LARGE]
    assert statistics.median([*[size for _, size in sizes], *large]) <= 6
    assert [(check, size) for check, size in sizes if size > LONG.get(check, 6)] == []
