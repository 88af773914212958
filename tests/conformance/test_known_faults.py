"""The list of known faults, and each of its entries on the server that has the fault."""

from pathlib import Path
from typing import Any

import pytest

from rlmesh_trio.conformance.catalogue import load_checks
from rlmesh_trio.conformance.facts import package_of
from rlmesh_trio.conformance.known_faults import KNOWN_FAULTS, KnownFault, lookup
from rlmesh_trio.conformance.scripts import Reset, Script, Step
from rlmesh_trio.conformance.targets import WireTarget
from rlmesh_trio.conformance.verdicts import Evidence
from tests.conformance.wire_labs import WIRE_CHECKS, example_of, lab_at
from tests.peers import start_env_peer

PEERS = Path(__file__).parent.parent.parent / "docs" / "peers.md"
CHECKS = load_checks()


def test_a_fault_is_known_of_one_package_and_version_only() -> None:
    unreadable = "an unreadable message: the stream ends with OK"
    known = lookup("rlmesh", "0.1.0", "wire.malformed", unreadable)
    assert known is not None
    assert known.endswith("(rlmesh 0.1.0; docs/peers.md, E4)")
    assert lookup("rlmesh", "0.1.1", "wire.malformed", unreadable) is None
    assert lookup("rlmesh_trio", "0.1.0", "wire.malformed", unreadable) is None
    assert lookup("rlmesh", "0.1.0", "wire.malformed", "leaf-short is taken") is None
    assert lookup("rlmesh", "0.1.0", "wire.one-answer", unreadable) is None


def test_versions_and_signatures_are_patterns() -> None:
    fault = KnownFault("mine", "0.1.*", "wire.close", "* after close", "", "")
    assert fault.covers("mine", "0.1.7", "wire.close", "answers after close")
    assert not fault.covers("mine", "0.2.0", "wire.close", "answers after close")


@pytest.mark.parametrize("fault", KNOWN_FAULTS, ids=lambda fault: f"{fault.check}: {fault.signature}")
def test_each_entry_names_a_check_and_what_is_written_of_it(fault: KnownFault) -> None:
    assert fault.check in CHECKS
    document, _, entry = fault.pointer.partition(", ")
    assert document == "docs/peers.md"
    assert f"### {entry}. " in PEERS.read_text()


async def found(address: str, check: str, case: Any = None, *, step_timeout: float = 5.0) -> Evidence | None:
    """What *check* finds on a real server."""
    async with lab_at(address, step_timeout=step_timeout) as lab:
        return await CHECKS[check].judge(lab, example_of(check, lab.facts) if case is None else case)


SEEN: dict[tuple[str, str], tuple[tuple[str, ...], Any]] = {
    ("life.step-needs-reset", "a step before the first reset is taken"): (("--env", "kitchen"), None),
    ("life.step-needs-reset", "refused as INTERNAL"): (("--env", "CartPole-v1"), None),
    ("wire.deadline", "TIMEOUT comes too late"): (("--sleep", "0.4"), ("step 1ms",)),
    ("wire.deadline", "no answer"): (("--fault", "hang", "--fault-at", "1"), ("step 1ms",)),
    ("wire.survives", "the next client is refused"): (("--sleep", "1.5"), ("step ahead", "leave cut")),
    ("wire.second-client", "the next client is refused"): (("--sleep", "1.5"), ("step ahead", "leave cut")),
    ("wire.malformed", "an unreadable message: the stream ends with OK"): ((), None),
    ("wire.recoverable-honest", "INTERNAL not recoverable, and goes on"): (
        ("--kind", "lanes", "--fault", "raise", "--fault-at", "1", "--fault-lane", "1"),
        ("step @1",),
    ),
    ("acct.interrupted", "record lost"): ((), None),
    ("space.nonmember-refused", "* range passed on without a warning"): (("--env", "kitchen"), None),
    ("value.warning-once", "* warned of again"): (
        ("--kind", "lanes", "--num-envs", "2", "--fault", "range", "--fault-at", "1"),
        Script(2, (Reset((0, 1)), Step(((bytes(8),),), (0,)), Step(((bytes(8),),), (1,)))),
    ),
}


@pytest.mark.interop
@pytest.mark.parametrize("fault", KNOWN_FAULTS, ids=lambda fault: f"{fault.check}: {fault.signature}")
async def test_each_entry_is_seen_on_the_real_server(fault: KnownFault, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rlmesh_trio.conformance.next_session._AGAIN", 0.5)
    options, case = SEEN[fault.check, fault.signature]
    with start_env_peer(*options) as peer:
        async with WireTarget(peer.address).connect(5.0) as env:
            package, version = package_of(env)
        evidence = await found(peer.address, fault.check, case, step_timeout=1.0 if "hang" in options else 5.0)
    assert evidence is not None
    assert evidence.blame == "server"
    assert fault.covers(package, version, fault.check, evidence.signature), evidence.signature


@pytest.mark.interop
@pytest.mark.parametrize(
    "options",
    [(), ("--kind", "vector"), ("--kind", "lanes"), ("--env", "kitchen"), ("--env", "CartPole-v1", "--render")],
    ids=" ".join,
)
async def test_nothing_else_is_found_on_real_servers(options: tuple[str, ...]) -> None:
    with start_env_peer(*options) as peer:
        for check in WIRE_CHECKS:
            evidence = await found(peer.address, check)
            assert evidence is None or lookup("rlmesh", "0.1.0", check, evidence.signature), (check, evidence)
