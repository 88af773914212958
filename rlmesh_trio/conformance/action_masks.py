"""Action masks: which values an env says its next action may have, read from infos or from an observation.

An ``action_mask`` counts where it has the shape of the action: a number for each value of a Discrete; for a
MultiDiscrete of one dimension a list for each of its elements, or all of them in one list. Others mean something else.
"""

from collections.abc import Sequence
from typing import Any, cast

import attrs
import numpy as np
import numpy.typing as npt
from gymnasium import spaces

from rlmesh_trio.conformance.infos import infos_of_lane
from rlmesh_trio.conformance.registry import Facts
from rlmesh_trio.conformance.scripts import Row
from rlmesh_trio.conformance.traces import Answer, Trace
from rlmesh_trio.spaces.leaf_values import leaf_value

__all__ = ("MASKS_SEEN", "Mask", "MaskReader")

MASKS_SEEN = "action_mask"
"""The key of what is told about a target that is true when a mask was seen in one of its answers."""

_KEY = "action_mask"


@attrs.frozen
class Mask:
    """For each element of the action, which of its values, counted from the first, are allowed."""

    allowed: tuple[tuple[bool, ...], ...]
    firsts: tuple[int, ...]

    @property
    def is_empty(self) -> bool:
        """Whether no action at all is allowed."""
        return not all(map(any, self.allowed))

    def __str__(self) -> str:
        return " ".join(["".join("01"[each] for each in values) for values in self.allowed])

    def allows(self, values: Sequence[int]) -> bool:
        """Whether the action of these elements is allowed; one that is no member is not."""
        places = [value - first for value, first in zip(values, self.firsts, strict=True)]
        return all(0 <= place < len(own) and own[place] for place, own in zip(places, self.allowed, strict=True))


class MaskReader:
    """Reads the masks of a target. ``possible`` says whether its actions can have any."""

    def __init__(self, facts: Facts) -> None:
        self._facts = facts
        space = facts.contract.action_space
        self._spec = space.leaves[0] if space is not None and len(space.leaves) == 1 else None
        self._counts, self._firsts = _counts(None if space is None else space.space)
        observations = facts.contract.observation_space
        leaves = () if observations is None else observations.leaves
        self._leaf = next(((i, spec) for i, spec in enumerate(leaves) if spec.path.endswith(f".{_KEY}")), None)

    @property
    def possible(self) -> bool:
        """Whether the action space is one that masks are for."""
        return bool(self._counts)

    def of(self, answer: Answer, lane: int) -> Mask | None:
        """What *lane* may do after *answer*; ``None`` when nothing, or nothing that can be read, was said."""
        position = answer.lanes.index(lane)
        told: Any = infos_of_lane(answer, position, self._facts).get(_KEY)
        if told is None and self._leaf is not None and position < len(answer.observation):
            number, spec = self._leaf
            told = leaf_value(spec, answer.observation[position][number])
        return self._read(told)

    def allows(self, mask: Mask | None, action: Row) -> bool:
        """Whether *mask*, if there is one, allows *action*."""
        if mask is None or self._spec is None or len(action) != 1:
            return True
        value = leaf_value(self._spec, action[0])
        return isinstance(value, np.ndarray) and mask.allows(value.ravel().tolist())

    def note(self, trace: Trace) -> None:
        """Tell the target's facts when there are masks in *trace*."""
        told = self._facts.told
        if self.possible and not told.get(MASKS_SEEN):
            pairs = ((answer, lane) for answer in trace.answers for lane in answer.lanes)
            told[MASKS_SEEN] = any(self.of(answer, lane) is not None for answer, lane in pairs)

    def _read(self, told: Any) -> Mask | None:
        if not isinstance(told, (list, tuple, np.ndarray)) or not self._counts:
            return None
        parts = [_flags(part) for part in self._parts(cast("Sequence[Any] | npt.NDArray[Any]", told))]
        if any(part is None for part in parts) or [len(part or ()) for part in parts] != list(self._counts):
            return None
        return Mask(tuple(part for part in parts if part is not None), self._firsts)

    def _parts(self, told: Sequence[Any] | npt.NDArray[Any]) -> list[Any]:
        """*told* by element of the action."""
        if len(self._counts) == 1 and len(told) == self._counts[0]:
            return [told]
        if len(told) == sum(self._counts) != len(self._counts):
            ends = np.cumsum(self._counts).tolist()
            return [told[end - count : end] for end, count in zip(ends, self._counts, strict=True)]
        return list(told)


def _counts(space: Any) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """How many values each element of an action has, and the first of them; empty where masks are not for."""
    if isinstance(space, spaces.Discrete):
        return (int(cast("Any", space).n),), (int(cast("Any", space).start),)
    if isinstance(space, spaces.MultiDiscrete):
        nvec: npt.NDArray[Any] = cast("Any", space).nvec
        return (tuple(nvec.tolist()), (0,) * len(nvec)) if nvec.ndim == 1 else ((), ())
    return (), ()


def _flags(part: object) -> tuple[bool, ...] | None:
    """*part* as flags; ``None`` when it holds something else than zeros and ones."""
    if not isinstance(part, (list, tuple, np.ndarray)):
        return None
    values = list(cast("Sequence[object]", part))
    if any(isinstance(value, str) or value not in (0, 1) for value in values):
        return None
    return tuple([bool(value) for value in values])
