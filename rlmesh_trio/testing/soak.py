"""Simulated worlds without end: ``python -m rlmesh_trio.testing.soak --seconds 600``.

Plays seed after seed and stops at the first whose world breaks a promise; its seed and the commit are all it takes to
see that again. Exits with 0 when time is up, and with 1 at a broken promise.
"""

import argparse
import sys
import time
from collections import Counter
from collections.abc import Sequence
from typing import Final, TextIO

from rlmesh_trio.testing.schedule import TookTooLong, real_time_limit
from rlmesh_trio.testing.world import World
from rlmesh_trio.testing.world_checks import violations
from rlmesh_trio.testing.world_facts import signature

__all__ = ("main", "soak")

_REPORT_EVERY: Final = 10.0
_REAL_LIMIT: Final = 120.0


def soak(start: int, seconds: float, out: TextIO) -> int | None:
    """Play the worlds from seed *start* on for *seconds*, telling *out* of it; the seed that failed, if one did."""
    begun = told = time.monotonic()
    outcomes: Counter[str] = Counter()
    seed = start
    while (now := time.monotonic()) - begun < seconds:
        try:
            with real_time_limit(_REAL_LIMIT):
                outcome = World.from_seed(seed).run()
            broken = violations(outcome)
        except TookTooLong as late:
            outcome, broken = None, [f"it does not end: {late}"]
        if broken:
            _tell(out, seed, broken)
            return seed
        outcomes[signature(outcome.error).partition(" ")[0] if outcome is not None else ""] += 1
        seed += 1
        if now - told >= _REPORT_EVERY:
            told = now
            print(f"{now - begun:6.0f} s  seeds {start} to {seed - 1}  {_shares(outcomes)}", file=out, flush=True)
    print(f"seeds {start} to {seed - 1} kept every promise: {_shares(outcomes)}", file=out, flush=True)
    return None


def _tell(out: TextIO, seed: int, broken: Sequence[str]) -> None:
    print(f"World.from_seed({seed}) broke its promises:", file=out)
    for text in broken:
        print(f"  {text}", file=out)
    print(f"as an expression: {World.from_seed(seed)!r}", file=out, flush=True)


def _shares(outcomes: Counter[str]) -> str:
    return ", ".join(f"{count} {name}" for name, count in outcomes.most_common())


def main(arguments: Sequence[str] | None = None) -> int:
    """The command; *arguments* instead of the program's own."""
    parser = argparse.ArgumentParser(
        prog="python -m rlmesh_trio.testing.soak", description=(__doc__ or "").split("\n")[0]
    )
    parser.add_argument("--seconds", type=float, default=600.0, help="how long to go on (default: %(default)s)")
    parser.add_argument("--start", type=int, default=0, help="the first seed (default: %(default)s)")
    given = parser.parse_args(arguments)
    return 0 if soak(given.start, given.seconds, sys.stdout) is None else 1


if __name__ == "__main__":
    sys.exit(main())
