"""What the package offers to tests: endpoints whose every answer is known beforehand."""

from .scripted import (
    BYTE_SPACE,
    EchoEnv,
    LaneScript,
    ScriptedEnv,
    ScriptedModel,
    contract,
    lane_spec,
    one,
    space_of,
    vector_spec,
)

__all__ = (
    "BYTE_SPACE",
    "EchoEnv",
    "LaneScript",
    "ScriptedEnv",
    "ScriptedModel",
    "contract",
    "lane_spec",
    "one",
    "space_of",
    "vector_spec",
)
