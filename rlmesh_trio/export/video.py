"""Frames into MP4 files, episode after episode, by PyAV."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final, Literal

import numpy as np
import numpy.typing as npt

from rlmesh_trio.observers.extras import load_extra

__all__ = ("Film", "VideoKind", "video_facts")

VideoKind = Literal["exact", "small", "none"]

_CODECS: Final[dict[VideoKind, tuple[str, str, str]]] = {
    "exact": ("libx264rgb", "rgb24", "0"),
    "small": ("libx264", "yuv420p", "30"),
}
"""By kind the encoder, the pixel format and the quality: H.264 without loss, or small and for any player."""

_KEY_FRAME_EVERY: Final = 2


class Film:
    """One MP4 file under way, of *fps* frames a second; ``size`` is how many bytes its frames take so far.

    Frames are ``(height, width, 3)`` of ``uint8``; those of a ``small`` one must have even sides.
    """

    def __init__(self, path: Path, *, fps: int, height: int, width: int, kind: VideoKind) -> None:
        av = load_extra("av", extra="lerobot", wanted_by="an export to LeRobot")
        codec, pixels, quality = _CODECS[kind]
        self.frames = 0
        self.size = 0
        path.parent.mkdir(parents=True, exist_ok=True)
        self._make = av.VideoFrame.from_ndarray
        self._file = av.open(os.fspath(path), "w")
        options = {"crf": quality, "g": str(_KEY_FRAME_EVERY), "bf": "0", "preset": "veryfast"}
        self._stream: Any = self._file.add_stream(codec, rate=fps, options=options)
        self._stream.height, self._stream.width, self._stream.pix_fmt = height, width, pixels

    def add(self, frame: npt.NDArray[np.uint8]) -> None:
        """Append one frame."""
        image = self._make(np.ascontiguousarray(frame), format="rgb24")
        image.pts = self.frames
        self.frames += 1
        self._write(image)

    def close(self) -> None:
        """Write what is left, and the file's end."""
        self._write(None)
        self._file.close()

    def _write(self, image: Any) -> None:
        for packet in self._stream.encode(image):
            self.size += packet.size
            self._file.mux(packet)


def video_facts(kind: VideoKind, fps: int, shape: Sequence[int]) -> dict[str, Any]:
    """What a LeRobot data set tells of the videos of a camera whose frames have this *shape*."""
    height, width, channels = shape
    return {
        "video.height": height,
        "video.width": width,
        "video.channels": channels,
        "video.codec": "h264",
        "video.pix_fmt": "gbrp" if kind == "exact" else "yuv420p",
        "video.is_depth_map": False,
        "video.fps": fps,
        "has_audio": False,
    }
