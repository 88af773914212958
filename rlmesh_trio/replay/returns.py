"""Two recordings compared by the returns and lengths of their episodes alone, for peers that are random by nature.

Episodes are paired by ordinal, and only pairs that were finished on both sides count. The test is the sign test: if the
two were alike, each pair that is no tie would be higher on either side with equal chances.
"""

import math
from collections.abc import Collection, Sequence

import attrs

from rlmesh_trio.recording import Recording

__all__ = ("ReturnsCompared", "SignTest", "compare_returns")

_UNLIKELY = 0.01
_FINISHED = ("terminated", "truncated", "capped")


@attrs.frozen(kw_only=True)
class SignTest:
    """Paired numbers: their means (recorded, now) and how many are higher, lower and equal now.

    ``p_value`` is the exact two-sided probability of such an imbalance, or a larger one, by chance; ``difference`` is
    the mean of now minus recorded. Without pairs the means are NaN, and with no more than ties ``p_value`` is 1. A pair
    with a NaN is in no count but in the means.
    """

    means: tuple[float, float]
    difference: float
    higher: int
    lower: int
    equal: int
    p_value: float


@attrs.frozen(kw_only=True)
class ReturnsCompared:
    """``pairs`` finished episodes of two recordings; of the ordinals ``left_out`` a side has no finished one."""

    pairs: int
    left_out: tuple[int, ...]
    returns: SignTest
    lengths: SignTest

    @property
    def differs(self) -> bool:
        """Whether returns or lengths differ by more than chance: either test has a ``p_value`` below 0.01."""
        return min(self.returns.p_value, self.lengths.p_value) < _UNLIKELY


def compare_returns(recorded: Recording, now: Recording, *, episodes: Collection[int] | None = None) -> ReturnsCompared:
    """Compare returns and lengths of all episodes, or of the *episodes* of these ordinals. Ticks are not decoded.

    Raises :exc:`~rlmesh_trio.recording.RecordingError` where a file is damaged.
    """
    sides = recorded, now
    ordinals = sorted(
        {ordinal for side in sides for ordinal in side.entries if episodes is None or ordinal in episodes}
    )
    paired = [ordinal for ordinal in ordinals if all(_is_finished(side, ordinal) for side in sides)]
    before, after = ([side.episode(ordinal) for ordinal in paired] for side in sides)
    return ReturnsCompared(
        pairs=len(paired),
        left_out=tuple(sorted(set(ordinals) - set(paired))),
        returns=_sign_test(*([episode.cumulative_reward for episode in side] for side in (before, after))),
        lengths=_sign_test(*([float(episode.steps) for episode in side] for side in (before, after))),
    )


def _is_finished(recording: Recording, ordinal: int) -> bool:
    entry = recording.entries.get(ordinal)
    return entry is not None and entry.end in _FINISHED


def _sign_test(recorded: Sequence[float], now: Sequence[float]) -> SignTest:
    pairs = list(zip(recorded, now, strict=True))
    higher, lower = (sum(test) for test in ([b > a for a, b in pairs], [b < a for a, b in pairs]))
    return SignTest(
        means=(_mean(recorded), _mean(now)),
        difference=_mean([b - a for a, b in pairs]),
        higher=higher,
        lower=lower,
        equal=sum(a == b for a, b in pairs),
        p_value=_two_sided(higher, lower),
    )


def _mean(values: Sequence[float]) -> float:
    try:
        return math.fsum(values) / len(values) if values else math.nan
    except (OverflowError, ValueError):  # Infinities of both signs, or a sum beyond what a float holds.
        return math.nan


def _two_sided(higher: int, lower: int) -> float:
    """How likely coins that fall *higher* + *lower* times show one side no more often than the rarer of the two."""
    throws = higher + lower
    ways = tail = 1
    for count in range(min(higher, lower)):
        ways = ways * (throws - count) // (count + 1)
        tail += ways
    return min(1.0, 2 * tail / 2**throws)
