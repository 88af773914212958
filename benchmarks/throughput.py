"""Claim: with nothing else to do, the engine drives a real server faster than the server's own driver."""

from benchmarks.jobs import ServerPlan
from benchmarks.races import Race

__all__ = ("RACES",)

RACES = (
    Race("box4 single tcp", 2.0, ServerPlan(), episodes=10),
    Race("box4 single unix", 2.3, ServerPlan(unix=True), episodes=10),
    Race("box4 16 lanes tcp", 1.5, ServerPlan("lanes", 16), episodes=48),
    Race("box4 16 lanes unix", 1.4, ServerPlan("lanes", 16, unix=True), episodes=48),
    Race("box4 64 lanes tcp", 1.4, ServerPlan("lanes", 64), episodes=64),
    Race("box4 64 lanes unix", 1.3, ServerPlan("lanes", 64, unix=True), episodes=64),
    Race("box4 vector 16 tcp", 2.9, ServerPlan("vector", 16), episodes=96),
    Race("box4 vector 16 unix", 2.2, ServerPlan("vector", 16, unix=True), episodes=96),
    Race("box4 vector 64 tcp", 2.7, ServerPlan("vector", 64), episodes=256),
    Race("box4 vector 64 unix", 2.2, ServerPlan("vector", 64, unix=True), episodes=256),
)
