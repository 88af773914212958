"""How far apart two values may be and still count as the same.

A tolerance is for the floats of observations, actions, rewards and infos, whole numbers of a Box only where their leaf
is named. Flags, step counts, seeds, texts and discrete leaves are always exact, and so are NaN and the infinities.
"""

import math
import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

import attrs
import numpy as np
import numpy.typing as npt

from rlmesh_trio.errors import InvalidSpec
from rlmesh_trio.replay.names import full_name
from rlmesh_trio.spaces.bits import ulps_apart
from rlmesh_trio.spaces.leaf_values import covers

__all__ = ("EXACT", "Allowance", "Tolerance", "parse_tolerance")

_ITEM: Final = re.compile(r'(?:[^\s;"]|"(?:\\.|[^"\\])*")+')
_OF_LEAF: Final = re.compile(r"leaf:(?P<path>.+?)=(?P<rest>exact|(?:ulp|abs|rel)=.*)", re.DOTALL)
_NUMBERS: Final = ("abs", "rel")

_Array = npt.NDArray[Any]


@attrs.frozen
class Allowance:
    """Two numbers are the same within ``ulps``, or within the larger of ``absolute`` and ``relative`` times theirs.

    The magnitude that ``relative`` goes by is the larger of the two. All are 0 for exact.
    """

    ulps: int = 0
    absolute: float = 0.0
    relative: float = 0.0

    @property
    def is_exact(self) -> bool:
        """Whether it allows nothing."""
        return self == EXACT

    def admits(self, a: _Array, b: _Array) -> npt.NDArray[np.bool_]:
        """Which elements of two arrays of one shape and dtype, floats or whole numbers, are close enough."""
        if self.is_exact or a.dtype.kind not in "iuf":
            return np.zeros(a.shape, np.bool_)
        if a.dtype.kind == "f" and self.ulps:
            return np.asarray(np.isfinite(a) & np.isfinite(b) & (ulps_apart(a, b) <= self.ulps))
        first, second = (array.astype(np.longdouble) for array in (a, b))
        with np.errstate(invalid="ignore"):
            apart = np.abs(first - second)
            allowed = np.maximum(self.absolute, self.relative * np.maximum(np.abs(first), np.abs(second)))
            return np.asarray(np.isfinite(first) & np.isfinite(second) & (apart <= allowed))

    def __str__(self) -> str:
        if self.ulps:
            return f"ulp={self.ulps}"
        given = zip(_NUMBERS, (self.absolute, self.relative), strict=True)
        return ",".join([f"{name}={number!r}" for name, number in given if number]) or "exact"


EXACT: Final = Allowance()


@attrs.frozen
class Tolerance:
    """What is allowed in general, and by name of leaf; of two names that cover a leaf the longer one counts.

    ``str`` gives the text that :func:`parse_tolerance` reads.
    """

    default: Allowance = EXACT
    leaves: Mapping[str, Allowance] = attrs.field(factory=dict[str, Allowance])

    @property
    def is_exact(self) -> bool:
        """Whether nothing is allowed anywhere."""
        return self.default.is_exact and all(allowed.is_exact for allowed in self.leaves.values())

    def of(self, path: str, *, whole: bool = False) -> Allowance:
        """What is allowed for *path*, a leaf of floats, or of *whole* numbers."""
        named = [name for name in self.leaves if covers(name, path)]
        if named:
            return self.leaves[max(named, key=len)]
        return EXACT if whole else self.default

    def __str__(self) -> str:
        told = [] if self.default.is_exact and self.leaves else [str(self.default)]
        return " ".join([*told, *(f"leaf:{name}={allowed}" for name, allowed in self.leaves.items())])


def parse_tolerance(texts: Sequence[str]) -> Tolerance:
    """Read ``exact``, ``ulp=N``, ``abs=X,rel=Y`` (or one of the two) and ``leaf:PATH=…`` with one of these.

    Each text may hold several, with spaces or semicolons between. None at all is exact. Raises :exc:`InvalidSpec`.
    """
    default: Allowance | None = None
    leaves: dict[str, Allowance] = {}
    for text in texts:
        for item in _items(text):
            of_leaf = _OF_LEAF.fullmatch(item)
            name = "" if of_leaf is None else full_name(of_leaf["path"])
            allowed = _allowance(item if of_leaf is None else of_leaf["rest"], item)
            if name in leaves or (default is not None and not name):
                raise InvalidSpec(f"the tolerance {f'of {name}' if name else 'in general'} is given twice")
            if name:
                leaves[name] = allowed
            else:
                default = allowed
    return Tolerance(default or EXACT, leaves)


def _items(text: str) -> list[str]:
    items = _ITEM.findall(text)
    if _ITEM.sub("", text).strip("; \t\n"):
        raise InvalidSpec(f"in the tolerance {text!r} a quotation mark is left open")
    return items


def _allowance(text: str, item: str) -> Allowance:
    if text == "exact":
        return EXACT
    given = [part.partition("=") for part in text.split(",")]
    names = [name for name, _, _ in given]
    try:
        if names == ["ulp"] and (ulps := int(given[0][2])) >= 0:
            return Allowance(ulps)
        if names and set(names) <= set(_NUMBERS) and len(set(names)) == len(names):
            numbers = {name: float(number) for name, _, number in given}
            if all(0 <= number < math.inf for number in numbers.values()):
                return Allowance(0, numbers.get("abs", 0.0), numbers.get("rel", 0.0))
    except ValueError:
        pass
    raise InvalidSpec(f"a tolerance is exact, ulp=N, abs=X,rel=Y or leaf:PATH=…, no number negative, not {item!r}")
