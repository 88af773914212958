"""Envs and servers with one fault each of the check ``render.frame``, and odd ones without a fault."""

import struct
from typing import Any

import attrs
import numpy as np

from rlmesh_trio.wire.pb.rlmesh.core import v1 as core
from rlmesh_trio.wire.pb.rlmesh.env import v1 as pb
from rlmesh_trio.wire.strict import present
from tests.conformance.planted.contract import Handshaker
from tests.conformance.planted.space import Slide


class Pictured(Slide):
    """Draws where it is: ``mode`` is its render mode."""

    mode: str | None = "rgb_array"

    def __init__(self) -> None:
        super().__init__()
        self.render_mode = self.mode

    def render(self) -> Any:
        return np.full((4, 6, 3), self.t, np.uint8)


class Unpictured(Pictured):
    """Has nothing to show once it has moved."""

    def render(self) -> Any:
        return super().render() if not self.t else None


class DrawsFloats(Pictured):
    """Draws with numbers that are no bytes."""

    def render(self) -> Any:
        return np.zeros((4, 6, 3))


class CannotDraw(Pictured):
    """Has no pencil."""

    def render(self) -> Any:
        raise RuntimeError("no pencil")


class Grows(Pictured):
    """Draws larger pictures each step."""

    def render(self) -> Any:
        return np.zeros((4 + self.t, 6, 3), np.uint8)


class Unasked(Pictured):
    """Would draw, but has no render mode."""

    mode = None


class ForPeople(Pictured):
    """Shows pictures to people, and returns none."""

    mode = "human"

    def render(self) -> Any:
        return None


class Gray(Pictured):
    """Draws without colors."""

    def render(self) -> Any:
        return np.full((1, 1), self.t, np.uint8)


def rgb(contract: core.EnvContract) -> None:
    """Declare pictures."""
    contract.render_mode = "rgb_array"


@attrs.define(eq=False)
class Painter(Handshaker):
    """A server that answers renders with *frame*, whatever its contract says."""

    frame: bytes = b""

    async def _perform(self, request: pb.JoinRequest) -> pb.JoinResponse | None:
        if request.is_set("render"):
            return pb.JoinResponse(render=present(pb.RenderResponse(frame=self.frame)))
        return await super()._perform(request)


PNG = b"\x89PNG\r\n\x1a\n" + struct.pack(">I4sII", 13, b"IHDR", 3, 2)
JPEG = b"\xff\xd8\xff\xe0" + bytes(40)
EMPTY = b"\x89PNG\r\n\x1a\n" + struct.pack(">I4sII", 13, b"IHDR", 0, 2)
