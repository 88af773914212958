"""google protobuf's reading of spaces and contracts, and the contracts real servers sent."""

from pathlib import Path
from typing import Any

from tests.wire.oracle import google

__all__ = ("CAPTURES", "Contract", "Spec", "captured_contract")

CAPTURES = Path(__file__).parents[1] / "wire" / "captures"

Spec = google("rlmesh.spaces.v1.SpaceSpec")
Contract = google("rlmesh.core.v1.EnvContract")


def captured_contract(name: str) -> Any:
    """The contract in a real server's handshake reply."""
    reply = (CAPTURES / f"env_handshake_response_{name}.bin").read_bytes()
    return google("rlmesh.env.v1.HandshakeResponse").FromString(reply).env_contract
