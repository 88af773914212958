import re
from typing import Any

import gymnasium
import pytest
from gymnasium import spaces
from gymnasium.vector import AutoresetMode as GymnasiumAutoresetMode
from gymnasium.vector import SyncVectorEnv

from rlmesh_trio.errors import ProtocolError, SpaceError
from rlmesh_trio.spaces import contract_from_gymnasium, contract_from_wire, contract_to_wire
from rlmesh_trio.spec import AutoresetMode
from tests.spaces.oracle import Contract, captured_contract

FREE = {"shape": [2], "dtype": 11, "box": {"unbounded": True}}
NONE_LEFT: Any = {"dtype": 9, "discrete": {}}


@pytest.mark.parametrize(
    ("capture", "env_id", "num_envs", "mode"),
    [
        ("single", "CartPole-v1", 1, AutoresetMode.DISABLED),
        ("lanes", "UnknownEnv-v1", 3, AutoresetMode.DISABLED),
        ("vector", "UnknownEnv-v1", 3, AutoresetMode.NEXT_STEP),
        ("kitchen", "UnknownEnv-v1", 1, AutoresetMode.DISABLED),
    ],
)
def test_a_servers_contract_is_read(capture: str, env_id: str, num_envs: int, mode: AutoresetMode) -> None:
    sent = captured_contract(capture)
    data = sent.SerializeToString()
    contract = contract_from_wire(data)
    assert (contract.env_id, contract.num_envs, contract.autoreset_mode) == (env_id, num_envs, mode)
    assert contract.encoded_spec == sent.spec.SerializeToString()
    assert contract.encoded_size == len(data)
    assert sorted(contract.metadata) == sorted(sent.spec.metadata.entries)
    assert Contract.FromString(contract_to_wire(contract)) == sent


def test_the_spec_is_kept_with_what_this_build_does_not_know() -> None:
    unknown = b"\xfa\x07\x03new"
    spec = captured_contract("kitchen").spec.SerializeToString() + unknown
    contract = contract_from_wire(b"\x0a" + bytes((len(spec) & 127 | 128, len(spec) >> 7)) + spec + b"\x10\x02")
    assert contract.encoded_spec == spec
    assert contract.num_envs == 2
    assert contract_to_wire(contract).count(unknown) == 1


def test_what_is_not_declared_stays_none() -> None:
    half = contract_from_wire(Contract(spec={"observation_space": FREE}, num_envs=1).SerializeToString())
    assert half.observation_space is not None
    assert half.action_space is None
    nothing = contract_from_wire(b"")
    assert nothing.observation_space is None
    assert (nothing.env_id, nothing.num_envs, nothing.encoded_spec, dict(nothing.metadata)) == ("", 0, b"", {})


def test_an_unknown_autoreset_mode_is_kept_as_its_number() -> None:
    assert contract_from_wire(Contract(autoreset_mode=9).SerializeToString()).autoreset_mode == 9


@pytest.mark.parametrize("field", ["observation_space", "action_space"])
def test_a_broken_space_is_named(field: str) -> None:
    broken = {"dict": {"keys": ["a"], "spaces": [NONE_LEFT]}}
    data = Contract(spec={"observation_space": FREE, "action_space": FREE} | {field: broken}).SerializeToString()
    message = f"$.a: in the {field}: a discrete space needs at least one value, got n=0"
    with pytest.raises(SpaceError, match=f"^{re.escape(message)}$"):
        contract_from_wire(data)


@pytest.mark.parametrize("data", [b"\x0a\x04\x0a", b"\x10", b"\x0a\x06\x22\x04\x0a\x02\x0a\x05"])
def test_bytes_that_are_no_contract_are_a_protocol_error(data: bytes) -> None:
    with pytest.raises(ProtocolError):
        contract_from_wire(data)


def test_metadata_too_deep_to_read_is_found_before_a_session_starts() -> None:
    value: Any = {"integer": 1}
    for _ in range(40):
        value = {"list": {"items": [value]}}
    data = Contract(spec={"metadata": {"entries": {"deep": value}}}).SerializeToString()
    with pytest.raises(ProtocolError, match="nest"):
        contract_from_wire(data)


def test_an_env_in_this_process_declares_what_the_real_server_declares() -> None:
    env = gymnasium.make("CartPole-v1")
    contract = contract_from_gymnasium(
        env.observation_space,
        env.action_space,
        env_id="CartPole-v1",
        metadata=env.metadata,
        num_envs=1,
        autoreset_mode=AutoresetMode.DISABLED,
        render_mode="",
    )
    assert Contract.FromString(contract_to_wire(contract)) == captured_contract("single")
    assert contract.encoded_size == len(contract_to_wire(contract))


def test_a_vector_env_declares_its_lanes_spaces_and_its_mode_as_text() -> None:
    env: Any = SyncVectorEnv([lambda: gymnasium.make("CartPole-v1")] * 2)
    contract = contract_from_gymnasium(
        env.single_observation_space,
        env.single_action_space,
        env_id="",
        metadata=env.metadata,
        num_envs=env.num_envs,
        autoreset_mode=AutoresetMode.NEXT_STEP,
        render_mode="rgb_array",
    )
    assert env.metadata["autoreset_mode"] is GymnasiumAutoresetMode.NEXT_STEP
    assert contract.metadata["autoreset_mode"] == "NextStep"
    read = contract_from_wire(contract_to_wire(contract))
    assert (read.num_envs, read.autoreset_mode, read.render_mode) == (2, AutoresetMode.NEXT_STEP, "rgb_array")
    assert read.encoded_spec == contract.encoded_spec
    assert dict(read.metadata) == contract.metadata
    assert read.observation_space is not None
    assert read.observation_space.space == env.single_observation_space


def test_a_space_without_a_wire_form_is_named() -> None:
    with pytest.raises(SpaceError, match=r"^\$\[0\]: in the action_space: Sequence spaces have no wire form"):
        contract_from_gymnasium(
            spaces.Discrete(2),
            spaces.Tuple([spaces.Sequence(spaces.Discrete(2))]),
            env_id="Env-v0",
            metadata={},
            num_envs=1,
            autoreset_mode=AutoresetMode.DISABLED,
            render_mode="",
        )
