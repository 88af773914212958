"""Infos compared: a lane's own part of them, without what may differ between equal runs, and where two first differ."""

from collections.abc import Mapping, Sequence
from typing import cast

from rlmesh_trio.conformance.registry import Facts
from rlmesh_trio.conformance.traces import Answer
from rlmesh_trio.messages import Metadata, MetaValue
from rlmesh_trio.recording.digests import SESSION_ENTRIES, lane_infos, sorted_infos
from rlmesh_trio.spaces.bits import ABSENT, Spot, value_spot

__all__ = ("compared_infos", "info_spot", "infos_of_lane")


def infos_of_lane(answer: Answer, position: int, facts: Facts) -> Mapping[str, MetaValue]:
    """The infos of the lane at *position* among the answer's lanes, whatever form the answer has."""
    told = answer.infos or {}
    lanes = len(answer.lanes)
    if lanes == 1 and (facts.subset_step or facts.contract.num_envs == 1):
        return told
    each = told.get("final_info")
    if facts.subset_step and isinstance(each, list) and len(each) == lanes:
        own = each[position]
        return own if isinstance(own, Mapping) else {}
    return lane_infos(told, position, lanes)


def compared_infos(infos: Mapping[str, MetaValue], facts: Facts) -> Metadata:
    """What of one lane's *infos* equal runs share: no wall-clock entries or addresses, and none the user left out."""
    return sorted_infos(infos, tuple([f".{entry}" for entry in (*SESSION_ENTRIES, *facts.ignored_infos)]))


def info_spot(a: MetaValue, b: MetaValue, path: str, ulps: int = 0) -> tuple[str, Spot] | None:
    """The path and the spot of the first difference below *path*, of infos as :func:`compared_infos` gives them."""
    if isinstance(a, Mapping) and isinstance(b, Mapping):
        return _mapping_spot(a, b, path, ulps)
    if isinstance(a, list | tuple) and isinstance(b, list | tuple) and len(a) == len(b):
        pairs = zip(cast("Sequence[MetaValue]", a), cast("Sequence[MetaValue]", b), strict=True)
        found = (info_spot(x, y, f"{path}[{i}]", ulps) for i, (x, y) in enumerate(pairs))
        return next((spot for spot in found if spot is not None), None)
    spot = value_spot(a, b, ulps)
    return None if spot is None else (path, spot)


def _mapping_spot(a: Metadata, b: Metadata, path: str, ulps: int) -> tuple[str, Spot] | None:
    for key in sorted({*a, *b}):
        below = f"{path}.{key}"
        if key not in a or key not in b:
            return below, Spot((a.get(key, ABSENT), b.get(key, ABSENT)))
        found = info_spot(a[key], b[key], below, ulps)
        if found is not None:
            return found
    return None
