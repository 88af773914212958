"""Spaces and values: what an env declares, mapped to gymnasium's own spaces, and leaves mapped to numpy."""

from rlmesh_trio.spaces.contract import contract_from_gymnasium, contract_from_wire, contract_to_wire
from rlmesh_trio.spaces.convert import space_from_gymnasium, space_from_wire
from rlmesh_trio.spaces.fundamental import leaf_spaces
from rlmesh_trio.spaces.leaves import SpaceCodec, codec_for
from rlmesh_trio.spaces.metadata import plain_metadata
from rlmesh_trio.spaces.texts import OpenText

__all__ = (
    "OpenText",
    "SpaceCodec",
    "codec_for",
    "contract_from_gymnasium",
    "contract_from_wire",
    "contract_to_wire",
    "leaf_spaces",
    "plain_metadata",
    "space_from_gymnasium",
    "space_from_wire",
)
