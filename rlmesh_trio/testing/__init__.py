"""For tests of code built on this package: scripted endpoints, fault plans and recording hooks.

Nothing here opens a socket or reads a clock of its own, so a test under ``trio.testing.MockClock`` is repeatable and
takes no time.
"""

from rlmesh_trio.testing.faults import Action, Delay, Fail, Fault, Gate, Hang, Wrong
from rlmesh_trio.testing.recording import EpisodeNumbers, RecordingHooks, events_of, numbered
from rlmesh_trio.testing.scripted import EchoEnv, LaneScript, ScriptedEnv, ScriptedModel

__all__ = (
    "Action",
    "Delay",
    "EchoEnv",
    "EpisodeNumbers",
    "Fail",
    "Fault",
    "Gate",
    "Hang",
    "LaneScript",
    "RecordingHooks",
    "ScriptedEnv",
    "ScriptedModel",
    "Wrong",
    "events_of",
    "numbered",
)
