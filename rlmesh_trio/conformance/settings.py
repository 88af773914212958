"""How a conformance run is set: what is tested, how long, and what is forgiven."""

import fnmatch
import hashlib
import secrets
from typing import Any, Literal, Self

import attrs

__all__ = ("DEEP", "DEFAULT", "QUICK", "SHRINKING", "Settings")

QUICK = 9.0
"""A run of the program shall be over in ten seconds, all told."""
DEFAULT = 60.0
DEEP = 900.0
SHRINKING = 20.0
_SECONDS_AN_EXAMPLE = 3.0
_FEWEST_EXAMPLES = 3


@attrs.frozen(kw_only=True)
class Settings:
    """Everything a run goes by; the defaults are those of the command line.

    ``only`` and ``skip`` hold families (``seed``), ids or patterns (``lanes.*``). ``time`` is the budget of one target
    in seconds, shrinking included; ``examples`` how many cases a check is tried on, whichever comes first, by default
    one for every three seconds of ``time``. ``seed`` decides every case; ``None`` draws one. ``max_fail`` ends the run
    after so many failures. ``shrink_time`` is what one failure may take of the budget to become small.

    ``strict`` counts a failed should, ``strict_server`` a fault that is known of the server's package. ``token`` is
    sent to servers. ``lanes`` is the width of a target that is started here. ``nondeterministic``, ``ignored_leaves``
    (as ``obs.camera``), ``ignored_infos`` and ``ulps`` say what two runs need not agree in. ``max_steps`` declares a
    time limit, ``options`` are sent with every reset. ``bounds`` is what an observation out of its declared bounds is.
    ``step_timeout`` bounds one operation. ``database`` is the directory of found cases; without one they are kept where
    hypothesis' profile says, and with a given ``seed`` not at all, so that the run can be repeated. ``seed_drawn`` is
    set by :meth:`seeded`.
    """

    only: tuple[str, ...] = ()
    skip: tuple[str, ...] = ()
    time: float = DEFAULT
    examples: int | None = None
    seed: int | None = None
    max_fail: int | None = None
    shrink: bool = True
    shrink_time: float = SHRINKING
    strict: bool = False
    strict_server: bool = False
    token: str | None = attrs.field(default=None, repr=False)
    lanes: int | None = None
    nondeterministic: bool = False
    ignored_leaves: tuple[str, ...] = ()
    ignored_infos: tuple[str, ...] = ()
    ulps: int = 0
    max_steps: int | None = None
    options: tuple[tuple[str, Any], ...] = ()
    allow_shutdown: bool = False
    bounds: Literal["fail", "warn"] = "fail"
    step_timeout: float = 10.0
    database: str | None = None
    seed_drawn: bool = False

    def selects(self, check: str) -> bool:
        """Whether the check of this id is to be run."""
        return (not self.only or _matches(check, self.only)) and not self.skips(check)

    def skips(self, check: str) -> bool:
        """Whether the check of this id is to be left out, even where others rest on it."""
        return _matches(check, self.skip)

    def seed_of(self, name: str) -> int:
        """The seed of the part *name* of the run."""
        return int.from_bytes(hashlib.sha256(f"{self.seed or 0}:{name}".encode()).digest()[:8], "big")

    @property
    def examples_each(self) -> int:
        """How many cases each check is tried on at most."""
        return self.examples or max(_FEWEST_EXAMPLES, round(self.time / _SECONDS_AN_EXAMPLE))

    def seeded(self) -> Self:
        """These settings with a seed, drawn if there is none."""
        return self if self.seed is not None else attrs.evolve(self, seed=secrets.randbits(32), seed_drawn=True)


def _matches(check: str, patterns: tuple[str, ...]) -> bool:
    family = check.partition(".")[0]
    return any(pattern == family or fnmatch.fnmatchcase(check, pattern) for pattern in patterns)
