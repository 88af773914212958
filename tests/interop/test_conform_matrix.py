"""Gymnasium's own envs on real servers, each in one form: nothing is found of them but what is known of the server.

All forms, with more cases: ``python -m tests.conformance.gym_matrix rlmesh``.
"""

import pytest

from rlmesh_trio.conformance.settings import Settings
from tests.conformance.gym_matrix import ENVS, FORMS, Cell, complaints_of, played

CELLS = [Cell(env, FORMS[number % len(FORMS)], "rlmesh") for number, env in enumerate(ENVS)]
ALWAYS_KNOWN = {"life.step-needs-reset", "acct.interrupted", "wire.malformed"}
SLOW = ("seed.timing-independent", "wire.large")


@pytest.mark.parametrize("cell", CELLS, ids=lambda cell: cell.name)
def test_nothing_but_known_faults_is_found_on_a_real_server(cell: Cell) -> None:
    outcome = played(cell, Settings(time=300.0, examples=1, seed=1), skip=SLOW)
    assert complaints_of(outcome) == []
    known = {finding.check for finding in outcome.findings if finding.verdict == "known"}
    assert known >= ALWAYS_KNOWN
    assert known - ALWAYS_KNOWN <= {"space.nonmember-refused", "value.warning-once"}
    assert all(
        finding.evidence.blame == "server"
        for finding in outcome.findings
        if finding.evidence and finding.verdict == "known"
    )
