"""What a divergence looks like, which often says what is behind it. Pure.

The first rule that fits decides. It is asked of the first step at which anything but infos differs:

1. there is none: *info only*;
2. nothing but flags (and infos) differs there, or one side just ends: *flags only*;
3. every number that differs there is a rounding error: *growing from one ulp*;
4. it is the reset: *from the first observation*;
5. it is the first step: *state kept over reset*, the env's, or the model's where the action differs;
6. else: *sudden*.

A rounding error is at most :data:`FEW_ULPS` floats away from its counterpart, or at most as many ulps of the largest
number in its leaf: where two large numbers cancel out, the small one that is left has few digits in common. The ulps of
a float64 are taken as float32's, in which it may have been computed. What is no float is no rounding error.

Without values rule 3 goes by rewards and actions alone, and says nothing where these are equal; so the rules after it
may then be wrong, which :func:`shape_sentence` tells.
"""

import math
from typing import Final

import numpy as np

from rlmesh_trio.replay.findings import Divergence, LeafDifference, Shape, StepDifference

__all__ = ("FEW_ULPS", "is_rounding", "shape_of", "shape_sentence")

FEW_ULPS: Final = 64

_FLOAT16_BITS: Final = len("0x0000")
_GROWN: Final = 8

_MEANINGS: Final[dict[Shape, str]] = {
    "from the first observation": "differs from the first observation on: another seed, or another version of the env",
    "state kept over reset": "the reset is equal and the first step is not: state is kept over the reset",
    "sudden": "sudden and large: a random draw too many or too few",
    "info only": "only infos differ: all that the env does is equal",
    "flags only": "only flags differ: it is decided otherwise when an episode ends",
}

_UNSEEN: Final[dict[Shape, str]] = {
    "from the first observation": "differs from the first observation on: another seed, another version, or arithmetic",
    "state kept over reset": "the reset is equal and the first step is not: state kept over the reset, or arithmetic",
    "sudden": "equal up to here: arithmetic, or a random draw too many or too few",
}


def is_rounding(leaf: LeafDifference) -> bool:
    """Whether all that differs in *leaf* may have come about by rounding."""
    return _ulps(leaf) <= FEW_ULPS


def _ulps(leaf: LeafDifference) -> float:
    """How far apart a leaf is, in ulps of its own or of the largest number in it; infinity for what is no float."""
    if leaf.ulps is None or leaf.absolute is None or leaf.scale is None:
        return math.inf
    dtype = np.float16 if len(leaf.bits[0]) == _FLOAT16_BITS else np.float32
    with np.errstate(over="ignore", invalid="ignore"):
        of_largest = leaf.absolute / float(np.spacing(dtype(leaf.scale)))
    return min(leaf.ulps, max(1, math.ceil(of_largest))) if math.isfinite(of_largest) else leaf.ulps


def shape_of(main: StepDifference | None) -> Shape:
    """The shape of a divergence; *main* is its first step at which anything but infos differs."""
    if main is None:
        return "info only"
    leaves = [leaf for leaf in main.leaves if leaf.part != "info"]
    if all(leaf.part in ("flag", "length") for leaf in leaves):
        return "flags only"
    known = [leaf for leaf in leaves if leaf.values is not None and leaf.part != "flag"]
    if known and all(is_rounding(leaf) for leaf in known):
        return "growing from one ulp"
    if main.step == 0:
        return "from the first observation"
    return "state kept over reset" if main.step == 1 else "sudden"


def shape_sentence(divergence: Divergence) -> str:
    """What the shape of *divergence* says, for people."""
    first, shape = divergence.first, divergence.shape
    parts = {leaf.part for leaf in first.leaves}
    if shape == "growing from one ulp":
        return _growth(divergence)
    if "error" in parts:
        return "one side answers with an error"
    if "length" in parts:
        return "equal up to where one side ends"
    if "seed" in parts:
        return "the two were reset with other seeds or options"
    if shape in ("info only", "flags only"):
        return _MEANINGS[shape]
    if parts <= {"reward", "info"}:
        return "only the reward differs: it is worked out otherwise from an equal state"
    if "action" in parts:
        return f"the model's action differs, on equal observations: {_of_model(shape)}"
    return _MEANINGS[shape] if divergence.values_known else f"{_UNSEEN[shape]}; only level full tells"


def _of_model(shape: Shape) -> str:
    return (
        "its seed, its version, or state kept over reset"
        if shape == "state kept over reset"
        else "a random draw too many or too few, or the other rows of its batch"
    )


def _growth(divergence: Divergence) -> str:
    start = _furthest(divergence.first)
    after = max(map(_furthest, divergence.later), default=0)
    begins = "one ulp" if start == 1 else "a few ulp"
    grows = "and grows" if after > start * _GROWN else "and stays small" if divergence.later else "at the end"
    whose = "the model's " if any(leaf.part == "action" for leaf in divergence.first.leaves) else ""
    return f"starts at {begins} {grows}: {whose}arithmetic (threads, BLAS, CPU), not a seed that was lost"


def _furthest(step: StepDifference) -> float:
    return max([_ulps(leaf) for leaf in step.leaves if leaf.part != "info"], default=0)
