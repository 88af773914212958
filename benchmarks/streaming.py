"""Claim: events can be followed one by one at nearly full speed; the peer hands out steps one at a time as well."""

from benchmarks.jobs import ServerPlan
from benchmarks.races import Race

__all__ = ("RACES",)

RACES = (Race("streaming single tcp", 8.0, ServerPlan(), episodes=3, mode="stream"),)
