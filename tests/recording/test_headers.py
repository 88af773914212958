"""What a header says of a run, and that it is read back as it was written."""

from pathlib import Path
from typing import Any

import attrs
import pytest

from rlmesh_trio.errors import InvalidSpec
from rlmesh_trio.recording import Header, header_of, machine_facts, open_recording
from rlmesh_trio.recording.headers import peer_of
from rlmesh_trio.recording.records import parse_level
from rlmesh_trio.spec import AutoresetMode, SessionSpec
from rlmesh_trio.transport.handshake import PeerInfo
from tests.recording.plays import contract_of, recorded


def spec(**fields: Any) -> SessionSpec:
    given: dict[str, Any] = {"env_contract": contract_of(1), "base_seed": 4, "max_episodes": 3}
    return SessionSpec(**(given | fields))


RESTARTING = attrs.evolve(contract_of(3), autoreset_mode=AutoresetMode.NEXT_STEP)


class Served:
    address = "tcp://me:secret@far.away:5555"
    peer_info = PeerInfo(component="rlmesh-env", package_version="0.1.0", framework_versions={"numpy": "2"})


def test_a_header_is_read_as_it_was_written(tmp_path: Path) -> None:
    header = attrs.evolve(
        header_of(
            spec(), Served(), unstable_leaves=["$.camera"], ignored_infos=["seen"], tolerance="ulp=4", prefetch_lead=1
        ),
        level="ring",
        ring=5,
    )
    recorded(tmp_path / "a", [], header)
    with open_recording(tmp_path / "a") as recording:
        told = recording.header
    for field in attrs.fields(Header):
        if field.name != "contract":
            assert getattr(told, field.name) == getattr(header, field.name), field.name
    assert told.contract.encoded_spec == header.contract.encoded_spec
    assert told.contract.num_envs == 1
    assert (told.level, told.ring, told.base_seed, told.workflow_edition) == ("ring", 5, 4, "2026.06")
    assert told.settings["prefetch_lead"] == 1
    assert peer_of(told.env_peer) == Served.peer_info


def test_an_address_is_told_without_credentials() -> None:
    header = header_of(spec(), Served())
    assert header.env_address == "far.away:5555"
    assert "secret" not in repr(header)


@pytest.mark.parametrize(
    ("fields", "rule"),
    [
        ({}, "by=slot"),
        ({"num_envs": 3, "subset_step": True}, "by=slot"),
        ({"num_envs": 3, "partial_reset": True}, "by=lane"),
        ({"num_envs": 3, "partial_reset": True, "episode_seeds": (1, 2)}, "by=slot"),
        ({"num_envs": 3, "partial_reset": True, "seed_every_episode": True}, "by=slot"),
        ({"env_contract": RESTARTING}, "by=lane"),
        ({"env_contract": RESTARTING, "num_envs": 3}, "by=lane"),
        ({"env_contract": RESTARTING, "num_envs": 3, "seed_every_episode": True}, "by=slot"),
    ],
)
def test_whether_seeds_hang_on_lanes_is_told(fields: dict[str, Any], rule: str) -> None:
    assert header_of(spec(**fields)).seed_rule == rule


def test_the_machine_is_told_in_texts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "2")
    monkeypatch.delenv("MKL_NUM_THREADS", raising=False)
    facts = machine_facts()
    assert facts["OMP_NUM_THREADS"] == "2"
    assert "MKL_NUM_THREADS" not in facts
    assert {"python", "platform", "numpy", "trio", "rlmesh_trio", "cpu_count"} <= facts.keys()
    assert all(isinstance(told, str) and told for told in facts.values())


@pytest.mark.parametrize(
    ("text", "level"), [("digest", ("digest", 0)), ("full", ("full", 0)), ("ring=12", ("ring", 12))]
)
def test_levels(text: str, level: tuple[str, int]) -> None:
    assert parse_level(text) == level


@pytest.mark.parametrize("text", ["", "ring", "ring=", "ring=0", "ring=-1", "ring=x", "full=2", "Digest"])
def test_levels_that_are_none(text: str) -> None:
    with pytest.raises(InvalidSpec, match="digest, full or ring=K"):
        parse_level(text)
