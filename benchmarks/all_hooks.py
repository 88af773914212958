"""Claim: listening to everything costs little. Every hook is overridden, on both sides, and does next to nothing.

The last case races ourselves: hooks, telemetry and a journal together may cost a fifth of the speed of a silent run.
"""

from benchmarks.jobs import ServerPlan
from benchmarks.races import Race

__all__ = ("RACES",)

RACES = (
    Race("hooks single tcp", 3.0, ServerPlan(), episodes=8, mode="hooks"),
    Race("hooks 16 lanes tcp", 3.3, ServerPlan("lanes", 16), episodes=32, mode="hooks"),
    Race("hooks 64 lanes tcp", 3.8, ServerPlan("lanes", 64), episodes=64, mode="hooks"),
    Race("hooks vector 64 tcp", 4.0, ServerPlan("vector", 64), episodes=192, mode="hooks"),
    Race("all heard 16 lanes tcp", 0.8, ServerPlan("lanes", 16), episodes=32, mode="journal", rival="run"),
)
