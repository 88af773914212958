"""One picture as a PNG file: 8 bits a channel, no filter, so that it needs nothing but zlib."""

import zlib
from struct import pack
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

__all__ = ("png_bytes",)

_COLOR_TYPES = {1: 0, 2: 4, 3: 2, 4: 6}
_QUICK = 1


def png_bytes(picture: object) -> bytes | None:
    """*picture*, a uint8 array of shape (height, width) or (height, width, 1 to 4); ``None`` when it is no such."""
    if not isinstance(picture, np.ndarray):
        return None
    pixels = cast("NDArray[Any]", picture)
    if pixels.ndim == 2:
        pixels = pixels[..., np.newaxis]
    if pixels.dtype != np.uint8 or pixels.ndim != 3 or pixels.shape[2] not in _COLOR_TYPES or not pixels.size:
        return None
    height, width, channels = pixels.shape
    lines = np.zeros((height, 1 + width * channels), np.uint8)
    lines[:, 1:] = pixels.reshape(height, -1)
    header = pack(">IIBBBBB", width, height, 8, _COLOR_TYPES[channels], 0, 0, 0)
    data = zlib.compress(lines.tobytes(), _QUICK)
    return b"\x89PNG\r\n\x1a\n" + _chunk(b"IHDR", header) + _chunk(b"IDAT", data) + _chunk(b"IEND", b"")


def _chunk(kind: bytes, data: bytes) -> bytes:
    return pack(">I", len(data)) + kind + data + pack(">I", zlib.crc32(kind + data))
