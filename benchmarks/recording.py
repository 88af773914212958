"""Claim: a recorded run is less than a tenth slower. We race ourselves: with a recording against without one."""

from benchmarks.jobs import ServerPlan
from benchmarks.races import Race

__all__ = ("RACES",)

RACES = (
    Race("recording 16 lanes tcp", 0.9, ServerPlan("lanes", 16), episodes=48, mode="record digest", rival="run"),
    Race("recording full 16 lanes tcp", 0.85, ServerPlan("lanes", 16), episodes=48, mode="record full", rival="run"),
)
