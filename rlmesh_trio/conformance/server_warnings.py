"""The warnings that a server adds to infos when a value is out of range, read from whatever form the infos have."""

from collections.abc import Iterator, Mapping, Sequence
from typing import cast

from rlmesh_trio.conformance.traces import Answer
from rlmesh_trio.editions import CURRENT_EDITION
from rlmesh_trio.messages import MetaValue

__all__ = ("warnings_in",)

_KEY = CURRENT_EDITION.conformance_warning_key


def warnings_in(answer: Answer) -> list[tuple[str, str]]:
    """The kind and path of each warning in *answer*; what its lanes, or the whole and a lane, say alike is one."""
    infos = answer.infos or {}
    if _KEY in infos:
        return list(_read(infos[_KEY]))
    lanes = _listed(infos.get("final_info"))
    told = [warning for lane in lanes if isinstance(lane, Mapping) for warning in _read(lane.get(_KEY))]
    return list(dict.fromkeys(told))


def _read(told: MetaValue) -> Iterator[tuple[str, str]]:
    for warning in _listed(told):
        if isinstance(warning, Mapping):
            yield str(warning.get("kind")), str(warning.get("path"))


def _listed(told: MetaValue) -> Sequence[MetaValue]:
    return cast("Sequence[MetaValue]", told) if isinstance(told, (list, tuple)) else ()
