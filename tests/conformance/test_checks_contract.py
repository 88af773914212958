"""The family ``contract``: each planted fault fails its check and no other, and good servers pass."""

from typing import Any

import attrs
import pytest

from rlmesh_trio.conformance.registry import CHECKS
from rlmesh_trio.conformance.runner import run_checks
from rlmesh_trio.conformance.settings import Settings
from rlmesh_trio.conformance.targets import LocalTarget, WireTarget
from rlmesh_trio.conformance.verdicts import Evidence
from rlmesh_trio.errors import HandshakeError
from rlmesh_trio.serve import serve_env
from rlmesh_trio.wire.pb.rlmesh.core import v1 as core
from tests.conformance.broken_server import scripted_server
from tests.conformance.complaints import complaints, complaints_about, lab_of
from tests.conformance.planted import contract as planted
from tests.conformance.planted.space import OddButRight
from tests.conformance.test_checks_space import told


async def complaints_of(server: planted.Handshaker) -> dict[str, Evidence]:
    async with scripted_server(attrs.evolve(server)) as address:
        return await complaints(WireTarget(address), families=("contract",))


@pytest.mark.parametrize("manners", planted.HANDSHAKES)
async def test_a_fault_of_handshakes_fails_its_check_alone(manners: str) -> None:
    check, signature = planted.HANDSHAKES[manners]
    findings = await complaints_of(planted.Handshaker(manners=manners))
    assert {id: told(evidence) for id, evidence in findings.items()} == {check: signature}


@pytest.mark.parametrize("role", ["observation_space", "action_space"])
@pytest.mark.parametrize("fault", planted.SPACES)
async def test_a_space_that_is_none_fails_its_check_alone(fault: str, role: str) -> None:
    spec, path = planted.SPACES[fault]
    findings = await complaints_of(planted.Handshaker(change=lambda contract: setattr(contract.spec, role, spec)))
    assert {id: told(evidence) for id, evidence in findings.items()} == {
        "contract.spaces-wellformed": f"{role} {path} is malformed"
    }
    if path != "$":
        assert "box=" in findings["contract.spaces-wellformed"].lines[1]


async def test_a_space_that_is_missing_fails_its_check_alone() -> None:
    def forget(contract: core.EnvContract) -> None:
        spec = core.EnvSpec(id=contract.spec.id)
        spec.action_space = contract.spec.action_space
        contract.spec = spec

    findings = await complaints_of(planted.Handshaker(change=forget))
    assert {id: evidence.lines[0] for id, evidence in findings.items()} == {
        "contract.spaces-wellformed": "observation_space at $: is not declared"
    }


@pytest.mark.parametrize(
    ("field", "value", "relation"),
    [
        ("num_envs", 0, "num_envs is 0"),
        ("autoreset_mode", 7, "autoreset_mode is unknown (7)"),
        ("autoreset_mode", 0, "autoreset_mode is UNSPECIFIED (should)"),
    ],
)
async def test_a_width_or_a_mode_that_is_none_fails_its_check_alone(field: str, value: int, relation: str) -> None:
    server = planted.Handshaker(change=lambda contract: setattr(contract, field, value))
    async with scripted_server(server) as address, lab_of(WireTarget(address)) as lab:
        checks = [check for check in CHECKS.values() if check.family == "contract" and check.id != "contract.stable"]
        found = {check.id: await check.judge(lab, check.example(lab.facts)) for check in checks if check.example}
    assert {id: told(evidence) for id, evidence in found.items() if evidence} == {"contract.vector-facts": relation}


async def test_a_box_without_an_axis_is_told_before_users_find_out() -> None:
    findings = await complaints_about(planted.Rankless)
    assert {id: evidence.lines for id, evidence in findings.items()} == {
        "contract.zero-rank": ("obs is a Box of shape (): make it one of shape (1,)",)
    }


async def test_a_good_server_passes() -> None:
    assert await complaints_of(planted.Handshaker()) == {}


@pytest.mark.parametrize("lanes", [1, 2])
async def test_our_own_server_passes(lanes: int) -> None:
    async with serve_env(OddButRight, lanes=lanes) as server:
        assert await complaints(WireTarget(server.address), families=("contract", "space", "value")) == {}


@pytest.mark.parametrize("generation", ["", " rlmesh-wire-v2", "rlmesh-wire-v1\n1", "\x00", "RLMESH"])
async def test_any_other_generation_is_refused_by_our_own_server(generation: str) -> None:
    async with serve_env(OddButRight) as server, lab_of(WireTarget(server.address)) as lab:
        assert await CHECKS["contract.refuses-foreign"].judge(lab, generation) is None


async def verdicts_of(target: Any) -> dict[str, str]:
    checks = {id: check for id, check in CHECKS.items() if check.family in ("contract", "space")}
    outcome = await run_checks([target], Settings(time=10, examples=1, seed=0, shrink=False), checks=checks)
    return {finding.check: finding.verdict for finding in outcome.findings}


@pytest.mark.parametrize(
    ("change", "check"),
    [
        ({"num_envs": 0}, "contract.vector-facts"),
        ({"spec": core.EnvSpec(id="Bare-v0")}, "contract.spaces-wellformed"),
    ],
)
async def test_nothing_is_played_on_what_cannot_be_played(change: dict[str, Any], check: str) -> None:
    def changed(contract: core.EnvContract) -> None:
        for field, value in change.items():
            setattr(contract, field, value)

    async with scripted_server(planted.Handshaker(change=changed)) as address:
        verdicts = await verdicts_of(WireTarget(address))
    assert verdicts.pop(check) == "fail"
    assert set(verdicts.values()) == {"pass", "skip"}
    assert {verdict for id, verdict in verdicts.items() if id.startswith("space.")} == {"skip"}


async def test_an_env_of_this_process_shakes_no_hands() -> None:
    verdicts = await verdicts_of(LocalTarget(OddButRight, where="inline"))
    skipped = {id for id, verdict in verdicts.items() if verdict == "skip"}
    assert skipped == {"contract.handshake", "contract.refuses-foreign", "contract.stable"}


@pytest.mark.parametrize("manners", ["incompatible with itself", "no contract"])
async def test_a_server_that_lets_nobody_in_fails_its_handshake(manners: str) -> None:
    async with scripted_server(planted.Handshaker(manners=manners)) as address:
        verdicts = await verdicts_of(WireTarget(address))
    assert verdicts.pop("contract.handshake") == "fail"
    contract = {verdict for id, verdict in verdicts.items() if id.startswith("contract.")}
    assert contract == {"blocked", "skip"}, "nothing is said of what was not seen"
    assert {verdict for id, verdict in verdicts.items() if id.startswith("space.")} == {"skip"}


async def test_a_server_of_another_protocol_is_no_finding() -> None:
    async with serve_env(OddButRight, token="s3cret") as server:
        with pytest.raises(HandshakeError, match="token"):
            await verdicts_of(WireTarget(server.address, token="another"))
