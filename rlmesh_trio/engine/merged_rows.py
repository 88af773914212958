"""A reset of some lanes of a vector, told as one observation of all: the rows of the others are those of their step."""

from collections.abc import Sequence
from typing import cast

import attrs

from rlmesh_trio.engine.route import LaneSlot
from rlmesh_trio.errors import ProtocolError, SpaceError
from rlmesh_trio.messages import EnvReply, Leaves
from rlmesh_trio.spaces import codec_for
from rlmesh_trio.spec import EnvContract, ValueSpace

__all__ = ("merged_reply",)


def merged_reply(
    stepped: EnvReply, fresh: EnvReply, lanes: Sequence[LaneSlot], width: int, contract: EnvContract
) -> EnvReply:
    """The reset's reply *fresh* with a row for each of *width* lanes.

    Its own rows are those of *lanes*, in their order; the others come from the step that ended those lanes' episodes.
    Raises :exc:`ProtocolError` when either observation has not the rows it must have.
    """
    if stepped.observation is None and fresh.observation is None:
        return fresh
    codec = codec_for(cast("ValueSpace", contract.observation_space))
    try:
        rows = codec.split(stepped.observation or (), [1] * width)
        new = codec.split(fresh.observation or (), [1] * len(lanes))
        for lane, row in zip(lanes, new, strict=True):
            rows[lane.env_index] = row
        whole: Leaves = codec.concatenate(rows, [1] * width)
    except SpaceError as wrong:
        named = [lane.env_index for lane in lanes]
        raise ProtocolError(f"the reset of lanes {named} of {width} brought no row for each: {wrong}") from wrong
    return attrs.evolve(fresh, observation=whole)
