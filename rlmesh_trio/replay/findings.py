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
    ``None`` for what is no float; beside an infinity or NaN they are ``None``, infinity and infinity. ``differing`` of
    ``size`` elements differ. ``scale`` is the largest finite magnitude in the recorded leaf, ``None`` for no float.
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
    scale: float | None = None
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
    ``values_known`` is false where the two sides have only digests in common at the first difference. ``equal_before``
    counts the compared episodes of smaller ordinals that have no divergence.
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
    equal_before: int = 0


@attrs.frozen(kw_only=True)
class Comparison:
    """Two recordings compared. ``missing`` are ordinals only the recorded side has, ``surplus`` those only the new has.

    ``compared`` counts episodes that both have, ``steps`` the steps of them that both went; ``divergences`` are by
    ordinal. ``unfinished`` are ordinals that were equal as far as the shorter side goes, which was interrupted there,
    or never came to them.
    ``tolerance`` is the standard that was applied, as a text. ``run_roots`` are empty where a file has no end.
    ``headers`` are the facts about the two runs that differ, and decide nothing.
    """

    contract: tuple[FieldDifference, ...] = ()
    compared: int = 0
    steps: int = 0
    missing: tuple[int, ...] = ()
    surplus: tuple[int, ...] = ()
    unfinished: tuple[int, ...] = ()
    divergences: tuple[Divergence, ...] = ()
    tolerance: str = "exact"
    run_roots: tuple[bytes, bytes] = (b"", b"")
    headers: Mapping[str, tuple[str, str]] = attrs.field(factory=dict[str, tuple[str, str]])

    @property
    def equal(self) -> bool:
        """Whether nothing differs past the tolerance, and both sides have the same episodes under one contract."""
        past = [divergence for divergence in self.divergences if divergence.beyond is not None]
        return not (self.contract or self.missing or self.surplus or past)
