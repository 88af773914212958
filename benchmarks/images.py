"""Claim: image observations over TCP do not wait for delayed acknowledgements."""

from benchmarks.jobs import ServerPlan
from benchmarks.races import Race

__all__ = ("RACES",)

RACES = (
    Race("84x84x3 single tcp", 65.0, ServerPlan(observation="img84", length=100), episodes=2),
    Race("84x84x3 16 lanes tcp", 1.35, ServerPlan("lanes", 16, "img84", length=200), episodes=16),
    Race("224x224x3 single tcp", 7.5, ServerPlan(observation="img224", length=100), episodes=2),
    Race("224x224x3 16 lanes tcp", 1.1, ServerPlan("lanes", 16, "img224", length=50), episodes=16),
)
