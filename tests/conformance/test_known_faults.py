"""The list of known faults, and each of its entries on the server that has the fault."""

from pathlib import Path
from typing import Any

import pytest
from gymnasium import spaces

from rlmesh_trio.conformance.catalogue import load_checks
from rlmesh_trio.conformance.facts import package_of
from rlmesh_trio.conformance.known_faults import KNOWN_FAULTS, KnownFault, lookup
from rlmesh_trio.conformance.registry import Facts
from rlmesh_trio.conformance.runner import run_checks
from rlmesh_trio.conformance.scripts import Reset, Script, Step
from rlmesh_trio.conformance.settings import Settings
from rlmesh_trio.conformance.targets import WireTarget
from rlmesh_trio.conformance.verdicts import Evidence
from rlmesh_trio.contract import EnvContract
from rlmesh_trio.spaces import space_from_gymnasium
from tests.conformance.wire_labs import WIRE_CHECKS, example_of, facts_at, lab_at
from tests.peers import start_env_peer

PEERS = Path(__file__).parent.parent.parent / "docs" / "peers.md"
CHECKS = load_checks()
BOX = spaces.Box(0, 1, (1,))
PAIR = spaces.Tuple([spaces.Discrete(2), BOX])


def facts_of_a(observation: spaces.Space[Any] = BOX, *, lanes: int = 1, subset_step: bool = False) -> Facts:
    contract = EnvContract(num_envs=lanes, observation_space=space_from_gymnasium(observation))
    return Facts("a target", contract, subset_step, frozenset(), factory=False, local=False)


def test_a_fault_is_known_of_one_package_and_version_only() -> None:
    facts = facts_of_a()
    unreadable = "an unreadable message: the stream ends with OK"
    known = lookup("rlmesh", "0.1.0", "wire.malformed", unreadable, facts)
    assert known is not None
    assert known.endswith("(rlmesh 0.1.0; docs/peers.md, E4)")
    assert lookup("rlmesh", "0.1.1", "wire.malformed", unreadable, facts) is None
    assert lookup("rlmesh_trio", "0.1.0", "wire.malformed", unreadable, facts) is None
    assert lookup("rlmesh", "0.1.0", "wire.malformed", "leaf-short is taken", facts) is None
    assert lookup("rlmesh", "0.1.0", "wire.one-answer", unreadable, facts) is None


@pytest.mark.parametrize(
    ("facts", "known"),
    [
        (facts_of_a(PAIR, lanes=2), True),
        (facts_of_a(PAIR, lanes=2, subset_step=True), False),
        (facts_of_a(PAIR), False),
        (facts_of_a(BOX, lanes=2), False),
        (facts_of_a(spaces.Dict({"pair": PAIR}), lanes=2), False),
    ],
)
def test_a_broken_structure_is_the_servers_for_a_vector_of_tuples_only(facts: Facts, known: bool) -> None:
    told = lookup("rlmesh", "0.1.0", "space.obs-structure", "obs structure", facts)
    assert (told is not None) == known


@pytest.mark.parametrize(("lanes", "subset_step", "known"), [(2, True, True), (1, True, False), (2, False, False)])
def test_a_lost_order_is_known_of_lanes_only(lanes: int, subset_step: bool, known: bool) -> None:
    told = lookup(
        "rlmesh", "0.1.0", "wire.one-answer", "out of order", facts_of_a(lanes=lanes, subset_step=subset_step)
    )
    assert (told is not None) == known


def test_versions_and_signatures_are_patterns() -> None:
    fault = KnownFault("mine", "0.1.*", "wire.close", "* after close", "", "")
    assert fault.covers("mine", "0.1.7", "wire.close", "answers after close", facts_of_a())
    assert not fault.covers("mine", "0.2.0", "wire.close", "answers after close", facts_of_a())


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
    ("space.obs-structure", "obs structure"): (("--env", "Blackjack-v1", "--kind", "vector"), None),
    ("space.member-accepted", "reset *"): (("--env", "pair", "--kind", "vector"), None),
    ("render.frame", "a frame without a render mode"): (("--env", "counter", "--kind", "lanes"), None),
    ("wire.one-answer", "out of order"): (("--kind", "lanes"), ("reset", *("step @0 ahead",) * 8)),
}
BY_CHANCE = ("wire.one-answer",)
OF_THE_SERVER_ALL_THE_SAME = ("space.obs-structure", "space.member-accepted")
"""What these checks find is the env's, save where the fault is known."""


@pytest.mark.interop
@pytest.mark.parametrize("fault", KNOWN_FAULTS, ids=lambda fault: f"{fault.check}: {fault.signature}")
async def test_each_entry_is_seen_on_the_real_server(fault: KnownFault, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rlmesh_trio.conformance.next_session._AGAIN", 0.5)
    options, case = SEEN[fault.check, fault.signature]
    with start_env_peer(*options) as peer:
        async with WireTarget(peer.address).connect(5.0) as env:
            package, version = package_of(env)
        facts = await facts_at(peer.address)
        limit, evidence = 1.0 if "hang" in options else 5.0, None
        for _ in range(20 if fault.check in BY_CHANCE else 1):
            evidence = evidence or await found(peer.address, fault.check, case, step_timeout=limit)
    assert evidence is not None
    assert evidence.blame == ("env" if fault.check in OF_THE_SERVER_ALL_THE_SAME else "server")
    assert fault.covers(package, version, fault.check, evidence.signature, facts), evidence.signature


@pytest.mark.interop
@pytest.mark.parametrize(
    ("options", "check"),
    [
        (("--env", "Blackjack-v1", "--kind", "vector"), "space.obs-structure"),
        (("--env", "pair", "--kind", "vector"), "space.member-accepted"),
    ],
)
async def test_a_vector_of_tuples_is_told_once_and_blamed_on_the_server(options: tuple[str, ...], check: str) -> None:
    with start_env_peer(*options) as peer:
        target = WireTarget(peer.address)
        forgiving, strict = [
            await run_checks([target], Settings(time=60.0, examples=2, seed=1, strict_server=strict), checks=CHECKS)
            for strict in (False, True)
        ]
    (told,) = [finding for finding in forgiving.findings if finding.verdict in ("known", "fail", "warn", "error")]
    assert (told.check, told.verdict) == (check, "known")
    assert told.evidence is not None
    assert told.evidence.blame == "server"
    assert forgiving.status == 0
    assert [finding.check for finding in strict.failed] == [check]
    skipped = [finding for finding in forgiving.findings if finding.reason.startswith("needs a reset that succeeds")]
    assert {finding.check.partition(".")[0] for finding in skipped} >= {"seed", "lanes", "life", "acct", "wire"}


@pytest.mark.interop
@pytest.mark.parametrize(
    "options",
    [
        (),
        ("--kind", "vector"),
        ("--kind", "lanes"),
        ("--env", "kitchen"),
        ("--env", "CartPole-v1", "--render"),
        ("--env", "Blackjack-v1", "--kind", "vector"),
    ],
    ids=" ".join,
)
async def test_nothing_else_is_found_on_real_servers(options: tuple[str, ...]) -> None:
    with start_env_peer(*options) as peer:
        facts = await facts_at(peer.address)
        for check in WIRE_CHECKS:
            evidence = await found(peer.address, check)
            assert evidence is None or lookup("rlmesh", "0.1.0", check, evidence.signature, facts), (check, evidence)
