"""What an env declares of itself (spaces, autoreset mode, reset options), and what a peer can take."""

from collections.abc import Mapping
from enum import IntEnum
from typing import Any

import attrs
import gymnasium

from rlmesh_trio.editions import CURRENT_EDITION
from rlmesh_trio.messages import Metadata, MetaValue

__all__ = (
    "ENV_RESET_OPTIONS_KEY",
    "MAX_MESSAGE_BYTES",
    "TRIAL_INDEX_OPTION",
    "WIRE_DTYPES",
    "AutoresetMode",
    "EnvContract",
    "LeafSpec",
    "PeerCeiling",
    "ValueSpace",
    "autoreset_name",
    "declares_reset_option",
    "reset_options_for",
)

ENV_RESET_OPTIONS_KEY = "rlmesh.env.v1.reset_options"
TRIAL_INDEX_OPTION = CURRENT_EDITION.trial_index_option
MAX_MESSAGE_BYTES = 256 * 1024 * 1024

WIRE_DTYPES = (
    "bool",
    "uint8",
    "uint16",
    "uint32",
    "uint64",
    "int8",
    "int16",
    "int32",
    "int64",
    "float16",
    "float32",
    "float64",
)


class AutoresetMode(IntEnum):
    """Who restarts a finished lane, with the wire's numbers."""

    UNSPECIFIED = 0
    NEXT_STEP = 1
    SAME_STEP = 2
    DISABLED = 3


def autoreset_name(mode: int) -> str:
    """The name of an autoreset mode; ``unknown (N)`` for a number that has none."""
    return AutoresetMode(mode).name if mode in tuple(AutoresetMode) else f"unknown ({int(mode)})"


@attrs.frozen
class LeafSpec:
    """One fundamental leaf of a space: its ``$``-rooted path, kind, wire dtype name and per-row shape."""

    path: str
    kind: str
    dtype: str
    shape: tuple[int, ...]


@attrs.frozen(eq=False)
class ValueSpace:
    """A space and its wire layout, which travel together because gymnasium cannot say everything the wire says.

    ``space`` is a gymnasium space of one row; ``leaves`` are in wire order; ``encoded`` is the wire's space message.
    """

    space: gymnasium.Space[Any]
    leaves: tuple[LeafSpec, ...]
    encoded: bytes


@attrs.frozen(eq=False)
class EnvContract:
    """What an env declares. The spaces are those of one lane, also for a vector env.

    ``encoded_spec`` is the wire's env spec as it came, relayed to a model unchanged.
    """

    env_id: str = "UnknownEnv-v1"
    observation_space: ValueSpace | None = None
    action_space: ValueSpace | None = None
    metadata: Metadata = attrs.field(factory=dict[str, MetaValue])
    num_envs: int = 1
    autoreset_mode: int = AutoresetMode.UNSPECIFIED
    render_mode: str = ""
    encoded_spec: bytes = b""
    encoded_size: int = 0


@attrs.frozen
class PeerCeiling:
    """The most a peer takes: dtypes by wire name, capabilities, and bytes in one message."""

    edition: str
    dtypes: frozenset[str] = frozenset(WIRE_DTYPES)
    capabilities: Mapping[str, str] = attrs.field(factory=dict[str, str])
    max_message_size: int = MAX_MESSAGE_BYTES


def declares_reset_option(contract: EnvContract, key: str) -> bool:
    """Whether the env's metadata lists *key* among its reset options, as a list of texts or as one bare text."""
    declared = contract.metadata.get(ENV_RESET_OPTIONS_KEY)
    if isinstance(declared, str):
        return declared == key
    if isinstance(declared, bytes) or not isinstance(declared, (list, tuple)):
        return False
    return key in declared


def reset_options_for(contract: EnvContract, key: str, trials: tuple[int, ...]) -> Metadata | None:
    """The reset options that carry *trials* to a declaring env: one bare integer, or a list in lane order."""
    if not trials or not declares_reset_option(contract, key):
        return None
    return {key: trials[0] if len(trials) == 1 else list(trials)}
