"""What an env declares: the wire's EnvContract read and written. The env's spec is kept as the bytes that came."""

from collections.abc import Mapping
from typing import Any

import attrs
import gymnasium

from rlmesh_trio.errors import SpaceError
from rlmesh_trio.spaces.convert import space_from_gymnasium, space_from_wire
from rlmesh_trio.spaces.metadata import plain_metadata
from rlmesh_trio.spec import EnvContract, ValueSpace
from rlmesh_trio.wire.metadata import LazyMetadata, encode_metadata
from rlmesh_trio.wire.pb.rlmesh.core import v1 as core
from rlmesh_trio.wire.strict import decode, encode, encoded_field, relay_field

__all__ = ("contract_from_gymnasium", "contract_from_wire", "contract_to_wire")


def contract_from_wire(data: bytes) -> EnvContract:
    """The contract in *data*, an encoded ``rlmesh.core.v1.EnvContract``.

    A space that is not declared stays ``None``. Raises :exc:`ProtocolError` for bytes that are no contract,
    :exc:`SpaceError` for a space that cannot be.
    """
    message = decode(core.EnvContract, data, what="the env's contract")
    metadata = LazyMetadata(encoded_field(core.EnvContract, data, "spec", "metadata") or b"")
    metadata.decode()
    return EnvContract(
        env_id=message.spec.id,
        observation_space=_declared(data, "observation_space"),
        action_space=_declared(data, "action_space"),
        metadata=metadata,
        num_envs=message.num_envs,
        autoreset_mode=int(message.autoreset_mode),
        render_mode=message.render_mode,
        encoded_spec=encoded_field(core.EnvContract, data, "spec") or b"",
        encoded_size=len(data),
    )


def _declared(data: bytes, field: str) -> ValueSpace | None:
    encoded = encoded_field(core.EnvContract, data, "spec", field)
    if encoded is None:
        return None
    try:
        return space_from_wire(encoded)
    except SpaceError as error:
        raise SpaceError(error.path, f"in the {field}: {error.why}") from error


def contract_from_gymnasium(
    observation_space: gymnasium.Space[Any],
    action_space: gymnasium.Space[Any],
    *,
    env_id: str,
    metadata: Mapping[str, Any],
    num_envs: int,
    autoreset_mode: int,
    render_mode: str,
) -> EnvContract:
    """The contract of an env in this process, as it would read had it come over the wire.

    The spaces are those of one lane, also for a vector env. *metadata* is made plain by :func:`plain_metadata`.
    Raises :exc:`SpaceError` for a space without a wire form.
    """
    observations = _own(observation_space, "observation_space")
    actions = _own(action_space, "action_space")
    plain = plain_metadata(metadata)
    spec = core.EnvSpec(id=env_id)
    relay_field(spec, "action_space", actions.encoded)
    relay_field(spec, "observation_space", observations.encoded)
    relay_field(spec, "metadata", encode_metadata(plain))
    contract = EnvContract(
        env_id=env_id,
        observation_space=observations,
        action_space=actions,
        metadata=plain,
        num_envs=num_envs,
        autoreset_mode=autoreset_mode,
        render_mode=render_mode,
        encoded_spec=encode(spec),
    )
    return attrs.evolve(contract, encoded_size=len(contract_to_wire(contract)))


def _own(space: gymnasium.Space[Any], field: str) -> ValueSpace:
    try:
        return space_from_gymnasium(space)
    except SpaceError as error:
        raise SpaceError(error.path, f"in the {field}: {error.why}") from error


def contract_to_wire(contract: EnvContract) -> bytes:
    """*contract* as an encoded ``rlmesh.core.v1.EnvContract``, around its own ``encoded_spec``."""
    message = core.EnvContract(
        num_envs=contract.num_envs,
        render_mode=contract.render_mode,
        autoreset_mode=core.AutoresetMode(contract.autoreset_mode),
    )
    return encode(relay_field(message, "spec", contract.encoded_spec))
