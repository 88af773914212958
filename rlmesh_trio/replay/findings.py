"""What a comparison of two recordings tells: which episodes part, where first, by how much, and what that looks like.

``recorded`` is the side that was there before, ``now`` the one it is compared with.
"""

from collections.abc import Mapping
from typing import Literal

import attrs

from rlmesh_trio.recording.records import EndKind

__all__ = ("Comparison", "Divergence", "FieldDifference", "LeafDifference", "Part", "Shape", "StepDifference")

Part = Literal["seed", "action", "observation", "reward", "flag", "info", "error", "length"]
"""What of a step differs; ``length``: one side has no such step, or never got an answer."""

Shape = Literal[
    "from the first observation", "state kept over reset", "growing from one ulp", "sudden", "info only", "flags only"
]


@attrs.frozen
class FieldDifference:
    """One field of two contracts, editions or headers."""

    path: str
    recorded: str
    now: str


@attrs.frozen(kw_only=True)
class LeafDifference:
    """One leaf of a step that is not the same, bit for bit. ``path`` is as in ``obs.qvel``, ``reward``, ``info.x``.

    ``values`` and ``bits`` hold the first element that differs on both sides (recorded, now), at ``index``; they are
    empty where only digests are known. ``ulps``, ``absolute`` and ``relative`` are those of the element furthest apart,
    ``None`` for what is no float. ``differing`` of ``size`` elements differ.
    """

    part: Part
    path: str
    values: tuple[object, object] | None = None
    index: tuple[int, ...] = ()
    bits: tuple[str, str] = ("", "")
    ulps: int | None = None
    absolute: float | None = None
    relative: float | None = None
    differing: int = 0
    size: int = 0
    tolerated: bool = False


@attrs.frozen
class StepDifference:
    """What differs at one step of an episode; step 0 is its reset. ``leaves`` are in the order of the space.

    ``equal`` names the leaves and parts that were compared at this step and are equal.
    """

    step: int
    leaves: tuple[LeafDifference, ...]
    equal: tuple[str, ...] = ()

    @property
    def tolerated(self) -> bool:
        """Whether all of it is within the tolerance."""
        return all(leaf.tolerated for leaf in self.leaves)


@attrs.frozen(kw_only=True)
class Divergence:
    """One episode whose last attempts differ: ``first`` in any bit, ``beyond`` for the first time past the tolerance.

    ``later`` are some of the differences that follow, to show whether they grow. Pairs are (recorded, now).
    ``values_known`` is false where the two sides have only digests in common at the first difference.
    """

    ordinal: int
    seed: int | None
    first: StepDifference
    beyond: StepDifference | None
    later: tuple[StepDifference, ...] = ()
    steps: tuple[int, int] = (0, 0)
    ends: tuple[EndKind, EndKind] = ("interrupted", "interrupted")
    returns: tuple[float, float] = (0.0, 0.0)
    lanes: tuple[int, int] = (0, 0)
    shape: Shape = "sudden"
    values_known: bool = True


@attrs.frozen(kw_only=True)
class Comparison:
    """Two recordings compared. ``missing`` are ordinals only the recorded side has, ``surplus`` those only the new has.

    ``compared`` counts episodes that both have; ``divergences`` are by ordinal. ``run_roots`` are empty where a file
    has no end.
    """

    contract: tuple[FieldDifference, ...] = ()
    compared: int = 0
    missing: tuple[int, ...] = ()
    surplus: tuple[int, ...] = ()
    divergences: tuple[Divergence, ...] = ()
    run_roots: tuple[bytes, bytes] = (b"", b"")
    headers: Mapping[str, tuple[str, str]] = attrs.field(factory=dict[str, tuple[str, str]])

    @property
    def equal(self) -> bool:
        """Whether nothing differs past the tolerance, and both sides have the same episodes under one contract."""
        past = [divergence for divergence in self.divergences if divergence.beyond is not None]
        return not (self.contract or self.missing or self.surplus or past)
