"""Gymnasium's own envs on real rlmesh servers: nothing is found of them but what is known of the server."""

import pytest

from rlmesh_trio.conformance.known_faults import lookup
from rlmesh_trio.conformance.targets import WireTarget
from tests.conformance.complaints import complaints
from tests.conformance.wire_labs import facts_at
from tests.peers import start_env_peer


@pytest.mark.interop
@pytest.mark.parametrize(
    "options",
    [
        ("--env", "CartPole-v1", "--kind", "lanes"),
        ("--env", "Taxi-v4", "--kind", "vector"),
        ("--env", "kitchen", "--render"),
        ("--env", "counter", "--kind", "lanes"),
        ("--env", "Blackjack-v1", "--kind", "vector"),
    ],
    ids=" ".join,
)
async def test_nothing_unknown_is_found_on_real_servers(options: tuple[str, ...]) -> None:
    with start_env_peer(*options) as peer:
        findings = await complaints(WireTarget(peer.address))
        facts = await facts_at(peer.address)
    known = {id for id, evidence in findings.items() if lookup("rlmesh", "0.1.0", id, evidence.signature, facts)}
    assert set(findings) == known, findings
